"""The archive is complete (I18), exact, and the same however often, and over whatever accidents, it is made."""

from __future__ import annotations

import gzip
import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from glue_jobs.archiving import completeness as proof
from glue_jobs.archiving import options
from glue_jobs.archiving.engine import ARROW, SPARK
from glue_jobs.archiving.on_spark.journal import Journal
from glue_jobs.archiving.window import Window
from glue_jobs.common import session
from glue_jobs.common.arguments import DONE, FAILED, INCOMPLETE
from glue_jobs.common.bucket import Bucket, Entry
from tests.glue.journals import DAY, NEXT, NOON_MS, Place, delivery, message

DAY_MS = 86_400_000


@pytest.fixture(params=[ARROW, pytest.param(SPARK, marks=pytest.mark.soak)])
def made_by(request: pytest.FixtureRequest) -> str:
    """Either engine; Spark in the soak. That both write the same is shown by test_engines.py."""
    return str(request.param)


both = pytest.mark.parametrize("made_by", [ARROW, SPARK])
"""What either engine does by itself."""


def orders(*offsets: int) -> list[tuple[Any, ...]]:
    return [("orders", 0, offset) for offset in offsets]


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


@both
def test_lines_become_rows_with_all_they_say(place: Place) -> None:
    place.journal(
        "a",
        [
            message(0, tag="t", ordering_key="o", headers={"b": "1", "a": "2"}, keys=["x", "y"]),
            message(1, body=None, body_base64="AP8=", content_type="image/png"),
            message(2, body="", headers=None, keys=None),
        ],
    )
    place.journal("b", [delivery(0, 1, outcome="RETRY", detail="503"), delivery(0, 2)])
    assert place.archive() == DONE
    columns = (
        "id, epoch_ms(accepted_at), tag, keys, ordering_key, headers, content_type, body from % order by id"
    )
    text = "application/json"
    assert place.query(columns) == [
        ("m-0-0", NOON_MS, "t", ["x", "y"], "o", {"b": "1", "a": "2"}, text, b'{"n":0}'),
        ("m-0-1", NOON_MS + 1, None, ["k"], None, {"h": "ö"}, "image/png", b"\x00\xff"),
        ("m-0-2", NOON_MS + 2, None, [], None, {}, text, b""),
    ]
    assert place.query("distinct topic, shard, day from %") == [("orders", 0, date(2026, 11, 21))]
    columns = (
        '"group", shard, "offset", id, attempt, consumer, epoch_ms(started_at), duration_ms, outcome, detail'
    )
    assert place.query(f"topic, {columns} from % order by attempt", "deliveries") == [
        ("orders", "billing", 0, 0, "m-0-0", 1, "c", NOON_MS + 1000, 5, "RETRY", "503"),
        ("orders", "billing", 0, 0, "m-0-0", 2, "c", NOON_MS + 2000, 5, "SUCCESS", ""),
    ]


@both
def test_objects_that_come_twice_and_in_any_order_are_one(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("z", [message(n) for n in (0, 1, 2)])
    place.journal("a", [message(n) for n in (4, 3, 2, 1)])
    place.journal("d", [delivery(n) for n in (0, 1)])
    place.journal("c", [delivery(n) for n in (1, 0, 2)])
    assert place.archive() == DONE
    assert place.places() == orders(0, 1, 2, 3, 4)
    assert place.query('"offset" from % order by 1', "deliveries") == [(0,), (1,), (2,)]
    first = told(capsys)
    assert (first["messages"], first["deliveries"], first["files"]) == (5, 3, 2)


def test_run_again_it_gives_the_same_files_and_counts(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(n, topic) for topic in ("orders", "invoices") for n in range(5)])
    place.journal("b", [delivery(n) for n in range(5)])
    assert place.archive() == DONE
    files, was, first = place.files(), place.manifest(), told(capsys)
    assert place.archive("--window", DAY) == DONE
    assert (place.files(), place.manifest()) == (files, was)
    assert {**told(capsys), "seconds": 0} == {**first, "seconds": 0}
    assert place.archive() == DONE
    assert told(capsys)["unchanged"] == 1


def test_the_last_edition_of_a_message_stays_and_what_is_void_has_no_row(place: Place) -> None:
    place.journal("a", [message(n) for n in range(4)])
    place.journal(
        "b", [message(1, edition=2, body='"new"'), message(2, edition=1, void="cancelled", body=None)]
    )
    place.journal(
        "c", [message(1, edition=1, body='"old"'), message(4, void="tombstone", id=None, body=None)]
    )
    assert place.archive() == DONE
    assert place.query('"offset", body from % order by 1') == [
        (0, b'{"n":0}'), (1, b'"new"'), (3, b'{"n":3}'),
    ]  # fmt: skip
    (shard,) = place.manifest().shards
    assert (shard.ranges, shard.voids, shard.missing) == (((0, 4),), 2, ())


def test_late_data_reruns_its_day_and_touches_no_other_topic(place: Place) -> None:
    place.journal("a", [message(n) for n in range(3)] + [message(0, "invoices")])
    assert place.archive() == DONE
    kept = [name for name in place.files() if "invoices" in name]
    place.journal("late", [message(1, edition=1, body='"edited"')])
    assert place.archive() == DONE
    assert [name for name in place.files() if "invoices" in name] == kept
    assert place.query("body from % where topic = 'orders' order by \"offset\"") == [
        (b'{"n":0}',), (b'"edited"',), (b'{"n":2}',),
    ]  # fmt: skip


def test_days_follow_one_another_and_deliveries_find_the_ids_of_earlier_ones(place: Place) -> None:
    place.journal("a", [message(n) for n in range(3)])
    place.journal("b", [message(n, accepted_ms=NOON_MS + DAY_MS) for n in range(3, 6)])
    place.journal("c", [delivery(n, started_ms=NOON_MS + DAY_MS + 1) for n in range(6)])
    assert place.archive() == DONE
    assert place.query('day::text, "offset" from % order by 2') == [
        *((DAY, n) for n in range(3)),
        *((NEXT, n) for n in range(3, 6)),
    ]
    assert place.query("id from % order by 1", "deliveries") == [(f"m-0-{n}",) for n in range(6)]
    assert proof.load(place.bucket).ranges == {"orders:u1/0": ((0, 5),)}


def test_clocks_that_differ_at_midnight_leave_no_gap(place: Place) -> None:
    midnight = NOON_MS + DAY_MS // 2
    place.journal("a", [message(n, accepted_ms=midnight - 5) for n in (0, 1, 3)])
    place.journal("b", [message(n, accepted_ms=midnight) for n in (2, 4)])
    assert place.archive() == DONE
    assert place.places() == orders(0, 1, 2, 3, 4)


def test_a_topic_made_anew_is_another(place: Place) -> None:
    place.journal("a", [message(n) for n in range(3)])
    place.journal(
        "b", [message(n, topic_uid="u2", id=f"new-{n}", accepted_ms=NOON_MS + 9_000_000) for n in range(2)]
    )
    place.journal("c", [delivery(0), delivery(0, topic_uid="u2", started_ms=NOON_MS + 9_500_000, trace="t9")])
    assert place.archive() == DONE
    assert place.query("id from % order by 1") == [("m-0-0",), ("m-0-1",), ("m-0-2",), ("new-0",), ("new-1",)]
    assert place.query("id from % order by 1", "deliveries") == [("m-0-0",), ("new-0",)]


def test_two_lives_of_a_name_within_an_hour_are_told_apart(place: Place) -> None:
    place.journal("a", [message(n) for n in range(3)])
    second = [message(n, topic_uid="u2", id=f"new-{n}", accepted_ms=NOON_MS + 5_000 + n) for n in range(3)]
    place.journal("b", second)
    place.journal("c", [delivery(n, started_ms=NOON_MS + 60_000) for n in range(3)])  # after the second began
    place.journal("d", [delivery(n, topic_uid="u2", started_ms=NOON_MS + 5_010 + n) for n in range(3)])
    assert place.archive() == DONE
    lives = 'topic_uid, "offset", id from % order by all'
    both = [("u1", n, f"m-0-{n}") for n in range(3)] + [("u2", n, f"new-{n}") for n in range(3)]
    assert place.query(lives) == place.query(lives, "deliveries") == both
    assert place.query("distinct topic, group_uid from %", "deliveries") == [("orders", "g1")]


def test_a_bad_day_stops_no_other(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.journal("a", [message(0), message(1, v=2)])
    place.journal("b", [message(n, "fine", accepted_ms=NOON_MS + DAY_MS) for n in range(2)])
    assert place.archive() == FAILED
    summary = told(capsys)
    assert list(summary["failed"]) == [DAY]
    assert "update the jobs" in summary["failed"][DAY]
    assert summary["windows"] == 1
    assert place.places() == [("fine", 0, 0), ("fine", 0, 1)]


def test_a_day_of_an_earlier_form_is_archived_anew(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.journal("a", [message(0)])
    assert place.archive() == DONE
    path = place.folder / f"archive/manifests/{DAY}.json"
    path.write_text(path.read_text().replace('"v":2', '"v":1'))
    assert place.archive() == DONE
    assert (told(capsys)["windows"], place.manifest().v) == (1, 2)


@pytest.mark.parametrize("made_by", [SPARK])
def test_a_night_without_news_starts_no_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.journal("a", [message(0)])
    place.journal("b", [delivery(0)])
    assert place.archive() == DONE

    def start(is_small: bool = False) -> Any:
        raise AssertionError("there is nothing to do")

    monkeypatch.setattr(place, "start", start)
    assert place.archive("--compact-mb", "256") == place.compact() == DONE


@pytest.mark.parametrize("made_by", [SPARK])
def test_a_small_night_is_told_from_its_journal(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[bool] = []

    def start(is_small: bool = False) -> Any:
        told.append(is_small)
        return place.spark

    monkeypatch.setattr(place, "start", start)
    place.journal("a", [message(0)])
    place.archive()
    monkeypatch.setattr(session, "SMALL_BYTES", 1)
    place.archive("--window", DAY)
    assert told == [True, False]


def test_what_is_missing_is_reported(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.journal("a", [message(n) for n in (2, 3, 7)])
    assert place.archive() == INCOMPLETE
    (problem,) = told(capsys)["problems"]
    assert problem == {"day": DAY, "shard": "orders:u1/0", "missing": [[0, 1], [4, 6]], "offsets": 5}
    assert place.places() == orders(2, 3, 7)
    place.journal("b", [message(8, accepted_ms=NOON_MS + DAY_MS)])
    assert place.archive("--window", NEXT) == DONE  # a loss is told of its own day


def test_the_day_before_is_followed_without_a_gap(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.journal("a", [message(n) for n in range(3)])
    place.journal("b", [message(n, accepted_ms=NOON_MS + DAY_MS) for n in (5, 6)])
    assert place.archive() == INCOMPLETE
    assert told(capsys)["problems"][0]["missing"] == [[3, 4]]


def test_truncated_and_empty_objects_are_told_and_what_is_in_them_is_archived(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(n) for n in range(10)])
    cut = place.journal("b", [message(n, body=json.dumps("x" * (n % 89))) for n in range(10, 3000)])
    cut.write_bytes(cut.read_bytes()[:2000])
    place.journal("c", [message(0)]).write_bytes(b"")
    place.journal("d", [message(0)]).write_bytes(gzip.compress(b""))
    place.journal("e", [message(2999)])
    assert place.archive() == INCOMPLETE
    problems = told(capsys)["problems"]
    assert [name.rpartition("/")[2] for name in problems[1]["damaged"]] == ["b.jsonl.gz", "c.jsonl.gz"]
    ((first, last),) = problems[0]["missing"]
    assert 10 < first < last == 2998
    assert place.places() == orders(*range(first), 2999)


@both
def test_a_broken_line_is_told_and_harms_no_other(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    path = place.journal("a", [message(0), message(1)])
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b'{"v":1,"topic":"ord'))
    assert place.archive() == INCOMPLETE
    assert told(capsys)["problems"] == [
        {"day": DAY, "damaged": [f"journal/messages/day={DAY}/hour=12/a.jsonl.gz"]}
    ]
    assert place.places() == orders(0, 1)


@pytest.mark.parametrize("line", [message, delivery])
def test_a_newer_schema_is_refused_before_anything_is_published(
    place: Place, line: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    place.journal("b", [line(1, v=2)])
    assert place.archive() == FAILED
    assert "update the jobs" in told(capsys)["failed"][DAY]
    assert place.files() == []


def test_new_fields_alone_are_passed_over(place: Place) -> None:
    place.journal("a", [message(0, colour="blue", headers={"h": "x"})])
    assert place.archive() == DONE
    assert place.places() == orders(0)


def test_a_journal_that_lost_objects_takes_nothing_from_the_archive(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    gone = place.journal("b", [message(1)])
    assert place.archive() == DONE
    gone.unlink()
    assert place.archive() == FAILED
    assert "has lost 1 messages" in told(capsys)["failed"][DAY]
    assert place.places() == orders(0, 1)


def test_large_bodies_are_fetched_and_lost_ones_told(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "bodies/orders/u1/abc"
    (place.folder / name).parent.mkdir(parents=True)
    (place.folder / name).write_bytes(b"\xffbig")
    place.journal(
        "a", [message(0), message(1, body=None, body_blob=name), message(2, body=None, body_blob="bodies/no")]
    )
    assert place.archive() == INCOMPLETE
    assert told(capsys)["problems"] == [{"day": DAY, "bodies_missing": ["bodies/no"]}]
    assert place.query('body from % order by "offset"') == [(b'{"n":0}',), (b"\xffbig",), (None,)]


def test_a_large_body_that_went_with_its_retention_stays_in_the_archive(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"bodies/orders/u1/{n}" for n in range(2)]
    (place.folder / names[0]).parent.mkdir(parents=True)
    for name in names:
        (place.folder / name).write_bytes(name.encode())
    place.journal("a", [message(n, body=None, body_blob=name) for n, name in enumerate(names)])
    assert place.archive() == DONE
    (place.folder / names[0]).unlink()
    place.journal("late", [message(2, body=None, body_blob="bodies/no"), message(3)])
    assert place.archive() == INCOMPLETE
    assert told(capsys)["problems"] == [{"day": DAY, "bodies_missing": ["bodies/no"]}]
    bodies = [*((name.encode(),) for name in names), (None,), (b'{"n":3}',)]
    assert place.query('body from % order by "offset"') == bodies


def test_large_bodies_of_spark_lie_in_a_file_of_their_own_until_the_day_is_compacted(place: Place) -> None:
    names = [f"bodies/orders/u1/{n}" for n in (1, 3)]
    (place.folder / names[0]).parent.mkdir(parents=True)
    for name in names:
        (place.folder / name).write_bytes(name.encode())
    place.journal("a", [message(0), message(1, body=None, body_blob=names[0]), message(2)])
    place.journal("b", [message(3, body=None, body_blob=names[1])])
    place.journal("c", [message(3, edition=1, void="cancelled", body=None)])
    rows = [(0, b'{"n":0}'), (1, names[0].encode()), (2, b'{"n":2}')]
    for job, files in ((place.archive, 2 if place.made_by == SPARK else 1), (place.compact, 1)):
        assert job() == DONE
        assert (len(place.files()), place.query('"offset", body from % order by 1')) == (files, rows)
    (shard,) = place.manifest().shards
    assert (shard.ranges, shard.voids) == (((0, 3),), 1)


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


def test_a_large_topic_is_split_and_a_small_one_is_not(place: Place) -> None:
    place.journal("a", [message(n * 4_096) for n in range(6)] + [message(n, "small") for n in range(2)])
    most = "1" if place.made_by == SPARK else "2"  # Spark keeps neighbours together
    assert place.archive("--rows-per-file", most) == INCOMPLETE  # most offsets are not there
    names = [name.split("topic=")[1].partition("/")[0] for name in place.files()]
    assert (names.count("orders") > 1, names.count("small")) == (True, 1)
    assert len(place.places()) == 8


@pytest.mark.parametrize("made_by", [SPARK])
def test_a_large_topic_is_told_from_a_sample_of_the_objects(place: Place) -> None:
    for n in range(150):
        place.journal(f"{n:03}", [message(n * 20 + i) for i in range(20)] + [message(n, "small")])
    window = Window(date.fromisoformat(DAY))
    with place.as_it_is():
        journal = Journal(place.spark, place.bucket, window)
        large = journal.large("messages", 300)
        assert journal.large("messages", 10_000) == {}
    assert large.keys() == {"orders"}
    assert large["orders"] == pytest.approx(3_000, rel=0.1)


class Losing:
    """A bucket that loses a file between its writing and its reading."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def entries(self, folder: str) -> list[Entry]:
        if "_aside" in folder:
            self._bucket.delete(self._bucket.entries(folder)[0].name)
        return self._bucket.entries(folder)


def test_rows_that_cannot_be_read_again_are_not_published(place: Place) -> None:
    place.journal("a", [message(n, topic) for topic in ("orders", "invoices") for n in range(3)])
    assert place.archive(bucket=Losing(place.bucket)) == FAILED
    assert place.files() == []


class Killed(BaseException):
    pass


class Stopping:
    """A bucket whose process dies before a certain change."""

    left = 0

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def write(self, name: str, text: str) -> None:
        self._step()
        self._bucket.write(name, text)

    def put_file(self, name: str, path: Path) -> None:
        self._step()
        self._bucket.put_file(name, path)

    def move(self, old: str, new: str) -> None:
        self._step()
        self._bucket.move(old, new)

    def delete(self, name: str) -> None:
        self._step()
        self._bucket.delete(name)


def named(place: Place) -> set[str]:
    """The files that a reader is told of."""
    manifest = place.manifest()
    return {file.name for table in manifest.tables for file in manifest.files(table)}


@pytest.mark.soak
def test_killed_before_any_change_and_run_again_it_is_as_if_nothing_had_been(
    place: Place, tmp_path: Path
) -> None:
    place.journal("a", [message(n, topic) for topic in ("orders", "invoices") for n in range(3)])
    place.journal("b", [delivery(0)])
    assert place.archive() == DONE
    place.journal("late", [message(n, edition=1, body='"edited"') for n in (1, 3)])
    shutil.copytree(place.folder, tmp_path / "before")
    bucket, changes = Stopping(place.bucket), 0
    while True:
        shutil.rmtree(place.folder)
        shutil.copytree(tmp_path / "before", place.folder)
        bucket.left = changes
        try:
            place.archive(bucket=bucket)
            break
        except Killed:
            changes += 1
        assert named(place) <= {*place.files(), *place.files("deliveries")}  # a reader finds what it was told
        assert place.archive() == DONE
        assert named(place) == {*place.files(), *place.files("deliveries")}
        assert place.places() == [("invoices", 0, n) for n in range(3)] + orders(0, 1, 2, 3)
        assert place.query("count(*) from % where body = '\"edited\"'") == [(2,)]
        assert proof.load(place.bucket).ranges == {"orders:u1/0": ((0, 3),), "invoices:u1/0": ((0, 2),)}
    assert changes >= 5


@pytest.mark.parametrize(
    "argv",
    [
        ["--window", "yesterday"],
        ["--window", "2026-11-21T24"],
        ["--window", "2026-11-23"],
        ["--bucket", "s3://x"],
        ["--rows-per-file", "0"],
        ["--wind", "2026-11-21"],
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        options.of_archive(None, ["--now", "2026-11-23T06:00:00Z", *argv])
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
