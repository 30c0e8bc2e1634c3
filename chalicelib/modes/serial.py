"""SERIAL: in order per unit; a failure holds back its own unit only.

The unit is the ordering key where a message has one, else the shard. Messages of a busy unit are skipped, so that
other units continue: they wait in the cursor. One claim skips a bounded number, and the next one continues behind them.
The shard waits only while its cursor has no space for more.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..domain import ranges
from ..domain.cursor import Cursor, Selection
from ..domain.cursor_transitions import leased_units
from ..domain.limits import MAX_PASSED_OVER
from ..domain.ranges import Range
from ..domain.spans import Span
from .policy import Candidate, ClaimVerdict


class Serial:
    """The policy of groups in the mode SERIAL."""

    per_consumer = False
    reads_units = True
    holds_back = True

    def select(
        self,
        cursor: Cursor,
        returned: Sequence[Candidate],
        unclaimed: Sequence[Candidate],
        most: int,
    ) -> Selection:
        """Grant the first unsettled message of each free unit, lowest offset first."""
        busy = leased_units(cursor)
        grants: list[Span] = []
        last: list[Span] = []  # the first of each free unit of a heavy tenant
        settled_ranges: list[Range] = []
        due_candidates = {candidate.offset: candidate for candidate in returned}
        for span in cursor.waiting:  # a unit's first waiting message decides whether the unit may go on
            for offset in span.offsets():
                if span.unit in busy:
                    break
                candidate = due_candidates.get(offset)
                if candidate and candidate.verdict is ClaimVerdict.SETTLE:
                    settled_ranges.append((offset, offset + 1))
                    continue
                busy.add(span.unit)
                if candidate and candidate.turn:
                    last.append(Span(offset, 1, candidate.attempt, span.unit))
                elif candidate and len(grants) < most:
                    grants.append(Span(offset, 1, candidate.attempt, span.unit))
        passed_over = _take_unclaimed(unclaimed, busy, grants, last, settled_ranges, most)
        is_full = len(passed_over) == MAX_PASSED_OVER and (not grants or bool(last))
        grants += last[: max(0, most - len(grants))]
        next_offset = max([cursor.next, *(s.end for s in grants), *(end for _, end in settled_ranges)])
        if is_full:
            next_offset = max(next_offset, passed_over[-1].end)
        # Fewer offsets passed over behind the last grant stay unclaimed, to save a write.
        return Selection(
            tuple(grants),
            tuple(s for s in passed_over if s.end <= next_offset and not (last and s in grants)),
            ranges.normalise(settled_ranges),
            next_offset,
        )


def _take_unclaimed(
    unclaimed: Sequence[Candidate],
    busy: set[str],
    grants: list[Span],
    last: list[Span],
    settled_ranges: list[Range],
    most: int,
) -> list[Span]:
    """Add grants from `unclaimed` to the lists; returns the spans passed over, those in `last` among them."""
    passed_over: list[Span] = []
    for candidate in unclaimed:
        if len(grants) >= most:
            break
        if candidate.verdict is ClaimVerdict.SETTLE:
            settled_ranges.append((candidate.offset, candidate.offset + candidate.count))
            continue
        if candidate.unit not in busy and not candidate.turn:
            grants.append(Span(candidate.offset, 1, candidate.attempt, candidate.unit))
        elif len(passed_over) < MAX_PASSED_OVER:
            passed_over.append(Span(candidate.offset, 1, 1, candidate.unit))
            last += passed_over[-1:] if candidate.unit not in busy else []
        else:
            break
        busy.add(candidate.unit)
    return passed_over
