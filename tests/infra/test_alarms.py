"""Alarms under the schedules that functions have: each can come, none comes without a reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

import pytest

from app import app
from chalicelib.domain.times import DAY_SECONDS, HOUR_MS
from infra import names
from infra.alarms import Alarm, alarms, all_alarms
from infra.stages import CONFIG
from infra.wakes import wakes
from local.triggers import schedules_of

PERIODS = dict(schedules_of(app))
MOVER_SECONDS = json.loads(CONFIG.read_text())["lambda_functions"]["mover"]["lambda_timeout"]
Points = Iterable[tuple[int, float]]  # second, value


def lambda_alarms(function: str, metric: str) -> list[Alarm]:
    name = names.function("p", function)
    alarms = all_alarms("p", names.FUNCTIONS)
    return [a for a in alarms if a.metric == ("AWS/Lambda", metric, {"FunctionName": name})]


def deployed(name: str) -> Alarm:
    """An alarm as CloudFormation gets it."""
    properties = alarms("p", iam=True)[f"{name}Alarm"]["Properties"]
    assert properties["AlarmActions"] == properties["OKActions"] == [{"Ref": "AlarmTopic"}]
    is_told = properties["TreatMissingData"] != "missing" or properties["InsufficientDataActions"]
    assert is_told, "a metric that ends changes the state"
    dimensions = {each["Name"]: each["Value"] for each in properties["Dimensions"]}
    return Alarm(
        name,
        properties["AlarmDescription"]["Fn::Sub"],
        (properties["Namespace"], properties["MetricName"], dimensions),
        properties["Threshold"],
        properties["Statistic"],
        properties["Period"],
        properties["EvaluationPeriods"],
        properties["TreatMissingData"],
        {"LessThanThreshold": True, "GreaterThanThreshold": False}[properties["ComparisonOperator"]],
    )


def comes(alarm: Alarm, points: Points, days: int = 4) -> bool:
    """Does CloudWatch raise the alarm at some time after the first day? Periods begin at multiples of themselves."""
    values: dict[int, list[float]] = {}
    for second, value in points:
        values.setdefault(second // alarm.period, []).append(value)
    breaches = [
        is_breach(alarm, values, n)
        for n in range(DAY_SECONDS // alarm.period, days * DAY_SECONDS // alarm.period)
    ]
    history = "".join("x" if breach else "." for breach in breaches)
    return "x" * alarm.periods in history


def is_breach(alarm: Alarm, values: Mapping[int, list[float]], period: int) -> bool:
    if period not in values:
        return alarm.missing in ("breaching", "missing")  # after the first day there were some
    statistics: dict[str, Callable[[list[float]], float]] = {"Sum": sum, "Maximum": max}
    value = statistics[alarm.statistic](values[period])
    return bool(value < alarm.over if alarm.below else value > alarm.over)


def runs(function: str, jitter: int = 0, days: int = 4) -> list[int]:
    """When a function runs; every other time late by the jitter."""
    period = PERIODS[function]
    return [n * period + (n % 2) * jitter for n in range(days * DAY_SECONDS // period)]


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
    name = f"{names.logical(function)}Stopped"
    [alarm] = [alarm for alarm in all_alarms("p", names.FUNCTIONS) if alarm.name == name]
    assert comes(alarm, [])
    assert comes(alarm, ((at, 1.0) for at in runs(function) if at < 2 * DAY_SECONDS))
    assert not comes(alarm, ((at, 1.0) for at in runs(function, jitter)))


def test_alarms_keep_to_what_cloudwatch_takes() -> None:
    """A period is 10 or 30 s or whole minutes; together periods last a day at most, or a week if each is an hour or
    more (PutMetricAlarm)."""
    for alarm in all_alarms("p", names.FUNCTIONS):
        assert alarm.period % 60 == 0
        assert alarm.period * alarm.periods <= (DAY_SECONDS if alarm.period < 3600 else 7 * DAY_SECONDS), (
            alarm.name
        )


@pytest.mark.parametrize(
    ("metric", "period"),
    [("RoundAge", 6 * 3600), ("Troubles", 6 * 3600), ("Kept", 6 * 3600), ("DelayLateness", MOVER_SECONDS)],
)
def test_what_is_told_only_when_a_run_ends_is_enough_for_its_alarm(metric: str, period: int) -> None:
    [alarm] = [a for a in all_alarms("p", names.FUNCTIONS) if a.metric[1] == metric]
    assert comes(alarm, ((at, 2.0 * alarm.over + 1) for at in range(0, 4 * DAY_SECONDS, period)))
    assert not comes(alarm, [])


def series(value: float, times: int = 1, period: int = 60) -> list[tuple[int, float]]:
    """A value so often, on the third day."""
    return [(2 * DAY_SECONDS + n * period, value) for n in range(times)]


CALLED = [names.logical(name) for name in (*names.ANSWERING, "route", "deliver")]
TOLD_BY_ERRORS = [name for name in names.FUNCTIONS if name != names.AUTHORIZE]
TROUBLE: dict[str, tuple[Points, Points]] = {
    "BacklogOver": (series(1, 3), series(1, 2)),
    "OldestAge": (series(3_601, 3), series(3_600, 3)),
    "DeadLetters": (series(1), series(0)),
    "Undecodable": (series(1), series(0)),
    "DelaysLate": (series(30_001), [*series(30_000, 60), *series(11_000, 60, 20)]),
    "RoundLate": (series(18 * HOUR_MS + 1), series(17 * HOUR_MS, 9, 6 * 3600)),
    "TopicPassedOver": (series(1), series(0)),
    "NotArchived": (series(1), series(0)),
    "Unavailable": (series(1, 6, 10), series(1, 5, 10)),
    "CallsFail": (series(1, 6, 10), series(1, 5, 10)),
    "IamCallsFail": (series(1, 6, 10), series(1, 5, 10)),
    "RouteLate": (series(60_001, 5), [*series(60_001, 4), *series(60_000, 60)]),
    "JournalLate": (series(HOUR_MS + 1), series(HOUR_MS, 60)),
    "FailureQueue": (series(1), series(0, 60)),
    "JobFailed": (series(1), series(0)),
    **{f"{name}Throttles": (series(1, 2, 300), series(1)) for name in CALLED},
    **{f"{names.logical(name)}Errors": (series(1, 2, 300), []) for name in TOLD_BY_ERRORS},
}
"""What raises an alarm, and what is not enough."""


@pytest.mark.parametrize("name", TROUBLE)
def test_an_alarm_comes_at_its_threshold_and_not_before(name: str) -> None:
    enough, too_little = TROUBLE[name]
    assert comes(deployed(name), enough)
    assert not comes(deployed(name), too_little)


def test_a_night_without_an_archive_is_told_by_the_next_morning() -> None:
    alarm = deployed("ArchiveLate")
    nights = [(night * DAY_SECONDS + 3 * 3600, 1.0) for night in range(5)]
    assert not comes(alarm, nights)
    assert comes(alarm, [at for at in nights if at[0] // DAY_SECONDS != 2])


def test_in_a_new_stack_alarms_wait_only_for_jobs_that_a_deployment_runs_once() -> None:
    every_alarm = all_alarms("p", names.FUNCTIONS, iam=True)
    red = {alarm.name for alarm in every_alarm if alarm.missing == "breaching"}
    assert red == {f"{names.logical(name)}Stopped" for name in names.TIMED}


def test_a_failure_that_was_looked_at_ends_its_alarm_though_the_queue_keeps_it() -> None:
    assert deployed("FailureQueue").metric[1] == "NumberOfMessagesSent"
    kept = wakes("p", names.FUNCTIONS)["FailedWakeQueue"]["Properties"]["MessageRetentionPeriod"]
    assert kept <= 2 * 3600, "SQS counts nothing that its own redrive sends"


def test_a_token_that_is_refused_is_no_failure_of_the_authorizer_which_callers_see() -> None:
    """To have 401 answered an authorizer must raise, and Lambda counts that as an error of the function."""
    assert not lambda_alarms(names.AUTHORIZE, "Errors")
    assert deployed("CallsFail").metric == ("AWS/ApiGateway", "5XXError", {"ApiName": "p"})


def test_the_second_api_has_an_alarm_of_its_own() -> None:
    assert deployed("IamCallsFail").metric == ("AWS/ApiGateway", "5XXError", {"ApiName": "p-iam"})
    assert "IamCallsFailAlarm" not in alarms("p")
