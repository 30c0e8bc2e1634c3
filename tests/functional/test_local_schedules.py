"""The local server runs scheduled functions at the times that the app names."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from local.functions import Context, Invocations
from local.triggers import Schedule, repeat, schedules_of
from tests.functional.triggered import BOUND_SECONDS, CallLog, Machine, app_of


def test_schedules_are_those_of_the_app(capsys: pytest.CaptureFixture[str]) -> None:
    assert schedules_of(app_of(CallLog())) == [Schedule("minutely", 60), Schedule("quarterly", 6 * 3600)]
    assert "nightly does not run here: cron(0 3 * * ? *) is not a rate." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("schedule", "times"),
    [
        (Schedule("minutely", 60), [60.0 * n for n in range(61)]),
        (Schedule("often", 25.5), [25.5 * n for n in range(142)]),
        (Schedule("seldom", 86400), [0.0]),
        (Schedule("later", 1800, delay_seconds=60), [60.0, 1860.0]),
    ],
)
def test_a_schedule_runs_at_once_and_then_at_its_rate(schedule: Schedule, times: list[float]) -> None:
    machine, runs = Machine(end=3600), []

    def invoke(function: str, event: dict[str, Any]) -> None:
        runs.append(machine.now - 100)

    repeat(schedule, invoke, machine.wait, machine.clock)
    assert runs == times


def test_a_machine_that_slept_makes_up_for_one_run() -> None:
    machine, runs = Machine(end=1000), []

    def invoke(function: str, event: dict[str, Any]) -> None:
        runs.append(machine.now - 100)
        if len(runs) == 2:
            machine.now += 500

    repeat(Schedule("minutely", 60), invoke, machine.wait, machine.clock)
    assert runs[:5] == [0.0, 60.0, 560.0, 620.0, 680.0]


def test_a_run_that_lasts_delays_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    calls, go = CallLog(), threading.Event()

    def held(event: Any, context: Context) -> None:
        calls.add(("held", context.aws_request_id))
        assert go.wait(BOUND_SECONDS)

    def broken(event: Any, context: Context) -> None:
        calls.add(("broken", context.aws_request_id))
        raise ZeroDivisionError("a failure of the app's")

    invocations = Invocations({"held": held, "broken": broken}, pauses=())
    for function in ("held", "broken"):
        machine = Machine(end=120)
        repeat(Schedule(function, 60), invocations.invoke, machine.wait, machine.clock)
    calls.count(6)
    assert sorted(name for name, _ in calls.all) == ["broken"] * 3 + ["held"] * 3
    assert len({id_ for _, id_ in calls.all}) == 6
    go.set()
    assert invocations.stop(BOUND_SECONDS)
    assert capsys.readouterr().err.count("Function broken failed") == 3
