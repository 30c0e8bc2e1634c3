"""The report job over a small archive: its days, its files, its exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from glue_jobs.common.arguments import DONE, INCOMPLETE
from glue_jobs.common.bucket import FolderBucket
from glue_jobs.common.manifest import Manifest, Part, load, name_of, save
from glue_jobs.reporting import hours, options
from glue_jobs.reporting import run as report
from glue_jobs.reporting.run import Span, gaps, known_until, notes, quiet_days, span_of

from .archives import BEGIN, delivery, fill, message
from .journals import Place

DAY = BEGIN.date()
NEXT = DAY + timedelta(days=1)


@pytest.fixture
def filled_place(place: Place) -> Place:
    """Ten messages on two days, taken after a minute; the first only on the second day, the last never."""
    rows = [message(n, minutes=n % 5 + 24 * 60 * (n // 5)) for n in range(10)]
    attempts = [delivery(each, seconds=60) for each in rows[1:9]]
    late_attempt = delivery(rows[0], seconds=24 * 3600, attempt=2)
    failed_attempt = delivery(rows[0], seconds=1, outcome="RETRY", detail="HTTP 500")
    fill(place, messages=rows, deliveries=[failed_attempt, late_attempt, *attempts])
    return place


def run(place: Place, *arguments: str) -> int:
    argv = ["--bucket", place.name, "--folder", str(place.folder), *arguments]
    code = report.run(place.start, place.bucket, options.of_report(None, argv))
    place.pull()
    return code


def folder(place: Place) -> Path:
    [page] = place.folder.glob("reports/*/report.html")
    return page.parent


@pytest.mark.soak
def test_all_tables_come_as_parquet_and_csv_with_the_same_rows(filled_place: Place) -> None:
    assert run(filled_place) == DONE
    report_folder = folder(filled_place)
    assert report_folder.name == f"{DAY}_{NEXT}"
    for name, rows in (
        ("volumes", 2),
        ("daily", 2),
        ("hourly", 2),
        ("failures", 1),
        ("explained", 1),
        ("backlog", 48),
    ):
        in_parquet = duckdb.execute(f"select count(*) from '{report_folder}/{name}/*.parquet'").fetchall()
        in_csv = duckdb.execute(f"select count(*) from '{report_folder}/{name}.csv'").fetchall()
        assert in_parquet == in_csv == [(rows,)]
    days = duckdb.execute(
        f"select delivered, latency_max_ms from '{report_folder}/daily.csv' order by day"
    ).fetchall()
    assert days == [(4, 60_000), (5, 86_400_000)]
    hours = duckdb.execute(
        f"select came, ended, waiting from '{report_folder}/backlog.csv' order by hour"
    ).fetchall()
    assert hours[0] == (5, 4, 1)
    assert hours[24] == (5, 5, 1)
    assert {waiting_count for *_, waiting_count in hours} == {1}


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


@pytest.mark.soak
def test_what_the_archive_lacks_is_told_and_the_exit_code_says_so(
    filled_place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    day_manifest = load(filled_place.bucket, str(DAY))
    assert day_manifest
    save(filled_place.bucket, replace(day_manifest, damaged=("journal/x",)))
    assert run(filled_place, "--to", str(NEXT + timedelta(days=1)), "--from", str(DAY)) == INCOMPLETE
    page = (folder(filled_place) / "report.html").read_text()
    output = capsys.readouterr().out
    for sentence in (f"The archive of {DAY} is not complete", f"{NEXT + timedelta(days=1)} is not archived"):
        assert sentence in page
        assert sentence in output


def _source(place: Place, table: str) -> str:
    return f"read_parquet('{place.folder}/archive/{table}/*/*/*.parquet', hive_partitioning=true)"


def _fates(place: Place) -> list[tuple[Any, ...]]:
    """What became of each group's messages, as DuckDB finds it in the archive's files."""
    return duckdb.execute(f"""
    with m as (select * from {_source(place, "messages")}), d as (select * from {_source(place, "deliveries")}),
    g as (select distinct topic_uid, "group" from d),
    e as (select topic_uid, "group", shard, "offset", bool_or(outcome = 'SUCCESS') as good,
        bool_or(outcome = 'DEAD') as dead from d group by all),
    f as (select topic_uid, "group", shard, max("offset") as reached from d group by all),
    o as (select topic_uid, lead(min(accepted_at)) over (order by min(accepted_at)) as over_at from m group by all)
    select "group", count(*), count_if(good), count_if(not good and dead),
        count_if(not good and not dead and over_at is null),
        count_if(good is null and (reached is null or "offset" > reached) and over_at is null),
        count_if(good is null and "offset" < reached),
        count_if(over_at is not null and (not good and not dead or
            good is null and (reached is null or "offset" > reached)))
    from m join o using (topic_uid) join g using (topic_uid) left join e using (topic_uid, "group", shard, "offset")
    left join f using (topic_uid, "group", shard) group by all order by all""").fetchall()


@pytest.mark.soak
def test_the_numbers_are_what_duckdb_finds_in_the_same_files(place: Place) -> None:
    rows = [message(n, minutes=n * 7) for n in range(200)]
    rows += [
        message(n, "orders", minutes=1_500 + n, topic_uid="orders-2", id=f"again-{n}") for n in range(20)
    ]
    outcomes = ("SUCCESS", "SUCCESS", "SUCCESS", "RETRY", "DEAD", None)
    attempts = [
        delivery(each, group, seconds=n % 50, outcome=outcomes[n % 6], duration_ms=n % 90)
        for group in ("g", "h")
        for n, each in enumerate(rows)
        if outcomes[n % 6] and (group == "g" or n < 120)
    ]
    attempts += [delivery(each, "g", seconds=90, attempt=2) for n, each in enumerate(rows) if n % 12 == 3]
    fill(place, messages=rows, deliveries=attempts)
    run(place)
    report_folder = folder(place)

    fate_counts = duckdb.execute(
        'select "group", accepted, delivered, dead, under_way, waiting, passed_over, deleted '
        f"from '{report_folder}/explained/*.parquet' order by all"
    ).fetchall()
    assert fate_counts == _fates(place)
    assert fate_counts[0][-1] > 0  # of the first topic, which was deleted
    assert all(sum(fates) == accepted_count for _, accepted_count, *fates in fate_counts)
    [daily] = duckdb.execute(
        f"select sum(attempts), sum(delivered) from '{report_folder}/daily/*.parquet'"
    ).fetchall()
    [hourly] = duckdb.execute(
        f"select sum(attempts), sum(delivered) from '{report_folder}/hourly/*.parquet'"
    ).fetchall()
    duckdb_sums = duckdb.execute(
        f"select count(*), count_if(outcome = 'SUCCESS') from {_source(place, 'deliveries')}"
    ).fetchall()
    assert [daily] == [hourly] == duckdb_sums
    [_, first_hour, *_] = (report_folder / "backlog.csv").read_text().splitlines()
    assert first_hour.startswith(f"orders,g,{DAY} 00:00:00,")
    counts = json.loads((place.folder / hours.name_of("orders", DAY)).read_text())["groups"]
    assert {len(numbers) for states in counts.values() for numbers in states.values()} == {25}


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
    tables: dict[str, tuple[Part, ...]] = {"messages": (Part("orders", 1, "0", ()),)}
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
    assert notes([part]) == [f"{DAY} is archived until 14:00."]
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
