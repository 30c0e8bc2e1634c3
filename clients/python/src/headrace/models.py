"""What the service answers, typed. Fields that a later release adds are passed over."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from .durations import rfc3339

T = TypeVar("T")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as the service's JSON has them."""
        values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(plain(self)))
        return values


def plain(value: Any) -> Any:
    """Models and what they hold as what JSON is made of, as the service makes it: times with milliseconds, bodies
    with all digits."""
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {name: plain(getattr(value, field)) for name, field in names}
    return value


class Page(Model, Generic[T], frozen=True, kw_only=True):
    """One page of a list."""

    items: list[T]
    next_page_token: str | None = None


class RetryPolicy(Model, frozen=True, kw_only=True):
    max_attempts: int
    ladder: str | list[int]
    jitter: float
    base_seconds: int | None = None
    factor: float | None = None
    cap_seconds: int | None = None


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
    states: States = States()


class TopicStats(Model, frozen=True, kw_only=True):
    """What is in a topic; `at_least` names numbers that are only known to be no smaller."""

    accepted: int
    delayed: int = 0
    prepared: int = 0
    at_least: list[str] = []
    groups: dict[str, GroupCounts] = {}
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


class Topic(Model, frozen=True, kw_only=True):
    topic: str
    mode: str
    shards: int
    retry: RetryPolicy
    lease_seconds: int
    retention_days: int
    max_body_bytes: int
    dedup_window_seconds: int
    created_at: datetime
    key_shards: int | None = None
    alarm_backlog: int | None = None
    rate_limit: int | None = None
    on_rate_limit: str = "reject"
    wake: str = "stream"
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


class Group(Model, frozen=True, kw_only=True, rename={"begin": "from"}):
    group: str
    topic: str
    mode: str
    begin: str
    filter: str
    batch_size: int
    max_in_flight: int
    offline: str
    assignment: str
    payload: str
    paused: bool
    created_at: datetime
    retry: RetryPolicy | None = None
    lease_seconds: int | None = None
    backlog: int | None = None
    in_flight: int | None = None
    retrying: int | None = None
    dead: int | None = None
    consumed: int | None = None
    oldest_age_seconds: float | None = None
    states: States | None = None
    shards: list[Shard] = []


class Consumer(Model, frozen=True, kw_only=True):
    """A consumer, its rank among those online, and its shards. `secret` comes once, at its registration."""

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
    secret: str | None = None
    why: str | None = None
    last_seen_at: datetime | None = None
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


class Sent(Model, frozen=True, kw_only=True):
    """Where a message was stored. `offset` is None while it waits; `duplicate`: it had been stored before."""

    id: str
    topic: str
    status: str
    accepted_at: datetime
    shard: int | None = None
    offset: int | None = None
    deliver_at: datetime | None = None
    duplicate: bool = False


class Content(Model, frozen=True, kw_only=True, rename={"raw_body": "body"}):
    """What a producer gave."""

    id: str
    content_type: str = "application/json"
    raw_body: msgspec.Raw = msgspec.Raw(b"null")
    body_base64: str | None = None
    undecodable: bool = False
    keys: list[str] = []
    tag: str | None = None
    ordering_key: str | None = None
    headers: dict[str, str] = {}
    shard: int | None = None
    offset: int | None = None
    accepted_at: datetime | None = None
    deliver_at: datetime | None = None
    expires_at: datetime | None = None
    changed_at: datetime | None = None

    @property
    def body(self) -> Any:
        """The JSON value, or the bytes of what is no JSON."""
        if self.body_base64 is not None:
            return base64.b64decode(self.body_base64)
        return msgspec.json.decode(self.raw_body)

    @property
    def key(self) -> str | None:
        """The first key."""
        return self.keys[0] if self.keys else None


class Message(Content, frozen=True, kw_only=True, rename={"raw_body": "body"}):
    """A message as a consumer has it: this `attempt` (from 1), settled by its `receipt`."""

    attempt: int = 1
    receipt: str = ""


class Delivery(Model, frozen=True, kw_only=True):
    """A message's state for one group."""

    status: str
    attempts: int
    next_attempt_at: datetime | None = None
    last_error: str | None = None
    retries_left: int = 0
    reason: str | None = None
    consumers: dict[str, str] = {}
    places: list[Any] = []
    older: list[Any] = []
    adds_up: bool | None = None
    id: str | None = None
    group: str | None = None


class StoredMessage(Content, frozen=True, kw_only=True, rename={"raw_body": "body"}):
    """Everything known about a message."""

    topic: str = ""
    status: str = ""
    size: int = 0
    transaction_id: str | None = None
    retries_left: int = 0
    deliveries: dict[str, Delivery] = {}


class DeadLetter(Content, frozen=True, kw_only=True, rename={"raw_body": "body"}):
    """A message that was given up, and why."""

    reason: str = ""
    attempts: int = 0
    last_error: str | None = None
    dead_at: datetime | None = None
    edited: bool = False
    consumer: str | None = None
    size: int = 0
    transaction_id: str | None = None


class Rescheduled(Model, frozen=True, kw_only=True):
    """What became of a delayed message (`deliver_at` None: it was cancelled); `error` is a problem document."""

    id: str
    changed: bool = False
    deliver_at: datetime | None = None
    error: dict[str, Any] | None = None


class RescheduledMessages(Model, frozen=True, kw_only=True):
    """A page of them; the last one has no token."""

    items: list[Rescheduled]
    next_page_token: str | None = None


class MergedLetter(Model, frozen=True, kw_only=True):
    """What a patch made of a dead letter; `error` is a problem document."""

    id: str
    changed: bool = False
    body: Any = None
    error: dict[str, Any] | None = None


class MergedLetters(Model, frozen=True, kw_only=True):
    """A page of them; the last one has no token."""

    items: list[MergedLetter]
    next_page_token: str | None = None


class By(Model, frozen=True, kw_only=True):
    """The token that something was done with."""

    id: str
    name: str | None = None


class Event(Model, frozen=True, kw_only=True):
    """One step of a message's path."""

    at: datetime
    event: str
    group: str | None = None
    consumer: str | None = None
    attempt: int | None = None
    rank: int | None = None
    total: int | None = None
    shard: int | None = None
    duration_ms: float | None = None
    outcome: str | None = None
    detail: str | None = None
    by: By | None = None
    owner: str | None = None
    deadline_at: datetime | None = None
    deliver_at: datetime | None = None


class Trace(Model, frozen=True, kw_only=True):
    events: list[Event]


class Fate(Model, frozen=True, kw_only=True):
    """Where a message stands everywhere. `skipped`: groups that do not get it; `complete`: nothing will happen to it
    any more."""

    message: StoredMessage
    groups: dict[str, Delivery]
    skipped: list[str] = []
    complete: bool
    adds_up: bool

    def is_complete(self, group: str | None = None) -> bool:
        """Will nothing happen to it any more, in this group or in all?"""
        one = self.groups.get(group) if group is not None else None
        return (
            self.complete or group in self.skipped or (one is not None and one.status in ("SUCCESS", "DEAD"))
        )


class Settled(Model, frozen=True, kw_only=True):
    """What came of one receipt. `already`: this lease had settled it before; `error` is a problem document."""

    receipt: str
    ok: bool = False
    already: bool = False
    error: dict[str, Any] | None = None


class Transaction(Model, frozen=True, kw_only=True):
    transaction_id: str
    message_id: str
    topic: str
    state: str
    prepared_at: datetime
    shard: int | None = None
    offset: int | None = None
    deliver_at: datetime | None = None
    decided_at: datetime | None = None
    check_url: str | None = None
    check_after_seconds: int = 60
    checks: int = 0
    last_answer: str | None = None
    next_check_at: datetime | None = None
    check_secret: str | None = None
    duplicate: bool = False


class Replay(Model, frozen=True, kw_only=True, rename={"begin": "from", "end": "to"}):
    replay_id: str
    topic: str
    begin: datetime
    end: datetime
    state: str
    created_at: datetime
    changed_at: datetime
    tag: str | None = None
    key: str | None = None
    where: str | None = None
    predicate: Any = None
    into: str | None = None
    group: str | None = None
    rate: int = 0
    dry_run: bool = False
    matched: int | None = None
    sent: int = 0
    error: str | None = None
    started: bool | None = None
    run_with: str | None = None


class Token(Model, frozen=True, kw_only=True):
    """An access token. Its text, `token`, comes once: when it is made."""

    id: str
    name: str
    scopes: list[str]
    topics: list[str]
    created_at: datetime
    expires_at: datetime | None = None
    groups: list[str] | None = None
    rate_limit: int | None = None
    last_used_at: datetime | None = None
    token: str | None = None


class ArchivedTopic(Model, frozen=True, kw_only=True):
    """A topic's part of an archived day: PROVED, OPEN (more may come) or with HOLES."""

    topic: str
    proof: str
    messages: int
    deliveries: int
    missing: int


class ArchivedDay(Model, frozen=True, kw_only=True):
    """Up to which hour a day is archived (24: all of it; None: nothing is), and its topics."""

    day: str
    until_hour: int | None
    written_at: datetime | None
    damaged: int
    bodies_missing: int
    topics: list[ArchivedTopic]


class Archive(Model, frozen=True, kw_only=True):
    """Days of the archive, the latest first."""

    items: list[ArchivedDay]


class SignInLink(Model, frozen=True, kw_only=True):
    """A link that signs in whoever opens it first, until it expires."""

    url: str
    expires_at: datetime


class AuditToken(Model, frozen=True, kw_only=True):
    id: str
    name: str


class SigningKey(Model, frozen=True, kw_only=True):
    """When the present signing key was made, and when each of those before it ends."""

    rotated_at: datetime
    former_until: list[datetime]


class AuditEntry(Model, frozen=True, kw_only=True):
    """A call that changed something, or tried to. `result` is "OK" or the code of the error."""

    at: datetime
    token: AuditToken
    method: str
    path: str
    object: str
    result: str
    source: str | None = None
    request_id: str


class Ladder(Model, frozen=True, kw_only=True):
    ladder: str
    steps_seconds: list[float]
    sum_seconds: float
    max_attempts: int
    waits_seconds: list[float]
    waits_sum_seconds: float


class Health(Model, frozen=True, kw_only=True):
    status: str
    store: str
