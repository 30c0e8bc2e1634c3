"""The circuit breaker: opens on failures, counts nothing while open, recovers slowly, warns before it disables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain import breaker
from chalicelib.domain.breaker import WINDOW, Health, allowance
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from tests.support.clock import START_MS

FULL = 64
WELL = Health()
histories = st.lists(st.tuples(st.booleans(), st.integers(0, 10 * SECOND_MS)), max_size=120)


def after(health: Health, ok: bool, now_ms: int, full: int = FULL, **settings: Any) -> Health:
    """After a request that took no time, unless it says when it began."""
    return breaker.after(health, ok, now_ms, full, **{"began_ms": now_ms, **settings})


def lived(outcomes: str, health: Health = WELL, now_ms: int = START_MS) -> Health:
    """After these outcomes at one moment: "." for a success, "x" for a failure without an answer, "a" for one that was
    answered; capitals for messages that had failed before."""
    for outcome in outcomes:
        kind = outcome.lower()
        health = after(
            health, kind == ".", now_ms, FULL, is_own_answer=kind == "a", is_repeated=outcome.isupper()
        )
    return health


def opened(times_opened: int = 1) -> Health:
    """Just opened for the n-th time in a row, and the time is START_MS."""
    return Health(
        window=(),
        allowance=1,
        failing_ms=START_MS,
        open_until_ms=START_MS + min(5 * 2 ** (times_opened - 1), 300) * SECOND_MS,
        times_opened=times_opened,
    )


def until(health: Health) -> int:
    assert health.open_until_ms is not None
    return health.open_until_ms


@pytest.mark.parametrize(
    ("outcomes", "is_open"),
    [
        ("x" * 9, False),
        ("x" * 10, True),
        ("." * 20 + "x" * 9, False),
        ("." * 20 + "x" * 10, True),
        ("x" * 9 + "." + "x" * 9, False),
        ("xxxxxxxxx." * 30, False),
        ("a" * 9, False),
        ("a" * 10, True),
        ("." + "a" * 200, False),  # it worked just now
        ("aaaaaaaaa." * 30, False),
        (".aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" + "x" * 9, False),
        (".aaaaaaaaa" + "x" * 10, True),
        ("X" * 100, False),
        ("X" * 100 + "x", True),
        ("A" * 100 + "x", False),
        ("A" * 100 + "a", False),
    ],
)
def test_it_opens_when_the_consumer_does_nothing_but_fail(outcomes: str, is_open: bool) -> None:
    assert (breaker.state(lived(outcomes).open_until_ms, START_MS) == "open") is is_open


def test_requests_beside_which_another_succeeded_do_not_open_it_however_many_end_together() -> None:
    ends_ms = START_MS + 5 * SECOND_MS
    health = lived(".", now_ms=ends_ms - 1)
    for began_ms, is_open in (
        (START_MS, False),
        (ends_ms - 2, False),
        (ends_ms - 1, True),
        (ends_ms + 9_000, True),
    ):
        later = health
        for _ in range(10):
            later = after(later, False, ends_ms, began_ms=began_ms)
        assert (later.times_opened == 1) is is_open, "the clock may have been set back while it was under way"


def test_a_request_of_before_it_opened_is_no_probe() -> None:
    health = opened(times_opened=2)
    now_ms = until(health)
    old = after(health, False, now_ms + 9_000, began_ms=now_ms - 1)
    assert (old.times_opened, old.open_until_ms) == (2, now_ms)
    assert after(old, False, now_ms + 9_000, began_ms=now_ms).times_opened == 3


def test_a_clock_that_was_wrong_keeps_nobody_shut_out() -> None:
    """What a clock an hour ahead opened is tried at once by the right ones: one more failure opens it for its time."""
    health = replace(opened(times_opened=2), open_until_ms=START_MS + HOUR_MS)
    assert breaker.state(until(health), START_MS) == "half-open"
    assert allowance(health, FULL, START_MS) == 1
    again = after(health, False, START_MS, began_ms=START_MS - SECOND_MS)
    assert (again.times_opened, again.open_until_ms) == (3, START_MS + 20 * SECOND_MS)
    assert after(health, True, START_MS).open_until_ms is None


def test_while_it_recovers_any_failure_without_an_answer_halves_what_may_be_under_way() -> None:
    now_ms = START_MS + HOUR_MS
    health = lived("...", opened(), now_ms)
    assert allowance(after(health, False, now_ms + 1, began_ms=now_ms - 1), FULL, now_ms + 1) == 4


def test_answers_open_it_when_nothing_has_succeeded_for_a_minute() -> None:
    health = lived("." + "a" * 30)
    later_ms = START_MS + HOUR_MS
    assert breaker.state(lived("a", health, later_ms).open_until_ms, later_ms) == "closed"
    health = lived("a", health)
    assert breaker.state(lived("a", health, START_MS + 59_999).open_until_ms, START_MS + 59_999) == "closed"
    assert breaker.state(lived("a", health, START_MS + 60_000).open_until_ms, START_MS + 60_000) == "open"


@given(st.lists(st.text("xaXA", max_size=9), max_size=40))
def test_who_succeeds_once_in_ten_times_is_never_shut_out(failures: list[str]) -> None:
    assert lived(".".join(failures)).times_opened == 0


def test_what_failed_before_does_not_add_up_with_what_is_fresh() -> None:
    assert lived("A" * 80 + "a" * 9).times_opened == 0
    assert lived("A" * 80 + "a" * 10).times_opened == 1, "nothing ever succeeded"


def test_an_answer_while_it_recovers_does_not_halve_what_may_be_under_way() -> None:
    now_ms = START_MS + HOUR_MS
    assert allowance(lived("...aaaa", opened(), now_ms), FULL, now_ms) == 8


def test_while_it_is_open_nothing_may_be_sent_and_then_one_probe() -> None:
    health = lived("x" * 10)
    assert until(health) == START_MS + 5 * SECOND_MS
    assert [allowance(health, FULL, until(health) + ms) for ms in (-5000, -1, 0, 60_000)] == [0, 0, 1, 1]
    assert [breaker.state(health.open_until_ms, until(health) + ms) for ms in (-1, 0)] == [
        "open",
        "half-open",
    ]


def test_failed_probes_open_it_for_twice_as_long_up_to_five_minutes() -> None:
    health, seconds = lived("x" * 10), []
    now_ms = START_MS
    for _ in range(9):
        seconds.append((until(health) - now_ms) // SECOND_MS)
        now_ms = until(health)
        health = after(health, False, now_ms, FULL)
    assert seconds == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert until(after(Health(times_opened=10**6, open_until_ms=0), False, 0)) == 300 * SECOND_MS


def test_a_successful_probe_closes_it_and_the_allowance_doubles_to_the_full_one() -> None:
    health = opened(times_opened=3)
    now_ms = until(health)
    allowances = []
    for _ in range(8):
        allowances.append(allowance(health, FULL, now_ms))
        health = after(health, True, now_ms, FULL)
        assert (health.failing_ms, health.open_until_ms, health.times_opened) == (None, None, 0)
    assert allowances == [1, 2, 4, 8, 16, 32, 64, 64]
    assert lived("x", health).open_until_ms is None, "it has recovered: one failure is one of many"


def test_late_outcomes_of_what_was_sent_before_leave_it_open() -> None:
    health = opened(times_opened=2)
    assert lived("xxxxx", health) == health
    better = lived(".", health)
    assert (better.open_until_ms, better.times_opened, better.failing_ms) == (health.open_until_ms, 2, None)


@given(histories)
def test_a_window_and_an_allowance_stay_within_their_bounds(history: list[tuple[bool, int]]) -> None:
    health, now_ms = Health(), START_MS
    for ok, later_ms in history:
        now_ms += later_ms
        was_open = breaker.state(health.open_until_ms, now_ms) == "open"
        next_health = after(health, ok, now_ms, FULL)
        assert len(next_health.window) <= WINDOW
        assert 0 <= allowance(next_health, FULL, now_ms) <= FULL
        if was_open:
            assert (next_health.open_until_ms, next_health.times_opened) == (
                health.open_until_ms,
                health.times_opened,
            )
        elif ok:
            assert (next_health.failing_ms, next_health.open_until_ms, next_health.times_opened) == (
                None,
                None,
                0,
            )
            assert allowance(next_health, FULL, now_ms) >= allowance(health, FULL, now_ms)
        else:
            assert next_health.times_opened - health.times_opened == (
                next_health.open_until_ms != health.open_until_ms
            )
        if next_health.open_until_ms is not None:
            assert next_health.open_until_ms - now_ms <= 300 * SECOND_MS
        health = next_health


@given(histories)
def test_failing_means_that_nothing_succeeded_since(history: list[tuple[bool, int]]) -> None:
    health, now_ms, last_success_ms = Health(), START_MS, -1
    for ok, later_ms in history:
        now_ms += later_ms + 1
        last_success_ms = now_ms if ok else last_success_ms
        health = after(health, ok, now_ms, FULL)
        assert health.failing_ms is None or last_success_ms < health.failing_ms <= now_ms


@pytest.mark.parametrize(
    ("age_ms", "is_told", "is_disabled"),
    [
        (0, False, False),
        (60 * HOUR_MS - 1, False, False),
        (60 * HOUR_MS, True, False),
        (5 * DAY_MS - 1, True, False),
        (5 * DAY_MS, True, True),
    ],
)
def test_five_days_of_failures_disable_and_half_of_that_tells_so(
    age_ms: int, is_told: bool, is_disabled: bool
) -> None:
    now_ms = START_MS + age_ms
    assert breaker.should_disable(START_MS, 1, now_ms) is is_disabled
    assert breaker.disables_ms(START_MS, 1, now_ms) == (START_MS + 5 * DAY_MS if is_told else None)


def test_failures_that_never_opened_the_circuit_disable_nobody() -> None:
    assert breaker.should_disable(START_MS, 0, START_MS + 40 * DAY_MS) is False
    assert breaker.disables_ms(START_MS, 0, START_MS + 40 * DAY_MS) is None
