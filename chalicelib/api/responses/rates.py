"""How fast messages come and go."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, TypedDict

from msgspec import Meta

from ...domain.meter import Bucket, GroupBucket, Window
from .common import Count, Time, at

if TYPE_CHECKING:
    from ...domain.topic import Caller, Group, Topic

Rate = Annotated[float, Meta(ge=0)]


class GroupRates(TypedDict):
    """A group's settled messages and started retries a second (0 in a SERIAL group: its retries wait in their shards),
    and its backlog at the end. Null: not known."""

    settled_per_second: Rate | None
    retried_per_second: Rate | None
    backlog: Count | None


class RatePoint(TypedDict):
    """Rates from `at` on, for a bucket's length; the last one ends now. Null: not known."""

    at: Time
    accepted_per_second: Rate | None
    groups: dict[str, GroupRates]


class RatesView(TypedDict):
    """Rates in buckets of one length, the oldest first."""

    topic: str
    bucket_seconds: Count
    points: list[RatePoint]


class GroupRatePoint(GroupRates):
    """A group's rates from `at` on, for a bucket's length, and its backlog at the end, also by shard. Null: not
    known."""

    at: Time
    backlog_by_shard: list[Count | None]


class GroupRatesView(TypedDict):
    """A group's rates in buckets of one length, the oldest first."""

    topic: str
    group: str
    bucket_seconds: Count
    points: list[GroupRatePoint]


def view(topic: "Topic", window: Window, buckets: Sequence[Bucket], caller: "Caller | None") -> RatesView:
    """The buckets, with the groups that the caller may use."""
    return {
        "topic": topic.name,
        "bucket_seconds": window.bucket_ms // 1_000,
        "points": [_point(bucket, caller) for bucket in buckets],
    }


def of_group(topic: "Topic", group: "Group", window: Window, buckets: Sequence[Bucket]) -> GroupRatesView:
    """The buckets in which something is known of the group."""
    return {
        "topic": topic.name,
        "group": group.name,
        "bucket_seconds": window.bucket_ms // 1_000,
        "points": [
            {
                "at": at(bucket.from_ms),
                **_group(bucket.groups[group.name]),
                "backlog_by_shard": list(bucket.groups[group.name].by_shard),
            }
            for bucket in buckets
            if group.name in bucket.groups
        ],
    }


def _point(bucket: Bucket, caller: "Caller | None") -> RatePoint:
    return {
        "at": at(bucket.from_ms),
        "accepted_per_second": _rounded(bucket.accepted),
        "groups": {
            name: _group(rates)
            for name, rates in bucket.groups.items()
            if caller is None or caller.may_use_group(name)
        },
    }


def _group(rates: GroupBucket) -> GroupRates:
    return {
        "settled_per_second": _rounded(rates.settled),
        "retried_per_second": _rounded(rates.retried),
        "backlog": rates.backlog,
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 4)
