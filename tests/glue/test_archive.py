"""The archive is exact, and the same after every repetition and in every order of its runs."""

from __future__ import annotations

import random
import re
import textwrap
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from chalicelib.domain.times import DAY_MS
from glue_jobs.archiving.rows import WindowRows
from glue_jobs.common.arguments import DONE
from tests.glue.jobs import read_summary
from tests.glue.journals import DAY, NOON_MS, Place, delivery, message


@pytest.fixture(scope="module")
def night(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One night, of which each topic shows another thing."""
    place = Place.in_folder(spark, tmp_path_factory.mktemp("night"), "night")
    place.journal(
        "a",
        [
            message(0, tag="t", tenant="u", ordering_key="o", headers={"b": "1", "a": "2"}, keys=["x", "y"]),
            message(1, body=None, body_base64="AP8=", content_type="image/png"),
            message(2, body="", headers=None, keys=None, colour="a field that is not known"),
        ],
    )
    place.journal("b", [delivery(0, 1, outcome="RETRY", detail="503"), delivery(0, 2)])
    place.journal("z", [message(n, "twice") for n in (0, 1, 2)])
    place.journal("c", [message(n, "twice") for n in (4, 3, 2, 1)])
    place.journal("d", [delivery(n, topic="twice") for n in (0, 1)])
    place.journal("e", [delivery(n, topic="twice") for n in (1, 0, 2)])
    place.journal("f", [message(n, "edited") for n in range(4)])
    cancelled = message(2, "edited", edition=1, void="cancelled", body=None)
    place.journal("g", [message(1, "edited", edition=2, body='"new"'), cancelled])
    hole = message(4, "edited", void="tombstone", id=None, body=None)
    place.journal("h", [message(1, "edited", edition=1, body='"old"'), hole])
    for uid, begun_ms in (("u1", NOON_MS), ("u2", NOON_MS + 5_000)):
        second = [
            message(n, "lives", topic_uid=uid, id=f"{uid}-{n}", accepted_ms=begun_ms + n) for n in range(3)
        ]
        place.journal(f"i-{uid}", second)
    late_ms = NOON_MS + 60_000  # after the second life began
    place.journal("k", [delivery(n, topic="lives", started_ms=late_ms) for n in range(3)])
    place.journal("l", [delivery(n, topic="lives", topic_uid="u2") for n in range(3)])
    assert place.archive() == DONE
    return place


def test_lines_become_rows_with_all_they_say(night: Place) -> None:
    columns = "id, epoch_ms(accepted_at), tag, tenant, keys, ordering_key, headers, content_type, body "
    columns += "from % where topic = 'orders' order by id"
    text = "application/json"
    assert night.query(columns) == [
        ("m-0-0", NOON_MS, "t", "u", ["x", "y"], "o", {"b": "1", "a": "2"}, text, b'{"n":0}'),
        ("m-0-1", NOON_MS + 1, None, None, ["k"], None, {"h": "ö"}, "image/png", b"\x00\xff"),
        ("m-0-2", NOON_MS + 2, None, None, [], None, {}, text, b""),
    ]
    assert night.query("distinct shard, day from %") == [(0, date(2026, 11, 21))]
    columns = (
        '"group", shard, "offset", id, attempt, consumer, epoch_ms(started_at), duration_ms, outcome, detail'
    )
    assert night.query(f"{columns} from % where topic = 'orders' order by attempt", "deliveries") == [
        ("billing", 0, 0, "m-0-0", 1, "c", NOON_MS + 1000, 5, "RETRY", "503"),
        ("billing", 0, 0, "m-0-0", 2, "c", NOON_MS + 2000, 5, "SUCCESS", ""),
    ]


def test_objects_that_come_twice_and_in_any_order_are_one(night: Place) -> None:
    for table, count in (("messages", 5), ("deliveries", 3)):
        offsets = night.query("\"offset\" from % where topic = 'twice' order by 1", table)
        assert offsets == [(n,) for n in range(count)]
        assert night.manifest().table(table).topics["twice"].count == count
        assert len(night.files(table)) == 1


def test_the_last_edition_of_a_message_stays_and_what_is_void_has_no_row(night: Place) -> None:
    assert night.query("\"offset\", body from % where topic = 'edited' order by 1") == [
        (0, b'{"n":0}'), (1, b'"new"'), (3, b'{"n":3}'),
    ]  # fmt: skip
    (shard,) = (each for each in night.manifest().shards if each.topic == "edited")
    assert (shard.ranges, shard.voids, shard.missing) == (((0, 4),), 2, ())


def test_two_lives_of_a_name_within_an_hour_are_told_apart(night: Place) -> None:
    selection = "topic_uid, \"offset\", id from % where topic = 'lives' order by all"
    expected_rows = [(uid, n, f"{uid}-{n}") for uid in ("u1", "u2") for n in range(3)]
    assert night.query(selection) == night.query(selection, "deliveries") == expected_rows
    assert night.query("distinct group_uid from % where topic = 'lives'", "deliveries") == [("g1",)]


def test_run_again_it_gives_the_same_files_and_with_late_data_new_ones(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(n, topic) for topic in ("orders", "invoices") for n in range(3)])
    place.journal("b", [delivery(n) for n in range(3)])
    assert place.archive() == DONE
    files, old_manifest, first = place.files(), place.manifest(), read_summary(capsys)
    deliveries = place.files("deliveries")
    assert place.archive("--window", DAY) == DONE
    assert (place.files(), place.manifest()) == (files, old_manifest)
    assert {**read_summary(capsys), "seconds": 0} == {**first, "seconds": 0}
    assert place.archive() == DONE
    assert read_summary(capsys)["unchanged"] == 1
    place.journal("late", [message(1, edition=1, body='"edited"')])
    assert place.archive() == DONE
    assert place.files("deliveries") == deliveries  # they have the same rows
    assert place.query("body from % where topic = 'orders' order by \"offset\"") == [
        (b'{"n":0}',), (b'"edited"',), (b'{"n":2}',),
    ]  # fmt: skip


def test_a_day_is_one_set_of_sorted_files_however_many_topics_it_has(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"t{n:02}" for n in range(20)]
    place.journal("a", [message(n, topic) for n in range(3) for topic in topics])
    place.journal("b", [delivery(n, topic=topic) for n in range(3) for topic in topics])
    monkeypatch.setattr(WindowRows, "_file_count", lambda rows, table: 4)
    assert place.archive() == DONE
    for table in ("messages", "deliveries"):
        files = place.manifest().table(table).files
        assert 1 < len(files) < 10
        rows = [row for file in files for row in place.query('topic, "offset" from %', files=[file.name])]
        assert rows == sorted(rows) == [(topic, n) for topic in topics for n in range(3)]
        assert [file.first for file in files] == sorted(file.first for file in files)
        (last,) = place.manifest().table(table).files_of(["t19"])
        assert (last.last, place.manifest().table(table).topics["t19"].count) == ("t19", 3)
    entry = (place.folder / f"archive/manifests/{DAY}.json").stat().st_size / len(topics)
    assert entry < 250


def test_an_attempt_of_an_old_message_reads_no_bodies_and_the_docs_read_them_as_text(
    folder_place: Place,
) -> None:
    place, chance = folder_place, random.Random(0)
    java: Any = place.spark._jvm
    for topic in ("invoices", "orders", "refunds"):
        place.journal(topic, [message(n, topic, body=chance.randbytes(4_000).hex()) for n in range(400)])
    bodies: tuple[dict[str, Any], ...] = ({"body": "ö"}, {"body": ""}, {"body": None, "body_base64": "AP8="})
    place.journal("texts", [message(n, shard=1, **body) for n, body in enumerate(bodies)])

    def read_bytes() -> int:
        return sum(each.getBytesRead() for each in java.org.apache.hadoop.fs.FileSystem.getAllStatistics())

    assert place.archive() == DONE
    before = read_bytes()
    place.journal("b", [delivery(7, started_ms=NOON_MS + DAY_MS)])
    assert place.archive() == DONE
    assert place.query("id from %", "deliveries") == [("m-0-7",)]
    read, size = read_bytes() - before, place.manifest().table("messages").bytes
    assert 0 < read < size / 20, (read, size)
    assert as_text(place) == [("ö",), ("",), (None,)]


def as_text(place: Place) -> list[tuple[str | None]]:
    """Texts of bodies in shard 1, as docs/archive.md reads them: by DuckDB and by Spark."""
    blocks = re.findall(r"(?:^    .+\n)+", Path("docs/archive.md").read_text(), re.MULTILINE)
    sql, python = (next(block for block in blocks if part in block) for part in ("getvariable", "load_all"))
    connection = duckdb.connect()
    chosen = "select body_text from messages_text where topic = 'orders' and shard = 1 order by id"
    connection.execute(sql.replace("headrace", place.name).replace(".data/bucket", str(place.folder)))
    exec(textwrap.dedent(python), {"spark": place.spark, "bucket": place.bucket})
    rows = connection.execute(chosen).fetchall()
    assert rows == [tuple(row) for row in place.spark.sql(chosen).collect()]
    return rows
