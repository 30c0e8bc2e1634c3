"""Health, statistics, ladders, the description of this interface."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Meta, Struct

from ...domain import ladder
from ...domain.attention import RULES, Attention, Kind
from ...domain.errors import NotFound
from ...domain.limits import MAX_ATTEMPTS, MAX_RETRY_SECONDS
from ...domain.notice import TYPES, Events
from .. import lists
from ..calls import ADMIN, ANY, PAGED, Context, Reach, Response, call
from ..fields import Count, Name, Time, one_of, shown
from ..http import invalid
from .groups import destination
from .topics import NamedStats, topic_stats_view


class HealthView(TypedDict):
    """Every table can be read."""

    status: Literal["ok"]
    store: Literal["ok"]


class LadderView(TypedDict):
    """A ladder's steps, and the delays between the given number of attempts; each with their sum."""

    ladder: str
    steps_seconds: list[Count]
    sum_seconds: Count
    max_attempts: Count
    waits_seconds: list[Count]
    waits_sum_seconds: Count


class AttentionView(TypedDict):
    """A state in which work waits for a person: its kind, since when, what it means and what to do. `topic` is null if
    it is the service's, `group` if it is a topic's."""

    kind: Annotated[str, one_of(*Kind)]
    topic: str | None
    group: str | None
    consumer: str | None
    since: Time
    what: str
    to_do: str


class EventsBody(Struct, forbid_unknown_fields=True):
    """The topic that gets operational events, and which types of them."""

    topic: Name
    types: Annotated[tuple[Literal[TYPES], ...], Meta(min_length=1, max_length=len(TYPES))] = TYPES  # type: ignore[valid-type]


class EventsView(TypedDict):
    """The topic that gets operational events, if any does, and which types of them."""

    topic: str | None
    types: list[Annotated[str, one_of(*TYPES)]]


_NUMBERS = {"base_seconds": (1, MAX_RETRY_SECONDS), "factor": (1, 10), "cap_seconds": (1, MAX_RETRY_SECONDS)}
_WHOLE = r"[0-9]{1,7}\Z"
_DECIMAL = r"[0-9]{1,2}(\.[0-9]{1,9})?\Z"


@call("GET", "/v1/health", scopes=())
def health(context: Context) -> Response[HealthView]:
    """Check that every table can be read; 503 if one cannot. The result may be five seconds old."""
    context.deps.readiness.check()
    return Response({"status": "ok", "store": "ok"})


@call("HEAD", "/v1/health", scopes=())
def probe_health(context: Context) -> Response[HealthView]:
    """As `GET /v1/health`, without a body: for load balancers and monitors."""
    return health(context)


@call("GET", "/v1/ladders/{name}", scopes=ANY, query=(*_NUMBERS, "max_attempts"))
def preview_ladder(context: Context) -> Response[LadderView]:
    """A ladder's steps and their sum; and the delays between the given number of attempts, and their sum."""
    name, names = context.params["name"], [*ladder.NAMED, ladder.EXPONENTIAL]
    if name not in names:
        raise NotFound("LADDER_NOT_FOUND", f"There is no such ladder. Ladders: {', '.join(names)}.")
    attempts = ladder.default_attempts(name)
    retry = replace(ladder.Retry(attempts, name), **_numbers(context.query))
    steps, waits = list(ladder.steps(retry)), list(ladder.waits(retry))
    sums = {"sum_seconds": sum(steps), "waits_sum_seconds": sum(waits)}
    return Response(shown(LadderView, retry, **sums, steps_seconds=steps, waits_seconds=waits))


def _numbers(query: Mapping[str, str]) -> dict[str, Any]:
    """The numbers among a query's parameters, checked."""
    numbers: dict[str, Any] = {}
    for name, (low, high) in {**_NUMBERS, "max_attempts": (1, MAX_ATTEMPTS)}.items():
        if name not in query:
            continue
        text = query[name]
        form = _DECIMAL if name == "factor" else _WHOLE
        if not re.match(form, text) or not low <= float(text) <= high:
            raise invalid(name, f"must be a number from {low} to {high}")
        numbers[name] = float(text) if name == "factor" else int(text)
    return numbers


@call("GET", "/v1/stats", scopes=ANY, query=PAGED)
def stats(context: Context) -> Response[lists.Page[NamedStats]]:
    """Counts per topic and group."""
    surveys, next_start = lists.counted_topics(context, "stats")
    stats = ((each.topic.name, topic_stats_view(each, context.deps)) for each in surveys)
    items: list[NamedStats] = [{"topic": name, **view} for name, view in stats]
    return lists.page(context, "stats", items, next_start)


@call("GET", "/v1/attention", scopes=ANY, query=PAGED)
def list_attention(context: Context) -> Response[lists.Page[AttentionView]]:
    """The states in which work waits for a person, by topic.

    A state is found, and taken off the list, within five minutes; `NOT_PROVED` within six hours."""
    caller, read = context.caller, context.deps.adapters.marks.attention

    def may_see(state: Attention) -> bool:
        return caller is None or state.is_seen_by(caller)

    states, next_start = lists.visible_page(context, "attention", read, may_see, lambda state: state.key)
    return lists.page(context, "attention", [_attention_view(state) for state in states], next_start)


def _attention_view(state: Attention) -> AttentionView:
    rule = RULES[state.kind]
    place = {name: getattr(state, name) or None for name in ("topic", "group", "consumer")}
    return shown(AttentionView, state, **place, what=rule.what, to_do=rule.to_do)


@call("PUT", "/v1/events", scopes=ADMIN, body=EventsBody, reach=Reach.SERVICE)
def put_events(context: Context) -> Response[EventsView]:
    """Send operational events to a topic, within a minute; without `types`, those of every type."""
    topic = destination(context, context.body.topic, "topic")
    context.deps.catalog.set_events(Events(topic.name, topic.uid, tuple(dict.fromkeys(context.body.types))))
    return get_events(context)


@call("GET", "/v1/events", scopes=ADMIN, reach=Reach.SERVICE)
def get_events(context: Context) -> Response[EventsView]:
    """The topic that gets operational events, and their types; null: none does."""
    events = context.deps.adapters.control.events()
    topic, types = (events.topic, list(events.types)) if events else (None, [])
    return Response({"topic": topic, "types": types})


@call("DELETE", "/v1/events", scopes=ADMIN, statuses=(204,), reach=Reach.SERVICE)
def delete_events(context: Context) -> Response[None]:
    """Send no operational events any more."""
    context.deps.catalog.set_events(None)
    return Response(None, 204)


@call("GET", "/v1/openapi.json", scopes=())
def openapi_document(context: Context) -> Response[dict[str, Any]]:
    """This interface as OpenAPI 3.1, generated from the code."""
    from .. import openapi  # late, for few calls need it

    return Response(openapi.document(context.prefix))


@call("GET", "/docs", scopes=(), media="text/html")
def docs(context: Context) -> Response[bytes]:
    """This interface as a page to read."""
    from .. import docs_page, openapi

    return Response(docs_page.of(openapi.document()), headers=docs_page.HEADERS)
