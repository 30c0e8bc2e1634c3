"""The rows in the fixture `journal_v1`, as the log and the traces have them."""

from __future__ import annotations

from pathlib import Path

from chalicelib.domain.message import Draft
from chalicelib.domain.segment import Segment, ShardKey, Written
from chalicelib.domain.topic import CursorKey
from chalicelib.domain.trace import TraceEntry, TraceRow

FIXTURE = Path(__file__).parent / "journal_v1"
NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z
SHARD = ShardKey("orders", "u1", 0)
DRAFTS = (
    Draft(
        b'{"price":1.50,"n":1e5}',
        tag="paid",
        keys=("o-1", "c-7"),
        ordering_key="c-7",
        headers={"h": "\u00f6"},
        tenant="acme",
    ),
    Draft("gr\u00fc\u00df \U0001f30d".encode(), is_json=False, content_type="text/plain"),
    Draft(b"\x00\xff", is_json=False, content_type="image/png"),
    Draft(b"", blob="bodies/orders/u1/abc", blob_bytes=300_000),
    Draft(b'"was delayed"', id="abcdefghjkmn-u123"),
    Draft(b'"gone"', cancelled=True, changed_ms=NOON_MS + 5),
)
MESSAGES = [
    Written(SHARD, Segment(40, len(DRAFTS), "req000000001", NOON_MS, 9, DRAFTS, edition=1)),
    Written(SHARD, Segment(46, 1, "tombstone", NOON_MS, 9)),
]
DELIVERIES = [
    TraceRow(
        CursorKey(SHARD, "g1"), "t1", "worker-1", 0, 2, NOON_MS + 7,
        (
            TraceEntry(40, 1, "SUCCESS", 12), TraceEntry(41, 1, "RETRY", 12, "503"),
            TraceEntry(42, 3, "DEAD", 9, "refused"),
        ),
        9, "billing",
    ),
    TraceRow(
        CursorKey(SHARD, "g2", "c9"), "t2", "screen", None, 1, NOON_MS + 8,
        (TraceEntry(40, 1, "LAPSED"),), 9, "all",
    ),
]  # fmt: skip
