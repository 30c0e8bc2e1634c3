"""The last seen state of cursors: a refused write returns the current state, so reads are seldom needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from ...domain import cursor_write
from ...domain.cursor import Cursor
from ...domain.cursor_write import Change, RefusalReason, WriteRefused
from ...domain.errors import Unavailable, unavailable
from ...domain.message import DeadReason
from ...domain.record import Record
from ...domain.status import Status
from ...domain.timer import Timer
from ...domain.times import DAY_SECONDS
from ...domain.topic import CursorKey
from ...ports.world import Clock
from ...store import Cursors
from .counters import DEAD, UNDECODABLE, Counters
from .expiring_cache import TtlCache

_FRESH_MS = 1_000  # how old a state may be that shows nothing to claim
_CLOSED_S = DAY_SECONDS  # longer than any function or request that knows the cursor may run


@dataclass(frozen=True, slots=True)
class CursorSnapshot:
    """A cursor as last seen; `exists` is False where none is stored yet."""

    cursor: Cursor
    exists: bool


class CursorStore:
    """Reads and conditional writes of cursors, with a cache of the last state."""

    def __init__(self, cursors: Cursors, clock: Clock, counters: Counters) -> None:
        """`counters` counts dead letters: each is part of a write of a cursor."""
        self.cursors = cursors
        self._clock = clock
        self._counters = counters
        self._seen: TtlCache[CursorKey, CursorSnapshot] = TtlCache(clock, _FRESH_MS)

    def seen(self, key: CursorKey) -> CursorSnapshot | None:
        """The state seen within the last second; None without a read if there is none."""
        return self._seen.get(key)

    def last(self, key: CursorKey) -> CursorSnapshot:
        """The state seen within the last second, else from an inconsistent read: if it is stale, the write is
        refused."""
        if snapshot := self._seen.get(key):
            return snapshot
        with self._seen.calling(key) as call:
            return call.keep(_snapshot(self.cursors.get(key)))

    def preload(self, keys: Sequence[CursorKey], count: int) -> None:
        """Before `last` is asked for these cursors of one group (in a broadcast: consumer), which has `count`: read all
        in one query, if most of them would have to be read. What the query does not show, `last` reads."""
        missing_keys = [key for key in keys if self._seen.get(key) is None]
        if len(missing_keys) < 2 or 2 * len(missing_keys) <= count:
            return
        owner = missing_keys[0]
        with ExitStack() as stack, suppress(Unavailable):
            calls = [stack.enter_context(self._seen.calling(key)) for key in missing_keys]
            cursors = self.cursors.of_owner(owner.group_uid, owner.consumer_uid)
            for call in calls:
                call.keep(_snapshot(cursors.get(str(call.key.shard))))

    def read(self, key: CursorKey) -> CursorSnapshot:
        """The state as stored."""
        with self._seen.calling(key) as call:
            return call.replace(_snapshot(self.cursors.get(key, consistent=True)))

    def write(
        self,
        key: CursorKey,
        state: CursorSnapshot,
        change: Change,
        records: Sequence[Record] = (),
        timers: Sequence[Timer] = (),
    ) -> CursorSnapshot | None:
        """The state after the write; None where it lost a race (the winner's state is then the last seen).

        Raises Unavailable if an answer was lost and the outcome is unknown.
        """
        # After a seek a message may be in the lane twice: of its results in one write, the last counts.
        records = list({(record.shard, record.offset): record for record in records}.values())
        timers = list({(timer.due_ms, timer.id): timer for timer in timers}.values())
        with self._seen.calling(key) as call:
            result = self.cursors.write(key, change, records, timers, exists=state.exists)
            snapshot = _snapshot(result.current if isinstance(result, WriteRefused) else result)
            if snapshot.exists:
                call.replace(snapshot)
            else:
                self._seen.drop(key)
        if isinstance(result, WriteRefused):
            if result.why is RefusalReason.UNKNOWN:
                raise unavailable("The answer of the store was lost; the change may have been made.")
            return None
        self._counters.add(DEAD, sum(record.status == Status.DEAD for record in records))
        self._note_undecodable(key, [record for record in records if record.reason == DeadReason.UNDECODABLE])
        return snapshot

    def write_after(
        self, key: CursorKey, state: CursorSnapshot, after: Cursor, *beside: Any
    ) -> CursorSnapshot | None:
        """As `write`, of the change that leads to `after`."""
        make = cursor_write.change if state.exists else cursor_write.replacement
        return self.write(key, state, make(state.cursor, after), *beside)

    def _note_undecodable(self, key: CursorKey, records: Sequence[Record]) -> None:
        self._counters.add(UNDECODABLE, len(records))
        for record in records:
            location = {"topic": key.shard.topic, "shard": record.shard, "offset": record.offset}
            self._counters.note("undecodable", **location, group_uid=key.group_uid)

    def update(
        self, key: CursorKey, attempt: Callable[[CursorSnapshot], Change | None]
    ) -> CursorSnapshot | None:
        """Try a change until it wins; `attempt` answers None to give up."""
        state = self.last(key)
        while (change := attempt(state)) is not None:
            snapshot = self.write(key, state, change)
            if snapshot:
                return snapshot
            state = self.last(key)
        return None

    def close(self, keys: Sequence[CursorKey]) -> None:
        """Delete cursors; for a day they cannot be created again."""
        self.cursors.close(keys, self._clock.now_ms() // 1000 + _CLOSED_S)
        for key in keys:
            self._seen.drop(key)


def _snapshot(cursor: Cursor | None) -> CursorSnapshot:
    return CursorSnapshot(cursor or Cursor(), cursor is not None)
