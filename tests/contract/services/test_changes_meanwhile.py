"""A waiting message that several clients change at once: each sees it in some order, and none gets NotFound."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import pytest

from chalicelib.domain.errors import ChangedMeanwhile, Conflict
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.message import Message
from chalicelib.domain.times import SECOND_MS
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.store.timers import Timers
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.interrupted import Interrupted
from tests.support.stages import Stage

_MOST_CALLS = 8  # on the timers, of one operation without competitors, and more
Act = Callable[[Deps], object]


def interrupted(stage: Stage, before: Sequence[int], others: Sequence[Callable[[], object]]) -> Deps:
    adapters = stage.another()
    return Deps(replace(adapters, timers=cast(Timers, Interrupted(adapters.timers, before, others))))


def places(others: int) -> Iterator[tuple[int, ...]]:
    """Before which calls the others act: every way that keeps their order."""
    return itertools.combinations_with_replacement(range(_MOST_CALLS), others)


def waiting(desk: Desk, seconds: int = 600) -> ProduceResult:
    due_ms = desk.stage.clock.now_ms() + seconds * SECOND_MS
    return desk.produce(make.draft("x", due_ms=due_ms))[0]


def patch(desk: Desk, result: ProduceResult, by_seconds: int) -> Act:
    """Move the message's time, as seen from now."""

    def act(deps: Deps) -> object:
        message = deps.lookup.find(desk.topic, result.id)
        assert isinstance(message, DelayedMessage)
        due_ms = desk.stage.clock.now_ms() + by_seconds * SECOND_MS
        return deps.delayed.amend(desk.topic, message, {"due_ms": due_ms})

    return act


def cancel(desk: Desk, result: ProduceResult) -> Act:
    def act(deps: Deps) -> object:
        message = deps.lookup.find(desk.topic, result.id)
        assert isinstance(message, DelayedMessage)
        deps.delayed.cancel(desk.topic, message)
        return None

    return act


def look(desk: Desk, result: ProduceResult) -> Act:
    return lambda deps: deps.lookup.find(desk.topic, result.id)


@pytest.mark.parametrize("what", [look, cancel])
def test_who_looks_or_cancels_while_two_others_change_its_time_finds_it(
    empty_stage: Stage, what: Callable[[Desk, ProduceResult], Act]
) -> None:
    desk = Desk.at(empty_stage)
    other = empty_stage.process()
    for before in places(3):
        result = waiting(desk)
        first, second = patch(desk, result, 700), patch(desk, result, 800)
        back = patch(desk, result, 600)  # to its first time, which its id contains
        others = [lambda act=act: act(other) for act in (first, second, back)]
        what(desk, result)(interrupted(empty_stage, before, others))
        message = desk.deps.lookup.find(desk.topic, result.id)
        assert isinstance(message, DelayedMessage)
        assert message.cancelled or what is look, before


def test_of_two_changes_of_different_things_none_is_lost_whoever_comes_between(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    for before, within in itertools.product(range(2), range(2)):  # of the two calls that each has to make
        result = waiting(desk)

        def body(deps: Deps, result: ProduceResult = result) -> None:
            message = deps.lookup.find(desk.topic, result.id)
            assert isinstance(message, DelayedMessage)
            deps.delayed.amend(desk.topic, message, {"body": b'"y"'})

        third = patch(desk, result, 900)
        middle = interrupted(empty_stage, [within], [partial(third, desk.deps)])
        second = patch(desk, result, 800)
        body(interrupted(empty_stage, [before], [partial(second, middle)]))
        found_message = desk.deps.lookup.find(desk.topic, result.id)
        assert isinstance(found_message, DelayedMessage)
        assert found_message.message.draft.body == b'"y"'
        assert found_message.timer.due_ms > result.accepted_ms + 600 * SECOND_MS


def test_only_what_came_due_is_too_late(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    for before in range(_MOST_CALLS):
        result = waiting(desk, 5)
        empty_stage.clock.advance(5 * SECOND_MS)
        mover = empty_stage.process().mover
        deps = interrupted(empty_stage, [before], [partial(mover.tick, range(FRAGMENTS))])
        message = deps.lookup.find(desk.topic, result.id)
        if isinstance(message, Message):
            continue
        assert isinstance(message, DelayedMessage)
        if before < 2:
            with pytest.raises(Conflict, match="ALREADY_DUE"):
                deps.delayed.cancel(desk.topic, message)
            assert isinstance(desk.deps.lookup.find(desk.topic, result.id), Message)
        else:
            deps.delayed.cancel(desk.topic, message)
        empty_stage.process().mover.tick(range(FRAGMENTS))


def test_who_always_loses_is_told_to_try_again_and_nothing_happened(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    result = waiting(desk)
    seconds = itertools.count(601)
    other = empty_stage.process()

    def overtake() -> None:
        patch(desk, result, next(seconds))(other)

    deps = interrupted(empty_stage, range(200), [overtake] * 200)
    with pytest.raises(ChangedMeanwhile) as error:
        cancel(desk, result)(deps)
    assert error.value.retryable
    message = desk.deps.lookup.find(desk.topic, result.id)
    assert isinstance(message, DelayedMessage)
    assert not message.cancelled
