"""The local server invokes functions as Lambda does: retries, pauses, concurrency, time-outs."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from local.functions import Context, Invocations, functions_of
from tests.functional.triggered import BOUND_SECONDS, Machine, Seen, app_of


@pytest.fixture
def seen() -> Seen:
    return Seen()


def test_a_function_gets_its_event_as_json_once(seen: Seen) -> None:
    invocations = Invocations({"deliver": lambda event, context: seen.add(event)})
    event = {"a": (1, 2), "b": {"c": None}}
    invocations.invoke("deliver", event)
    event["a"] = (3,)
    seen.count(1)
    assert invocations.stop(BOUND_SECONDS)
    assert seen.all == [{"a": [1, 2], "b": {"c": None}}]


def test_what_cannot_be_invoked_is_refused(seen: Seen) -> None:
    invocations = Invocations({"deliver": lambda event, context: None})
    with pytest.raises(LookupError, match="no function named delivr"):
        invocations.invoke("delivr", {})
    with pytest.raises(TypeError):
        invocations.invoke("deliver", {"a": object()})


def test_a_failing_function_is_called_three_times_with_pauses(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    def deliver(event: Any, context: Context) -> None:
        seen.add((time.monotonic(), context.aws_request_id))
        raise ZeroDivisionError("always")

    functions = {"deliver": deliver, "end": lambda *_: seen.add(None)}
    invocations = Invocations(functions, pauses=(0.05, 0.1), idle_seconds=0.01)
    invocations.invoke("deliver", {})
    seen.count(3)
    invocations.invoke("end", {})
    seen.count(4)
    assert invocations.stop(BOUND_SECONDS)
    (first, one), (second, two), (third, three) = seen.all[:3]
    assert second - first >= 0.05
    assert third - second >= 0.1
    assert one == two == three
    assert seen.all[3] is None
    assert capsys.readouterr().err.count("ZeroDivisionError: always") == 3


def test_a_function_that_recovers_is_not_called_again(seen: Seen) -> None:
    def deliver(event: Any, context: Context) -> None:
        seen.add(event)
        if len(seen.all) == 1:
            raise ZeroDivisionError("once")

    invocations = Invocations({"deliver": deliver}, pauses=(0.0, 0.0), most=1)
    invocations.invoke("deliver", {"n": 1})
    seen.count(2)
    invocations.invoke("deliver", {"n": 2})
    seen.count(3)
    assert seen.all == [{"n": 1}, {"n": 1}, {"n": 2}]


def test_a_pause_holds_up_nobody(seen: Seen) -> None:
    def deliver(event: Any, context: Context) -> None:
        seen.add(event["n"])
        if event["n"] == 0:
            raise ZeroDivisionError("for a minute")

    invocations = Invocations({"deliver": deliver}, most=1)
    for n in range(3):
        invocations.invoke("deliver", {"n": n})
    seen.count(3)
    assert seen.all == [0, 1, 2]
    assert invocations.stop(BOUND_SECONDS)


def test_as_many_run_at_once_as_are_allowed(seen: Seen) -> None:
    go = threading.Event()

    def deliver(event: Any, context: Context) -> None:
        seen.add(event["n"])
        assert go.wait(BOUND_SECONDS)

    invocations = Invocations({"deliver": deliver}, most=20)
    for n in range(30):
        invocations.invoke("deliver", {"n": n})
    seen.count(20)
    assert (sorted(seen.all), invocations.threads) == (list(range(20)), 20)
    go.set()
    seen.count(30)
    assert invocations.stop(BOUND_SECONDS)


def test_idle_threads_go_and_come_again(seen: Seen) -> None:
    ended = Seen()

    def deliver(event: Any, context: Context) -> None:
        thread = threading.current_thread()

        def wait() -> None:
            thread.join(BOUND_SECONDS)
            ended.add(thread.is_alive())

        threading.Thread(target=wait).start()
        seen.add(event)

    invocations = Invocations({"deliver": deliver}, idle_seconds=0.01)
    for turn in (1, 2):
        invocations.invoke("deliver", {})
        ended.count(turn)
        assert invocations.threads == 0
    assert ended.all == [False, False]
    assert len(seen.all) == 2


def test_the_remaining_time_shrinks_to_nothing() -> None:
    machine = Machine(end=0)
    context = Context(
        function_name="deliver", request_id="id", stopping=threading.Event(), seconds=60, clock=machine.clock
    )
    remaining = []
    for _ in range(4):
        remaining.append(context.get_remaining_time_in_millis())
        machine.wait(25)
    assert remaining == [60_000, 35_000, 10_000, 0]


def test_time_outs_are_by_function(seen: Seen) -> None:
    def deliver(event: Any, context: Context) -> None:
        seen.add(context.get_remaining_time_in_millis())

    invocations = Invocations({"a": deliver, "b": deliver}, seconds={"b": 900.0}, most=1)
    invocations.invoke("a", {})
    invocations.invoke("b", {})
    seen.count(2)
    assert 0 < seen.all[0] <= 60_000 < seen.all[1] <= 900_000


def test_stop_tells_running_functions_waits_for_them_and_starts_no_other(seen: Seen) -> None:
    go = threading.Event()

    def deliver(event: Any, context: Context) -> None:
        seen.add(("began", event["n"]))
        assert go.wait(BOUND_SECONDS)
        seen.add(("ended", context.get_remaining_time_in_millis()))

    invocations = Invocations({"deliver": deliver}, most=1)
    for n in range(2):
        invocations.invoke("deliver", {"n": n})
    seen.count(1)
    assert not invocations.stop(0.01), "one runs"
    invocations.invoke("deliver", {"n": 2})
    go.set()
    assert invocations.stop(BOUND_SECONDS)
    assert seen.all == [("began", 0), ("ended", 0)]


def test_functions_of_an_app_may_run_in_many_threads(seen: Seen) -> None:
    functions = functions_of(app_of(seen))
    assert functions.keys() == {"minutely", "quarterly", "nightly", "route"}
    invocations = Invocations(functions)
    for n in range(500):
        invocations.invoke("route", {"n": n})
    seen.count(500)
    assert sorted(event["n"] for _, event, _ in seen.all) == list(range(500))
    assert all(name == "route" and event["passed"] for name, event, _ in seen.all)
    assert len({id_ for *_, id_ in seen.all}) == 500
    assert invocations.stop(BOUND_SECONDS)
