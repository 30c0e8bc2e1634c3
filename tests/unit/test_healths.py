"""A process keeps its own view of a subscriber's health, and writes only what all must know."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain.breaker import Health
from chalicelib.domain.errors import unavailable
from chalicelib.domain.outcome import Outcome, Verdict
from chalicelib.domain.topic import Consumer, Group, Topic
from chalicelib.services.push.health import SubscriberHealth
from tests.support import factories as make
from tests.support.clock import ManualClock

TOPIC = make.topic()
GROUP = make.group(TOPIC)
FAILED = Outcome(Verdict.FAILED)
FULL = 64


@dataclass
class Registration:
    """A consumer's row."""

    held: Consumer = field(default_factory=lambda: make.consumer(GROUP, kind="url"))
    writes: int = 0
    reachable: bool = True

    def save(self, topic: Topic, group: Group, consumer: Consumer, health: Health) -> Consumer | None:
        if not self.reachable:
            raise unavailable("down")
        self.writes += 1
        self.held = replace(
            self.held,
            failing_ms=health.failing_ms,
            open_until_ms=health.open_until_ms,
            trips=health.trips,
            version=self.held.version + 1,
        )
        return self.held


def subscriber_health(registration: Registration, clock: ManualClock) -> SubscriberHealth:
    return SubscriberHealth(registration.save, lambda *_: None, clock)


def fail(of: SubscriberHealth, clock: ManualClock, consumer: Consumer, times: int) -> None:
    for _ in range(times):
        clock.advance(1)
        of.note(TOPIC, GROUP, consumer, [FAILED], FULL)


def test_many_outcomes_of_requests_sent_long_ago_write_the_row_twice_when_failures_begin_and_it_opens() -> (
    None
):
    registration, clock = Registration(), ManualClock()
    as_it_was_when_they_were_sent = registration.held
    fail(subscriber_health(registration, clock), clock, as_it_was_when_they_were_sent, 250)
    assert registration.writes == 2
    assert registration.held.trips == 1


def test_the_circuit_is_known_though_the_consumer_at_hand_is_old() -> None:
    registration, clock = Registration(), ManualClock()
    old, of = registration.held, subscriber_health(registration, clock)
    fail(of, clock, old, 10)
    assert of.allowance(old, FULL) == 0
    assert of.allowance(registration.held, FULL) == 0


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
    answer = Outcome(Verdict.FAILED, "HTTP 500", 500, answered=True)

    def is_called_after_ten_answers(**row: Any) -> bool:
        registration = Registration(replace(make.consumer(GROUP, kind="url"), **row))
        of = subscriber_health(registration, clock)
        for _ in range(10):
            of.note(TOPIC, GROUP, registration.held, [answer], FULL)
        return of.allowance(registration.held, FULL) > 0

    now_ms = clock.now_ms()
    assert not is_called_after_ten_answers(created_ms=now_ms)
    assert is_called_after_ten_answers(created_ms=now_ms - 60_000)
    assert not is_called_after_ten_answers(created_ms=now_ms - 60_000, failing_ms=now_ms - 1)
