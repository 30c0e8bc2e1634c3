"""The report job over a small archive: its days, its files, its exit codes."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glue_jobs.common.arguments import DONE
from glue_jobs.common.bucket import FolderBucket
from glue_jobs.common.manifest import Manifest, Rows, Table, name_of, save
from glue_jobs.reporting import hours, options
from glue_jobs.reporting import run as report
from glue_jobs.reporting.run import Span, gaps, known_until, notes, quiet_days, span_of

from .archives import BEGIN
from .journals import Place

DAY = BEGIN.date()
NEXT = DAY + timedelta(days=1)


def run(place: Place, *arguments: str) -> int:
    argv = ["--bucket", place.name, "--folder", str(place.folder), *arguments]
    code = report.run(place.start, place.bucket, options.of_report(None, argv))
    place.pull()
    return code


def folder(place: Place) -> Path:
    [page] = place.folder.glob("reports/*/report.html")
    return page.parent


def test_a_damaged_manifest_of_other_days_is_no_trouble_of_a_report(tmp_path: Path) -> None:
    """Spark is not asked for: of these days nothing is there."""
    bucket = FolderBucket(tmp_path, "here")
    bucket.write(name_of("2026-01-01"), "{")
    choices = options.of_report(
        None, ["--folder", str(tmp_path), "--from", "2026-03-01", "--to", "2026-03-02"]
    )
    with pytest.raises(report.NothingArchived, match="2026-03-01"):
        report.run(unasked, bucket, choices)


def unasked(is_small: bool = False) -> SparkSession:
    raise AssertionError("Spark was asked for")


def test_the_counts_of_hours_are_cut_into_days_that_overlap_by_a_moment(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path, "b")
    steps = [("waiting", 0, 5), ("waiting", 30, -2), ("dead", 24, 2)]
    rows = [{"topic": "orders", "group": "g", "state": s, "hour": h, "step": n} for s, h, n in steps]
    topics = hours.counts(rows, 36)
    end = BEGIN + timedelta(hours=36)
    for whole_days, complete in (({str(DAY)}, False), ({str(DAY), str(NEXT)}, True)):
        assert hours.write(bucket, topics, BEGIN, end, DAY, whole_days) == 2
        first, second = (
            json.loads((tmp_path / hours.name_of("orders", day)).read_text()) for day in (DAY, NEXT)
        )
        assert (first["complete"], second["complete"]) == (True, complete)
        assert (first["since"], second["day"]) == (str(DAY), str(NEXT))
        assert first["groups"]["g"]["waiting"] == [5] * 25
        assert second["groups"]["g"]["waiting"] == [5] * 6 + [3] * 7
        assert first["groups"]["g"]["dead"] == [0] * 24 + [2]


def test_an_empty_archive_has_nothing_to_report_which_is_no_failure_unless_something_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On AWS a report follows each night's archive, and one that fails sets off an alarm."""
    no_spark: Any = None
    place = Place(no_spark, FolderBucket(tmp_path, "headrace"), "headrace", tmp_path)
    assert run(place) == DONE
    assert "run make archive" in capsys.readouterr().err
    for arguments in (["--topic", "orders"], ["--from", str(DAY)], ["--to", str(DAY)]):
        with pytest.raises(report.NothingArchived, match="run make archive"):
            run(place, *arguments)


@pytest.mark.parametrize(
    ("arguments", "of"),
    [
        (["--from", "2020-01-01", "--to", "2020-01-02"], " is archived of 2020-01-01 to 2020-01-02"),
        (["--from", "2031-01-01"], " is archived of 2031-01-01 to 2031-01-01"),
        (["--topic", "order"], " of order is archived"),
    ],
)
def test_days_and_topics_of_which_nothing_is_archived_are_told(
    tmp_path: Path, arguments: list[str], of: str
) -> None:
    no_spark: Any = None
    bucket = FolderBucket(tmp_path / "bucket", "headrace")
    tables = {"messages": Table((), {"orders": Rows(1, "0")})}
    for each in (DAY, NEXT):
        save(bucket, Manifest(str(each), 24, "", tables, ()))
    with pytest.raises(report.NothingArchived, match=f"^Nothing{of}.*: run make archive"):
        run(Place(no_spark, bucket, "headrace", tmp_path / "bucket"), *arguments)


def test_the_days_are_the_last_seven_of_the_archive_unless_others_are_asked_for(tmp_path: Path) -> None:
    def span(*arguments: str, day_count: int = 30) -> Span | None:
        days = [str(DAY + timedelta(days=n)) for n in range(day_count)]
        return span_of(options.of_report(None, ["--folder", str(tmp_path), *arguments]), days)

    last = DAY + timedelta(days=29)
    assert span() == Span(last - timedelta(days=6), last)
    assert span(day_count=2) == Span(DAY, NEXT)
    assert span("--to", str(NEXT)) == Span(DAY, NEXT)
    assert span("--from", "2030-01-05") == Span(date(2030, 1, 5), last)
    assert span("--from", "2029-01-01", "--to", "2029-01-02") == Span(date(2029, 1, 1), date(2029, 1, 2))
    beyond = date(2031, 1, 1)
    assert span("--from", str(beyond)) == Span(beyond, beyond)
    assert span(day_count=0) is None


def test_gaps_are_few_and_a_day_that_is_not_over_is_none() -> None:
    part = Manifest(str(DAY), 14, "", {}, ())
    assert gaps([part], Span(DAY, DAY)) == []
    assert known_until([part], Span(DAY, DAY)) == BEGIN + timedelta(hours=14)
    assert known_until([part], Span(DAY, NEXT)) == Span(DAY, NEXT).end
    ends = "The archive of a day is deleted after 400 days."
    assert notes([part], 400) == [f"{DAY} is archived until 14:00.", ends]
    assert len(gaps([], Span(DAY, DAY + timedelta(days=100)))) == 11


def test_a_day_on_which_nothing_came_is_no_gap(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path, "headrace")
    manifests = [Manifest(str(DAY + timedelta(days=n)), 24, "", {}, ()) for n in (0, 4)]
    for each in manifests:
        save(bucket, each)
    (tmp_path / f"journal/messages/day={NEXT}").mkdir(parents=True)
    (tmp_path / f"archive/deliveries/day={NEXT + timedelta(days=1)}").mkdir(parents=True)
    assert quiet_days(bucket) == {str(DAY + timedelta(days=3))}
    sentences = gaps(manifests, Span(DAY, DAY + timedelta(days=5)), quiet_days(bucket))
    assert [sentence[:10] for sentence in sentences] == [str(DAY + timedelta(days=n)) for n in (1, 2, 5)]
