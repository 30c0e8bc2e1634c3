"""Consumer groups: their settings, their counts, their shards."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from ...domain.ranges import total
from ...domain.topic import Group
from . import retry
from .common import Count, Mode, Time, at, one_of
from .retry import RetryView

if TYPE_CHECKING:
    from ...domain.cursor import Lease
    from ...services.inspect.counts import GroupStatus, ShardStatus

_Begin = TypedDict("_Begin", {"from": str})


class GroupView(_Begin):
    """A group's settings. Where `retry` or `lease_seconds` is null, the topic's applies; `filter` is "*" for all
    messages. `from` is where the group began: "earliest", "latest" or a time."""

    group: str
    topic: str
    mode: Mode
    filter: str
    retry: RetryView | None
    lease_seconds: Count | None
    batch_size: Count
    max_in_flight: Count
    offline: Annotated[str, one_of("keep", "skip")]
    assignment: Annotated[str, one_of("mod", "average", "rendezvous")]
    payload: Annotated[str, one_of("binary", "structured", "batch")]
    paused: bool
    created_at: Time


class GroupStates(TypedDict):
    """Deliveries by state; `skipped` were never to be delivered to this group. Their sum is the number of messages that
    the log has had."""

    NEW: Count
    RUNNING: Count
    RETRYING: Count
    SUCCESS: Count
    DEAD: Count
    skipped: Count


class GroupCounts(TypedDict):
    """A group's counts. `consumed` are settled as SUCCESS; the age is that of the oldest unsettled message."""

    backlog: Count
    in_flight: Count
    retrying: Count
    dead: Count
    consumed: Count
    oldest_age_seconds: Count | None
    states: GroupStates


class LeaseView(TypedDict):
    """Messages in flight: ranges of offsets (first and last), the consumer that holds them, and until when."""

    offsets: list[list[Count]]
    attempt: Count
    consumer: str | None
    expires_at: Time


class ShardView(TypedDict):
    """One shard of a group: `tail` is the log's last offset (-1: it is empty), below `floor` everything is settled,
    from `next` on nothing has been claimed yet. In a broadcast there is one for each `consumer`."""

    shard: Count
    tail: int
    floor: Count
    next: Count
    backlog: Count
    settled_above_floor: Count
    waiting: Count
    owner: str | None
    consumer: NotRequired[str | None]
    leases: list[LeaseView]


class GroupSummary(GroupView, GroupCounts):
    """A group's settings and its counts."""


class GroupDetail(GroupView, GroupCounts):
    """A group's settings, its counts and its shards."""

    shards: list[ShardView]


def view(group: Group) -> GroupView:
    """A group's settings."""
    return {
        "group": group.name,
        "topic": group.topic,
        "mode": group.mode,
        "from": at(int(group.begin[1:])) if group.begin.startswith("@") else group.begin,
        "filter": " || ".join(group.tags) if group.tags is not None else "*",
        "retry": retry.view(group.retry) if group.retry else None,
        "lease_seconds": group.lease_seconds,
        "batch_size": group.batch_size,
        "max_in_flight": group.max_in_flight,
        "offline": group.offline,
        "assignment": group.assignment,
        "payload": group.payload,
        "paused": group.paused,
        "created_at": at(group.created_ms),
    }


def summary(group: Group, status: "GroupStatus") -> GroupSummary:
    """A group's settings and its counts."""
    return {**view(group), **counts(status)}


def detail(
    group: Group, status: "GroupStatus", names: Mapping[str, str], owners: Sequence[str | None]
) -> GroupDetail:
    """A group's settings, counts and shards; `names` tells consumers by uid, `owners` has one for each shard."""
    return {
        **view(group),
        **counts(status),
        "shards": [_shard(s, names, owners[s.shard]) for s in status.shards],
    }


def counts(status: "GroupStatus") -> GroupCounts:
    """How far a group is."""
    account = status.account
    return {
        "backlog": status.backlog,
        "in_flight": status.in_flight,
        "retrying": status.retrying,
        "dead": status.dead,
        "consumed": account.success,
        "oldest_age_seconds": status.oldest_age_seconds,
        "states": {
            "NEW": account.new,
            "RUNNING": account.running,
            "RETRYING": account.retrying,
            "SUCCESS": account.success,
            "DEAD": account.dead,
            "skipped": account.skipped,
        },
    }


def _shard(status: "ShardStatus", names: Mapping[str, str], owner: str | None) -> ShardView:
    cursor = status.cursor
    body: ShardView = {
        "shard": status.shard,
        "tail": status.tail,
        "floor": cursor.floor,
        "next": cursor.next,
        "backlog": status.backlog,
        "settled_above_floor": total(cursor.settled),
        "waiting": sum(span.count for span in cursor.waiting),
        "owner": owner,
        "leases": [_lease(lease, names) for lease in cursor.leases.values()],
    }
    if status.consumer_uid:
        body["consumer"] = names.get(status.consumer_uid)
    return body


def _lease(lease: "Lease", names: Mapping[str, str]) -> LeaseView:
    return {
        "offsets": sorted([low, high - 1] for span in lease.spans for low, high in span.ranges()),
        "attempt": max(span.attempt for span in lease.spans),
        "consumer": names.get(lease.owner),
        "expires_at": at(lease.deadline_ms),
    }
