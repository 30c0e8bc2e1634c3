"""Rates: charts of what came in, was settled, tried again, and lay behind; drawn without script, at a bounded cost."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from chalicelib.domain.meter import HOURS, MINUTES, TENS, GroupReading, Reading
from tests.support.background import Background
from tests.support.browser import Browser
from tests.support.http import Client, ShiftingClock, Topic


def read(background: Background, topic: Topic) -> None:
    """What the sweep's schedule does for a topic in which rows came up."""
    stored_topic = background.deps.catalog.topic(topic.name)
    background.deps.marker.note_topics_of([str(stored_topic.shard_key(0))])
    background.deps.meter_reader.run_once({topic.name})


def test_the_charts_of_a_topic_and_its_groups(
    api: Client, browser: Browser, background: Background, clock: ShiftingClock
) -> None:
    topic = api.topic(shards=2)
    group = topic.group("mailer")
    for _ in range(4):
        read(background, topic)
        topic.batch([{"body": n} for n in range(60)])
        group.ack(*group.receive(30))
        clock.advance(60)
    screen = browser.get(f"/console/topics/{topic.name}/rates")
    assert screen.status == 200
    assert screen.units <= 20
    assert screen.html.count('class="c-line"') == 4
    assert "Behind 120" in screen.text
    about_one = r"(1|0\.9\d?)"  # the clock goes on while the test works
    assert re.search(rf"Accepted {about_one} /s", screen.text)
    assert re.search(rf"at most {about_one} ", screen.text)
    assert "/rates?window=1h" in screen.html
    for window in ("24h", "7d", "x"):
        assert browser.get(f"/console/topics/{topic.name}/rates?window={window}").status == 200


def test_a_topic_that_was_never_read_says_so(api: Client, browser: Browser) -> None:
    screen = browser.get(f"/console/topics/{api.topic().name}/rates")
    assert "not read yet" in screen.text


@pytest.mark.parametrize("groups", [1, pytest.param(90, marks=pytest.mark.soak)])
def test_what_was_read_in_a_week_costs_twenty_units_at_most(
    api: Client, browser: Browser, background: Background, clock: ShiftingClock, groups: int
) -> None:
    topic = api.topic(shards=64)
    stored_topic = background.deps.catalog.topic(topic.name)
    numbers = {f"group-{n:03d}": GroupReading(10**6, 10**6, 10**4) for n in range(groups)}
    numbers["group-000"] = GroupReading(10**6, 64_000, 10**4, (1_000,) * 64)
    background.deps.admin.put_group(stored_topic, "group-000", {})
    control = background.deps.adapters.control
    group = control.group(stored_topic, "group-000")
    assert group
    long_ago = replace(group, created_ms=1)  # else the readings belong to an earlier group of its name
    assert control.put_group(stored_topic, long_ago, group)
    for n in range(1, groups):
        background.deps.admin.put_group(stored_topic, f"group-{n:03d}", {})
    now_ms = clock.now_ms()
    for level in (HOURS, TENS, MINUTES):
        for n in range(180):
            at_ms = now_ms - n * level.every_ms
            reading = Reading(at_ms, 10**8 - n, numbers)
            background.deps.adapters.readings.keep(stored_topic.uid, level, reading)
    for window in ("1h", "24h", "7d"):
        for page in (f"{topic.name}/rates", f"{topic.name}/groups/group-000"):
            screen = browser.get(f"/console/topics/{page}?window={window}")
            assert screen.units <= 20, (page, window)
            has_curves = page.endswith("/rates") or groups == 1  # readings of many have no backlogs by shard
            assert ("c-line" in screen.html) == has_curves, (page, window)


def test_a_group_shows_how_far_it_was_behind_in_each_shard(
    api: Client, browser: Browser, background: Background, clock: ShiftingClock
) -> None:
    topic = api.topic(shards=2)
    group = topic.group("mailer")
    path = f"/console/topics/{topic.name}/groups/{group.name}"
    assert browser.get(path).html.count("<figure") == 2, "what is read now is a curve, too"
    for n in range(4):
        topic.batch([{"body": n, "shard": 0}] * (10 * n) + [{"body": n, "shard": 1}])
        read(background, topic)
        clock.advance(60)
    screen = browser.get(path)
    assert screen.units <= 20
    assert "Shard 0 60 at most 60" in screen.text
    assert "Shard 1 4 at most 4" in screen.text
    assert "groups/mailer/rates?window=1h" in screen.html
    fragment = browser.get(path, hx_request="true")
    assert "<figure" not in fragment.html, "it is not read again every few seconds"
    answer = api.get(f"{topic.path}/groups/mailer/rates?window=24h").expect(200)
    assert (answer["group"], answer["points"][-1]["backlog_by_shard"]) == ("mailer", [60, 4])
    assert answer["points"][-1]["backlog"] == 64
    api.get(f"{topic.path}/groups/mailer/rates?window=2h").refused(400, "VALIDATION")
    api.get(f"{topic.path}/groups/nobody/rates").refused(404, "GROUP_NOT_FOUND")


def test_a_group_of_a_name_that_was_there_before_begins_its_curve_anew(
    api: Client, background: Background, clock: ShiftingClock
) -> None:
    topic = api.topic(shards=1)
    group = topic.group("mailer")
    topic.batch([{"body": n} for n in range(7)])
    read(background, topic)
    clock.advance(120)
    api.delete(group.path).expect(204)
    topic.group("mailer", **{"from": "latest"})
    points = api.get(f"{group.path}/rates").expect(200)["points"]
    assert [point["backlog"] for point in points] == [0]
