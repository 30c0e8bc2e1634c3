"""The archive is complete (I18) after every kind of accident, and says what it lacks."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.times import DAY_MS
from glue_jobs.archiving import completeness as proof
from glue_jobs.common.arguments import DONE, FAILED, INCOMPLETE
from glue_jobs.common.bucket import Bucket, Entry
from tests.glue.jobs import Killed, Stopping, read_summary
from tests.glue.journals import DAY, NEXT, NOON_MS, Place, delivery, message, orders


def test_what_is_missing_is_reported(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.journal("a", [message(n) for n in (2, 3, 7)])
    assert place.archive() == INCOMPLETE
    (problem,) = read_summary(capsys)["problems"]
    assert problem == {"day": DAY, "shard": "orders:u1/0", "missing": [[0, 1], [4, 6]], "offsets": 5}
    assert place.places() == orders(2, 3, 7)
    place.journal("b", [message(8, accepted_ms=NOON_MS + DAY_MS)])
    assert place.archive("--window", NEXT) == DONE  # a loss is reported for its own day


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
    problems = read_summary(capsys)["problems"]
    assert [name.rpartition("/")[2] for name in problems[1]["damaged"]] == ["b.jsonl.gz", "c.jsonl.gz"]
    ((first, last),) = problems[0]["missing"]
    assert 10 < first < last == 2998
    assert place.places() == orders(*range(first), 2999)


@pytest.mark.parametrize("line", [message, delivery])
def test_a_newer_schema_is_refused_before_anything_is_published(
    place: Place, line: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    place.journal("b", [line(1, v=2)])
    assert place.archive() == FAILED
    assert "update the jobs" in read_summary(capsys)["failed"][DAY]
    assert place.files() == []


def test_a_journal_that_lost_objects_takes_nothing_from_the_archive(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    path = place.journal("b", [message(1)])
    assert place.archive() == DONE
    path.unlink()
    assert place.archive() == FAILED
    assert "has lost 1 messages" in read_summary(capsys)["failed"][DAY]
    assert place.places() == orders(0, 1)


def test_a_journal_that_lost_attempts_takes_none_from_the_archive(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    place.journal("b", [delivery(0, 1, outcome="RETRY")])
    path = place.journal("c", [delivery(0, 2)])
    assert place.archive() == DONE
    path.unlink()
    assert place.archive() == FAILED
    assert "would lose rows" in read_summary(capsys)["failed"][DAY]
    assert place.query("attempt from % order by all", "deliveries") == [(1,), (2,)]


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
        assert place.named() <= {
            *place.files(),
            *place.files("deliveries"),
        }  # a reader finds the files of its list
        assert place.archive() == DONE
        assert place.named() == {*place.files(), *place.files("deliveries")}
        assert place.places() == [("invoices", 0, n) for n in range(3)] + orders(0, 1, 2, 3)
        assert place.query("count(*) from % where body = '\"edited\"'") == [(2,)]
        assert proof.load(place.bucket).ranges == {"orders:u1/0": ((0, 3),), "invoices:u1/0": ((0, 2),)}
    assert changes >= 5
