"""The settings of topics and groups, and retry policies: as requests give them and as answers show them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..domain import ladder
from ..domain import limits as lim
from ..domain.limits import MAX_FILTER_TAGS, MAX_TAG_CHARS
from ..domain.topic import DEFAULT_RETRY, Group, Topic
from .fields import TAG, Count, LeaseSeconds, Step, Time, at, one_of
from .http import invalid

Mode = Literal["queue", "serial", "broadcast"]
ModeName = Annotated[str, one_of("queue", "serial", "broadcast")]


class Retry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A retry policy. `ladder` is a name or a list of seconds."""

    max_attempts: Annotated[int, Meta(ge=1, le=lim.MAX_ATTEMPTS)] | UnsetType = UNSET
    ladder: (
        Literal["fixed-30", "jmq", "notify", "rocketmq", "exponential"]
        | Annotated[list[Step], Meta(min_length=1, max_length=lim.MAX_LADDER_STEPS)]
        | UnsetType
    ) = UNSET
    jitter: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    base_seconds: Step | UnsetType = UNSET
    factor: Annotated[float, Meta(ge=1, le=10)] | UnsetType = UNSET
    cap_seconds: Step | UnsetType = UNSET


class TopicBody(Struct, forbid_unknown_fields=True):
    """Settings of a topic; missing settings keep their value (in a new topic, the default)."""

    mode: Mode | UnsetType = UNSET
    shards: Annotated[int, Meta(ge=1, le=lim.MAX_SHARDS)] | UnsetType = UNSET
    key_shards: Annotated[int, Meta(ge=1, le=lim.MAX_SHARDS)] | UnsetType = UNSET
    retry: Retry | UnsetType = UNSET
    lease_seconds: LeaseSeconds | UnsetType = UNSET
    retention_days: Annotated[int, Meta(ge=1, le=lim.MAX_RETENTION_DAYS)] | UnsetType = UNSET
    alarm_backlog: Annotated[int, Meta(ge=1, le=lim.MAX_OFFSET)] | UnsetType | None = UNSET
    rate_limit: Annotated[int, Meta(ge=1, le=lim.MAX_RATE_LIMIT)] | UnsetType | None = UNSET
    on_rate_limit: Literal["reject", "dead_letter"] | UnsetType = UNSET
    max_body_bytes: Annotated[int, Meta(ge=1, le=lim.MAX_BODY_BYTES)] | UnsetType = UNSET
    dedup_window_seconds: Annotated[int, Meta(ge=1, le=lim.MAX_DEDUP_WINDOW_SECONDS)] | UnsetType = UNSET
    wake: Literal["stream", "direct"] | UnsetType = UNSET


class GroupBody(Struct, forbid_unknown_fields=True, rename={"begin": "from"}):
    """Settings of a consumer group; missing settings keep their value. `from` and `mode` are used at creation only."""

    mode: Mode | UnsetType = UNSET
    begin: str | UnsetType = UNSET
    filter: Annotated[str, Meta(max_length=4096)] | UnsetType | None = UNSET
    retry: Retry | UnsetType | None = UNSET
    lease_seconds: LeaseSeconds | UnsetType | None = UNSET
    batch_size: Annotated[int, Meta(ge=1, le=lim.MAX_BATCH)] | UnsetType = UNSET
    max_in_flight: Annotated[int, Meta(ge=1, le=lim.MAX_IN_FLIGHT)] | UnsetType = UNSET
    offline: Literal["keep", "skip"] | UnsetType = UNSET
    assignment: Literal["mod", "average", "rendezvous"] | UnsetType = UNSET
    payload: Literal["binary", "structured", "batch"] | UnsetType = UNSET


class RetryView(TypedDict):
    """A retry policy. `ladder` is a name or a list of seconds; the last three fields are for `exponential`."""

    max_attempts: Count
    ladder: str | list[Count]
    jitter: float
    base_seconds: NotRequired[Count]
    factor: NotRequired[float]
    cap_seconds: NotRequired[Count]


class TopicView(TypedDict):
    """A topic's settings. `key_shards` stands where it differs from `shards`."""

    topic: str
    mode: ModeName
    shards: Count
    key_shards: NotRequired[Count]
    retry: RetryView
    lease_seconds: Count
    retention_days: Count
    alarm_backlog: Count | None
    rate_limit: Count | None
    on_rate_limit: Annotated[str, one_of("reject", "dead_letter")]
    max_body_bytes: Count
    dedup_window_seconds: Count
    wake: Annotated[str, one_of("stream", "direct")]
    created_at: Time


_Begin = TypedDict("_Begin", {"from": str})


class GroupView(_Begin):
    """A group's settings. Where `retry` or `lease_seconds` is null, the topic's applies; `filter` is "*" for all
    messages. `from` is where the group began: "earliest", "latest" or a time."""

    group: str
    topic: str
    mode: ModeName
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


def given(body: msgspec.Struct) -> dict[str, Any]:
    """The fields that were given."""
    return {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET}


def retry(body: Retry, base: ladder.Retry = DEFAULT_RETRY) -> ladder.Retry:
    """A retry policy: what was given over what holds otherwise."""
    return replace(base, **retry_fields(body, base))


def new_retry(fields: Mapping[str, Any]) -> Callable[[ladder.Retry], ladder.Retry] | None:
    """What makes the new policy of the one that holds; None: it is not changed (or, with null, taken away)."""
    body = fields.get("retry")
    return partial(retry, body) if body else None


def retry_fields(body: Retry, base: ladder.Retry = DEFAULT_RETRY) -> dict[str, Any]:
    fields = given(body)
    if "ladder" in fields:
        if isinstance(fields["ladder"], list):
            fields["ladder"] = tuple(fields["ladder"])
        attempts = ladder.default_attempts(fields["ladder"])
        if attempts != base.max_attempts == ladder.default_attempts(base.ladder):  # nobody chose the number
            fields.setdefault("max_attempts", attempts)
    return fields


def tags(text: str | None) -> tuple[str, ...] | None:
    """The tags of a filter like `paid || refunded`; None for `*` or no filter at all."""
    if text is None:
        return None
    parts = tuple(dict.fromkeys(part.strip() for part in text.split("||")))
    if "*" in parts:
        return None
    if len(parts) > MAX_FILTER_TAGS or not all(map(_is_tag, parts)):
        raise invalid("filter", f"must be '*' or up to {MAX_FILTER_TAGS} tags joined by ' || '")
    return parts


def _is_tag(text: str) -> bool:
    return len(text) <= MAX_TAG_CHARS and re.match(TAG, text) is not None


def topic_view(topic: Topic) -> TopicView:
    """A topic's settings."""
    body: TopicView = {
        "topic": topic.name,
        "mode": topic.mode,
        "shards": topic.shards,
        "retry": retry_view(topic.retry),
        "lease_seconds": topic.lease_seconds,
        "retention_days": topic.retention_days,
        "alarm_backlog": topic.alarm_backlog,
        "rate_limit": topic.rate_limit,
        "on_rate_limit": topic.on_rate_limit,
        "max_body_bytes": topic.max_body_bytes,
        "dedup_window_seconds": topic.dedup_window_seconds,
        "wake": topic.wake,
        "created_at": at(topic.created_ms),
    }
    if topic.shards_of_keys != topic.shards:
        body["key_shards"] = topic.shards_of_keys
    return body


def group_view(group: Group) -> GroupView:
    """A group's settings."""
    return {
        "group": group.name,
        "topic": group.topic,
        "mode": group.mode,
        "from": at(int(group.begin[1:])) if group.begin.startswith("@") else group.begin,
        "filter": " || ".join(group.tags) if group.tags is not None else "*",
        "retry": retry_view(group.retry) if group.retry else None,
        "lease_seconds": group.lease_seconds,
        "batch_size": group.batch_size,
        "max_in_flight": group.max_in_flight,
        "offline": group.offline,
        "assignment": group.assignment,
        "payload": group.payload,
        "paused": group.paused,
        "created_at": at(group.created_ms),
    }


def retry_view(retry: ladder.Retry) -> RetryView:
    """A policy as it stands."""
    body: RetryView = {
        "max_attempts": retry.max_attempts,
        "ladder": list(retry.ladder) if isinstance(retry.ladder, tuple) else retry.ladder,
        "jitter": retry.jitter,
    }
    if retry.ladder == ladder.EXPONENTIAL:
        body["base_seconds"] = retry.base_seconds
        body["factor"] = retry.factor
        body["cap_seconds"] = retry.cap_seconds
    return body
