"""How pull consumers of a QUEUE group share the messages of one shard.

The cursor counts, in a *round*, how many messages each consumer has taken. Each active consumer may take an equal share
of all messages that were taken in the round plus those available now. A consumer counts as active for a second after
its last claim, or after the round's beginning if it has not claimed yet. So a fast consumer, or one that asks for many
messages, gets no more than the others, and no message waits for a consumer that does not come. After a second without a
claim a new round begins, unless the last claim left messages. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

PATIENCE_MS = 1_000
_MOST_PARTS = 16  # consumers that a round counts: the cursor's item is to stay small
_MOST_TAKEN = 10_000


@dataclass(frozen=True, slots=True)
class Seat:
    """A pull consumer's place when consumers share a shard's messages: its rank among the `total` pull consumers, the
    epoch of their assignment, and how many messages it asks for."""

    epoch: int
    rank: int
    total: int
    asked: int


@dataclass(frozen=True, slots=True)
class Part:
    """How many messages one consumer has taken in the round, when it claimed last, and how many it asked for then."""

    taken: int
    last_ms: int
    asked: int


@dataclass(frozen=True, slots=True)
class Round:
    """How many messages each consumer took from a shard since `began_ms`, by rank; and how many the last claim saw and
    left."""

    epoch: int
    began_ms: int
    left: int = 0
    parts: Mapping[int, Part] = field(default_factory=dict)


def room(round: Round | None, seat: Seat, available: int, now_ms: int) -> int:
    """How many of the available messages the consumer may take now."""
    current = _current(round, seat, now_ms)
    others = _present_parts(current, seat, now_ms)
    mine = _taken_count(current, seat, now_ms)
    fair = -(-(mine + sum(part.taken for part in others) + available) // (len(others) + 1))
    reserved_count = sum(min(max(0, fair - part.taken), part.asked) for part in others)
    return max(0, min(available, max(fair - mine, available - reserved_count)))


def after(round: Round | None, seat: Seat, message_count: int, messages_left: int, now_ms: int) -> Round:
    """The round after a claim that took `message_count` messages and left `messages_left` of those it saw."""
    current = _current(round, seat, now_ms)
    own = Part(_taken_count(current, seat, now_ms) + message_count, now_ms, seat.asked)
    newest = sorted(current.parts.items(), key=lambda each: -each[1].last_ms)
    parts = dict([(seat.rank, own), *(each for each in newest if each[0] != seat.rank)][:_MOST_PARTS])
    if own.taken > _MOST_TAKEN:
        parts = {rank: replace(part, taken=part.taken // 2) for rank, part in parts.items()}
    return replace(current, left=messages_left, parts=dict(sorted(parts.items())))


def _current(round: Round | None, seat: Seat, now_ms: int) -> Round:
    """The round that goes on, or a new one."""
    if round is None or round.epoch != seat.epoch:
        return Round(seat.epoch, now_ms)
    goes_on = round.left or any(_is_recent(part.last_ms, now_ms) for part in round.parts.values())
    return round if goes_on else Round(seat.epoch, now_ms)


def _present_parts(current: Round, seat: Seat, now_ms: int) -> list[Part]:
    """The parts of the other active consumers."""
    newcomer = [Part(0, now_ms, 1 << 30)] if _is_recent(current.began_ms, now_ms) else []
    others = [rank for rank in range(seat.total) if rank != seat.rank]
    present_parts = [current.parts[rank] for rank in others if rank in current.parts]
    recent = [part for part in present_parts if _is_recent(part.last_ms, now_ms)]
    return recent + newcomer * (len(others) - len(present_parts))


def _taken_count(current: Round, seat: Seat, now_ms: int) -> int:
    """How many messages the claiming consumer has taken. A consumer that returns starts between the lowest and
    the highest count of the active ones: it does not catch up with what it missed, nor wait until they have caught up
    with what it took before."""
    own = current.parts.get(seat.rank)
    if own and _is_recent(own.last_ms, now_ms):
        return own.taken
    if _is_recent(current.began_ms, now_ms):
        return 0
    others = [part.taken for part in _present_parts(current, seat, now_ms)]
    taken = own.taken if own else 0
    return min(max(taken, min(others, default=taken)), max(others, default=taken))


def _is_recent(at_ms: int, now_ms: int) -> bool:
    return abs(now_ms - at_ms) <= PATIENCE_MS
