"""What two groups did over the same messages, summed up row by row: memory does not grow with the messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from glue_jobs.reporting.tables import Rows

SIDES = ("", "shadow_")
"""What the columns of the one and of the other group begin with."""
MOST_LISTED = 20

_OPEN = "OPEN"  # not tried yet
_PERCENTILES = (("p50", 50), ("p99", 99))


@dataclass(slots=True)
class Side:
    """A group: its attempts, and how often the last of a message took so many ms."""

    attempts: int = 0
    durations: Counter[int] = field(default_factory=Counter)

    def percentile(self, rank: int) -> int | None:
        """Of the durations, in ms; None where there is none."""
        if not self.durations:
            return None
        durations = sorted(self.durations)
        counts_so_far = accumulate(self.durations[each] for each in durations)
        place = (self.durations.total() - 1) * rank // 100
        return next(each for each, end in zip(durations, counts_so_far, strict=True) if place < end)

    def sums(self) -> dict[str, Any]:
        """Attempts, and the durations of the last ones."""
        return {
            "attempts": self.attempts,
            **{f"duration_{name}_ms": self.percentile(rank) for name, rank in _PERCENTILES},
        }


@dataclass(slots=True)
class Comparison:
    """The sums over the rows that were added, and the first that differ."""

    messages: int = 0
    differ: int = 0
    listed: Rows = field(default_factory=list)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    sides: dict[str, Side] = field(default_factory=lambda: {side: Side() for side in SIDES})

    def add(self, row: Mapping[str, Any]) -> None:
        """Count a message: a row as `shadow.comparison_rows` makes it."""
        self.messages += 1
        if row["differs"]:
            self.differ += 1
            if self.differ <= MOST_LISTED:
                self.listed.append(dict(row))
        self.pairs[row["outcome"] or _OPEN, row["shadow_outcome"] or _OPEN] += 1
        for name, side in self.sides.items():
            side.attempts += row[f"{name}attempts"]
            if (duration := row[f"{name}duration_ms"]) is not None:
                side.durations[duration] += 1

    def outcomes(self) -> Rows:
        """How many messages ended how in both groups, the most frequent first."""
        return [
            {"outcome": ours, "shadow_outcome": theirs, "messages": count}
            for (ours, theirs), count in sorted(self.pairs.items(), key=lambda pair: (-pair[1], pair[0]))
        ]

    def sums(self) -> dict[str, Any]:
        """Both groups in all, as the summary names it."""
        return {
            f"{name}{key}": value for name, side in self.sides.items() for key, value in side.sums().items()
        }
