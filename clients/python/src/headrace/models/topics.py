"""Topics, their groups and consumers, and what is counted of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .base import Model
from .messages import Answer
from .settings import GroupSettings, TopicSettings


class States(Model, frozen=True, kw_only=True):
    """Deliveries of a group by their status."""

    NEW: int = 0
    RUNNING: int = 0
    RETRYING: int = 0
    SUCCESS: int = 0
    DEAD: int = 0
    skipped: int = 0


class GroupCounts(Model, frozen=True, kw_only=True):
    backlog: int
    in_flight: int
    retrying: int
    dead: int
    consumed: int
    oldest_age_seconds: float | None = None
    limited_by: list[str] = []
    states: States = States()


class GroupStats(GroupCounts, frozen=True, kw_only=True):
    """A group's counts, and how many of its consumers get nothing until a person acts."""

    stopped_consumers: int = 0


class TopicStats(Model, frozen=True, kw_only=True):
    """What is in a topic; `at_least` names numbers that are only known to be no smaller.
    `spent_usd`: of the topic's budget this month, for admins."""

    accepted: int
    delayed: int = 0
    prepared: int = 0
    at_least: list[str] = []
    spent_usd: float | None = None
    groups: dict[str, GroupStats] = {}
    topic: str | None = None


class DueHour(Model, frozen=True, kw_only=True):
    """What is due in the hour from `at` on."""

    at: datetime
    delayed: int = 0
    retries: int = 0


class Due(Model, frozen=True, kw_only=True):
    """The hours in which something is due; `until` when they are known (None: all)."""

    hours: list[DueHour] = []
    until: datetime | None = None


class GroupRates(Model, frozen=True, kw_only=True):
    """Of a group, a second; its backlog at the end. None: not known."""

    settled_per_second: float | None = None
    retried_per_second: float | None = None
    backlog: int | None = None


class GroupRatePoint(GroupRates, frozen=True, kw_only=True):
    """A group's rates from `at` on, for a bucket's length; its backlog at the end also by shard. None: not known."""

    at: datetime
    backlog_by_shard: list[int | None] = []


class GroupRatesOverTime(Model, frozen=True, kw_only=True):
    """A group's rates in buckets of one length, the oldest first."""

    topic: str
    group: str
    bucket_seconds: int
    points: list[GroupRatePoint] = []


class RatePoint(Model, frozen=True, kw_only=True):
    """Rates from `at` on, for a bucket's length. None: not known."""

    at: datetime
    accepted_per_second: float | None = None
    groups: dict[str, GroupRates] = {}


class Rates(Model, frozen=True, kw_only=True):
    """Rates in buckets of one length, the oldest first."""

    topic: str
    bucket_seconds: int
    points: list[RatePoint] = []


class PastGroup(Model, frozen=True, kw_only=True):
    """How many messages were, for a group: not tried yet; being tried; to be tried again; given up."""

    waiting: int
    in_flight: int
    retrying: int
    dead: int


class AsOf(Model, frozen=True, kw_only=True):
    """A topic at `counted_at`, the last full hour up to `at`; `exact` where they are the same. Messages count that were
    accepted from `accepted_since` on; not `complete`: the archive lacks something of that time."""

    topic: str
    at: datetime
    counted_at: datetime
    exact: bool
    accepted_since: datetime
    complete: bool
    groups: dict[str, PastGroup] = {}


class Topic(TopicSettings, frozen=True, kw_only=True):
    topic: str
    created_at: datetime
    stats: TopicStats | None = None


class Lease(Model, frozen=True, kw_only=True):
    offsets: list[list[int]]
    attempt: int
    expires_at: datetime
    consumer: str | None = None


class Shard(Model, frozen=True, kw_only=True):
    """A group's place in one shard."""

    shard: int
    tail: int
    floor: int
    next: int
    backlog: int
    settled_above_floor: int = 0
    waiting: int = 0
    owner: str | None = None
    consumer: str | None = None
    leases: list[Lease] = []


class StoppedConsumer(Model, frozen=True, kw_only=True):
    """A consumer that gets nothing until a person acts: DISABLED; PENDING for an hour; CIRCUIT_OPEN, whose calls have
    all failed for ten minutes."""

    consumer: str
    state: str
    since: datetime
    why: str = ""


class Group(GroupSettings, frozen=True, kw_only=True):
    group: str
    topic: str
    paused: bool
    created_at: datetime
    paused_until: datetime | None = None
    backlog: int | None = None
    in_flight: int | None = None
    retrying: int | None = None
    dead: int | None = None
    consumed: int | None = None
    oldest_age_seconds: float | None = None
    limited_by: list[str] = []
    states: States | None = None
    stopped_consumers: list[StoppedConsumer] = []
    shards: list[Shard] = []
    callback_secrets: dict[str, str] = {}


class Waiters(Model, frozen=True, kw_only=True):
    """Messages of one ordering key or tenant (None: of none) that no consumer has yet, and for what they wait."""

    messages: int
    oldest_at: datetime
    value: str | None = None
    waits_for: str | None = None


class GroupWaiting(Model, frozen=True, kw_only=True):
    """What limits a group, and of the messages next in line that were read the keys and the tenants that most have."""

    read: int
    limited_by: list[str] = []
    keys: list[Waiters] = []
    tenants: list[Waiters] = []


class Consumer(Model, frozen=True, kw_only=True):
    """A consumer, its rank among those online, and its shards. `secret` comes once, at its registration; of `headers`
    only the names."""

    consumer: str
    topic: str
    group: str
    kind: str
    state: str
    created_at: datetime
    rank: int | None = None
    total: int = 0
    shards: list[int] = []
    url: str | None = None
    function: str | None = None
    timeout_seconds: int | None = None
    headers: dict[str, str] = {}
    reject_statuses: list[int] = []
    transform: str | None = None
    batch_wait_seconds: int = 0
    secret: str | None = None
    why: str | None = None
    last_seen_at: datetime | None = None
    expires_after_seconds: int | None = None
    instance: str | None = None
    failing_since_at: datetime | None = None
    disables_at: datetime | None = None
    breaker: str | None = None
    open_until_at: datetime | None = None
    overlap_until_at: datetime | None = None


class Attempt(Model, frozen=True, kw_only=True):
    """One attempt at a consumer, with the message at this place."""

    at: datetime
    shard: int
    offset: int
    attempt: int
    outcome: str
    duration_ms: int
    detail: str | None = None
    answer: Answer | None = None


class Attempts(Model, frozen=True, kw_only=True):
    """The latest attempts at a consumer, the newest first. `complete`: there are no others."""

    items: list[Attempt]
    p50_ms: int | None
    p95_ms: int | None
    complete: bool


class Tested(Model, frozen=True, kw_only=True):
    """A test event: the `request` that was sent and the `answer` (None: there was none, and `detail` says why)."""

    ok: bool
    detail: str
    duration_ms: int
    request: dict[str, Any]
    answer: dict[str, Any] | None = None


class Assignment(Model, frozen=True, kw_only=True):
    """Who owns which shard, and why."""

    strategy: str
    epoch: int
    why: str
    consumers: list[dict[str, Any]]
    offline: list[dict[str, Any]]
    shards: list[dict[str, Any]]
