"""Later: what is due as a map of days and hours, the list of an hour, and locally the clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chalicelib.console import deeds
from chalicelib.console.views.heat import heat_map
from chalicelib.services.inspect.due_hours import HOUR_MS, DueHour
from local.clock import ClockController, HandClock
from local.functions import Invocations
from tests.support.browser import Browser
from tests.support.http import Client

DAY_MS = 24 * HOUR_MS
NOW_MS = 4_102_444_800_000 + 5 * HOUR_MS + 7  # 05:00 on some day


def test_what_is_due_is_told_by_the_hour_delays_and_retries_apart(api: Client) -> None:
    topic = api.topic(shards=1)
    group = topic.group("mailer")
    for _ in range(2):
        topic.produce("soon", delay_seconds=2 * 3600)
    topic.produce("late", delay_seconds=30 * 3600)
    topic.produce("fails")
    group.nack(*group.receive(1), delay_seconds=2 * 3600)
    api.topic().produce("foreign", delay_seconds=2 * 3600)
    due = api.get(f"{topic.path}/due").expect(200)
    assert due["until"] is None
    assert (sum(hour["delayed"] for hour in due["hours"]), sum(h["retries"] for h in due["hours"])) == (3, 1)
    last = due["hours"][-1]
    assert api.get(f"{topic.path}/due?from={last['at']}").expect(200)["hours"] == [last]
    api.get(f"{topic.path}/due?from=x").refused(400, "VALIDATION")


def test_the_map_leads_to_the_list_of_an_hour(api: Client, browser: Browser) -> None:
    topic = api.topic()
    soon = topic.produce("soon", delay_seconds=2 * 3600)["id"]
    late = topic.produce("late", delay_seconds=30 * 3600)["id"]
    screen = browser.get(f"/console/topics/{topic.name}/later")
    assert screen.units <= 20
    assert screen.html.count('class="h4"') == 2
    at = screen.html.split("later?hour=")[1].partition('"')[0]
    screen = browser.get(f"/console/topics/{topic.name}/later?hour={at}")
    assert soon in screen.html
    assert late not in screen.html
    assert screen.units <= 20


def test_very_many_timers_do_not_make_the_page_dear(api: Client, browser: Browser) -> None:
    topic = api.topic()
    for _ in range(3):
        topic.batch([{"body": "x" * 900, "delay_seconds": 3600 + n * 60} for n in range(100)])
    screen = browser.get(f"/console/topics/{topic.name}/later")
    assert screen.units <= 20
    assert "Known until" in screen.text


def test_the_map_has_a_row_for_each_day_up_to_the_last() -> None:
    hours = [DueHour(NOW_MS - NOW_MS % HOUR_MS + n * HOUR_MS, n, 1) for n in (0, 3, 50)]
    heat = heat_map(
        [DueHour(NOW_MS - 9 * HOUR_MS, 2, 0), *hours, DueHour(NOW_MS + 40 * DAY_MS, 7, 0)], NOW_MS
    )
    assert [len(day) for day in heat.days] == [24, 24, 24]
    assert (heat.days[0][5].delayed, heat.days[0][5].retries) == (2, 1), "what is overdue is due now"
    assert heat.days[2][7].shade == 4
    assert heat.later == 7
    assert heat_map([], NOW_MS).is_empty


@pytest.fixture
def local_clock() -> Iterator[HandClock]:
    """The console has the local service's clock at hand."""
    clock = HandClock()
    controller = ClockController(clock, lambda: (_ for _ in ()).throw(AssertionError), Invocations({}))
    before = dict(deeds._BY_NAME)
    deeds.enter(controller.call)
    yield clock
    deeds._BY_NAME.clear()
    deeds._BY_NAME.update(before)


def test_only_a_local_service_offers_its_clock(api: Client, browser: Browser) -> None:
    topic = api.topic()
    screen = browser.get(f"/console/topics/{topic.name}/later")
    assert "advance_seconds" not in screen.html
    fields = {"deed": "move_clock", "advance_seconds": "60", "csrf": screen.forms[1].fields.get("csrf", "")}
    assert browser.post("/console/do", fields).status in (400, 403)


def test_a_local_service_offers_its_clock(api: Client, browser: Browser, local_clock: HandClock) -> None:
    screen = browser.get(f"/console/topics/{api.topic().name}/later")
    form = screen.form("move_clock")
    assert form.buttons[:3] == ["+ a minute", "+ an hour", "+ a day"]
    assert "/v1/clock" in screen.html
