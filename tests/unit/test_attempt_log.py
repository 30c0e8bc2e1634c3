"""What is kept of attempts: in whose row, in which order, for how long, and from which place of how many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import cursor_key
from chalicelib.domain.trace import TraceEntry, TraceRow
from chalicelib.services.core.attempt_log import AttemptLog
from chalicelib.store.traces import Traces
from tests.support import factories as make
from tests.support.clock import START_MS, ManualClock


class Rows:
    """Traces that keep what is written."""

    def __init__(self) -> None:
        self.of: list[TraceRow] = []

    def write(self, rows: Sequence[TraceRow]) -> None:
        self.of += rows

    def rows_covering(self, *_: Any, **__: Any) -> Sequence[TraceRow]:
        return self.of


def test_attempts_are_kept_by_shard_under_whose_cursor_it_was() -> None:
    topic, clock, rows = make.topic(shards=2, retention_days=3), ManualClock(), Rows()
    group = make.group(topic)
    log = AttemptLog(cast(Traces, rows), lambda *_: ("worker", 2, 5), lambda *_: {}, clock)
    entries = [
        (shard, TraceEntry(offset, 1, "SUCCESS")) for shard, offset in ((1, 9), (0, 7), (1, 3), (0, 8))
    ]
    clock.advance(2 * DAY_MS)
    log.note(
        topic,
        group,
        owner_uid="owner",
        consumer_uid="reader",
        row_id="r1",
        started_ms=START_MS,
        attempts=entries,
    )
    assert [[each.offset for each in row.entries] for row in rows.of] == [[3, 9], [7, 8]]
    assert [row.key for row in rows.of] == [cursor_key(topic, group, shard, "reader") for shard in (1, 0)]
    for row in rows.of:
        assert (row.consumer, row.rank, row.total, row.started_ms) == ("worker", 2, 5, START_MS)
        assert row.expires_s == topic.expires_s(START_MS + 2 * DAY_MS)
    assert [each.offset for each in log.entries(rows.of[0].key, 3, "r1")] == [3, 9]
    assert log.entries(rows.of[0].key, 3, "r2") == ()
