"""Waits between attempts: never early, spread out, and the same in every process."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import ladder
from chalicelib.domain.ladder import NAMED, Retry
from chalicelib.domain.times import DAY_MS, HOUR_MS

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


def test_each_attempt_of_a_message_is_spread_anew() -> None:
    retry = Retry(16, (600,), jitter=0.5)
    assert len({ladder.jittered_wait_ms(retry, n, "0123456789ab-0-0") for n in range(1, 9)}) == 8


@pytest.mark.parametrize(
    ("asked_ms", "expected_ms"),
    [
        (None, 180_000),
        (0, 180_000),
        (-1, 180_000),
        (179_999, 180_000),
        (180_001, 180_001),
        (HOUR_MS, HOUR_MS),
        (DAY_MS, DAY_MS),
        (10 * DAY_MS, DAY_MS),
    ],
)
def test_a_subscriber_may_ask_for_a_longer_wait_up_to_a_day(asked_ms: int | None, expected_ms: int) -> None:
    assert ladder.next_wait_ms(Retry(9, "notify", 0), 2, "any", asked_ms) == expected_ms


def test_a_ladder_longer_than_a_day_is_not_cut() -> None:
    assert ladder.next_wait_ms(Retry(9, (2 * 86_400,), 0), 1, "any", 10 * DAY_MS) == 2 * DAY_MS


def test_a_message_overrides_what_it_names() -> None:
    retry = Retry(9, "notify", 0.5)
    assert ladder.overridden(retry, None, None) == retry
    assert ladder.overridden(retry, (5,), None) == Retry(9, (5,), 0.5)
    assert ladder.overridden(retry, None, 0.0) == Retry(9, "notify", 0.0)
