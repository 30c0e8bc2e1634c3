"""What the console draws and links: pure functions, for every cursor and every message's path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.api.parse import time_ms
from chalicelib.console import figures
from chalicelib.console.forms import whole_time
from chalicelib.console.pages import dead_letters, message, rates, topics
from chalicelib.console.visit import Links
from chalicelib.domain.cursor import Cursor, Lease
from chalicelib.domain.errors import Malformed
from chalicelib.domain.spans import Span
from chalicelib.domain.status import Status
from chalicelib.domain.topic import cursor_key
from chalicelib.services.inspect.statuses import DeliveryStatus
from chalicelib.services.inspect.survey import Extent, GroupSurvey, Progress, TopicSurvey
from chalicelib.services.inspect.trace import Event
from tests.support import factories as make

TOPIC = make.topic("orders", shards=1)
GROUP = make.group(TOPIC)


def survey(cursor: Cursor, first: int, tail: int) -> TopicSurvey:
    place = Progress(key=cursor_key(TOPIC, GROUP, 0), shard=0, cursor=cursor, tail=tail)
    of = GroupSurvey(GROUP, (place,), (), 0, 0)
    return TopicSurvey(TOPIC, 0, (Extent(0, first, tail),), (of,))


@given(st.integers(0, 500), st.integers(1, 500), st.integers(0, 200), st.integers(0, 60), st.integers(0, 60))
def test_every_offset_that_is_shown_is_in_one_piece(
    first: int, count: int, floor: int, lease_count: int, waits: int
) -> None:
    tail = first + count - 1
    floor = min(first + floor, tail + 1)
    lease_count = min(lease_count, tail + 1 - floor)
    waits = min(waits, tail + 1 - floor - lease_count)
    cursor = Cursor(
        floor,
        floor + lease_count + waits,
        {"t": Lease("t", (Span(floor, lease_count),), 1)} if lease_count else {},
        (Span(floor + lease_count, waits, 2),) if waits else (),
    )
    (shard_strip,) = topics.strips(survey(cursor, first, tail), {})
    (lane,) = shard_strip.lanes
    pieces = sorted((bar.low, bar.high) for bar in lane.bars)
    offsets = [offset for low, high in pieces for offset in range(low, high + 1)]
    assert offsets == list(range(shard_strip.low, tail + 1)), "no offset twice, none left out"
    assert all(0 <= bar.x <= topics.WIDTH and bar.x + bar.width <= topics.WIDTH + 2.1 for bar in lane.bars)
    assert shard_strip.older == shard_strip.low - first


@pytest.mark.parametrize(
    ("most", "top"), [(0, 1), (0.03, 0.04), (0.47, 1), (1, 1), (2.1, 4), (65, 100), (145, 200), (1000, 1000)]
)
def test_a_scale_ends_with_a_round_number_whose_half_is_round(most: float, top: float) -> None:
    assert rates._top(most) == pytest.approx(top)


def test_what_was_not_read_is_not_shown_as_settled_well() -> None:
    def lane(shard: int) -> list[tuple[str, int, int]]:
        place = Progress(key=cursor_key(TOPIC, GROUP, shard), shard=shard, cursor=Cursor(50, 50), tail=99)
        of = GroupSurvey(GROUP, (place,), (), 1, 0, failures={(1, 7, ""): "DEAD"}, read_to=(1, 19))
        (shard_strip,) = topics.strips(TopicSurvey(TOPIC, 0, (Extent(shard, 0, 99),), (of,)), {})
        return [(bar.kind, bar.low, bar.high) for bar in shard_strip.lanes[0].bars if bar.kind != "new"]

    assert lane(0) == [("done", 0, 49)]
    assert lane(1) == [("done", 0, 19), ("unread", 20, 49), ("dead", 7, 7)]
    assert lane(2) == [("unread", 0, 49)]


def test_what_left_its_lane_is_marked_where_it_lay() -> None:
    place = Progress(key=cursor_key(TOPIC, GROUP, 0), shard=0, cursor=Cursor(50, 50), tail=99)
    failures = {(0, 7, ""): "RETRYING", (0, 40, ""): "DEAD", (0, 41, ""): "DEAD", (1, 9, ""): "DEAD"}
    of = GroupSurvey(GROUP, (place,), (), 3, 1, failures=failures)
    (shard_strip,) = topics.strips(TopicSurvey(TOPIC, 0, (Extent(0, 0, 99),), (of,)), {})
    marks = [
        (bar.kind, bar.low, bar.high, bar.x)
        for bar in shard_strip.lanes[0].bars
        if bar.kind in ("wait", "dead")
    ]
    assert marks == [("wait", 7, 7, 70), ("dead", 40, 41, 400)]


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), min_size=1, max_size=8),
    st.integers(0, 10**9),
)
def test_a_time_line_stays_within_its_width(attempts: list[tuple[int, int]], wait_ms: int) -> None:
    events = [
        Event(at_ms, "delivered", 0, "g", "c", n + 1, duration_ms=duration_ms, outcome="RETRY")
        for n, (at_ms, duration_ms) in enumerate(sorted(attempts))
    ]
    now_ms = events[-1].at_ms + (events[-1].duration_ms or 0)
    steps = {"g": [now_ms + 1 + wait_ms, now_ms + 2 + 2 * wait_ms]}
    line = message.time_line(events, {"g": DeliveryStatus(Status.RETRYING, len(events))}, steps, now_ms)
    marks = [mark for lane in line.lanes for mark in lane.marks]
    assert all(mark.x >= 0 and mark.x + mark.width <= message.WIDTH + 4.1 for mark in marks)
    places = [mark.x for mark in marks if mark.kind == "coming"]
    assert places == sorted(places)
    assert all(x >= 720 for x in places), "what is to come is right of now"


def test_links_hold_behind_any_prefix() -> None:
    deep = Links("/console/topics/orders/groups/mailer")
    assert deep.to() == "../../../../console"
    assert deep.to("topics", "a/b", tag="x y") == "../../../../console/topics/a%2Fb?tag=x+y"
    assert Links("/console").to("tokens") == "console/tokens"
    assert deep.here == "topics/orders/groups/mailer"


@given(st.text(max_size=40))
def test_a_form_leads_back_into_the_console_only(place: str) -> None:
    target = Links("/console/do").back(place)
    assert target.startswith("../console")
    rest = target.removeprefix("../console").partition("?")[0]
    assert "//" not in rest
    assert ".." not in rest.split("/")


def test_a_place_elsewhere_leads_to_the_overview() -> None:
    for place in ("//evil.example", "https://evil.example", "../../x", "topics/../../x", "a\r\nb", "\\evil"):
        assert Links("/console/do").back(place) == "../console"
    assert Links("/console/do").back("topics/a.b/messages?tag=x&did=produce").endswith("did=produce")


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_diff_holds_both_texts(before: str, after: str) -> None:
    lines = dead_letters.diff(before, after)
    assert [line.text for line in lines if line.sign != "+"] == before.splitlines()
    assert [line.text for line in lines if line.sign != "-"] == after.splitlines()


@pytest.mark.parametrize("at", [0, 450, 999])
def test_a_diff_of_long_texts_shows_what_changes_wherever_that_is(at: int) -> None:
    old = [str(n) for n in range(1_000)]
    new = [*old[:at], "in between", *old[at:]]
    lines = dead_letters.diff("\n".join(old), "\n".join(new))
    assert [(line.sign, line.text) for line in lines if line.sign != " "] == [("+", "in between")]
    assert len(lines) < 500


def test_figures_are_told_as_people_read_them() -> None:
    assert [figures.span(ms) for ms in (350, 1_500, 12_000, 200_000, 7_200_000, 5 * 86_400_000)] == [
        "350 ms",
        "1.5 s",
        "12 s",
        "3 m 20 s",
        "2 h",
        "5 d",
    ]
    assert [figures.span(ms, "zh") for ms in (350, 1_500, 200_000)] == ["350 毫秒", "1.5 秒", "3 分 20 秒"]
    assert (figures.count(1234567), figures.count(10, True), figures.size(1536)) == (
        "1,234,567",
        "10+",
        "1.5 KiB",
    )


@pytest.mark.parametrize("zone", ["Z", "+05:30", "-05:00"])
@pytest.mark.parametrize("begin", ["2026-01-01T00:00:00", "2026-01-01T00:00:00.250"])
def test_a_page_takes_the_times_that_the_interface_takes(begin: str, zone: str) -> None:
    assert time_ms(whole_time(f" {begin}{zone} "), "from") == time_ms(f"{begin}{zone}", "from")


@pytest.mark.parametrize("text", ["2026-01-01T00:00", "2026-01-01T00:00:00", "2026-01-01T00:00:00.000"])
def test_a_page_takes_a_time_without_a_zone_for_utc(text: str) -> None:
    assert time_ms(whole_time(text), "from") == time_ms("2026-01-01T00:00:00Z", "from")


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01", "2026-01", "2026-01-01T00:00:00-0500", "+05:00"])
def test_a_page_refuses_the_times_that_the_interface_refuses(text: str) -> None:
    with pytest.raises(Malformed, match="must be a time"):
        time_ms(whole_time(text), "from")
