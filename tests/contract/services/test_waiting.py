"""A waiting message is changed, hurried and cancelled: also by several at once, each of which sees it in some order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from chalicelib.domain.errors import ChangedMeanwhile, Conflict, NotFound, TooLarge
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.message import Message
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.store.timers import Timers
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.desk import Desk
from tests.support.stages import Stage
from tests.support.troubled import Interrupted

DUE_MS = START_MS + 10 * DAY_MS
RETENTION_DAYS = 2


class Table:
    """A topic, and one message that waits for its time in it."""

    def __init__(self, stage: Stage, **settings: Any) -> None:
        self.stage = stage
        self.desk = Desk.at(stage, retention_days=RETENTION_DAYS)
        self.deps, self.topic = self.desk.deps, self.desk.topic
        (result,) = self.desk.produce(make.draft("x", due_ms=DUE_MS, **settings))
        self.id = result.id

    def find(self) -> DelayedMessage | Message | None:
        try:
            message = self.stage.process().lookup.find(self.topic, self.id)
        except NotFound:
            return None
        assert isinstance(message, DelayedMessage | Message)
        return message

    def waiting(self) -> DelayedMessage:
        message = self.find()
        assert isinstance(message, DelayedMessage)
        return message

    def amend(self, **changes: Any) -> DelayedMessage:
        return self.deps.delayed.amend(self.topic, self.waiting(), changes)

    def at(self, at_ms: int) -> DelayedMessage | Message | None:
        """What is found at this moment, when all has gone that may go."""
        self.stage.clock.at_ms = at_ms
        self.deps.mover.run_once()
        self.stage.drop_expired()
        return self.find()


def test_a_hurried_message_is_found_by_its_id_until_it_goes(stage: Stage) -> None:
    """Its new time may be past; then the time of the hurrying counts."""
    table = Table(stage)
    stage.clock.advance(5 * DAY_MS)
    table.amend(due_ms=stage.clock.now_ms() - DAY_MS)
    assert isinstance(table.at(stage.clock.now_ms()), Message)
    assert isinstance(table.at(stage.clock.now_ms() + RETENTION_DAYS * DAY_MS - SECOND_MS), Message)


def text(size: int) -> bytes:
    return b'"%s"' % (b"x" * (size - 2))


def test_another_body_is_checked_and_kept_as_the_first_one_was(stage: Stage) -> None:
    table = Table(stage)
    most = table.topic.max_body_bytes
    with pytest.raises(TooLarge):
        table.amend(body=text(most + 1))
    table.amend(body=text(most))
    draft = table.waiting().message.draft
    assert (draft.blob is not None, draft.blob_bytes, draft.body) == (True, most, b"")
    table.amend(body=text(BLOB_THRESHOLD_BYTES), blob=None, blob_bytes=0)
    draft = table.waiting().message.draft
    assert (draft.blob, len(draft.body)) == (None, BLOB_THRESHOLD_BYTES)


_MOST_CALLS = 8  # on the timers, of one operation that nobody disturbs, and more
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
        back = patch(desk, result, 600)  # to the time at which it was first, which its id tells
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
        deps = interrupted(empty_stage, [before], [mover.run_once])
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
        empty_stage.process().mover.run_once()


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
