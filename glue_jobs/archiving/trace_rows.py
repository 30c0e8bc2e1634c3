"""Rows of the table of traces, decoded into lines of the journal (chalicelib/store/layout.py, docs/journal.md).

A second reading of the format, on purpose, as in log_rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from glue_jobs.archiving.log_rows import MOST_OFFSETS, Item, encode_line, plain, time_of

# as in chalicelib/domain/trace.py; the trace alone has these
_NOT_ARCHIVED = frozenset({"EDITED", "DELETED", "BURIED", "RETRIED", "SETTLED", "SOUGHT"})
_REDRIVEN = "REDRIVEN"


def lines_of(item: Item) -> Iterator[tuple[int, str, str, str]]:
    """Offset, day, hour and line of each attempt of a row, in boto3's form."""
    group_uid, topic_uid, shard = item["k"]["S"].rsplit("/", 2)
    first, _, trace = item["o"]["S"].partition("#")
    started_ms = time_of(item)
    for offset, attempt, outcome, duration_ms, detail in _attempts(item, int(first)):
        if outcome in _NOT_ARCHIVED:
            continue
        line: dict[str, Any] = {
            "v": 1,
            "topic": item["t"]["S"],
            "topic_uid": topic_uid,
            "group": item["g"]["S"] if "g" in item else "",
            "group_uid": group_uid,
            "shard": int(shard),
            "offset": offset,
            "attempt": attempt,
            "consumer": item["w"]["S"],
            "consumer_uid": item["u"]["S"] if "u" in item else "",
            "started_ms": started_ms,
            "duration_ms": duration_ms,
            "outcome": outcome,
            "detail": detail if outcome != _REDRIVEN else "",
            "trace": trace,
        }
        yield (offset, *encode_line(line, started_ms))


def _attempts(item: Item, first: int) -> Iterator[tuple[int, int, str, int, str]]:
    for start, count, attempt, outcome, duration_ms, detail in json.loads(plain(item["m"])):
        if not 0 <= start <= start + count <= MOST_OFFSETS:
            raise ValueError(f"{count} offsets from the {start}th on")
        for offset in range(first + start, first + start + count):
            yield offset, attempt, outcome, duration_ms, detail
