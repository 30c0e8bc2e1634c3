"""The archive's report on a phone."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from glue_jobs.reporting.aggregates import FATES
from glue_jobs.reporting.page import Report, page

FIRST = date(2030, 1, 1)
LONGEST = "w" * 128
PHONE = {"width": 390, "height": 800}


def report(days: int) -> Report:
    """Groups with the longest names, large numbers and long reasons."""
    pairs = [(LONGEST, f"{LONGEST[1:]}{n}") for n in range(3)]
    ranks = {f"latency_{name}_ms": 987_654_321 for name in ("p50", "p90", "p99", "max")}
    counts = dict.fromkeys(
        ("attempts", "messages", "delivered", "retried", "lapsed", "dead_letters"), 987_654_321
    )
    daily: list[dict[str, Any]] = []
    failures, fate_rows, backlog = [], [], []
    for topic, group in pairs:
        of = {"topic": topic, "group": group}
        fate_rows.append(
            {**of, "accepted": 987_654_321, **dict.fromkeys(FATES, 987_654_321), "oldest_open_at": None}
        )
        failures.append({**of, "reason": "no_space_" * 60, "attempts": 987_654_321})
        for n in range(days):
            day = FIRST + timedelta(days=n)
            daily.append({**of, "day": day, **counts, **ranks})
            midnight = datetime.combine(day, datetime.min.time())
            backlog += [
                {**of, "hour": midnight + timedelta(hours=h), "waiting": 987_654_321} for h in range(24)
            ]
    return Report(
        first=FIRST,
        last=FIRST + timedelta(days=days - 1),
        volumes=[{"topic": LONGEST, "day": FIRST, "accepted": 987_654_321}],
        daily=daily,
        failures=failures,
        backlog=backlog,
        explained=fate_rows,
        hourly=[{**row, "hour": datetime.combine(row["day"], datetime.min.time())} for row in daily],
        gaps=[f"The archive of {FIRST} is not complete: see {LONGEST}."],
    )


@pytest.mark.parametrize("days", [1, 21])
def test_a_report_fits_a_phone(chromium: Any, days: int) -> None:
    browser_page = chromium.new_page(viewport=PHONE)
    browser_page.set_content(page(report(days)))
    assert browser_page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    for row in browser_page.locator("tbody td").all()[:20]:
        box = row.bounding_box()
        assert box["x"] + box["width"] <= PHONE["width"]
    browser_page.close()
