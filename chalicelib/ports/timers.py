"""Timers by fragment and time, and the mover's lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.timer import Timer
from .log import DedupEntry, Moved


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a fragment found. `go_on_after` is the last sort key; None: there are no more."""

    timers: list[Timer]
    go_on_after: str | None = None


class Timers(Protocol):
    """What is due later, by fragment and due time."""

    def store(self, timers: Sequence[Timer], dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        """Store timers. Harmless to repeat. With dedup ids in one transaction (of at most 100 rows): the entries
        of ids that were used before, and then nothing was stored."""
        ...

    def amend(self, old: Timer, new: Timer, keep_s: int) -> bool:
        """Put `new` in the place of `old`, if that is there unchanged; where its time differs, its id leads from the
        old time to the new until `keep_s`. False: it is gone or was changed."""
        ...

    def cancel(self, timer: Timer, keep_s: int) -> bool:
        """Take the timer away for good, if it is there unchanged; until `keep_s` it can be seen as cancelled, with the
        draft it has here."""
        ...

    def moved(self, timer_id: str) -> Moved | None:
        """Where a timer went that was amended to another time, or cancelled; read consistently."""
        ...

    def look(self, fragment: int, until_ms: int, limit: int, behind: str = "") -> Look:
        """The first timers of a fragment (after a sort key) that are due by then, in order of time, read consistently:
        up to `limit`, and not many more than MAX_LOOK_BYTES."""
        ...

    def behind(self, fragment: int, sort_key: str, limit: int, *, consistent: bool = True) -> list[Timer]:
        """The first timers of a fragment that come after a sort key, in order of time."""
        ...

    def count_delayed(self, fragment: int, most: int) -> tuple[dict[str, int], bool]:
        """How many delayed messages of which topic (by uid) are among the first `most` timers of a fragment (or as
        many as one read holds), and whether those are all. It may be a moment old."""
        ...

    def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
        """When the fragment's next timer is due. A read that is not consistent may miss the newest."""
        ...

    def find(self, due_ms: int, timer_id: str) -> Timer | None:
        """One timer, read consistently."""
        ...

    def drop(self, timers: Sequence[Timer]) -> None:
        """Remove timers. Harmless where they are gone."""
        ...

    def set_aside(self, timer: Timer) -> None:
        """Take an UNREADABLE row out of the movers' way, as it is. Harmless where it has gone."""
        ...

    def bring_back(self) -> int:
        """File again some of what was set aside, as it was, if it can be read now; how many. Costs half a unit where
        there is nothing."""
        ...

    def hold(self, fragment: int, owner: str, now_ms: int, until_ms: int) -> bool:
        """Take or renew the lease of a fragment; False while another owner's runs."""
        ...

    def let_go(self, fragment: int, owner: str) -> None:
        """Give the lease back, if it is still this owner's."""
        ...
