"""Later: what is due as a map of days and hours, the list of an hour, and locally the clock."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from chalicelib.console.pages.later import heat_map
from chalicelib.domain.times import DAY_MS, HOUR_MS
from chalicelib.services.inspect.waiting import DueHour
from local.clock import HandClock
from tests.support.browser import Browser
from tests.support.http import Client, Topic

pytestmark = pytest.mark.usefixtures("no_timers")
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
    hours = due["hours"]
    while due["until"]:  # timers of other topics are looked through, too
        due = api.get(f"{topic.path}/due?from={due['until']}").expect(200)
        hours += due["hours"]
    assert (sum(hour["delayed"] for hour in hours), sum(hour["retries"] for hour in hours)) == (3, 1)
    last = hours[-1]
    assert api.get(f"{topic.path}/due?from={last['at']}").expect(200)["hours"] == [last]
    api.get(f"{topic.path}/due?from=x").refused(400, "VALIDATION")


def retries(api: Client, topic: Topic) -> int:
    hours = api.get(f"{topic.path}/due").expect(200)["hours"]
    return sum(hour["retries"] for hour in hours)


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_retries_are_counted_of_the_groups_that_there_are_and_that_the_token_may_use(
    api: Client, mode: str
) -> None:
    topic = api.topic(shards=1, mode=mode)
    consumer = {"consumer": "c"} if mode == "broadcast" else {}
    for name in ("mine", "theirs"):
        group = topic.group(name)
        if consumer:
            group.register("c")
    topic.produce("fails")
    for name in ("mine", "theirs"):
        path = f"{topic.path}/groups/{name}"
        (message,) = api.post(f"{path}/receive", {"wait_seconds": 1, **consumer}).expect(200)["messages"]
        api.post(f"{path}/nack", {"receipts": [message["receipt"]], "delay_seconds": 7200}).expect(200)
    holder = api.with_token(api.new_token("consume", groups=["mine"])["token"])
    assert (retries(api, topic), retries(holder, topic)) == (2, 1)
    api.delete(f"{topic.path}/groups/theirs").expect(204)
    topic.group("theirs")
    assert retries(api, topic) == 1, "those of the group before are nobody's"


def test_jobs_are_found_by_name_and_listed_by_its_beginning(
    api: Client, browser: Browser, stranger: Browser
) -> None:
    topic = api.topic()
    ids = [
        api.put(f"{topic.path}/jobs/{name}", {"body": 1, "delay_seconds": 60}).expect(201)["id"]
        for name in (f"{topic.name}%2Fa", "b")
    ]
    screen = browser.get(f"/console/topics/{topic.name}/later?job={topic.name}/")
    assert ids[0] in screen.html
    assert ids[1] not in screen.html
    [many] = [form for form in screen.forms if form.action.endswith("later/many")]
    screen = browser.get(f"/console/topics/{topic.name}/later/many?{urlencode(many.fields)}")
    assert ids[0] in screen.html
    assert ids[1] not in screen.html, "only those that were shown"
    stranger.enter(api.new_token("consume", topics=[topic.name])["token"])
    screen = stranger.get(f"/console/find?q={topic.name}/a")
    assert ids[0] in screen.html
    assert f"{topic.name}/a" in screen.text, "the message's page names the job"


def test_a_page_that_finds_only_foreign_timers_says_so_and_leads_on(api: Client, browser: Browser) -> None:
    topic, foreign = api.topic(), api.topic()
    for hour in (1, 1, 1, 3, 3, 3):
        foreign.batch([{"body": "x" * 900, "delay_seconds": hour * 3600 + n * 60} for n in range(100)])
    mine = topic.batch([{"body": n, "delay_seconds": 6 * 3600 + n} for n in range(40)])[0]["id"]
    screen = browser.get(f"/console/topics/{topic.name}/later")
    pages = 1
    while mine not in screen.html:
        assert "there are later ones" in screen.text
        assert "No message waits" not in screen.text
        screen = browser.follow("Look further")
        assert screen.units <= 20
        pages += 1
    assert 1 < pages < 12
    screen = browser.follow("Later ones")  # from an hour on in which no others are due
    assert "Known from" in screen.text, "the map has gone on, too"
    browser.follow("From the first one on")
    empty = browser.get(f"/console/topics/{api.topic().name}/later?after={'x' * 9}")
    assert empty.status == 200, "an address that somebody made up begins at the beginning"


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


def test_only_a_local_service_offers_its_clock(api: Client, browser: Browser) -> None:
    topic = api.topic()
    screen = browser.get(f"/console/topics/{topic.name}/later")
    assert "advance_seconds" not in screen.html
    fields = {"call": "move_clock", "advance_seconds": "60", "csrf": screen.forms[1].fields.get("csrf", "")}
    assert browser.post("/console/do", fields).status in (400, 403)


def test_a_local_service_offers_its_clock(api: Client, browser: Browser, local_clock: HandClock) -> None:
    screen = browser.get(f"/console/topics/{api.topic().name}/later")
    form = screen.form("move_clock")
    assert form.buttons[:3] == ["+ a minute", "+ an hour", "+ a day"]
    assert "/v1/clock" in screen.html


def times(api: Client, topic: Topic, *ids: str) -> list[str]:
    views = [api.get(f"{topic.path}/messages/{id}").expect(200) for id in ids]
    return [each["deliver_at"] if each["status"] == "DELAYED" else each["status"] for each in views]


def test_those_of_an_hour_are_counted_then_postponed_and_moved_back(api: Client, browser: Browser) -> None:
    topic = api.topic()
    soon = [topic.produce(n, delay_seconds=2 * 3600)["id"] for n in range(3)]
    late_id = topic.produce("late", delay_seconds=30 * 3600)["id"]
    before = times(api, topic, *soon, late_id)
    html = browser.get(f"/console/topics/{topic.name}/later").html
    hour = html.split("later?hour=")[1].partition('"')[0]
    screen = browser.get(f"/console/topics/{topic.name}/later/many?hour={hour}")
    assert "3 messages" in screen.text
    assert screen.units <= 20
    assert "-X PATCH" in screen.html
    assert times(api, topic, *soon, late_id) == before, "it only counts"
    screen = browser.submit(screen.form("change_delayed"), postpone_seconds="3600", deliver_at="")
    assert "3 messages changed." in screen.text
    assert [now > then for now, then in zip(times(api, topic, *soon, late_id), before, strict=True)] == [
        *[True] * 3,
        False,
    ]
    (undo,) = [form for form in screen.forms if "Undo" in form.buttons]
    browser.submit(undo)
    assert times(api, topic, *soon, late_id) == before


def test_those_that_are_ticked_are_taken_back(api: Client, browser: Browser) -> None:
    topic = api.topic()
    ids = [topic.produce(n, delay_seconds=3600)["id"] for n in range(3)]
    screen = browser.get(f"/console/topics/{topic.name}/later")
    assert all(f'name="id.{id}"' in screen.html for id in ids)
    screen = browser.get(f"/console/topics/{topic.name}/later/many?id.{ids[0]}=on&id.{ids[2]}=on")
    assert "2 messages" in screen.text
    (form,) = [form for form in screen.forms if "cancel" in form.fields]
    assert "2 messages changed." in browser.submit(form).text
    assert [state == "CANCELLED" for state in times(api, topic, *ids)] == [True, False, True]
    entry = api.get(f"/v1/audit?topic={topic.name}&limit=1").expect(200)["items"][0]
    assert (entry["method"], entry["path"]) == ("PATCH", "/v1/topics/{topic}/messages")


TEN_YEARS = 3650 * 86_400


def test_of_many_those_that_are_refused_are_told_with_the_reason_and_stay_where_they_are(
    api: Client, browser: Browser
) -> None:
    topic = api.topic()
    ids = [topic.produce(n, delay_seconds=seconds)["id"] for n, seconds in enumerate((3600, TEN_YEARS - 600))]
    before = times(api, topic, *ids)
    many = f"/console/topics/{topic.name}/later/many?" + "&".join(f"id.{id}=on" for id in ids)
    hour_later = {"postpone_seconds": "3600", "deliver_at": ""}
    screen = browser.submit(browser.get(many).form("change_delayed"), **hour_later)
    assert "1 message changed." in screen.text
    assert "1 refused: A message may wait 3650 days at most." in screen.text
    (undo,) = [form for form in screen.forms if "Undo" in form.buttons]
    browser.submit(undo)
    assert times(api, topic, *ids) == before, "the other one was not moved, so it is not moved back"
