"""SERIAL: in order per unit; a failure holds back its own unit only.

The unit is the ordering key where a message has one, else the shard. Messages of a busy unit are passed over
within a bound, so that other units flow; past the bound the shard waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..domain import ranges
from ..domain.cursor import Cursor, Selection
from ..domain.limits import MAX_PASSED_OVER
from ..domain.ranges import Range
from ..domain.spans import Span
from .policy import Candidate, ClaimVerdict


class Serial:
    per_consumer = False
    reads_units = True
    holds_back = True

    def select(
        self,
        cursor: Cursor,
        returned: Sequence[Candidate],
        unclaimed: Sequence[Candidate],
        most: int,
        now_ms: int,
    ) -> Selection:
        """Grant the first unsettled message of each free unit, lowest offset first."""
        busy = _leased_units(cursor)
        granted: list[Span] = []
        settled: list[Range] = []
        due = {candidate.offset: candidate for candidate in returned}
        for span in cursor.waiting:  # a unit's first waiting message decides whether the unit may go on
            for offset in span.offsets():
                if span.unit in busy:
                    break
                candidate = due.get(offset)
                if candidate and candidate.verdict is ClaimVerdict.SETTLE:
                    settled.append((offset, offset + 1))
                    continue
                busy.add(span.unit)
                if candidate and len(granted) < most:
                    granted.append(Span(offset, 1, candidate.attempt, span.unit))
        passed = _take_unclaimed(unclaimed, busy, granted, settled, most, MAX_PASSED_OVER - _waiting(cursor))
        following = max([cursor.next, *(s.end for s in granted), *(end for _, end in settled)])
        # Offsets passed over behind the last grant stay unclaimed: a claim that grants nothing writes nothing.
        return Selection(
            tuple(granted),
            tuple(s for s in passed if s.end <= following),
            ranges.normalise(settled),
            following,
        )


def _leased_units(cursor: Cursor) -> set[str]:
    return {span.unit for lease in cursor.leases.values() for span in lease.spans}


def _waiting(cursor: Cursor) -> int:
    return sum(span.count for span in cursor.waiting)


def _take_unclaimed(
    unclaimed: Sequence[Candidate],
    busy: set[str],
    granted: list[Span],
    settled: list[Range],
    most: int,
    room: int,
) -> list[Span]:
    """Add grants from `unclaimed` to the list; returns the spans passed over."""
    passed: list[Span] = []
    for candidate in unclaimed:
        if len(granted) >= most:
            break
        if candidate.verdict is ClaimVerdict.SETTLE:
            settled.append((candidate.offset, candidate.offset + candidate.count))
        elif candidate.unit not in busy:
            busy.add(candidate.unit)
            granted.append(Span(candidate.offset, 1, candidate.attempt, candidate.unit))
        elif len(passed) < room:
            passed.append(Span(candidate.offset, 1, 1, candidate.unit))
        else:
            break
    return passed
