"""Who has which shard of a group, and why."""

from collections.abc import Mapping, Sequence
from typing import TypedDict

from ...domain.assignment import EVERYONE, Assignment
from ...domain.topic import Consumer, Topic
from .common import Count, at
from .consumers import Kind, State


class AssignedConsumer(TypedDict):
    """A consumer that is online: the `rank` of `total`, and its shards."""

    consumer: str
    kind: Kind
    state: State
    rank: Count | None
    total: Count
    shards: list[Count]


class OfflineConsumer(TypedDict):
    """A consumer that gets no messages now, and why."""

    consumer: str
    kind: Kind
    state: State
    why: str


class ShardOwner(TypedDict):
    """A shard's owner; null: none."""

    shard: Count
    owner: str | None


class AssignmentView(TypedDict):
    """Which consumer owns which shard, and why. `epoch` rises with each change; 0: there was none."""

    strategy: str
    epoch: Count
    why: str
    consumers: list[AssignedConsumer]
    offline: list[OfflineConsumer]
    shards: list[ShardOwner]


def view(topic: Topic, assignment: Assignment, consumers: Sequence[Consumer]) -> AssignmentView:
    """Who has which shard, and why."""
    online = [c for c in consumers if c.uid in assignment.members]
    names = {c.uid: c.name for c in consumers}
    return {
        "strategy": assignment.strategy,
        "epoch": assignment.epoch,
        "why": _why(assignment),
        "consumers": [_online(topic, assignment, c) for c in online],
        "offline": [_offline(c) for c in consumers if c not in online],
        "shards": [
            {"shard": shard, "owner": owner} for shard, owner in enumerate(owners(topic, assignment, names))
        ],
    }


def owners(topic: Topic, assignment: Assignment, names: Mapping[str, str]) -> list[str | None]:
    """The name of each shard's owner."""
    return [names.get(uid) for uid in assignment.owners[: topic.shards]] or [None] * topic.shards


def _online(topic: Topic, assignment: Assignment, consumer: Consumer) -> AssignedConsumer:
    everything = assignment.strategy == EVERYONE
    return {
        "consumer": consumer.name,
        "kind": consumer.kind,
        "state": consumer.state,
        "rank": assignment.rank(consumer.uid),
        "total": len(assignment.members),
        "shards": list(range(topic.shards) if everything else assignment.shards(consumer.uid)),
    }


def _offline(consumer: Consumer) -> OfflineConsumer:
    return {
        "consumer": consumer.name,
        "kind": consumer.kind,
        "state": consumer.state,
        "why": _absence(consumer),
    }


def _why(assignment: Assignment) -> str:
    if assignment.strategy == EVERYONE:
        return "broadcast: every consumer receives from every shard, with a position of its own"
    if not assignment.members:
        return "no registered consumer is online: any caller receives from any shard"
    return _STRATEGIES[assignment.strategy].format(total=len(assignment.members))


_STRATEGIES = {
    "mod": "shard s belongs to the consumer with rank = s mod {total}; ranks follow the names of those online",
    "average": "the shards are cut into {total} blocks of neighbours, as even as can be, and dealt by rank; "
    "ranks follow the names of those online",
    "rendezvous": "a shard belongs to the one of {total} consumers with the highest hash of (consumer, shard): "
    "when one joins or leaves, the others keep theirs",
}


def _absence(consumer: Consumer) -> str:
    """Why a consumer is not online."""
    if not consumer.is_called:
        return f"no heartbeat since {at(consumer.seen_ms)}"
    if consumer.state != "ACTIVE":
        return f"{consumer.state}: {consumer.why}" if consumer.why else consumer.state
    return f"circuit breaker open until {at(consumer.open_until_ms or 0)}"
