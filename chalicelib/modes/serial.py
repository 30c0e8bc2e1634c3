"""SERIAL: in order per unit; a failure holds back its own unit only.

The unit is the ordering key where a message has one, else the shard. Messages of a busy unit are skipped, so that
other units continue: they wait in the cursor. One claim skips a bounded number, and the next one continues behind them.
The shard waits only while its cursor has no space for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..domain import ranges
from ..domain.cursor import Cursor, Selection
from ..domain.cursor_transitions import leased_units
from ..domain.limits import MAX_PASSED_OVER
from ..domain.ranges import Range
from ..domain.spans import Span, in_order
from .policy import Candidate, ClaimVerdict


@dataclass(frozen=True, slots=True)
class Serial:
    """The policy of groups in the mode SERIAL."""

    run: int = 0

    per_consumer = False
    reads_units = True
    holds_back = True
    waits_in_cursor = True
    of_key = 0

    def select(
        self, cursor: Cursor, returned: Sequence[Candidate], unclaimed: Sequence[Candidate], most: int
    ) -> Selection:
        """Grant the first unsettled message of each free unit, lowest offset first; in a run, also those behind it.
        Units of heavy tenants come last."""
        grants = _Grants(most, self.run, leased_units(cursor))
        grants.later = _Grants(most, self.run, grants.busy)
        settled_ranges: list[Range] = []
        due_candidates = {candidate.offset: candidate for candidate in returned}
        waiting: dict[str, list[Span]] = {}
        for span in cursor.waiting:
            waiting.setdefault(span.unit, []).append(span)
        for unit in waiting:
            if unit in grants.busy:
                continue
            for offset, _ in in_order(waiting[unit]):  # the first that is not due stops its unit
                candidate = due_candidates.get(offset)
                if candidate and candidate.verdict is ClaimVerdict.SETTLE:
                    settled_ranges.append((offset, offset + 1))
                elif not (candidate and grants.take(candidate)):
                    grants.stop(unit)
                    break
                elif not grants.grows(unit):
                    break
        passed_over = _take_unclaimed(unclaimed, grants, settled_ranges)
        granted = [*grants.spans, *grants.last()]
        next_offset = max([cursor.next, *(s.end for s in granted), *(end for _, end in settled_ranges)])
        if len(passed_over) == MAX_PASSED_OVER and not grants.spans:
            next_offset = max(next_offset, passed_over[-1].end)
        # Fewer offsets passed over behind the last grant stay unclaimed, to save a write.
        return Selection(
            tuple(granted),
            tuple(s for s in passed_over if s.end <= next_offset and s not in granted),
            ranges.normalise(settled_ranges),
            next_offset,
        )


@dataclass(slots=True)
class _Grants:
    """What one claim grants: of at most `most` units, and in runs up to `run` messages in all."""

    most: int
    run: int
    busy: set[str]  # units whose next message may not be granted, but for those that grow
    growing: set[str] = field(default_factory=set)  # units with a run that the next message may join
    spans: list[Span] = field(default_factory=list)
    units: int = 0
    later: _Grants | None = None  # of the units of heavy tenants

    def take(self, candidate: Candidate) -> bool:
        """Grant the next message of a unit, if it may be granted; if not, those behind it are not either."""
        if candidate.turn and self.later:
            return self.later.take(candidate)
        unit = candidate.unit
        is_first = unit not in self.busy
        if not (self.units < self.most if is_first else unit in self.growing and len(self.spans) < self.run):
            self.stop(unit)
            return False
        self.busy.add(unit)
        self.units += is_first
        if is_first and self.run > 1:
            self.growing.add(unit)
        self.spans.append(Span(candidate.offset, 1, candidate.attempt, unit))
        return True

    def stop(self, unit: str) -> None:
        """Grant no more messages of a unit."""
        self.busy.add(unit)
        self.growing.discard(unit)
        if self.later:
            self.later.growing.discard(unit)

    def grows(self, unit: str) -> bool:
        """May the next message of the unit join its run?"""
        return unit in self.growing or (self.later is not None and unit in self.later.growing)

    def last(self) -> list[Span]:
        """What these grants leave to the units of heavy tenants."""
        taken: list[Span] = []
        units: set[str] = set()
        for span in self.later.spans if self.later else ():
            has_room = (
                len(self.spans) + len(taken) < self.run if span.unit in units else self.units < self.most
            )
            if has_room:
                self.units += span.unit not in units
                units.add(span.unit)
                taken.append(span)
        return taken

    @property
    def is_full(self) -> bool:
        return self.units >= self.most and not (self.growing and len(self.spans) < self.run)


def _take_unclaimed(
    unclaimed: Sequence[Candidate], grants: _Grants, settled_ranges: list[Range]
) -> list[Span]:
    """Grant of the messages never claimed; returns the spans passed over, those of heavy tenants among them."""
    passed_over: list[Span] = []
    for candidate in unclaimed:
        if grants.is_full:
            break
        if candidate.verdict is ClaimVerdict.SETTLE:
            settled_ranges.append((candidate.offset, candidate.offset + candidate.count))
        elif not grants.take(candidate) or candidate.turn:
            if len(passed_over) == MAX_PASSED_OVER:
                break
            passed_over.append(Span(candidate.offset, 1, 1, candidate.unit))
    return passed_over
