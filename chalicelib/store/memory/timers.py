"""ports.Timers in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...domain.errors import newer_format
from ...domain.timer import UNREADABLE, Timer, TimerKind
from ...domain.times import CLOCKS_DIFFER_MS
from ...ports.log import DedupEntry, Moved
from ...ports.timers import FirstTimers
from ..layout import timer_key
from ..timers import first_of
from .tables import MemoryTables, check_actions, timer_place


class MemoryTimers:
    """ports.Timers over the common tables."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self._forwards: dict[str, tuple[Moved, int]] = {}  # each with when it goes, in seconds
        self.aside: list[Timer] = []
        self._leases: dict[int, tuple[str, int]] = {}

    def store(self, timers: Sequence[Timer], dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        check_actions(len(timers) + len(dedup) if dedup else 0)  # without dedup ids there is no transaction
        with self._tables.lock:
            duplicates = self._tables.used_entries(dedup)
            if not duplicates:
                self._tables.remember(dedup)
                self._tables.put_timers(timers)
            return duplicates

    def amend(self, old: Timer, new: Timer, keep_s: int) -> bool:
        with self._tables.lock:
            if not self._tables.has(old):
                return False
            del self._tables.timers[timer_place(old)]
            self._tables.put_timers([replace(new, edits=old.edits + 1)])
            if new.due_ms != old.due_ms:
                self._forwards[new.id] = Moved(new.due_ms, edits=old.edits + 1), keep_s
            return True

    def cancel(self, timer: Timer, keep_s: int) -> bool:
        with self._tables.lock:
            if not self._tables.has(timer):
                return False
            del self._tables.timers[timer_place(timer)]
            self._forwards[timer.id] = Moved(timer.due_ms, timer), keep_s
            return True

    def find_moved(self, timer_id: str) -> Moved | None:
        with self._tables.lock:  # here and below: a transaction is seen whole or not at all
            return self._forwards.get(timer_id, (None, 0))[0]

    def drop_expired(self, now_s: int) -> None:
        with self._tables.lock:
            self._forwards = {id: row for id, row in self._forwards.items() if row[1] > now_s}

    def first_due(self, fragment: int, until_ms: int, limit: int, behind: str = "") -> FirstTimers:
        rows = (
            timer
            for timer in self._of_fragment(fragment)
            if timer.sort_key > behind and timer.due_ms <= until_ms
        )
        return first_of(rows, limit)

    def behind(self, fragment: int, sort_key: str, limit: int, *, consistent: bool = True) -> list[Timer]:
        return [timer for timer in self._of_fragment(fragment) if timer.sort_key > sort_key][:limit]

    def count_delayed(self, fragment: int, most: int) -> tuple[dict[str, int], bool]:
        timers = self._of_fragment(fragment)
        kinds = (t.shard.topic_uid for t in timers[:most] if t.kind is TimerKind.DELIVER)
        return Counter(kinds), len(timers) < most

    def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
        return next((timer.due_ms for timer in self._of_fragment(fragment)), None)

    def find(self, due_ms: int, timer_id: str) -> Timer | None:
        row = timer_key(due_ms, timer_id)
        with self._tables.lock:
            timer = self._tables.timers.get((row["f"]["S"], row["t"]["S"]))
        if timer and timer.kind is TimerKind.NEWER:
            raise newer_format()
        return timer

    def _of_fragment(self, fragment: int) -> list[Timer]:
        partition = str(fragment)
        with self._tables.lock:
            places = sorted(place for place in self._tables.timers if place[0] == partition)
            return [self._tables.timers[place] for place in places]

    def drop(self, timers: Sequence[Timer]) -> None:
        with self._tables.lock:
            for timer in timers:
                there = self._tables.timers.get(timer_place(timer), timer)
                is_wake = timer.kind is TimerKind.WAKE and timer.stored_ms
                if not is_wake or there.stored_ms == timer.stored_ms:
                    self._tables.timers.pop(timer_place(timer), None)

    def set_aside(self, timer: Timer) -> None:
        with self._tables.lock:
            if there := self._tables.timers.pop(timer_place(timer), None):
                self.aside.append(there)

    def bring_back(self) -> int:
        with self._tables.lock:
            readable = [timer for timer in self.aside if timer.kind not in UNREADABLE]
            self._tables.put_timers(readable)
            self.aside = [timer for timer in self.aside if timer.kind in UNREADABLE]
            return len(readable)

    def acquire_lease(self, fragment: int, owner: str, now_ms: int, until_ms: int) -> int | None:
        with self._tables.lock:
            holder, deadline_ms = self._leases.get(fragment, (owner, 0))
            if holder != owner and now_ms < deadline_ms <= until_ms + CLOCKS_DIFFER_MS:
                return deadline_ms
            self._leases[fragment] = (owner, until_ms)
            return None

    def release_lease(self, fragment: int, owner: str) -> None:
        with self._tables.lock:
            if self._leases.get(fragment, ("", 0))[0] == owner:
                del self._leases[fragment]
