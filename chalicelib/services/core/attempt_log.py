"""Writes traces of attempts, best effort: deliveries do not depend on them. (A repeated ack is recognised by them.)"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import attrgetter

from ...domain.errors import Unavailable
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...domain.trace import TraceEntry, TraceRow
from ...ports.world import Clock
from ...store import Traces
from .assignments import Assignments
from .catalog import Catalog

Entries = Iterable[tuple[int, TraceEntry]]  # each with the shard of its message


class AttemptLog:
    """One row for each batch of attempts and shard."""

    def __init__(self, traces: Traces, assignments: Assignments, catalog: Catalog, clock: Clock) -> None:
        self._traces = traces
        self._assignments = assignments
        self._catalog = catalog
        self._clock = clock

    def note(
        self,
        topic: Topic,
        group: Group,
        owner_uid: str = "",
        called: str = "",
        consumer_uid: str = "",
        *,
        row_id: str,
        started_ms: int,
        attempts: Entries,
        is_ranked: bool = True,
    ) -> None:
        """Store attempts that were settled together, in a row for each shard of their messages.

        `owner_uid` is the consumer that had the lease ("" for a caller without a name), `called` the host
        that was called instead of it, `consumer_uid` the one whose
        cursor it is (in a broadcast, else ""). `row_id` is the lease's token, or names the admin's operation: a
        second row of this id that begins at the same offset takes the place of the first. Without `is_ranked` the
        row has the consumer's name only: a schedule may not renew assignments.
        """
        by_shard: defaultdict[int, list[TraceEntry]] = defaultdict(list)
        for shard, each in attempts:
            by_shard[shard].append(each)
        if not by_shard:
            return
        with suppress(Unavailable):
            if is_ranked:
                name, rank, total = self._assignments.name_and_rank(topic, group, owner_uid)
            else:
                names = self._catalog.consumer_names(topic, group) if owner_uid else {}
                name, rank, total = names.get(owner_uid, ""), None, 0
            expires_s = topic.expires_s(self._clock.now_ms())
            who = row_id, called or name, rank, total, started_ms
            rows: list[TraceRow] = []
            for shard, members in by_shard.items():
                key = cursor_key(topic, group, shard, consumer_uid)
                entries = tuple(sorted(members, key=attrgetter("offset")))
                rows.append(TraceRow(key, *who, entries, expires_s, group.name))
            self._traces.write(rows)

    def note_by_hand(
        self, topic: Topic, group: Group, uid: str, what: str, entries: Entries, at_ms: int | None = None
    ) -> None:
        """Store what an operator did to deliveries at a time (None: now); `what` begins the row's id."""
        at_ms = self._clock.now_ms() if at_ms is None else at_ms
        row_id = f"{what.lower()}.{at_ms}"
        self.note(topic, group, consumer_uid=uid, row_id=row_id, started_ms=at_ms, attempts=entries)

    def entries(self, key: CursorKey, offset: int, row_id: str) -> Sequence[TraceEntry]:
        """The attempts in the trace row with this id that holds this offset; empty if there is none. In a broadcast,
        other consumers may have leases of the same name."""
        rows = self._traces.rows_covering(key, offset, consistent=True)
        own = (row.entries for row in rows if (row.key, row.id) == (key, row_id))
        return next((entries for entries in own if any(each.offset == offset for each in entries)), ())
