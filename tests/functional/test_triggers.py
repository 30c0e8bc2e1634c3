"""Streams, schedules and invocations of one app run together on the local server."""

from __future__ import annotations

import threading

import pytest
from chalice import Chalice

from chalicelib.store.layout import Tables
from local.functions import Invocations, functions_of
from local.store import client, stream_pollers
from local.triggers import Triggers
from tests.functional.triggered import CallLog, app_of, new_table, offsets


def test_an_app_with_its_triggers(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    calls = CallLog()
    with new_table() as table:
        app = app_of(calls)
        invocations = Invocations(functions_of(app))
        pollers = stream_pollers(functions_of(app), Tables(table.name.removesuffix("-log")), client)
        triggers = Triggers(app, invocations, pollers)
        triggers.start()
        table.put("a", 1)
        invocations.invoke("route", {"by": "hand"})
        calls.count(4)
        triggers.stop()
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
    pollers = stream_pollers(functions_of(app), Tables("no-such"), client)
    Triggers(app, Invocations({}), pollers).start()  # it would wait, and tell of the trouble
    assert not any(thread.name == "stream" for thread in threading.enumerate())
