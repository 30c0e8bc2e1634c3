"""What starts functions locally: schedules, streams and invocations."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from chalice import Chalice

from chalicelib.store.layout import Tables
from local.functions import Context, Invocations, functions_of
from local.store import stream_pollers
from local.triggers import schedules_of, triggers
from tests.functional.triggered import BOUND_SECONDS, CallLog, Machine, app_of, new_table, offsets


@pytest.fixture
def calls() -> CallLog:
    return CallLog()


def test_a_function_gets_its_event_as_json_once(calls: CallLog) -> None:
    invocations = Invocations({"deliver": lambda event, context: calls.add(event)})
    event = {"a": (1, 2), "b": {"c": None}}
    invocations.invoke("deliver", event)
    event["a"] = (3,)
    calls.count(1)
    assert invocations.stop(BOUND_SECONDS)
    assert calls.all == [{"a": [1, 2], "b": {"c": None}}]


def test_what_cannot_be_invoked_is_refused(calls: CallLog) -> None:
    invocations = Invocations({"deliver": lambda event, context: None})
    with pytest.raises(LookupError, match="no function named delivr"):
        invocations.invoke("delivr", {})
    with pytest.raises(TypeError):
        invocations.invoke("deliver", {"a": object()})


def test_a_failing_function_is_called_three_times_with_pauses(
    calls: CallLog, capsys: pytest.CaptureFixture[str]
) -> None:
    def deliver(event: Any, context: Context) -> None:
        calls.add((time.monotonic(), context.aws_request_id))
        raise ZeroDivisionError("always")

    functions = {"deliver": deliver, "end": lambda *_: calls.add(None)}
    invocations = Invocations(functions, pauses=(0.05, 0.1))
    invocations.invoke("deliver", {})
    calls.count(3)
    invocations.invoke("end", {})
    calls.count(4)
    assert invocations.stop(BOUND_SECONDS)
    (first, one), (second, two), (third, three) = calls.all[:3]
    assert second - first >= 0.05
    assert third - second >= 0.1
    assert one == two == three
    assert calls.all[3] is None
    assert capsys.readouterr().err.count("ZeroDivisionError: always") == 3


def test_a_pause_holds_up_nobody(calls: CallLog) -> None:
    def deliver(event: Any, context: Context) -> None:
        calls.add(event["n"])
        if event["n"] == 0:
            raise ZeroDivisionError("for a minute")

    invocations = Invocations({"deliver": deliver}, most=1)
    for n in range(3):
        invocations.invoke("deliver", {"n": n})
    calls.count(3)
    assert calls.all == [0, 1, 2]
    assert invocations.stop(BOUND_SECONDS)


def test_as_many_run_at_once_as_are_allowed(calls: CallLog) -> None:
    go = threading.Event()

    def deliver(event: Any, context: Context) -> None:
        calls.add(event["n"])
        assert go.wait(BOUND_SECONDS)

    invocations = Invocations({"deliver": deliver}, most=20)
    for n in range(30):
        invocations.invoke("deliver", {"n": n})
    calls.count(20)
    assert sorted(calls.all) == list(range(20))
    go.set()
    calls.count(30)
    assert invocations.stop(BOUND_SECONDS)


def test_the_remaining_time_shrinks_to_nothing() -> None:
    machine = Machine(end=0)
    context = Context("deliver", threading.Event(), 60, clock=machine.clock)
    times_ms = []
    for _ in range(4):
        times_ms.append(context.get_remaining_time_in_millis())
        machine.wait(25)
    assert times_ms == [60_000, 35_000, 10_000, 0]


def test_stop_tells_running_functions_waits_for_them_and_starts_no_other(calls: CallLog) -> None:
    go = threading.Event()

    def deliver(event: Any, context: Context) -> None:
        calls.add(("began", event["n"]))
        assert go.wait(BOUND_SECONDS)
        calls.add(("ended", context.get_remaining_time_in_millis()))

    invocations = Invocations({"deliver": deliver}, most=1)
    for n in range(2):
        invocations.invoke("deliver", {"n": n})
    calls.count(1)
    assert not invocations.stop(0.01), "one runs"
    invocations.invoke("deliver", {"n": 2})
    go.set()
    assert invocations.stop(BOUND_SECONDS)
    assert calls.all == [("began", 0), ("ended", 0)]


def test_functions_of_an_app_may_run_in_many_threads(calls: CallLog) -> None:
    functions = functions_of(app_of(calls))
    assert functions.keys() == {"minutely", "quarterly", "route"}
    invocations = Invocations(functions)
    for n in range(500):
        invocations.invoke("route", {"n": n})
    calls.count(500)
    assert sorted(event["n"] for _, event, _ in calls.all) == list(range(500))
    assert all(name == "route" and event["passed"] for name, event, _ in calls.all)
    assert len({id_ for *_, id_ in calls.all}) == 500
    assert invocations.stop(BOUND_SECONDS)


def test_schedules_are_those_of_the_app() -> None:
    assert schedules_of(app_of(CallLog())) == [("minutely", 60), ("quarterly", 6 * 3600)]


def test_a_schedule_runs_after_its_delay_and_then_at_its_rate_though_its_last_run_has_not_ended(
    calls: CallLog,
) -> None:
    go = threading.Event()

    def often(event: Any, context: Context) -> None:
        calls.add((time.monotonic() - begun, event["resources"], context.aws_request_id))
        assert go.wait(BOUND_SECONDS)

    begun = time.monotonic()
    invocations = Invocations({"often": often})
    invocations.every(0.04, "often", delay=0.1)
    calls.count(3)
    go.set()
    assert invocations.stop(BOUND_SECONDS)
    assert all(at >= due for (at, *_), due in zip(calls.all, (0.1, 0.14, 0.18), strict=False))
    assert {rule for _, (rule,), _ in calls.all} == {"arn:aws:events:us-east-1:000000000000:rule/often"}
    assert len({id_ for *_, id_ in calls.all}) == len(calls.all)


def test_a_machine_that_slept_makes_up_for_one_run(calls: CallLog, monkeypatch: pytest.MonkeyPatch) -> None:
    slept, monotonic = [0.0], time.monotonic
    monkeypatch.setattr("local.functions.time.monotonic", lambda: monotonic() + slept[0])

    def minutely(event: Any, context: Context) -> None:
        slept[0] = 500.0
        calls.add("minutely")

    invocations = Invocations({"minutely": minutely, "now": lambda *_: calls.add("now")})
    invocations.every(60, "minutely")
    calls.count(2)
    invocations.invoke("now", {})  # would come after a third one that is due
    calls.count(3)
    assert invocations.stop(BOUND_SECONDS)
    assert calls.all == ["minutely", "minutely", "now"]


def test_the_mover_is_called_when_the_next_timer_is_due_and_again_for_the_one_after() -> None:
    calls, dues = CallLog(), iter([0.05, 0.1])
    begun = time.monotonic()
    invocations = Invocations({"mover": lambda event, _: calls.add((event, time.monotonic() - begun))})
    invocations.seconds_to_due = lambda: next(dues, None)
    invocations.wake_mover({"until_ms": 1, "fragments": [3]}, 60)
    calls.count(2)
    assert [event for event, _ in calls.all] == [{"Records": [{"body": '{"until_ms": 0}'}]}] * 2
    assert [at >= due for (_, at), due in zip(calls.all, (0.05, 0.15), strict=True)] == [True, True]


def test_a_timer_that_is_overdue_is_tried_again_after_the_delay() -> None:
    calls = CallLog()
    invocations = Invocations({"mover": lambda event, _: calls.add(event)})
    invocations.seconds_to_due = lambda: -1.0 if not calls.all else None
    invocations.wake_mover({"until_ms": 1, "fragments": [3]}, 0)
    calls.count(1)
    assert calls.all == [{"Records": [{"body": '{"until_ms": 0}'}]}]


def test_an_app_with_its_triggers(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    calls = CallLog()
    with new_table() as table:
        app = app_of(calls)
        invocations = Invocations(functions_of(app))
        pollers = stream_pollers(functions_of(app), Tables(table.name.removesuffix("-log")))
        with triggers(app, invocations, pollers):
            table.put("a", 1)
            invocations.invoke("route", {"by": "hand"})
            calls.count(4)
    facts_of = {name: rest for name, *rest in calls.all if name == "minutely"}
    assert facts_of["minutely"] == [
        "Scheduled Event",
        ["arn:aws:events:us-east-1:000000000000:rule/minutely"],
    ]
    events = [rest[0] for name, *rest in calls.all if name == "route"]
    assert offsets([event for event in events if "Records" in event]) == {"a": [1]}
    assert {"by": "hand", "passed": True} in events
    assert "Function quarterly failed" in capsys.readouterr().err


def test_without_a_function_for_it_the_stream_is_left_alone(engine: str) -> None:
    app = Chalice("tiny", configure_logs=False)
    pollers = stream_pollers(functions_of(app), Tables("no-such"))
    with triggers(app, Invocations({}), pollers):  # it would wait, and tell of the trouble
        assert not any(thread.name == "stream" for thread in threading.enumerate())
