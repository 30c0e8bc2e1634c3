"""The settings of topics and groups, and retry policies: as requests give them and as answers show them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ..domain import ladder
from ..domain import limits as lim
from ..domain.settings import DEFAULT_RETRY, Destination, GroupSettings, Setting, TopicSettings, rows_of
from ..domain.topic import Group, Topic
from .fields import TAG, Count, Host, Name, Pointer, Step, Time, at, at_or_none, one_of, shown, taken
from .http import invalid


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
    steps_from: Literal["failure", "start"] | UnsetType = UNSET


class DestinationBody(Struct, forbid_unknown_fields=True):
    """The topic that gets a message for each that ends so, with its body if `include_body`."""

    topic: Name
    include_body: bool = False


class DestinationView(TypedDict):
    """Where messages about a group's messages go."""

    topic: str
    include_body: bool


class CallbacksBody(Struct, forbid_unknown_fields=True):
    """The hosts, in lower case, that a message's `callback_url` may name."""

    hosts: Annotated[list[Host], Meta(min_length=1, max_length=lim.MAX_CALLBACK_HOSTS)]


class CallbacksView(TypedDict):
    """The hosts that a message's `callback_url` may name."""

    hosts: list[str]


class RetryView(TypedDict):
    """A retry policy. `ladder` is a name or a list of seconds; three fields are for `exponential`. `steps_from`: that a
    step counts from the start of the failed attempt."""

    max_attempts: Count
    ladder: str | list[Count]
    jitter: float
    base_seconds: NotRequired[Count]
    factor: NotRequired[float]
    cap_seconds: NotRequired[Count]
    steps_from: NotRequired[Literal["start"]]


def _body(name: str, doc: str, settings: type) -> type[Struct]:
    """The type of a request that gives some of these settings."""
    fields, names = [], {}
    for row in rows_of(settings):
        kind: Any = _given_type(row) | UnsetType
        fields.append((row.field, Annotated[kind, Meta(description=row.plain_help)], UNSET))
        names[row.field] = row.name
    how: dict[str, Any] = {"rename": names, "namespace": {"__doc__": doc}, "forbid_unknown_fields": True}
    return msgspec.defstruct(name, fields, module=__name__, **how)


def _given_type(row: Setting) -> Any:
    of: Any = {ladder.Retry: Retry, Destination: DestinationBody, dict: CallbacksBody}.get(row.given)
    if row.choices:
        of = Literal[row.choices]
    elif of is None:
        kind, is_number = (list[Pointer] if row.given is list else row.given), row.given in (int, float)
        of = Annotated[kind, Meta(ge=row.least, le=row.most) if is_number else Meta(max_length=row.most)]
    return of | None if row.nullable else of


def _answer(name: str, settings: type) -> Any:
    """The type of an answer that shows these settings."""
    return TypedDict(name, {row.name: _shown_type(row) for row in rows_of(settings)})  # type: ignore[operator]


def _shown_type(row: Setting) -> Any:
    kinds: dict[Any, Any] = {
        ladder.Retry: RetryView,
        Destination: DestinationView,
        dict: CallbacksView,
        int: Count,
        list: list[str],
    }
    of = kinds.get(row.given, row.given)
    if row.choices:
        of = Annotated[str, one_of(*row.choices)]
    if row.field == "key_shards":
        return NotRequired[of]
    return of | None if row.nullable and row.field != "tags" else of


TopicBody = _body(
    "TopicBody",
    "Settings of a topic; missing settings keep their value (in a new topic, the default).",
    TopicSettings,
)
GroupBody = _body(
    "GroupBody",
    "Settings of a consumer group; missing settings keep their value. `from` and `mode` are used at creation only.",
    GroupSettings,
)


if TYPE_CHECKING:  # what an answer shows of settings is known to their table, not to mypy

    class _TopicSettings(TypedDict): ...

    class _GroupSettings(TypedDict): ...

else:
    _TopicSettings = _answer("_TopicSettings", TopicSettings)
    _GroupSettings = _answer("_GroupSettings", GroupSettings)


class TopicView(_TopicSettings):
    """A topic's settings. `key_shards` stands where it differs from `shards`."""

    topic: str
    created_at: Time


class GroupView(_GroupSettings):
    """A group's settings. Where `retry` or `lease_seconds` is null, the topic's applies; `filter` is "*" for all
    messages. `paused_until` is when a pause ends by itself. `from` is where the group began: "earliest", "latest" or a
    time."""

    group: str
    topic: str
    paused: bool
    paused_until: Time | None
    created_at: Time


def given(body: msgspec.Struct) -> dict[str, Any]:
    """The fields that were given; whole numbers as such, lists as tuples."""
    fields = {name: value for name in body.__struct_fields__ if (value := getattr(body, name)) is not UNSET}
    return {name: _stored(value) for name, value in fields.items()}


def _stored(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
    if len(parts) > lim.MAX_FILTER_TAGS or not all(map(_is_tag, parts)):
        raise invalid("filter", f"must be '*' or up to {lim.MAX_FILTER_TAGS} tags joined by ' || '")
    return parts


def _is_tag(text: str) -> bool:
    return len(text) <= lim.MAX_TAG_CHARS and re.match(TAG, text) is not None


def topic_view(topic: Topic) -> TopicView:
    """A topic's settings."""
    shown = _shown(TopicSettings, topic)
    if topic.shards_of_keys == topic.shards:
        del shown["key_shards"]
    return cast(TopicView, {"topic": topic.name, **shown, "created_at": at(topic.created_ms)})


def group_view(topic: Topic, group: Group, now_ms: int) -> GroupView:
    """A group's settings, and whether it is paused at this time."""
    is_paused, shown = group.is_paused(now_ms), _shown(GroupSettings, group)
    rest = {
        "keep_answers": group.keeps_answers(topic),
        "paused": is_paused,
        "paused_until": at_or_none(group.pause_ends_ms) if is_paused else None,
        "created_at": at(group.created_ms),
    }
    return cast(GroupView, {"group": group.name, "topic": group.topic, **shown, **rest})


def _shown(settings: type, of: Topic | Group) -> dict[str, Any]:
    """Settings as answers show them."""
    values = ((row, getattr(of, row.field)) for row in rows_of(settings))
    return {row.name: _SHOWN[row.field](value) if row.field in _SHOWN else value for row, value in values}


def retry_view(retry: ladder.Retry) -> RetryView:
    """A policy as it stands."""
    body = shown(RetryView, retry)
    if retry.ladder == ladder.EXPONENTIAL:
        body |= cast(RetryView, taken(retry, "base_seconds", "factor", "cap_seconds"))
    if retry.steps_from == "start":
        body["steps_from"] = "start"
    return body


# How settings are shown that answers show otherwise than the code has them.
_SHOWN: Mapping[str, Callable[[Any], Any]] = {
    "retry": lambda retry: retry_view(retry) if retry else None,
    **dict.fromkeys(
        ("on_dead", "on_success"), lambda to: to and {"topic": to.topic, "include_body": to.include_body}
    ),
    "callbacks": lambda to: to and {"hosts": list(to)},
    "begin": lambda begin: at(int(begin[1:])) if begin.startswith("@") else begin,
    "tags": lambda tags: " || ".join(tags) if tags is not None else "*",
}
