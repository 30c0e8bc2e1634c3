"""The archive is complete (I18) after every kind of accident, and says what it lacks; what is damaged of its own files
stops what needs it, and nothing else."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from chalicelib.domain.times import DAY_MS
from glue_jobs.archiving import completeness
from glue_jobs.common import job
from glue_jobs.common.arguments import DONE, FAILED, INCOMPLETE
from glue_jobs.common.bucket import Bucket, Entry
from tests.glue.jobs import read_summary
from tests.glue.journals import DAY, NEXT, NOON_MS, Line, Place, delivery, message, orders


def test_what_is_missing_is_reported_and_a_journal_that_lost_more_takes_nothing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(n) for n in (2, 3)])
    path = place.journal("b", [message(7)])
    assert place.archive() == INCOMPLETE
    (problem,) = read_summary(capsys)["problems"]
    assert problem == {"day": DAY, "shard": "orders:u1/0", "missing": [[0, 1], [4, 6]], "offsets": 5}
    place.journal("c", [message(8, accepted_ms=NOON_MS + DAY_MS)])
    assert place.archive("--window", NEXT) == DONE  # a loss is reported for its own day
    path.unlink()
    assert place.archive() == FAILED
    assert "has lost 1 messages" in read_summary(capsys)["failed"][DAY]
    assert place.places() == orders(2, 3, 7, 8)


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


def test_a_newer_schema_is_refused_before_anything_is_published(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(0)])
    place.journal("b", [delivery(1, v=2)])
    assert place.archive() == FAILED
    assert "update the jobs" in read_summary(capsys)["failed"][DAY]
    assert place.files() == []


class Losing:
    """A bucket that loses a file between its writing and its reading."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def entries(self, folder: str) -> list[Entry]:
        if "archive/messages" in folder and (entries := self._bucket.entries(folder)):
            self._bucket.delete(entries[0].name)
        return self._bucket.entries(folder)


def test_rows_that_cannot_be_read_again_are_not_published(place: Place) -> None:
    place.journal("a", [message(n, topic) for topic in ("orders", "invoices") for n in range(3)])
    assert place.archive(bucket=Losing(place.bucket)) == FAILED
    assert place.files() == []


def test_a_damaged_proof_is_told_and_without_it_the_manifests_prove_the_same(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.journal("a", [message(n) for n in (0, 1, 2)])
    place.journal("b", [message(3, accepted_ms=NOON_MS + DAY_MS)])
    place.archive()
    proof = completeness.load(place.bucket)
    assert proof.ranges == {"orders:u1/0": ((0, 3),)}
    file = place.folder / completeness.NAME
    file.write_text("{")
    capsys.readouterr()
    assert job.run_guarded("archive", place.archive) == FAILED
    assert "archive/proved.json can't be read: delete it" in read_summary(capsys)["error"]
    file.unlink()
    assert place.archive() == DONE
    assert completeness.load(place.bucket) == proof


SOUND = (0, 1, 3)
WHOLE_LINES = [b"{}", b"{}{}", b"null", b" null", b"{}null", b"[]", b"1", b"", b"[" * 3_000, b'{"v":NaN}']


def encoded(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode()


WRONG = [2**63 - 1, -(2**63), 2**70, -1, 1.5, "x", "", [], {}, True, None]


def test_every_sound_line_is_archived_beside_damaged_ones(place: Place) -> None:
    for make_line, name in ((message, "messages"), (delivery, "deliveries")):
        path = place.journal(name, [make_line(0)])
        wrong = [
            {**make_line(2), key: value}
            for key in make_line(2)
            if key not in ("v", "topic")
            for value in WRONG
        ]
        raw = [
            encoded(make_line(0)),
            encoded(make_line(1)),
            *WHOLE_LINES,
            *map(encoded, wrong),
            encoded(make_line(3)),
        ]
        path.write_bytes(gzip.compress(b"\n".join(raw)))
    assert place.archive() == INCOMPLETE
    for table in ("messages", "deliveries"):
        of = "topic_uid = 'u1' and shard = 0 and \"offset\" in (0, 1, 3)"
        time_condition = "" if table == "messages" else " and started_at is not null"
        rows = place.query(f'"offset" from % where {of}{time_condition} order by 1', table)
        assert [offset for (offset,) in rows] == list(SOUND)
