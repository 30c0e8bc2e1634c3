"""A clock that the user moves: 40 days pass in a call, and what is due on the way happens at its time."""

from __future__ import annotations

import json
import threading
import urllib.error
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

import app
from chalicelib import wiring
from chalicelib.api.calls import CALLS
from chalicelib.domain.status import Status
from chalicelib.domain.times import DAY_SECONDS
from chalicelib.wiring import Deps
from local import Unusable
from local.clock import ClockController, HandClock, Services, reset_call
from local.functions import Context, Invocations, event_of, functions_of
from local.store import expiry
from tests.support import factories as make
from tests.support.desk import Desk, records
from tests.support.embedded import engine_of
from tests.support.local_service import serving
from tests.support.receiver import Receiver, Reply, Visit
from tests.support.stages import embedded_stage

Ask = Callable[..., dict[str, Any]]


@pytest.fixture(
    scope="module",
    params=["embedded", pytest.param("dynamodb-local", marks=[pytest.mark.oracle, pytest.mark.soak])],
)
def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Calls a local service, on either engine: method, path, JSON body → JSON answer."""
    data = str(tmp_path_factory.mktemp("data"))
    with serving("--engine", request.param, HEADRACE_DATA=data, AWS_ENDPOINT_URL_DYNAMODB="") as service:
        yield service.ask


def test_a_delay_of_40_days_passes_in_a_call(ask: Ask) -> None:
    ask("PUT", "/topics/orders")
    ask("PUT", "/topics/orders/groups/g", {"from": "earliest"})
    message = ask("POST", "/topics/orders/messages", {"body": 1, "delay_seconds": 40 * DAY_SECONDS})
    assert ask("POST", "/clock", {"advance_seconds": 39 * DAY_SECONDS})["finished"] is True
    assert ask("POST", "/topics/orders/groups/g/receive", {"wait_seconds": 1})["messages"] == []
    ask("POST", "/clock", {"advance_seconds": DAY_SECONDS})
    (claimed_message,) = ask("POST", "/topics/orders/groups/g/receive", {"wait_seconds": 5})["messages"]
    assert claimed_message["id"] == message["id"]


def test_a_schedule_fires_at_each_of_its_times_while_days_pass(ask: Ask) -> None:
    ask("PUT", "/topics/ticks", {"retention_days": 14})
    ask("PUT", "/topics/ticks/groups/g", {"from": "earliest"})
    times = ask("PUT", "/schedules/ticks", {"topic": "ticks", "message": {"body": 1}, "cron": "0 9 * * *"})
    assert ask("POST", "/clock", {"advance_seconds": 5 * DAY_SECONDS})["finished"] is True
    messages = ask("POST", "/topics/ticks/groups/g/receive", {"wait_seconds": 5})["messages"]
    assert sorted(each["scheduled_at"] for each in messages) == times["next"][:5]
    assert all(each["accepted_at"][:16] == each["scheduled_at"][:16] for each in messages)
    ask("DELETE", "/schedules/ticks")


def test_what_ends_in_a_month_that_passes_is_buried_within_a_day_of_its_end(ask: Ask) -> None:
    ask("PUT", "/topics/short")
    ask("PUT", "/topics/short/groups/g", {"from": "earliest"})
    message = ask("POST", "/topics/short/messages", {"body": 1, "expires_in_seconds": 3600})
    assert ask("POST", "/clock", {"advance_seconds": 30 * DAY_SECONDS})["finished"] is True
    (letter,) = ask("GET", "/topics/short/groups/g/dead-letters")["items"]
    lived = datetime.fromisoformat(letter["dead_at"]) - datetime.fromisoformat(message["accepted_at"])
    assert timedelta(hours=1) <= lived < timedelta(days=1)


def test_a_subscriber_that_checks_signatures_accepts_what_comes_after_40_days(ask: Ask) -> None:
    with Receiver() as receiver:
        ask("PUT", "/topics/late", {})
        ask("PUT", "/topics/late/groups/g", {"from": "earliest"})
        consumer = ask("PUT", "/topics/late/groups/g/consumers/c", {"url": receiver.url("/")})
        ask("POST", "/topics/late/messages", {"body": 1, "delay_seconds": 40 * DAY_SECONDS})
        ask("POST", "/clock", {"advance_seconds": 40 * DAY_SECONDS})
        (visit,) = receiver.visits
    assert Webhook(consumer["secret"]).verify(visit.body, dict(visit.headers)) == 1


def test_a_transaction_is_asked_about_one_time_after_the_other(ask: Ask) -> None:
    def unknown(visit: Visit) -> Reply:
        checks.append(json.loads(visit.body)["checks"])
        return Reply(body=b'{"state": "unknown"}')

    checks: list[int] = []
    with Receiver(unknown) as producer:
        ask("PUT", "/topics/half", {})
        body = {"message": {"body": 1}, "check_url": producer.url("/"), "check_after_seconds": 2}
        transaction = ask("POST", "/topics/half/transactions", body)["transaction_id"]
        ask("POST", "/clock", {"advance_seconds": 9})
        ask("POST", f"/transactions/{transaction}/commit")
    assert len(checks) >= 4  # and what falls into the real time that the calls take
    assert checks == list(range(1, len(checks) + 1))


@pytest.mark.parametrize("ask", ["embedded"], indirect=True)
def test_a_quarter_of_an_hour_passes_in_a_call_while_a_circuit_is_open(ask: Ask) -> None:
    with Receiver(lambda visit: Reply(503)) as receiver:
        ask("PUT", "/topics/down", {"retry": {"ladder": [DAY_SECONDS]}})
        ask("PUT", "/topics/down/groups/g", {"from": "earliest"})
        ask("PUT", "/topics/down/groups/g/consumers/c", {"url": receiver.url("/")})
        ask("POST", "/topics/down/messages/batch", {"messages": [{"body": n} for n in range(100)]})
        ask("POST", "/clock", {"advance_seconds": 0})
        assert ask("GET", "/topics/down/groups/g/consumers/c")["breaker"] == "open"
        assert ask("POST", "/clock", {"advance_seconds": 900})["finished"] is True
        ask("DELETE", "/topics/down?confirm=down")


def test_the_clock_goes_forward_only(ask: Ask) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        ask("POST", "/clock", {"advance_seconds": -1})


def test_a_restart_does_not_change_the_time(tmp_path: Path) -> None:
    first = HandClock(tmp_path / "clock")
    assert first.ahead == timedelta()
    first.move_to(first.now_ms() + 40 * DAY_SECONDS * 1000)
    assert HandClock(tmp_path / "clock").ahead == first.ahead == timedelta(days=40)


@pytest.mark.parametrize("content", [b"", b"4000x", b"\xff"])
def test_a_damaged_time_is_refused_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    """As by a loss of power while it is written: the machine's time would be before what is stored."""
    (tmp_path / "clock").write_bytes(content)
    with pytest.raises(Unusable, match="write 0 into it"):
        HandClock(tmp_path / "clock")


@pytest.mark.parametrize("function", ["deliver", "check"])
def test_it_waits_neither_for_ever_nor_says_that_all_is_done_while_a_url_hangs(function: str) -> None:
    is_done = threading.Event()
    invocations = Invocations({function: lambda event, context: is_done.wait(30)})
    deps = Deps(embedded_stage().adapters)
    controller = ClockController(clock=HandClock(), deps=lambda: deps, invocations=invocations)
    invocations.invoke(function, {})
    assert controller.advance(0, within=0.05) is False
    assert controller.advance(3_600, within=0.05) is False
    is_done.set()
    assert controller.advance(0) is True


def test_a_reset_in_the_middle_of_a_move_ends_at_the_machines_time() -> None:
    """The move went on with what was new: its time was an hour ahead."""
    clock = HandClock()
    services = Services(lambda: Deps(embedded_stage().adapters))
    token = services().tokens.ensure_admin(None)
    assert token
    call = reset_call(services, clock, token, lambda: None)
    reset = threading.Thread(target=call.handler, args=(None,))

    def deps() -> Deps:
        if reset.ident is None:
            reset.start()
            reset.join(0.05)
        return services()

    invocations = Invocations({"deliver": lambda event, context: None})
    assert ClockController(clock=clock, deps=deps, invocations=invocations).advance(3_600) is True
    reset.join(30)
    assert (reset.is_alive(), clock.ahead) == (False, timedelta())


def test_i1_what_ended_on_the_way_is_buried_before_its_row_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber that hangs keeps the clock from arriving, ten days later; expired rows go each minute."""
    desk = Desk.at(embedded_stage(), retention_days=1)
    group, message = desk.group(), desk.produce(make.draft())[0]
    monkeypatch.setattr(wiring, "deps", lambda: desk.deps)
    drop = expiry(engine_of(desk.stage.adapters), functions_of(app.app))
    context = Context(function_name="drop", request_id="drop", stop=threading.Event())
    desk.stage.clock.advance(10 * DAY_SECONDS * 1000)
    drop(event_of("drop"), context)
    assert desk.rows() == []
    assert [record.status for record in records(desk, group).values()] == [Status.DEAD]
    assert (message.offset, desk.produce(make.draft())[0].offset) == (0, 1)
    assert len(desk.receive(group)) == 1, "and what comes later is delivered"


def test_i1_a_move_that_has_not_buried_all_keeps_the_rows_and_says_so() -> None:
    """`POST /v1/clock` dropped them, and answered that it had finished."""
    desk = Desk.at(embedded_stage(), retention_days=1)
    group = desk.group()
    desk.produce(make.draft())
    desk.stage.clock.advance(10 * DAY_SECONDS * 1000)

    def advance(**seconds: float) -> bool:
        return ClockController(
            clock=HandClock(),
            deps=lambda: desk.deps,
            invocations=Invocations({}),
            forget=desk.stage.drop_expired,
            **seconds,
        ).advance(0)

    assert advance(job_seconds=0) is False
    assert len(desk.rows()) == 1
    assert advance() is True
    assert desk.rows() == []
    assert [record.status for record in records(desk, group).values()] == [Status.DEAD]


def test_no_deployed_stage_has_it() -> None:
    assert "/v1/clock" not in app.app.routes
    assert "/v1/clock" not in {call.path for call in CALLS}
