"""What a mode decides: whether consumers have cursors of their own, which messages may be claimed together, and in what
order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

from ..domain.cursor import Cursor, Selection


class ClaimVerdict(Enum):
    """Whether a candidate message may be delivered."""

    DELIVER = "deliver"
    SETTLE = "settle"  # filtered out, expired, exhausted or gone: settled without a delivery


class Turn(IntEnum):
    """When a candidate is granted: a heavy tenant's come after those of the others, or not now."""

    FIRST = 0
    LAST = 1
    NOT_NOW = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One offset that could be claimed now, after reading its message.

    Only a SETTLE candidate may cover more than one offset: a gap without rows.
    """

    offset: int
    count: int = 1
    attempt: int = 1
    unit: str = ""
    verdict: ClaimVerdict = ClaimVerdict.DELIVER
    dead: bool = False  # settling it leaves a dead letter
    size: int = 0  # bytes it takes in an answer
    tenant: str | None = None
    is_skipped: bool = False  # a claim has left it behind for those of other tenants
    elsewhere: int = 0  # how many of its key are leased in the lane or, of a lane's entry, in its shard
    turn: Turn = Turn.FIRST


class Policy(Protocol):
    """One mode. Stateless; every method is a function of its arguments."""

    per_consumer: bool  # does each registered consumer have a cursor of its own?

    reads_units: bool  # does a claim need the messages' ordering keys?

    # Does a failed message wait in the cursor, and block its ordering unit? If not, a retry timer moves it to the
    # retry lane.
    holds_back: bool

    waits_in_cursor: bool
    """Does a failed message wait in the cursor, which reserves the space? If its unit is one of a key, it does."""

    @property
    def of_key(self) -> int:
        """How many messages of one ordering key may be leased, where it does not block its unit; 0: any number."""
        ...

    @property
    def run(self) -> int:
        """How many messages runs may have in one claim, in all; 0: it takes one of each unit."""
        ...

    def select(
        self, cursor: Cursor, returned: Sequence[Candidate], unclaimed: Sequence[Candidate], most: int
    ) -> Selection:
        """Choose at most `most` offsets to grant from a cursor whose ended leases were taken out.

        `returned` are waiting offsets that are due, `unclaimed` the offsets from `cursor.next` on without a
        gap, both in rising order.
        """
        ...
