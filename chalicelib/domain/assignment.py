"""Which consumer of a group has which shards. An assignment is for locality only; correctness never depends on it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from . import breaker
from .limits import CONSUMER_OFFLINE_AFTER_MS
from .times import MINUTE_MS
from .topic import Consumer, ConsumerState, Group

_IDLE_AFTER_MS = 3 * MINUTE_MS  # since the last receive of a consumer that holds back a shard
_MOST_AHEAD_MS = MINUTE_MS  # by how much the clock that noted a sign of life may be ahead of ours
# In place of a strategy: every member has all shards.
EVERYONE = "broadcast"


@dataclass(frozen=True, slots=True)
class Assignment:
    """The consumers that are online, and the owner of each shard.

    `members` are consumers' uids in the order of their ranks: by name. `owners` has one of them for each shard; it is
    empty in a broadcast and while no consumer is online. `idle` members get no shards: they do not receive.
    `epoch` rises by one with each change (0: no change yet).
    """

    epoch: int
    strategy: str
    members: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    at_ms: int = 0
    idle: tuple[str, ...] = ()

    def rank(self, uid: str) -> int | None:
        """The consumer's index among the members; None if it is not a member."""
        return self.members.index(uid) if uid in self.members else None

    def shards(self, uid: str, numbers: Sequence[int]) -> tuple[int, ...]:
        """The shards that the consumer owns, of the topic's."""
        return tuple(shard for shard, owner in zip(numbers, self.owners, strict=False) if owner == uid)

    def fits(self, target: Target) -> bool:
        """Is this the assignment that `deal` would make?"""
        shard_count = len(target.shards) if target.members and target.strategy != EVERYONE else 0
        mine = (self.strategy, self.members, self.idle, len(self.owners))
        return mine == (target.strategy, target.members, target.idle, shard_count)


class Target(NamedTuple):
    """What an assignment has to be made for."""

    strategy: str
    members: tuple[str, ...]
    idle: tuple[str, ...]
    shards: Sequence[int]

    def dealt(self, epoch: int, now_ms: int) -> Assignment:
        """The assignment."""
        receiving = [uid for uid in self.members if uid not in self.idle]
        owners = deal(self.strategy, receiving, self.shards)
        return Assignment(epoch, self.strategy, self.members, owners, now_ms, self.idle)


class Team(NamedTuple):
    """A group's consumers: the owner of each shard (in a broadcast: all that are ACTIVE), and, in the order of their
    ranks, those that are called. `allows`: does any group of the topic allow callbacks to this host?"""

    owners: Sequence[Consumer | None]
    called: Sequence[Consumer]
    allows: Callable[[str], bool] = lambda host: False


class Staffed(NamedTuple):
    """A group that has consumers, with these and its stored assignment."""

    group: Group
    consumers: tuple[Consumer, ...]
    assignment: Assignment | None


def deal(strategy: str, members: Sequence[str], shards: Sequence[int]) -> tuple[str, ...]:
    """The owner of each shard; empty if there are no members, or if every member has all shards."""
    return _STRATEGIES[strategy](members, shards) if members else ()


def _mod(members: Sequence[str], shards: Sequence[int]) -> tuple[str, ...]:
    """XXL-MQ's rule: shard s belongs to the rank s mod total."""
    return tuple(members[place % len(members)] for place in range(len(shards)))


def _average(members: Sequence[str], shards: Sequence[int]) -> tuple[str, ...]:
    """RocketMQ's AllocateMessageQueueAveragely: blocks of neighbours, the larger ones first."""
    size, larger = divmod(len(shards), len(members))
    return tuple(uid for rank, uid in enumerate(members) for _ in range(size + (rank < larger)))


def _rendezvous(members: Sequence[str], shards: Sequence[int]) -> tuple[str, ...]:
    """Each shard goes to the member with the highest hash. A leave moves only the leaver's shards; a join moves none
    between the others."""
    return tuple(max(members, key=lambda uid: _weight(uid, shard)) for shard in shards)


def _weight(uid: str, shard: int) -> bytes:
    return hashlib.blake2b(f"{uid}/{shard}".encode(), digest_size=8).digest()


_STRATEGIES: Mapping[str, Callable[[Sequence[str], Sequence[int]], tuple[str, ...]]] = {
    "mod": _mod,
    "average": _average,
    "rendezvous": _rendezvous,
    EVERYONE: lambda members, shards: (),
}


def is_online(consumer: Consumer, now_ms: int) -> bool:
    """May the consumer have shards? A consumer that pulls must have shown a sign of life lately; one at a time that is
    yet to come was noted by a wrong clock, and shows nothing. A push consumer must be ACTIVE, and its circuit breaker
    must not be open."""
    if consumer.is_called:
        return consumer.state == ConsumerState.ACTIVE and not breaker.is_open(consumer.open_until_ms, now_ms)
    return -_MOST_AHEAD_MS <= now_ms - consumer.seen_ms < CONSUMER_OFFLINE_AFTER_MS


def is_silent(consumer: Consumer, now_ms: int) -> bool:
    """Is it a pull consumer that is not online?"""
    return not consumer.is_called and not is_online(consumer, now_ms)


def is_idle(consumer: Consumer, now_ms: int) -> bool:
    """Is it a pull consumer that has not received for minutes?"""
    return not consumer.is_called and now_ms - consumer.received_ms > _IDLE_AFTER_MS


def seen(consumer: Consumer, now_ms: int, *, receives: bool = False) -> Consumer:
    """The consumer after a sign of life, if it is one that pulls. A later sign stays, unless a wrong clock noted it.
    `receives`: the sign was a receive."""
    if receives and not consumer.is_called:
        consumer = replace(consumer, received_ms=now_ms)
    if consumer.is_called or 0 <= consumer.seen_ms - now_ms <= _MOST_AHEAD_MS:
        return consumer
    return replace(consumer, seen_ms=now_ms)
