"""How the consumers that pull from a queue share what one shard holds, message by message.

Each of those that are there may take an equal part of what was and will be taken in this *round*, as the cursor counts.
Who comes first leaves the others their parts, but only for so long as they may be expected at any moment: a second from
the round's begin for those who haven't come yet, and from its last claim for each other. So nobody gets more for being
quick or for asking for much, and nothing waits for somebody who doesn't come. After a second without a claim a new
round begins, unless the last one left something. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

PATIENCE_MS = 1_000
_MOST_PARTS = 16  # of a round that are remembered: the cursor's item is to stay small
_MOST_TAKEN = 10_000


@dataclass(frozen=True, slots=True)
class Seat:
    """The consumer that asks: its rank among the `total` that pull, under the epoch of their assignment, and for how
    many messages."""

    epoch: int
    rank: int
    total: int
    asked: int


@dataclass(frozen=True, slots=True)
class Part:
    """What one consumer has taken in the round, when it claimed last, and for how many messages it asked then."""

    taken: int
    last_ms: int
    asked: int


@dataclass(frozen=True, slots=True)
class Round:
    """How much each consumer took from a shard since `began_ms`, by rank; and how much the last one saw and left."""

    epoch: int
    began_ms: int
    left: int = 0
    parts: Mapping[int, Part] = field(default_factory=dict)


def room(share: Round | None, seat: Seat, available: int, now_ms: int) -> int:
    """How many of the messages that are there may be taken now."""
    current = _current(share, seat, now_ms)
    others = _present(current, seat, now_ms)
    mine = _taken(current, seat, now_ms)
    fair = -(-(mine + sum(part.taken for part in others) + available) // (len(others) + 1))
    reserved = sum(min(max(0, fair - part.taken), part.asked) for part in others)
    return max(0, min(available, max(fair - mine, available - reserved)))


def after(share: Round | None, seat: Seat, granted: int, left: int, now_ms: int) -> Round:
    """The round in which so many more were taken, and so many left that were seen."""
    current = _current(share, seat, now_ms)
    own = Part(_taken(current, seat, now_ms) + granted, now_ms, seat.asked)
    newest = sorted(current.parts.items(), key=lambda each: -each[1].last_ms)
    parts = dict([(seat.rank, own), *(each for each in newest if each[0] != seat.rank)][:_MOST_PARTS])
    if own.taken > _MOST_TAKEN:
        parts = {rank: replace(part, taken=part.taken // 2) for rank, part in parts.items()}
    return replace(current, left=left, parts=dict(sorted(parts.items())))


def _current(share: Round | None, seat: Seat, now_ms: int) -> Round:
    """The round that goes on, or a new one."""
    if share is None or share.epoch != seat.epoch:
        return Round(seat.epoch, now_ms)
    goes_on = share.left or any(_is_recent(part.last_ms, now_ms) for part in share.parts.values())
    return share if goes_on else Round(seat.epoch, now_ms)


def _present(current: Round, seat: Seat, now_ms: int) -> list[Part]:
    """The parts of the others who may be expected at any moment."""
    awaited = [Part(0, now_ms, 1 << 30)] if _is_recent(current.began_ms, now_ms) else []
    others = [rank for rank in range(seat.total) if rank != seat.rank]
    come = [current.parts[rank] for rank in others if rank in current.parts]
    recent = [part for part in come if _is_recent(part.last_ms, now_ms)]
    return recent + awaited * (len(others) - len(come))


def _taken(current: Round, seat: Seat, now_ms: int) -> int:
    """What the asking one has taken. A consumer that returns starts at the lowest count of those present: nothing is
    saved up while it is away."""
    own = current.parts.get(seat.rank)
    if own and _is_recent(own.last_ms, now_ms):
        return own.taken
    if _is_recent(current.began_ms, now_ms):
        return 0
    others = [part.taken for part in _present(current, seat, now_ms)]
    return max(own.taken if own else 0, min(others, default=0))


def _is_recent(at_ms: int, now_ms: int) -> bool:
    return abs(now_ms - at_ms) <= PATIENCE_MS
