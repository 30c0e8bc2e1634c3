"""What follows an attempt: the decision, and how long the ladder lets it wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import ladder
from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.domain.cursor import Disposition
from chalicelib.domain.ladder import NAMED, Retry
from chalicelib.domain.message import DeadReason
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Mode
from chalicelib.services.consume.decision import SettleDecision, decision_after, decision_after_failure
from tests.support import factories as make
from tests.support.clock import START_MS

NOW_MS = START_MS + 7 * SECOND_MS  # the message was claimed before
STEPS = Retry(9, (10, 100, 1000), jitter=0.0)
FAILED = CallResult(Verdict.FAILED, "HTTP 500", duration_ms=5, is_own_answer=True)
BUSY = CallResult(Verdict.FAILED, "no answer", duration_ms=5, busy_ms=50 * SECOND_MS)


def decided(
    result: CallResult, attempt: int = 1, *, mode: Mode = Mode.QUEUE, is_split: bool = False, **settings: Any
) -> SettleDecision:
    topic = make.topic(retry=STEPS, mode=mode)
    own = {name: settings.pop(name) for name in ("ladder", "jitter", "expires_ms") if name in settings}
    claimed_message = make.claimed_message(attempt, of=make.draft(**own), **settings)
    return decision_after(topic, make.group(topic), claimed_message, result, NOW_MS, is_split=is_split)


def later(seconds: int, disposition: Disposition = Disposition.RETRY_LATER) -> SettleDecision:
    return SettleDecision(disposition, NOW_MS + seconds * SECOND_MS, None, "HTTP 500", 5)


@pytest.mark.parametrize(
    ("result", "decision"),
    [
        (
            CallResult(Verdict.DONE, "said", duration_ms=5),
            SettleDecision(Disposition.SUCCESS, duration_ms=5),
        ),
        (
            CallResult(Verdict.REFUSED, "HTTP 410", duration_ms=5),
            SettleDecision(Disposition.DEAD, 0, DeadReason.REJECTED, "HTTP 410", 5),
        ),
        (
            CallResult(Verdict.UNDECODABLE, "gone"),
            SettleDecision(Disposition.DEAD, 0, DeadReason.UNDECODABLE, "gone"),
        ),
        (
            CallResult(Verdict.NOT_ATTEMPTED, "no"),
            SettleDecision(Disposition.RELEASED, NOW_MS + SECOND_MS),
        ),
        (
            CallResult(Verdict.NOT_ATTEMPTED, "no", retry_after_ms=9 * SECOND_MS),
            SettleDecision(Disposition.RELEASED, NOW_MS + 9 * SECOND_MS),
        ),
        (FAILED, later(10)),
        (replace(FAILED, verdict=Verdict.GONE), later(10)),
        (replace(FAILED, retry_after_ms=70 * SECOND_MS), later(70)),
        (replace(FAILED, retry_after_ms=7 * SECOND_MS), later(10)),
    ],
)
def test_each_verdict_has_its_decision(result: CallResult, decision: SettleDecision) -> None:
    assert decided(result) == decision


def test_the_ladder_counts_from_the_last_redrive() -> None:
    assert decided(FAILED, 6, attempts_before_redrive=5) == later(10)
    assert decided(FAILED, 7, attempts_before_redrive=5, entry=0, attempts_before_entry=6) == later(100)


def test_a_message_has_its_own_ladder() -> None:
    assert decided(FAILED, ladder=(3,)) == later(3)
    assert NOW_MS + 3_000 < decided(FAILED, ladder=(3,), jitter=1.0).due_ms <= NOW_MS + 6_000


def test_a_groups_ladder_goes_before_its_topics() -> None:
    topic = make.topic(retry=STEPS)
    group = make.group(topic, retry=Retry(9, (20,), jitter=0.0))
    assert decision_after(topic, group, make.claimed_message(), FAILED, NOW_MS) == later(20)


def test_the_last_attempt_ends_in_a_dead_letter_that_says_what_went_wrong() -> None:
    decision = SettleDecision(Disposition.DEAD, 0, DeadReason.ATTEMPTS_EXHAUSTED, "HTTP 500", 5)
    assert decided(FAILED, 9) == decision
    assert decided(FAILED, 8).disposition is Disposition.RETRY_LATER


def test_of_a_split_batch_all_but_the_last_attempt_come_at_once() -> None:
    assert decided(FAILED, 7, is_split=True) == SettleDecision(Disposition.RETRY, 0, None, "HTTP 500", 5)
    assert decided(FAILED, 8, is_split=True) == later(1000)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 50), (2, 100)])
def test_who_may_still_be_at_work_is_not_disturbed(attempt: int, seconds: int) -> None:
    assert decided(BUSY, attempt) == replace(later(seconds), error="no answer")


@pytest.mark.parametrize(("in_seconds", "due_in_seconds"), [(-1, 0), (3, 3), (30, 10)])
def test_a_wait_ends_when_the_message_expires(in_seconds: int, due_in_seconds: int) -> None:
    expires_ms = NOW_MS + in_seconds * SECOND_MS
    assert decided(FAILED, expires_ms=expires_ms) == later(due_in_seconds)
    held = CallResult(Verdict.NOT_ATTEMPTED, "no", retry_after_ms=10 * SECOND_MS)
    assert decided(held, expires_ms=expires_ms).due_ms == NOW_MS + due_in_seconds * SECOND_MS
    assert decided(BUSY, expires_ms=expires_ms).due_ms == NOW_MS + 50 * SECOND_MS, "it may still be at work"


def test_who_may_still_be_at_work_on_the_last_attempt_keeps_the_message_until_it_ends() -> None:
    assert decided(BUSY, 9) == SettleDecision(
        Disposition.RETRY, NOW_MS + 50 * SECOND_MS, None, "no answer", 5
    )


@pytest.mark.parametrize(
    ("mode", "due_ms", "disposition"),
    [
        (Mode.QUEUE, 9, Disposition.RETRY_LATER),
        (Mode.QUEUE, 0, Disposition.RETRY),
        (Mode.SERIAL, 9, Disposition.RETRY),
        (Mode.BROADCAST, 9, Disposition.RETRY_LATER),
    ],
)
@pytest.mark.parametrize("entry", [None, 0])
def test_a_failed_message_waits_where_its_mode_says(
    mode: Mode, entry: int | None, due_ms: int, disposition: Disposition
) -> None:
    receipt = make.claimed_message(entry=entry).receipt
    group = make.group(make.topic(mode=mode))
    decision = decision_after_failure(group, receipt, 1, due_ms, "no")
    assert decision == SettleDecision(disposition, due_ms, error="no")


ladders = st.sampled_from(sorted(NAMED)) | st.lists(st.integers(1, 10**6), min_size=1, max_size=9).map(tuple)
retries = st.builds(Retry, st.just(16), ladders, st.floats(0, 1))
WHOLE = {
    "fixed-30": 30 + 30 + 30,
    "jmq": sum(3**n for n in range(10)),
    "notify": 90_795,
    "rocketmq": 10 + 30 + 60 * 55 + 1200 + 1800 + 3600 + 7200,
}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_without_jitter_every_ladder_is_walked_exactly(name: str) -> None:
    retry = Retry(1000, name, jitter=0)
    waits = [ladder.jittered_wait_ms(retry, n + 1, "any") for n in range(len(NAMED[name]))]
    assert waits == [step * 1000 for step in NAMED[name]]
    assert sum(waits) == WHOLE[name] * 1000
    last = NAMED[name][-1] * 1000
    assert {ladder.jittered_wait_ms(retry, len(waits) + n, "any") for n in range(1, 50)} == {last}, (
        "the last step repeats"
    )


@given(retries, st.integers(1, 40), st.text(min_size=1, max_size=20))
def test_jitter_only_adds_and_up_to_its_share(retry: Retry, failures: int, message_id: str) -> None:
    step_ms = ladder.wait_seconds(retry, failures) * 1000
    total_ms = ladder.jittered_wait_ms(retry, failures, message_id)
    assert step_ms <= total_ms <= step_ms * (1 + retry.jitter)
    assert total_ms == ladder.jittered_wait_ms(retry, failures, message_id)


def test_a_thousand_messages_that_failed_at_once_come_back_evenly_spread() -> None:
    retry = Retry(16, (600,), jitter=0.5)
    waits = [ladder.jittered_wait_ms(retry, 1, f"0123456789ab-{n % 4}-{n}") for n in range(1000)]
    tenths = Counter((wait - 600_000) // 30_000 for wait in waits)
    assert sorted(tenths) == list(range(10))
    assert min(tenths.values()) > 60
    assert max(tenths.values()) < 140


@pytest.mark.parametrize(
    ("asked_ms", "expected_ms"),
    [
        (None, 180_000),
        (0, 180_000),
        (-1, 180_000),
        (179_999, 180_000),
        (180_001, 180_001),
        (HOUR_MS, HOUR_MS),
        (30 * DAY_MS, 30 * DAY_MS),
    ],
)
def test_a_subscriber_may_ask_for_a_longer_wait(asked_ms: int | None, expected_ms: int) -> None:
    assert ladder.next_wait_ms(Retry(9, "notify", 0), 2, "any", asked_ms) == expected_ms


def test_a_message_overrides_what_it_names() -> None:
    retry = Retry(9, "notify", 0.5)
    assert ladder.overridden(retry, None, None) == retry
    assert ladder.overridden(retry, (5,), None) == Retry(9, (5,), 0.5)
    assert ladder.overridden(retry, None, 0.0) == Retry(9, "notify", 0.0)
