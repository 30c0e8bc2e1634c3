"""The report job over a small archive: its days, its files, its exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from glue_jobs.common.arguments import DONE, INCOMPLETE
from glue_jobs.common.bucket import FolderBucket
from glue_jobs.common.manifest import Manifest, Part, load, save
from glue_jobs.reporting import hours, options
from glue_jobs.reporting import run as report
from glue_jobs.reporting.run import Span, gaps, known_until, notes, quiet_days, span_of

from .archives import BEGIN, delivery, fill, message
from .journals import Place

DAY = BEGIN.date()
NEXT = DAY + timedelta(days=1)


@pytest.fixture
def filled(place: Place) -> Place:
    """Ten messages on two days, taken after a minute; the first only on the second day, the last never."""
    rows = [message(n, minutes=n % 5 + 24 * 60 * (n // 5)) for n in range(10)]
    tries = [delivery(each, seconds=60) for each in rows[1:9]]
    late = delivery(rows[0], seconds=24 * 3600, attempt=2)
    failed = delivery(rows[0], seconds=1, outcome="RETRY", detail="HTTP 500")
    fill(place, messages=rows, deliveries=[failed, late, *tries])
    return place


def run(place: Place, *arguments: str) -> int:
    here = ["--bucket", place.name, "--folder", str(place.folder), *arguments]
    code = report.run(place.start, place.bucket, options.of_report(None, here))
    place.pull()
    return code


def folder(place: Place) -> Path:
    [page] = place.folder.glob("reports/*/report.html")
    return page.parent


@pytest.mark.soak
def test_all_tables_come_as_parquet_and_csv_with_the_same_rows(filled: Place) -> None:
    assert run(filled) == DONE
    written = folder(filled)
    assert written.name == f"{DAY}_{NEXT}"
    for name, rows in (
        ("volumes", 2),
        ("daily", 2),
        ("hourly", 2),
        ("failures", 1),
        ("explained", 1),
        ("backlog", 48),
    ):
        in_parquet = duckdb.execute(f"select count(*) from '{written}/{name}/*.parquet'").fetchall()
        in_csv = duckdb.execute(f"select count(*) from '{written}/{name}.csv'").fetchall()
        assert in_parquet == in_csv == [(rows,)]
    days = duckdb.execute(
        f"select delivered, latency_max_ms from '{written}/daily.csv' order by day"
    ).fetchall()
    assert days == [(4, 60_000), (5, 86_400_000)]
    hours = duckdb.execute(
        f"select came, ended, waiting from '{written}/backlog.csv' order by hour"
    ).fetchall()
    assert hours[0] == (5, 4, 1)
    assert hours[24] == (5, 5, 1)
    assert {waiting for *_, waiting in hours} == {1}


@pytest.mark.soak
def test_a_second_report_of_the_same_days_replaces_the_first_and_is_the_same(filled: Place) -> None:
    run(filled)
    first = {path: path.read_bytes() for path in folder(filled).glob("*.*")}
    run(filled)
    assert {path: path.read_bytes() for path in folder(filled).glob("*.*")} == first
    assert len(list(folder(filled).glob("daily/*.parquet"))) == 1


@pytest.mark.soak
def test_a_report_of_a_day_knows_what_came_before_it(filled: Place) -> None:
    assert run(filled, "--from", str(NEXT), "--to", str(NEXT), "--topic", "orders") == DONE
    told = json.loads((filled.folder / hours.name_of("orders", NEXT)).read_text())
    assert (told["since"], told["complete"]) == (str(DAY), True)
    assert [len(numbers) for numbers in told["groups"]["g"].values()] == [25] * len(hours.STATES)
    assert told["groups"]["g"]["waiting"] == [1] * 25, "one that came at midnight, later the last one"
    assert told["groups"]["g"]["retrying"] == [0] * 25
    written = folder(filled)
    assert written.name == f"{NEXT}_{NEXT}_orders"
    counts = duckdb.execute(f"select accepted from '{written}/volumes.csv'").fetchall()
    assert counts == [(5,)]
    [(delivered, slowest)] = duckdb.execute(
        f"select delivered, latency_max_ms from '{written}/daily.csv'"
    ).fetchall()
    assert (delivered, slowest) == (5, 86_400_000)


@pytest.mark.soak
def test_what_the_archive_lacks_is_told_and_the_exit_code_says_so(
    filled: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    held = load(filled.bucket, str(DAY))
    assert held
    save(filled.bucket, replace(held, damaged=("journal/x",)))
    assert run(filled, "--to", str(NEXT + timedelta(days=1)), "--from", str(DAY)) == INCOMPLETE
    page = (folder(filled) / "report.html").read_text()
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


def test_the_numbers_are_what_duckdb_finds_in_the_same_files(place: Place) -> None:
    rows = [message(n, minutes=n * 7) for n in range(200)]
    rows += [
        message(n, "orders", minutes=1_500 + n, topic_uid="orders-2", id=f"again-{n}") for n in range(20)
    ]
    ends = ("SUCCESS", "SUCCESS", "SUCCESS", "RETRY", "DEAD", None)
    tries = [
        delivery(each, group, seconds=n % 50, outcome=ends[n % 6], duration_ms=n % 90)
        for group in ("g", "h")
        for n, each in enumerate(rows)
        if ends[n % 6] and (group == "g" or n < 120)
    ]
    tries += [delivery(each, "g", seconds=90, attempt=2) for n, each in enumerate(rows) if n % 12 == 3]
    fill(place, messages=rows, deliveries=tries)
    run(place)
    written = folder(place)

    explained = duckdb.execute(
        'select "group", accepted, delivered, dead, under_way, waiting, passed_over, deleted '
        f"from '{written}/explained/*.parquet' order by all"
    ).fetchall()
    assert explained == _fates(place)
    assert explained[0][-1] > 0  # of the first topic, which was deleted
    assert all(sum(fates) == accepted for _, accepted, *fates in explained)
    [daily] = duckdb.execute(
        f"select sum(attempts), sum(delivered) from '{written}/daily/*.parquet'"
    ).fetchall()
    [hourly] = duckdb.execute(
        f"select sum(attempts), sum(delivered) from '{written}/hourly/*.parquet'"
    ).fetchall()
    counted = duckdb.execute(
        f"select count(*), count_if(outcome = 'SUCCESS') from {_source(place, 'deliveries')}"
    ).fetchall()
    assert [daily] == [hourly] == counted
    counts = json.loads((place.folder / hours.name_of("orders", DAY)).read_text())["groups"]
    assert {len(numbers) for states in counts.values() for numbers in states.values()} == {25}


def test_the_counts_of_hours_are_cut_into_days_that_overlap_by_a_moment(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path, "b")
    steps = [("waiting", 0, 5), ("waiting", 30, -2), ("dead", 24, 2)]
    rows = [{"topic": "orders", "group": "g", "state": s, "hour": h, "step": n} for s, h, n in steps]
    topics = hours.counts(rows, 36)
    end = BEGIN + timedelta(hours=36)
    for whole, complete in (({str(DAY)}, False), ({str(DAY), str(NEXT)}, True)):
        assert hours.write(bucket, topics, BEGIN, end, DAY, whole) == 2
        first, second = (
            json.loads((tmp_path / hours.name_of("orders", day)).read_text()) for day in (DAY, NEXT)
        )
        assert (first["complete"], second["complete"]) == (True, complete)
        assert (first["since"], second["day"]) == (str(DAY), str(NEXT))
        assert first["groups"]["g"]["waiting"] == [5] * 25
        assert second["groups"]["g"]["waiting"] == [5] * 6 + [3] * 7
        assert first["groups"]["g"]["dead"] == [0] * 24 + [2]


def test_an_empty_archive_has_nothing_to_report(place: Place) -> None:
    with pytest.raises(report.NothingArchived, match="run make archive"):
        run(place)


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
    def span(*arguments: str, archived: int = 30) -> Span | None:
        days = [str(DAY + timedelta(days=n)) for n in range(archived)]
        return span_of(options.of_report(None, ["--folder", str(tmp_path), *arguments]), days)

    last = DAY + timedelta(days=29)
    assert span() == Span(last - timedelta(days=6), last)
    assert span(archived=2) == Span(DAY, NEXT)
    assert span("--to", str(NEXT)) == Span(DAY, NEXT)
    assert span("--from", "2030-01-05") == Span(date(2030, 1, 5), last)
    assert span("--from", "2029-01-01", "--to", "2029-01-02") == Span(date(2029, 1, 1), date(2029, 1, 2))
    beyond = date(2031, 1, 1)
    assert span("--from", str(beyond)) == Span(beyond, beyond)
    assert span(archived=0) is None


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
    found = gaps(manifests, Span(DAY, DAY + timedelta(days=5)), quiet_days(bucket))
    assert [sentence[:10] for sentence in found] == [str(DAY + timedelta(days=n)) for n in (1, 2, 5)]


@pytest.mark.parametrize(
    "arguments", [["--from", "2030-01-02", "--to", "2030-01-01"], ["--from", "today"], ["--topics", "x"]]
)
def test_bad_arguments_are_refused(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        options.of_report(None, ["--folder", str(tmp_path), *arguments])
    assert left.value.code == 2
