"""The judge of pushed deliveries accuses each bad history, and no good one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.events import Kind
from tests.support.history_push import PushAttempt, Reader, Rest, Sent, check_push

LINE = Reader("t", "line", (1, 2), 3, serial=True)
CROWD = Reader("t", "crowd", (1, 2), 3)
FIRST, SECOND = (Sent(f"m{n}", "t", 0, n, "key") for n in (1, 2))
GOOD = [
    PushAttempt("line", "m1", 1, 10.0, 10.1, "RETRY", wait=5),
    PushAttempt("line", "m1", 2, 15.2, 15.3, "SUCCESS"),
    PushAttempt("line", "m2", 1, 15.4, 15.5, "RETRY"),
    PushAttempt("line", "m2", 2, 16.6, 16.7, "RETRY"),
    PushAttempt("line", "m2", 3, 18.8, 18.9, "RETRY"),
    PushAttempt("crowd", "m2", 1, 10.0, 10.1, "SUCCESS"),
    PushAttempt("crowd", "m1", 1, 10.0, 10.1, "DEAD"),
]
REST = Rest(
    {"line": ["m2"], "crowd": ["m1"]},
    {("line", "m1"): "SUCCESS", ("line", "m2"): "DEAD", ("crowd", "m1"): "DEAD"},
)


def kinds(attempts: list[PushAttempt], rest: Rest = REST) -> set[Kind]:
    return {violation.kind for violation in check_push([LINE, CROWD], [FIRST, SECOND], attempts, rest)}


def changed(place: int, **fields: float | str) -> list[PushAttempt]:
    return [*GOOD[:place], replace(GOOD[place], **fields), *GOOD[place + 1 :]]  # type: ignore[arg-type]


def test_a_good_history_is_not_accused() -> None:
    assert kinds(GOOD) == set()


def test_a_request_that_met_silence_may_come_once_more() -> None:
    silent = replace(GOOD[3], ended=16.65, silent=True)
    assert kinds([*GOOD[:3], silent, *GOOD[3:]]) == set()
    assert Kind.ATTEMPT in kinds([silent, replace(silent, began=16.66), *changed(3, began=16.68)])
    assert Kind.ATTEMPT in kinds([replace(silent, silent=False), *GOOD])


def test_a_success_that_came_too_late_may_be_followed_by_another() -> None:
    late_attempts = [replace(GOOD[5], ended=12.2), replace(GOOD[5], attempt=2, began=13.1, ended=13.2)]
    attempts = [*GOOD[:5], *late_attempts, *GOOD[6:]]
    patient, hasty = (replace(CROWD, patience_seconds=seconds) for seconds in (3, 2))
    assert {v.kind for v in check_push([LINE, patient], [FIRST, SECOND], attempts, REST)} >= {
        Kind.SETTLED_TWICE
    }
    assert check_push([LINE, hasty], [FIRST, SECOND], attempts, REST) == []


@pytest.mark.parametrize(
    ("kind", "history"),
    [
        (Kind.LOST, lambda: [t for t in GOOD if t != GOOD[5]]),
        (Kind.LOST, lambda: changed(5, fate="RETRY")),
        (Kind.LOST, lambda: GOOD[:4] + GOOD[5:]),
        (Kind.UNEXPECTED, lambda: [*GOOD, PushAttempt("line", "m3", 1, 1.0, 1.1, "SUCCESS")]),
        (Kind.UNEXPECTED, lambda: [*GOOD, PushAttempt("nobody", "m1", 1, 1.0, 1.1, "SUCCESS")]),
        (Kind.SETTLED_TWICE, lambda: [*GOOD, replace(GOOD[5], attempt=2, began=20.0, ended=20.1)]),
        (Kind.AFTER_ACK, lambda: [*GOOD, PushAttempt("crowd", "m2", 2, 20.0, 20.1, "RETRY")]),
        (Kind.AFTER_ACK, lambda: [*GOOD, PushAttempt("crowd", "m1", 2, 20.0, 20.1, "RETRY")]),
        (Kind.ATTEMPT, lambda: changed(1, attempt=1)),
        (Kind.ATTEMPT, lambda: changed(1, attempt=3)),
        (Kind.ATTEMPT, lambda: [*GOOD, PushAttempt("line", "m2", 4, 30.0, 30.1, "RETRY")]),
        (Kind.EARLY, lambda: changed(1, began=15.0, ended=15.05)),
        (Kind.EARLY, lambda: changed(3, began=16.4)),
        (Kind.EARLY, lambda: changed(4, began=18.6)),
        (Kind.OVERLAPPING, lambda: changed(0, ended=15.25)),
        (Kind.OUT_OF_ORDER, lambda: changed(2, began=15.25)),
        (Kind.DISHONEST, lambda: changed(6, fate="SUCCESS")),
    ],
)
def test_a_bad_history_is_accused(kind: Kind, history: Callable[[], list[PushAttempt]]) -> None:
    assert kind in kinds(history())


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        (Kind.DISHONEST, replace(REST, dead={"crowd": ["m1"]})),
        (Kind.DISHONEST, replace(REST, dead={"line": ["m1", "m2"], "crowd": ["m1"]})),
        (Kind.SETTLED_TWICE, replace(REST, dead={"line": ["m2", "m2"], "crowd": ["m1"]})),
        (Kind.DISHONEST, replace(REST, statuses={("line", "m1"): "RETRYING"})),
        (Kind.DISHONEST, replace(REST, statuses={("line", "m2"): "SUCCESS"})),
    ],
)
def test_an_end_that_the_answers_do_not_explain_is_accused(kind: Kind, rest: Rest) -> None:
    assert kind in kinds(GOOD, rest)
