"""The report's page: self-contained, true to its rows, and safe with any reason or name."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from glue_jobs.reporting.aggregates import FATES
from glue_jobs.reporting.charts import Series, bars, count_axis, duration_axis, lines
from glue_jobs.reporting.group_counts import GroupCounts
from glue_jobs.reporting.page import Report, page
from glue_jobs.reporting.tables import as_csv

DAY = date(2030, 1, 1)
NASTY = "<script>alert('x')</script>\"&"


class Tags(HTMLParser):
    """Every tag with its attributes; every text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def day(topic: str = "orders", group: str = "g", **fields: Any) -> dict[str, Any]:
    ranks = {f"latency_{name}_ms": 1500 for name in ("p50", "p90", "p99", "max")}
    counts = {"attempts": 12, "messages": 10, "delivered": 10, "retried": 2, "lapsed": 0, "dead_letters": 0}
    return {"topic": topic, "group": group, "day": DAY, **counts, **ranks, **fields}


def report_of(**fields: Any) -> Report:
    volumes = [{"topic": "orders", "day": DAY, "accepted": 11}]
    return Report(**{"first": DAY, "last": DAY, "volumes": volumes, "daily": [day()], **fields})


def test_a_page_needs_nothing_else_and_runs_nothing() -> None:
    tags = Tags(page(report_of(failures=[{"topic": "orders", "group": "g", "reason": NASTY, "attempts": 2}])))
    names = {name for name, _ in tags.tags}
    assert {"html", "svg", "style", "table"} <= names
    assert names & {"script", "link", "img", "iframe", "object", "base", "form"} == set()
    attribute_names = {name for _, attributes in tags.tags for name in attributes}
    assert {name for name in attribute_names if name.startswith("on") or name in ("src", "href")} == set()
    policies = [a["content"] for name, a in tags.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert re.search(r"url\(|@import|https?:", page(report_of())) is None


def test_nothing_that_a_row_says_becomes_markup() -> None:
    failures = [{"topic": NASTY, "group": NASTY, "reason": NASTY, "attempts": 2}]
    volumes = [{"topic": name, "day": DAY, "accepted": 1} for name in (NASTY, NASTY + "alone")]
    text = page(report_of(volumes=volumes, daily=[day(NASTY, NASTY)], failures=failures, gaps=[NASTY]))
    assert "<script" not in text
    assert NASTY in Tags(text).texts


def test_a_page_tells_the_sums() -> None:
    rows = [day(), day(group="h", dead_letters=3, delivered=5, latency_p99_ms=90_000)]
    hours = [
        {"topic": "orders", "group": group, "hour": datetime(2030, 1, 1, hour), "waiting": count}  # noqa: DTZ001
        for group in "gh"
        for hour, count in ((0, 100), (1, 4))
    ]
    text = page(report_of(daily=rows, backlog=hours))
    for value, name in (
        ("11", "accepted"),
        ("15", "delivered"),
        ("1.60", "attempts per success"),
        ("3", "dead letters"),
        ("0", "left over at the end"),
        ("1.5 min", "slowest group's p99"),
    ):
        assert f"<b>{value}</b>{name}" in text
    assert text.count("Dead letters an hour") == 2  # its caption, and the same for those who cannot see it
    assert text.count("<details") == 2


def test_a_backlog_told_by_the_day_ends_where_the_archive_does() -> None:
    begin = datetime(2030, 1, 1)  # noqa: DTZ001
    hours = [
        {"topic": "orders", "group": "g", "hour": begin + timedelta(hours=n), "waiting": n}
        for n in range(10 * 24 + 15)
    ]
    text = page(report_of(last=DAY + timedelta(days=10), backlog=hours))
    assert [int(hour) for hour in re.findall(r": (\d+) waiting", text)] == [*range(23, 240, 24), 254]


def fate_row(group: str = "g", **fates: int) -> dict[str, Any]:
    counts = dict.fromkeys(FATES, 0) | fates
    oldest = datetime(2030, 1, 1)  # noqa: DTZ001
    return {
        "topic": "orders",
        "group": group,
        "accepted": sum(counts.values()),
        **counts,
        "oldest_open_at": oldest,
    }


def overview(text: str) -> list[list[str]]:
    """The cells of the table of groups."""
    rows = text.split("<tbody>")[1].split("</tbody>")[0].split("</tr>")[:-1]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]


def test_every_group_has_a_row_and_a_stuck_one_stands_first() -> None:
    stuck_group = GroupCounts(
        "orders", "stuck", backlog=2, in_flight=0, retrying=0, dead=0, oldest_age_seconds=1_111
    )
    text = page(report_of(explained=[fate_row(delivered=11)], counts=[stuck_group]))
    first, second = overview(text)
    assert (first[1], first[-2:]) == ("stuck", ["2", "18.5 min"])
    assert (second[1], second[3:8]) == ("g", ["11", "0", "0", "0", "0"])
    assert "<b>2</b>left over at the end" in text


@pytest.mark.parametrize(("days", "bars"), [(1, 24), (2, 48), (3, 3)])
def test_days_are_told_by_the_hour_where_they_are_few(days: int, bars: int) -> None:
    some = report_of(last=DAY + timedelta(days=days - 1))
    assert len(some.moments) == bars
    hours = [{**day(), "hour": datetime(2030, 1, 1, hour)} for hour in (3, 4)]  # noqa: DTZ001
    bar_count = page(replace(some, hourly=hours)).count('<rect class="c1"')
    assert bar_count == (2 if some.is_short else 1)


@pytest.mark.parametrize("values", [[], [None, None], [0, 0], [1], [5, None, 1e9], [0.5]])
def test_a_chart_of_any_values_stays_in_its_frame(values: list[float | None]) -> None:
    labels = [f"d{n}" for n in range(len(values))]
    for svg in (
        bars(labels, Series("x", "c1", values), "t"),
        lines(labels, [Series("x", "c1", values), Series("y", "c2", values)], duration_axis(values), "t"),
        lines(labels, [Series("x", "c1", values)], count_axis(values), "t", label_step=24),
    ):
        assert "nan" not in svg
        for y in re.findall(r' (?:cy|y|y1)="([-\d.]+)"', svg):
            assert 0 <= float(y) <= 190


def test_a_csv_keeps_texts_from_being_formulas() -> None:
    rows = [{"reason": "=1+1", "n": -5}, {"reason": 'say "a,b"', "n": 2}]
    assert as_csv(rows, ["reason", "n"]) == 'reason,n\n\'=1+1,-5\n"say ""a,b""",2\n'
