"""A resend (a named request that is sent again): what it wrote before is looked for near the end of its shard, and not
written twice.

Before each try for an offset, every row between where the last look ended and that offset is read: the log is dense, so
of two tries of one request at once, the later one finds the row of the earlier one. (Where offsets are reserved,
holes are closed on the way.) A first try that wins its first offset reads nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...domain.errors import Conflict
from ...domain.limits import BLOB_THRESHOLD_BYTES, MAX_BATCH, MAX_LOOK_BACK_ROWS
from ...domain.message import Draft, Message
from ...domain.request import SLACK_MS, Request
from ...domain.segment import Allocation, Segment, ShardKey
from ...store import Log
from .dedup import content_hash

_ROWS_PER_PAGE = 512


@dataclass(frozen=True, slots=True)
class RowsFound:
    """Rows that the request wrote before, in order; nothing was written now."""

    shard: int
    rows: tuple[Segment, ...]

    def messages_for(self, drafts: Sequence[Draft]) -> list[Message | None]:
        """For each draft of the resend, its message in these rows; None if it has none. Drafts with equal contents are
        interchangeable. A message that was changed since is matched last, with any draft that has no equal."""
        by_likeness: defaultdict[str, deque[Message]] = defaultdict(deque)
        edits: deque[Message] = deque()
        for row in self.rows:
            for offset in range(row.first, row.end):
                if message := row.message(self.shard, offset):
                    was_changed = message.draft.changed_ms is not None
                    (edits if was_changed else by_likeness[_likeness(message.draft)]).append(message)
        likenesses = map(_likeness, drafts)
        matches = [by_likeness[like].popleft() if by_likeness[like] else None for like in likenesses]
        return [message or (edits.popleft() if edits else None) for message in matches]


class ResendLookup:
    """Where one request writes in one shard. Not for several threads."""

    def __init__(self, log: Log, request: Request, key: ShardKey) -> None:
        self._log = log
        self._request = request
        self._key = key
        self._seen: int | None = None  # every row below was looked at

    def row_id(self, first: int, originals: Sequence[Draft]) -> str:
        """The request id of its row at this place."""
        return self._request.row_id(self._key, first, map(content_hash, originals))

    def note_stored(self, segment: Segment) -> None:
        """It has just written this: no trace of an earlier try."""
        self._seen = segment.end

    def before(self, segment: Segment) -> RowsFound | None:
        """Rows of this request below the segment, which is about to be put, that were not checked before.

        Raises Conflict (RESEND_TOO_LATE) where too much was stored since it was sent first.
        """
        low, self._seen = self._seen, segment.first
        if low is None and self._request.since_ms is None:
            return None
        since_ms = 0 if low is not None else (self._request.since_ms or 0) - SLACK_MS
        own: list[Segment] = []
        next_segment, rows = segment, 0
        while next_segment.first > (low or 0):
            page = self._log.read_back(self._key, next_segment.first - 1, _ROWS_PER_PAGE, consistent=True)
            for row in page:
                own += self._close_hole(row.end, next_segment)
                if row.first < (low or 0) or 0 < row.accepted_ms < since_ms:
                    return self._rows_found(own)
                own += [row] if self._request.wrote(self._key, row) else []
                next_segment = row
            rows += len(page)
            if not page:  # one that is shorter than asked for ended at a megabyte
                break
            if rows >= MAX_LOOK_BACK_ROWS:
                raise Conflict(
                    "RESEND_TOO_LATE",
                    "Too much was stored since this was sent first to tell whether it is there. Look for it (by its "
                    "key), or send it under a new name: then it may be there twice.",
                )
        return self._rows_found(own)

    def _close_hole(self, start: int, next_segment: Segment) -> list[Segment]:
        """Close a hole, offset by offset: where offsets are reserved, an earlier try may be about to write there. Its
        rows, where it just has."""
        own: list[Segment] = []
        if next_segment.allocation is not Allocation.RESERVED or next_segment.first - start > MAX_BATCH:
            return own
        while start < next_segment.first:
            row = self._log.put_tombstone(self._key, start, next_segment.accepted_ms, next_segment.expires_s)
            own += [row] if self._request.wrote(self._key, row) else []
            start = row.end
        return own

    def _rows_found(self, own: Sequence[Segment]) -> RowsFound | None:
        return RowsFound(self._key.shard, tuple(sorted(own, key=lambda row: row.first))) if own else None


def _likeness(draft: Draft) -> str:
    """What two forms of one message have in common: a large body lies elsewhere once it is stored."""
    body = draft.body if draft.size <= BLOB_THRESHOLD_BYTES else b""
    return f"{draft.size} {content_hash(replace(draft, body=body, shard=None))}"
