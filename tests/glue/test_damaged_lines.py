"""Damaged lines of the journal: every sound line beside them is archived."""

from __future__ import annotations

import gzip
import json

import pytest

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from glue_jobs.common.arguments import INCOMPLETE
from tests.glue.journals import Line, Place, delivery, message

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
