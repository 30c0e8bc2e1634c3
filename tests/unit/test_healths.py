"""A process keeps its own view of a subscriber's health, and writes only what all must know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from chalicelib.domain.breaker import Health
from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.errors import unavailable
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import Consumer, Group, Topic
from chalicelib.services.push.health import SubscriberHealth
from tests.support import factories as make
from tests.support.clock import ManualClock

TOPIC = make.topic()
GROUP = make.group(TOPIC)
FAILED = CallResult(Verdict.FAILED)
FULL = 64


@dataclass
class Registration:
    """A consumer's row."""

    held: Consumer = field(default_factory=lambda: make.consumer(GROUP, kind="url"))
    writes: int = 0
    reachable: bool = True
    disabled: list[str] = field(default_factory=list)

    def save(
        self, topic: Topic, group: Group, consumer: Consumer, health_after: Callable[[Consumer], Health]
    ) -> Consumer | None:
        if not self.reachable:
            raise unavailable("down")
        self.writes += 1
        health = health_after(self.held)
        self.held = replace(
            self.held,
            failing_ms=health.failing_ms,
            open_until_ms=health.open_until_ms,
            times_opened=health.times_opened,
            version=self.held.version + 1,
        )
        return self.held

    def disable(self, topic: Topic, group: Group, consumer: Consumer, why: str) -> None:
        self.disabled.append(why)


def subscriber_health(registration: Registration, clock: ManualClock) -> SubscriberHealth:
    return SubscriberHealth(registration.save, registration.disable, clock)


def fail(of: SubscriberHealth, clock: ManualClock, consumer: Consumer, times: int) -> None:
    for _ in range(times):
        clock.advance(1)
        of.note(TOPIC, GROUP, consumer, [FAILED], FULL, began_ms=clock.now_ms())


def test_many_outcomes_of_requests_sent_long_ago_write_the_row_twice_when_failures_begin_and_it_opens() -> (
    None
):
    registration, clock = Registration(), ManualClock()
    as_it_was_when_they_were_sent = registration.held
    fail(subscriber_health(registration, clock), clock, as_it_was_when_they_were_sent, 250)
    assert registration.writes == 2
    assert registration.held.times_opened == 1


def test_what_others_wrote_since_counts() -> None:
    registration, clock = Registration(), ManualClock()
    mine, other = subscriber_health(registration, clock), subscriber_health(registration, clock)
    fail(mine, clock, registration.held, 1)
    fail(other, clock, registration.held, 10)
    assert mine.allowance(registration.held, FULL) == 0


def test_a_row_that_cannot_be_written_now_stops_nobody_and_the_process_knows() -> None:
    registration, clock = Registration(reachable=False), ManualClock()
    of = subscriber_health(registration, clock)
    fail(of, clock, registration.held, 10)
    assert of.allowance(registration.held, FULL) == 0


def test_a_process_that_begins_thinks_well_of_who_is_not_new_and_not_said_to_fail() -> None:
    clock = ManualClock()
    answer = CallResult(Verdict.FAILED, "HTTP 500", 500, is_own_answer=True)

    def is_called_after_ten_answers(**row: Any) -> bool:
        registration = Registration(replace(make.consumer(GROUP, kind="url"), **row))
        of = subscriber_health(registration, clock)
        for _ in range(10):
            of.note(TOPIC, GROUP, registration.held, [answer], FULL, began_ms=clock.now_ms())
        return of.allowance(registration.held, FULL) > 0

    now_ms = clock.now_ms()
    assert not is_called_after_ten_answers(created_ms=now_ms)
    assert is_called_after_ten_answers(created_ms=now_ms - 60_000)
    assert not is_called_after_ten_answers(created_ms=now_ms - 60_000, failing_ms=now_ms - 1)


@pytest.mark.parametrize("verdict", [Verdict.DONE, Verdict.REFUSED])
def test_who_takes_or_refuses_one_of_several_messages_works(verdict: Verdict) -> None:
    registration, clock = Registration(), ManualClock()
    of = subscriber_health(registration, clock)
    fail(of, clock, registration.held, 1)
    assert registration.held.failing_ms is not None
    results = [FAILED, CallResult(verdict, status=200), FAILED]
    of.note(TOPIC, GROUP, registration.held, results, FULL, began_ms=clock.now_ms())
    assert registration.held.failing_ms is None


def test_who_is_gone_is_disabled_at_once_and_who_only_fails_after_days() -> None:
    registration, clock = Registration(), ManualClock()
    of = subscriber_health(registration, clock)
    fail(of, clock, registration.held, 10)
    clock.advance(2 * DAY_MS)
    fail(of, clock, registration.held, 1)
    assert registration.disabled == []
    clock.advance(30 * DAY_MS)
    fail(of, clock, registration.held, 1)
    assert registration.disabled == ["Every attempt failed for days."]
    of.note(TOPIC, GROUP, registration.held, [CallResult(Verdict.GONE)], FULL, began_ms=clock.now_ms())
    assert registration.disabled[1:] == ["It answered 410 Gone."]


def test_a_late_failure_does_not_bring_back_what_a_new_registration_has_ended() -> None:
    registration, clock = Registration(), ManualClock()
    of = subscriber_health(registration, clock)
    fail(of, clock, registration.held, 10)
    clock.advance(30 * DAY_MS)
    old = registration.held
    registration.held = make.consumer(GROUP, uid=old.uid, kind="url", version=old.version + 1)
    fail(of, clock, old, 1)
    assert registration.disabled == []
    assert (registration.held.times_opened, registration.held.open_until_ms) == (0, None)
    assert registration.held.failing_ms == clock.now_ms()
    assert of.allowance(registration.held, FULL) > 0
