"""Ladders over their whole length: each attempt at its second, then a dead letter."""

from __future__ import annotations

from itertools import accumulate

import pytest

from chalicelib.console.pages.message import next_attempts_ms
from chalicelib.domain.ladder import NAMED, Retry
from chalicelib.domain.times import SECOND_MS
from chalicelib.services.inspect.letter_lookup import DeadLetterFilter
from tests.support import factories as make
from tests.support.push import PushDesk, fails
from tests.support.stages import Stage, embedded_stage

NEVER = 1_000_000


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
@pytest.mark.parametrize("name", sorted(NAMED))
def test_i9_every_named_ladder_is_climbed_to_the_second_and_ends_in_a_dead_letter(
    name: str, mode: str
) -> None:
    climb(embedded_stage(), Retry(len(NAMED[name]) + 1, name, jitter=0), NAMED[name], mode)


def test_i9_the_last_step_repeats_until_the_attempts_are_used_up() -> None:
    waits = (*NAMED["rocketmq"], 7_200, 7_200, 7_200)
    climb(embedded_stage(), Retry(len(waits) + 1, "rocketmq", jitter=0), waits, "queue")


def test_i9_a_ladder_is_climbed_alike_on_each_store(stage: Stage) -> None:
    climb(stage, Retry(4, "fixed-30", jitter=0), (30, 30, 30), "queue")


def climb(stage: Stage, retry: Retry, waits: tuple[int, ...], mode: str) -> None:
    """A message that always fails is tried at these distances, and is dead then."""
    desk = PushDesk.at(stage)
    group = desk.group(mode=mode, retry=retry)
    desk.subscriber(group, "down", behaviour=fails(NEVER))
    began_ms = stage.clock.now_ms()
    (result,) = desk.produce(make.draft())
    desk.push()
    desk.pass_time(sum(waits) + 60)
    seconds = [(call.at_ms - began_ms) / SECOND_MS for call in desk.subscribers.calls]
    assert seconds == list(accumulate(waits, initial=0))
    assert desk.subscribers.numbers() == {result.id: list(range(1, retry.max_attempts + 1))}
    ((_, letter),) = desk.deps.adapters.records.dead(desk.topic, group, None, 10)
    assert (letter.message.id, letter.attempts) == (result.id, retry.max_attempts)
    desk.pass_time(60)
    assert len(desk.subscribers.calls) == retry.max_attempts


@pytest.mark.parametrize("mode", ["queue", "serial"])
@pytest.mark.parametrize("is_redriven", [False, True])
def test_the_attempts_to_come_are_shown_at_the_times_at_which_they_are_made(
    mode: str, is_redriven: bool
) -> None:
    desk = PushDesk.at(embedded_stage(), mode=mode, retry=Retry(4, (10, 60, 300), jitter=0))
    group = desk.group()
    desk.subscriber(group, "down", behaviour=fails(9))
    (result,) = desk.produce(make.draft())
    desk.push()
    if is_redriven:
        desk.pass_time(600)
        assert desk.deps.dead_letters.redrive_matching(desk.topic, group, DeadLetterFilter(), 1)[0] == 1
        desk.push()
    call_count = len(desk.subscribers.calls)
    message = desk.deps.lookup.message(desk.topic, result.id)
    status = desk.deps.statuses.deliveries(desk.topic, message)[group.name]
    moments = next_attempts_ms(desk.topic, group, message, status)
    assert len(moments) == 3
    desk.pass_time(600)
    assert moments == [call.at_ms for call in desk.subscribers.calls[call_count:]]
