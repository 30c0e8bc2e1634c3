"""Timers by fragment and time, and the mover's lease."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..domain.append import DedupEntry
from ..domain.timer import FirstTimers, Moved, Timer


class Timers(Protocol):
    """What is due later, by fragment and due time."""

    def store(self, timers: Sequence[Timer], dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        """Store timers. Harmless to repeat. With dedup ids all goes in one transaction of at most 100 rows. Returns
        the entries of ids that were used before; then nothing is stored."""
        ...

    def amend(self, old: Timer, new: Timer, keep_s: int) -> bool:
        """Replace `old` by `new`, if `old` is unchanged. If the time differs, a row leads from the old time to the
        new one until `keep_s`. False: the timer is gone or was changed."""
        ...

    def cancel(self, timer: Timer, keep_s: int) -> bool:
        """Delete the timer, if it is unchanged. A row shows it as cancelled, with the draft given here, until
        `keep_s`. False: it is gone or was changed."""
        ...

    def find_moved(self, timer_id: str) -> Moved | None:
        """The new time of a timer that was changed to another time or cancelled, read consistently; None if it was
        not."""
        ...

    def first_due(self, fragment: int, until_ms: int, limit: int, behind: str = "") -> FirstTimers:
        """The first timers of a fragment that are due by `until_ms`, after the sort key `behind`, in order of time;
        at most `limit`, and not many more than MAX_LOOK_BYTES. Read consistently."""
        ...

    def behind(self, fragment: int, sort_key: str, limit: int, *, consistent: bool = True) -> list[Timer]:
        """The first timers of a fragment that come after a sort key, in order of time."""
        ...

    def count_delayed(self, fragment: int, most: int) -> tuple[dict[str, int], bool]:
        """Count the delayed messages by topic (its uid) among the first `most` timers of a fragment, or as many as
        one read returns; and whether those are all timers. It may be a moment old."""
        ...

    def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
        """When the fragment's next timer is due. A read that is not consistent may miss the newest."""
        ...

    def find(self, due_ms: int, timer_id: str) -> Timer | None:
        """One timer, read consistently."""
        ...

    def drop(self, timers: Sequence[Timer]) -> None:
        """Remove timers. Harmless where they are gone. A WAKE that was stored again since it was read stays: whoever
        stored it may not have seen what the first one woke."""
        ...

    def set_aside(self, timer: Timer) -> None:
        """Move an UNREADABLE row, unchanged, to a partition that no mover reads. Harmless if it is gone."""
        ...

    def bring_back(self) -> int:
        """Make timers again of some rows that were set aside and can be read now. Returns how many. Costs half a
        read unit if there are none."""
        ...

    def acquire_lease(self, fragment: int, owner: str, now_ms: int, until_ms: int) -> int | None:
        """Take or renew the lease of a fragment, until `until_ms`. Returns None if it is this owner's now, or else the
        time when another owner's lease ends. One so far ahead that its owner's clock was wrong is none."""
        ...

    def release_lease(self, fragment: int, owner: str) -> None:
        """Give the lease back, if it is still this owner's."""
        ...
