"""Days that follow one another, are open or closed, are proved, and have large bodies."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.times import DAY_MS
from glue_jobs.archiving import completeness as proof
from glue_jobs.archiving.completeness import Proof, begin, gaps
from glue_jobs.common import session
from glue_jobs.common.arguments import DONE, FAILED, INCOMPLETE
from glue_jobs.common.manifest import Manifest, Shard
from glue_jobs.common.ranges import Ranges
from tests.glue.jobs import read_summary
from tests.glue.journals import DAY, NEXT, NOON_MS, Place, delivery, message, orders

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from glue_jobs.archiving import options
from glue_jobs.reporting.run import Span, _hour_behind, known_until, notes


def test_days_follow_one_another_and_deliveries_find_the_ids_of_earlier_ones(place: Place) -> None:
    midnight = NOON_MS + DAY_MS // 2  # where clocks that differ leave no gap
    place.journal("d", [message(n, "clocks", accepted_ms=midnight - 5) for n in (0, 1, 3)])
    place.journal("e", [message(n, "clocks", accepted_ms=midnight) for n in (2, 4)])
    place.journal("a", [message(n) for n in range(3)])
    place.journal("b", [message(n, accepted_ms=NOON_MS + DAY_MS) for n in range(3, 6)])
    place.journal("c", [delivery(n, started_ms=NOON_MS + DAY_MS + 1) for n in range(6)])
    assert place.archive() == DONE
    assert place.query("day::text, \"offset\" from % where topic = 'orders' order by 2") == [
        *((DAY, n) for n in range(3)),
        *((NEXT, n) for n in range(3, 6)),
    ]
    assert place.query("id from % order by 1", "deliveries") == [(f"m-0-{n}",) for n in range(6)]
    assert proof.load(place.bucket).ranges == {"orders:u1/0": ((0, 5),), "clocks:u1/0": ((0, 4),)}


def test_a_bad_day_stops_no_other(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.journal("a", [message(0), message(1, v=2)])
    place.journal("b", [message(n, "fine", accepted_ms=NOON_MS + DAY_MS) for n in range(2)])
    assert place.archive() == FAILED
    summary = read_summary(capsys)
    assert list(summary["failed"]) == [DAY]
    assert "update the jobs" in summary["failed"][DAY]
    assert summary["windows"] == 1
    assert place.places() == [("fine", 0, 0), ("fine", 0, 1)]


def test_a_small_night_is_told_from_its_journal_and_one_without_news_starts_no_spark(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_flags: list[bool] = []

    def start(is_small: bool = False) -> Any:
        small_flags.append(is_small)
        return place.spark

    monkeypatch.setattr(place, "start", start)
    place.journal("a", [message(0)])
    place.journal("b", [delivery(0)])
    for _ in range(2):
        assert place.archive() == DONE
        assert small_flags == [True]
    monkeypatch.setattr(session, "SMALL_BYTES", 1)
    place.archive("--window", DAY)
    assert small_flags == [True, False]


def test_an_hour_is_its_day_so_far_and_the_rest_follows(place: Place) -> None:
    hour = 3_600_000
    place.journal("a", [message(0)])
    place.journal("b", [message(1, accepted_ms=NOON_MS + hour)])
    assert place.archive("--window", f"{DAY}T12") == DONE
    assert place.places() == orders(0)
    assert place.archive() == DONE
    assert place.places() == orders(0, 1)
    assert place.archive("--window", f"{DAY}T12") == DONE
    assert place.places() == orders(0, 1)


def test_a_large_body_is_fetched_and_stays_when_it_went_with_its_retention(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"bodies/orders/u1/{n}" for n in range(2)]
    (place.folder / names[0]).parent.mkdir(parents=True)
    for name in names:
        (place.folder / name).write_bytes(b"\xff" + name.encode())
    place.journal("a", [message(n, body=None, body_blob=name) for n, name in enumerate(names)])
    place.journal("b", [message(2), message(3, body=None, body_blob=names[1])])
    place.journal("c", [message(3, edition=1, void="cancelled", body=None)])
    bodies = [*((b"\xff" + name.encode(),) for name in names), (b'{"n":2}',)]
    assert place.archive() == DONE
    assert place.query('body from % order by "offset"') == bodies
    assert len(place.files()) == 2  # large bodies have one of their own
    (shard,) = place.manifest().shards
    assert (shard.ranges, shard.voids) == (((0, 3),), 1)
    (place.folder / names[0]).unlink()
    place.journal("late", [message(4, body=None, body_blob="bodies/no"), message(5)])
    assert place.archive() == INCOMPLETE
    assert read_summary(capsys)["problems"] == [{"day": DAY, "bodies_missing": ["bodies/no"]}]
    assert place.query('body from % order by "offset"') == [*bodies, (None,), (b'{"n":5}',)]


MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)


def test_a_day_is_told_as_far_as_its_journal_was_read_and_closes_when_no_more_can_come(place: Place) -> None:
    place.journal("a", [message(n) for n in range(80)])
    span = Span(date.fromisoformat(DAY), date.fromisoformat(DAY))
    for minute in (5, 55):
        place.archive("--open", "yes", "--now", f"2026-11-21T12:{minute:02}:00Z")
        end = known_until([place.manifest()], span)
        assert end == datetime(2026, 11, 21, 12, minute, tzinfo=UTC)
        assert _hour_behind(end) == datetime(2026, 11, 21, 13, tzinfo=UTC)
    assert _hour_behind(MIDNIGHT) == MIDNIGHT
    for now, until in (("21T23:48", "23:48"), ("22T00:03", "23:59"), ("22T00:07", "23:59")):
        assert place.archive("--open", "yes", "--now", f"2026-11-{now}:00Z") == DONE
        day = place.manifest()
        assert (day.until_hour, day.is_closed, notes([day])) == (
            24,
            False,
            [f"{DAY} is archived until {until}."],
        )
    files = place.files()
    assert place.archive("--open", "yes", "--now", "2026-11-22T00:15:00Z") == DONE
    day = place.manifest()
    assert (day.is_closed, day.known_until, notes([day])) == (True, MIDNIGHT, [])
    assert place.files() == files


@pytest.mark.parametrize("text", ["259200000", "", "soon", "1" * 30])
def test_now_is_the_time_of_a_service_whose_clock_was_moved(tmp_path: Path, text: str) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "clock").write_text(text)
    ahead = timedelta(days=3 if text == "259200000" else 0)
    before = datetime.now(UTC)
    now = options.of_archive(None, ["--folder", str(tmp_path / "bucket")]).now
    assert before + ahead <= now <= datetime.now(UTC) + ahead


KEY = "shop:t1/0"
NOTHING = Proof({}, {})


def day(*ranges: tuple[int, int], missing: Ranges = (), start: int = 0) -> Manifest:
    shard = Shard("shop", "t1", 0, start, ranges, missing=missing)
    unused: dict[str, Any] = {"until_hour": 24, "input": "", "tables": {}}
    return Manifest(day="2026-11-22", shards=(shard,), **unused)


def test_a_day_adds_to_what_is_proved_and_takes_nothing_away() -> None:
    proof = NOTHING.with_day(day((0, 4)), was_asked=True).with_day(day((5, 9), (12, 14)), was_asked=True)
    assert proof.ranges == {KEY: ((0, 9), (12, 14))}


@pytest.mark.parametrize(("was_asked", "lost_ranges"), [(True, ((5, 6),)), (False, ())])
def test_what_is_missing_is_lost_only_where_the_table_was_asked(was_asked: bool, lost_ranges: Ranges) -> None:
    proof = NOTHING.with_day(day((0, 4), (7, 9), missing=((5, 6),)), was_asked)
    assert proof.lost == {KEY: lost_ranges}
    assert proof.ranges == {KEY: ((0, 4), (7, 9))}


def test_what_was_lost_stays_lost_until_a_day_has_it() -> None:
    proof = NOTHING.with_day(day((0, 4), missing=((5, 6),)), was_asked=True)
    assert proof.with_day(day((8, 9)), was_asked=True).lost == {KEY: ((5, 6),)}
    next_proof = proof.with_day(day((6, 6)), was_asked=True)
    assert (next_proof.lost, next_proof.ranges) == ({KEY: ((5, 5),)}, {KEY: ((0, 4), (6, 6))})


def test_a_day_begins_behind_what_is_proved_and_never_behind_its_own_first() -> None:
    proof = Proof({KEY: ((0, 4), (6, 9))}, {})
    assert begin(KEY, ((20, 25),), proof, None) == 10
    assert begin(KEY, ((8, 25),), proof, None) == 8
    assert begin(KEY, ((3, 9),), NOTHING, None) == 0
    assert begin(KEY, ((20, 25),), proof, day((15, 18), start=15)) == 15
    other_day = Manifest(day="2026-11-22", until_hour=24, input="", tables={}, shards=())
    assert begin(KEY, ((20, 25),), proof, other_day) == 10


def test_a_day_lacks_what_is_between_its_rows_and_behind_where_it_begins() -> None:
    ranges = {KEY: ((12, 14), (18, 19))}
    assert gaps(ranges, {KEY: 10}, NOTHING, None) == {KEY: ((10, 11), (15, 17))}
    proof = Proof({KEY: ((0, 10), (16, 16))}, {})
    assert gaps(ranges, {KEY: 10}, proof, None) == {KEY: ((11, 11), (15, 15), (17, 17))}
    assert gaps({KEY: ((10, 19),)}, {KEY: 10}, NOTHING, None) == {}


def test_a_day_lacks_what_it_had_at_an_earlier_run() -> None:
    before = day((10, 14), (18, 30), start=10)
    assert gaps({KEY: ((10, 19),)}, {KEY: 10}, NOTHING, before) == {KEY: ((20, 30),)}
    assert gaps({}, {}, NOTHING, before) == {KEY: ((10, 14), (18, 30))}


def test_a_line_belongs_to_its_day_and_no_offset_to_two(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [message(0), message(1, accepted_ms=NOON_MS + DAY_MS)]
    place.journal("a", lines)
    place.journal("b", [delivery(n, started_ms=line["accepted_ms"]) for n, line in enumerate(lines)])
    for days in ((DAY, NEXT), ()):
        assert place.archive() == DONE
        if days:
            for table in ("messages", "deliveries"):
                assert place.query('day::text, "offset" from % order by all', table) == [(DAY, 0), (NEXT, 1)]
    assert read_summary(capsys)["unchanged"] == 2
    place.journal("c", [message(0, accepted_ms=NOON_MS + DAY_MS)])  # its time is another than before
    assert place.archive() == FAILED
    why = read_summary(capsys)["failed"][NEXT]
    assert f"the offsets 0 to 0 of orders:u1/0 are in the archive of {DAY}" in why
