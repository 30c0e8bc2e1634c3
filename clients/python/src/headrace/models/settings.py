"""The settings of topics and groups. Made by `make settings` of the service's table: change that."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, TypedDict

from .base import Model

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack

__all__ = [
    "Callbacks",
    "CallbacksFields",
    "Destination",
    "DestinationFields",
    "GroupFields",
    "GroupSettings",
    "RetryFields",
    "RetryPolicy",
    "TopicFields",
    "TopicSettings",
    "Unpack",
]


class Callbacks(Model, frozen=True, kw_only=True):
    """The hosts that a message's `callback_url` may name."""

    hosts: list[str]


class CallbacksFields(TypedDict):
    """What `callbacks` takes."""

    hosts: Sequence[str]


class Destination(Model, frozen=True, kw_only=True):
    """Where messages about a group's messages go."""

    topic: str
    include_body: bool = False


class DestinationFields(TypedDict, total=False):
    """What `on_dead` and `on_success` take: a topic, and whether its messages include bodies."""

    topic: str
    include_body: bool


class RetryPolicy(Model, frozen=True, kw_only=True):
    """How failed deliveries are retried, as answers show it."""

    max_attempts: int
    ladder: str | list[int]
    jitter: float
    base_seconds: int | None = None
    factor: float | None = None
    cap_seconds: int | None = None
    steps_from: str | None = None


class RetryFields(TypedDict, total=False):
    """What `retry` takes; what is not given stays as it is. A `ladder` of numbers: waits in seconds."""

    max_attempts: int
    ladder: Literal["fixed-30", "jmq", "notify", "rocketmq", "exponential"] | Sequence[int]
    jitter: float
    base_seconds: int
    factor: float
    cap_seconds: int
    steps_from: Literal["failure", "start"]


class TopicSettings(Model, frozen=True, kw_only=True):
    """A topic's settings, as answers show them."""

    mode: str
    shards: int
    key_shards: int | None = None
    priorities: int
    retry: RetryPolicy
    lease_seconds: int
    retention_days: float
    dead_letter_days: int | None = None
    alarm_backlog: int | None = None
    rate_limit: int | None = None
    on_rate_limit: str
    budget_usd: float | None = None
    on_budget: str
    max_body_bytes: int
    dedup_window_seconds: int
    redact: list[str]
    wake: str


class TopicFields(TypedDict, total=False):
    """What `put_topic` takes."""

    mode: Literal["queue", "serial", "broadcast"]
    """The mode of groups that are created without one: "queue", "serial" or "broadcast"."""
    shards: int
    """How many logs it is divided into: more shards give more throughput and more parallel work; can only grow."""
    key_shards: int
    """How many of its shards ordering keys use; shown if fewer than `shards`. Raising `shards` does not change it,
    so keys keep their shard and their order."""
    priorities: int
    """How many priorities its messages have; can only grow, by more urgent ones. `shards` counts the shards of the
    last priority; each other priority has a quarter as many of its own."""
    retry: RetryFields
    """How failed deliveries are retried: `max_attempts`, `ladder`, `jitter` (0.1), `steps_from` ("failure" or
    "start"), and for "exponential" `base_seconds`, `factor`, `cap_seconds`."""
    lease_seconds: int
    """How long a consumer may work on a message before it is delivered again; it can extend the lease."""
    retention_days: float
    """How long a message is kept; 0.25 is six hours. After that it is not delivered any more; for groups that have
    not settled it, it becomes a dead letter within six hours, reason EXPIRED. A higher value applies to new
    messages only."""
    dead_letter_days: int | None
    """How long dead letters are kept; a job that runs each six hours deletes older ones, also those that were there
    before the setting."""
    alarm_backlog: int | None
    """An alarm is raised when a group's backlog is larger."""
    rate_limit: int | None
    """How many messages per second it accepts."""
    on_rate_limit: Literal["reject", "dead_letter"]
    """What happens above the rate: "reject" answers 429, "dead_letter" stores the messages as dead letters."""
    budget_usd: float | None
    """What its calls and deliveries may cost in a month (UTC), roughly; only admins see it."""
    on_budget: Literal["warn", "refuse"]
    """What happens when the budget is spent: "warn" lists it among what needs attention; "refuse" also answers 429
    to new messages, until the month ends."""
    max_body_bytes: int
    """The largest body of a message."""
    dedup_window_seconds: int
    """How long a `dedup_id` is remembered; of a delayed message, from the time for which it was produced, even if
    this is changed later."""
    redact: Sequence[str]
    """Parts of bodies that no person sees: JSON Pointers such as `/card/number`, in which `*` is any element.
    Consumers and the archive get bodies whole."""
    wake: Literal["stream", "direct"]
    """What starts deliveries: "stream", the table's stream, or "direct", the produce call itself: faster, for one
    more Lambda invocation."""


class GroupSettings(Model, frozen=True, kw_only=True, rename={"begin": "from"}):
    """A group's settings, as answers show them."""

    mode: str
    begin: str
    filter: str
    retry: RetryPolicy | None = None
    lease_seconds: int | None = None
    batch_size: int
    max_in_flight: int
    rate_limit: float | None = None
    key_concurrency: int | None = None
    tenant_share: int
    offline: str
    assignment: str
    payload: str
    auto_ack: bool
    keep_answers: bool | None = None
    metrics: bool
    on_dead: Destination | None = None
    on_success: Destination | None = None
    callbacks: Callbacks | None = None


class GroupFields(TypedDict, total=False):
    """What `put_group` takes."""

    mode: Literal["queue", "serial", "broadcast"]
    """How it consumes; fixed when the group is created."""
    filter: str | None
    """Tags to deliver, such as "paid || refunded"; "*" or null: all. Other messages count as SUCCESS without a
    delivery."""
    retry: RetryFields | None
    """As of a topic, for this group; what is not given of it stays as it is."""
    lease_seconds: int | None
    """As of a topic, for this group."""
    batch_size: int
    """The most messages in one request (with `payload` "batch") or in one event of a function."""
    max_in_flight: int
    """The most messages in delivery at once to push consumers."""
    rate_limit: float | None
    """How many messages a second its consumers get, over all shards and processes, retries included; further ones
    wait. 0.5 is one every two seconds."""
    key_concurrency: int | None
    """In a queue, how many messages of one ordering key are in flight at once, retries included; messages without a
    key are free."""
    tenant_share: int
    """The part of the pull consumers, or of `max_in_flight` in a shard, that heavy tenants may have while others
    had messages in the last minute."""
    offline: Literal["keep", "skip"]
    """In a broadcast, what a consumer gets when it comes back: "keep", all messages that came meanwhile; "skip",
    only new ones. Who still works on a message, under its lease, or settles one, was not away."""
    assignment: Literal["mod", "average", "rendezvous"]
    """How shards are divided among consumers: "mod" and "average" by rank, "rendezvous" with the fewest moves when
    a consumer joins or leaves."""
    payload: Literal["binary", "structured", "batch"]
    """The form of requests: "binary", "structured" or "batch"."""
    auto_ack: bool
    """False: a subscriber's 202 settles nothing; the message stays leased until the subscriber acknowledges it
    later, or its lease ends."""
    keep_answers: bool | None
    """Keep the first 500 bytes of a subscriber's answer to a failed attempt, if it is text, with the attempt."""
    metrics: bool
    """Backlog, oldest message, failed attempts and dead letters a minute as metrics, 1.20 USD a month; of at most
    50 groups of a stage."""
    on_dead: DestinationFields | None
    """A destination: the topic that gets a message for each that becomes a dead letter."""
    on_success: DestinationFields | None
    """As `on_dead`, for each message that ends as SUCCESS; each acknowledgement then costs more."""
    callbacks: CallbacksFields | None
    """Hosts, 16 at most, that a message's `callback_url` may name."""
