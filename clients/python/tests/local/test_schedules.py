"""Schedules: by the client, as an application declares them, on the command line, with the tests' clock."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import pytest
from cli_commands import Command

from headrace import AsyncHeadrace, Headrace
from headrace.errors import NotFound
from headrace.testing import LocalHeadrace


def own(headrace: LocalHeadrace, app: str) -> Headrace:
    """A client of the same service and token under an application's name."""
    return Headrace(headrace.transport.urls[0], headrace.transport.token, app=app)


def test_the_clock_of_tests_lets_each_time_come(headrace: LocalHeadrace) -> None:
    headrace.put_topic("reports")
    headrace.put_group("reports", "g", begin="earliest")
    headrace.put_schedule(
        "daily", "reports", {"n": 1}, cron="0 9 * * *", timezone="Europe/Berlin", key="daily"
    )
    headrace.clock.advance(days=3)
    messages = headrace.receive("reports", "g")
    assert [(each.body, each.schedule, each.keys) for each in messages] == [
        ({"n": 1}, "daily", ["daily"])
    ] * 3
    headrace.ack("reports", "g", *messages)
    times = [each.scheduled_at for each in messages]
    assert all(each is not None and each.minute == 0 for each in times)
    found = headrace.get_schedule("daily")
    assert found.last is not None
    assert [each.message_id for each in reversed(found.last)] == [each.id for each in messages]
    assert found.next == headrace.preview_schedule(cron="0 9 * * *", timezone="Europe/Berlin")
    assert headrace.pause_schedule("daily").paused
    headrace.clock.advance(days=2)
    assert headrace.receive("reports", "g") == []
    assert headrace.resume_schedule("daily").next
    assert headrace.run_schedule("daily").topic == "reports"
    assert [each.name for each in headrace.list_schedules()] == ["daily"]
    headrace.delete_schedule("daily")
    with pytest.raises(NotFound):
        headrace.get_schedule("daily")


def test_an_application_stores_its_schedules_and_deletes_only_its_own(headrace: LocalHeadrace) -> None:
    headrace.put_topic("reports")
    headrace.put_schedule("by-hand", "reports", every="1h")
    headrace.put_schedule("of-another", "reports", every="1h", app="other")
    with own(headrace, "shop/web") as before:

        @before.schedule(every="5m", topic="reports", name="old")
        @before.schedule("0 9 * * mon-fri", topic="reports", body={"kind": "daily"}, missed="skip")
        def daily() -> None: ...

        before.register_schedules()
    assert headrace.get_schedule("shop-web.daily").missed == "skip"
    with own(headrace, "shop/web") as hr:
        seen: list[object] = []

        @hr.schedule("@daily", topic="reports", body={"kind": "daily"})
        @hr.consumer("reports", group="worker")
        def daily(body: object) -> None:
            seen.append(body)
            hr.stop()

        hr.register_schedules()
        headrace.put_group("reports", "worker", begin="earliest")
        headrace.run_schedule("shop-web.daily")
        hr.run(for_seconds=20)
        assert seen == [{"kind": "daily"}]
    names = {each.name: each.app for each in headrace.list_schedules()}
    assert names == {"by-hand": None, "of-another": "other", "shop-web.daily": "shop/web"}


def test_schedules_need_the_name_of_the_application(headrace: LocalHeadrace) -> None:
    with own(headrace, "") as hr:

        @hr.schedule("@daily", topic="reports")
        def daily() -> None: ...

        with pytest.raises(ValueError, match="HEADRACE_APP"):
            hr.run()
        with pytest.raises(ValueError, match="two schedules"):
            hr.schedule("@hourly", topic="reports")(daily)


def test_an_application_for_asyncio_stores_its_schedules(headrace: LocalHeadrace) -> None:
    headrace.put_topic("reports")

    async def store() -> None:
        async with AsyncHeadrace(headrace.transport.urls[0], headrace.transport.token, app="shop") as hr:

            @hr.schedule("@daily", topic="reports")
            async def daily() -> None: ...

            await hr.run()

    asyncio.run(store())
    assert headrace.get_schedule("shop.daily").cron == "@daily"


def test_the_command_line_sets_shows_and_runs_them(command: Command, headrace: LocalHeadrace) -> None:
    until = (datetime.now(timezone.utc) + timedelta(days=400)).isoformat()
    options = ("--cron", "0 9 * * mon-fri", "--timezone", "Europe/Berlin", "--until", until, "--key", "k")
    (made,) = command("schedules", "set", "daily", "orders", '{"n": 1}', *options, "--json")
    assert (made["message"], len(made["next"])) == ({"body": {"n": 1}, "keys": ["k"]}, 10)
    assert "0 9 * * mon-fri Europe/Berlin" in command("schedules")
    assert command("schedules", "preview", "--every", "90s", "--json")[1]["at"]
    assert "cron" in command("schedules", "set", "daily", "orders", "--cron", "61 * * * *", code=1)
    assert command("schedules", "pause", "daily", "--json")[0]["paused"]
    assert not command("schedules", "resume", "daily", "--json")[0]["paused"]
    (sent,) = command("schedules", "run", "daily", "--json")
    command("schedules", "set", "of-shop", "orders", "--every", "1h", "--app", "shop")
    assert [each["name"] for each in command("schedules", "list", "--app", "shop", "--json")] == ["of-shop"]
    headrace.delete_schedule("of-shop")
    shown = command("schedules", "show", "daily")
    assert sent["id"] in shown
    assert "+00:00" not in shown.split("last", 1)[1]
    assert "--raw" not in command("schedules", "set", "daily", "orders", "{", "--every", "90s", code=2)
    assert command("tokens", "made", headrace.transport.token.split("_")[1], "--json")[0]["schedules"] == [
        "daily"
    ]
    command("schedules", "delete", "daily", "--yes")
    assert "headrace schedules set daily" in command("schedules", "show", "daily", code=4)
