"""Alarms under the schedules that functions have: each can come, none comes without a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest

from app import app
from infra import names
from infra.alarms import Alarm, all_alarms
from local.schedule import schedules_of

PERIODS = {schedule.function: int(schedule.period_seconds) for schedule in schedules_of(app)}
DAY_S = 86_400
Points = Iterable[tuple[int, float]]  # second, value


def lambda_alarms(function: str, metric: str) -> list[Alarm]:
    name = names.function("p", function)
    found = all_alarms("p", names.FUNCTIONS)
    return [a for a in found if a.metric == ("AWS/Lambda", metric, {"FunctionName": name})]


def comes(alarm: Alarm, points: Points, days: int = 4) -> bool:
    """Does CloudWatch raise the alarm at some time after the first day? Periods begin at multiples of themselves."""
    values: dict[int, list[float]] = {}
    for second, value in points:
        values.setdefault(second // alarm.period, []).append(value)
    breaches = [
        is_breach(alarm, values, n) for n in range(DAY_S // alarm.period, days * DAY_S // alarm.period)
    ]
    runs = "".join("x" if breach else "." for breach in breaches)
    return "x" * alarm.periods in runs


def is_breach(alarm: Alarm, values: Mapping[int, list[float]], period: int) -> bool:
    if period not in values:
        return alarm.missing == "breaching"
    statistics: dict[str, Callable[[list[float]], float]] = {"Sum": sum, "Maximum": max}
    value = statistics[alarm.statistic](values[period])
    return bool(value < alarm.over if alarm.below else value > alarm.over)


def runs(function: str, jitter: int = 0, days: int = 4) -> list[int]:
    """When a function runs; every other time late by the jitter."""
    every = PERIODS[function]
    return [n * every + (n % 2) * jitter for n in range(days * DAY_S // every)]


def test_every_function_with_a_schedule_is_known_to_the_alarms() -> None:
    assert set(PERIODS) == set(names.TIMED)


@pytest.mark.parametrize("function", names.TIMED)
@pytest.mark.parametrize("jitter", [0, 1, 59])
def test_a_function_that_fails_each_time_is_told_and_one_that_does_not_is_not(
    function: str, jitter: int
) -> None:
    [alarm] = lambda_alarms(function, "Errors")
    assert comes(alarm, ((at, 1.0) for at in runs(function, jitter)))
    assert not comes(alarm, ((at, 0.0) for at in runs(function, jitter)))


@pytest.mark.parametrize("function", names.TIMED)
@pytest.mark.parametrize("jitter", [0, 1, 59])
def test_a_function_that_is_not_started_is_told_and_one_that_is_late_is_not(
    function: str, jitter: int
) -> None:
    [alarm] = lambda_alarms(function, "Invocations")
    assert comes(alarm, [])
    assert comes(alarm, ((at, 1.0) for at in runs(function) if at < 2 * DAY_S))
    assert not comes(alarm, ((at, 1.0) for at in runs(function, jitter)))


def test_alarms_keep_to_what_cloudwatch_takes() -> None:
    """A period is 10 or 30 s or whole minutes; together periods last a day at most, or a week if each is an hour or
    more (PutMetricAlarm)."""
    for alarm in all_alarms("p", names.FUNCTIONS):
        assert alarm.period % 60 == 0
        assert alarm.period * alarm.periods <= (DAY_S if alarm.period < 3600 else 7 * DAY_S), alarm.name


@pytest.mark.parametrize(
    ("metric", "every"), [("RoundAge", 6 * 3600), ("Troubles", 6 * 3600), ("Kept", 6 * 3600)]
)
def test_what_is_told_every_six_hours_is_enough_for_its_alarm(metric: str, every: int) -> None:
    [alarm] = [a for a in all_alarms("p", names.FUNCTIONS) if a.metric[1] == metric]
    assert comes(alarm, ((at, 2.0 * alarm.over + 1) for at in range(0, 4 * DAY_S, every)))
    assert not comes(alarm, [])
