"""The pages of lists, and their filters as a query names them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Generic, NotRequired, TypedDict, TypeVar

from msgspec import Meta, Struct

from ..domain.errors import Malformed
from ..domain.limits import DEFAULT_PAGE, MAX_KEY_CHARS, MAX_PAGE, MAX_REASON_CHARS
from ..domain.message import DeadReason
from ..domain.record import FailureFilter
from ..domain.topic import Topic
from . import parse
from .calls import Context, Response
from .fields import Key, Tag, Tenant, Time
from .http import invalid

if TYPE_CHECKING:
    from ..domain.meter import Window
    from ..services.inspect.lookup import Filters
    from ..services.inspect.survey import TopicSurvey


T = TypeVar("T")


class DeadFilter(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which failures; `{}` means all. `since` and `until` bound the time of the last failure, `error` is a part of its
    text; `reason` is a dead letter's."""

    reason: str | None = None
    tag: Tag | None = None
    key: Key | None = None
    since: Time | None = None
    until: Time | None = None
    error: Annotated[str, Meta(min_length=1, max_length=MAX_REASON_CHARS)] | None = None
    tenant: Tenant | None = None


class Page(TypedDict, Generic[T]):
    """One page of a list; the last one has no `next_page_token`."""

    items: Sequence[T]
    next_page_token: NotRequired[str]


# The filters of a list of dead letters, and of a redrive.
LETTER_FILTERS: tuple[str, ...] = DeadFilter.__struct_fields__
_REASONS = tuple(DeadReason)


def page(context: Context, purpose: str, items: Sequence[T], next_start: Any) -> Response[Page[T]]:
    """One page of a list; `next_start` is where the next one starts, None at the end."""
    if next_start is None:
        return Response({"items": items})
    return Response({"items": items, "next_page_token": page_token(context, purpose, next_start)})


def page_token(context: Context, purpose: str, position: Any) -> str:
    """An encoded, unforgeable position at which the next page starts."""
    return context.deps.signing_keys.sign(f"page:{purpose}", json.dumps(position))


def window(query: Mapping[str, str]) -> "Window":
    """The period of a chart. Raises Malformed."""
    from ..domain.meter import WINDOWS

    choice = WINDOWS.get(query.get("window", "1h"))
    if choice is None:
        raise invalid("window", f"must be one of {', '.join(WINDOWS)}")
    return choice


def limit(query: Mapping[str, str]) -> int:
    """The page size asked for."""
    number = parse.whole_number(query.get("limit", str(DEFAULT_PAGE)), 4)
    if number is None or not 1 <= number <= MAX_PAGE:
        raise invalid("limit", f"must be a number from 1 to {MAX_PAGE}")
    return number


def shard(query: Mapping[str, str]) -> int | None:
    """The shard asked for."""
    number = parse.whole_number(query.get("shard", ""), 4)
    if "shard" in query and number is None:
        raise invalid("shard", "must be a shard's number")
    return number


def time_ms(query: Mapping[str, str], name: str) -> int | None:
    """The time of this name, ms; None where the query has none. Raises Malformed."""
    return parse.time_ms(query[name], name) if name in query else None


def topic_and_shard(context: Context) -> tuple[Topic, int | None]:
    """The topic in the path and the shard asked for. Raises NotFound, or Refused where the topic has no such shard."""
    number = shard(context.query)
    topic = context.topic_for(lambda topic: topic.lacks(number) is None)
    check_shard(topic, number)
    return topic, number


def check_shard(topic: Topic, number: int | None) -> None:
    """Raises Refused where the topic has no such shard; None: no shard is named."""
    if refusal := topic.lacks(number):
        raise refusal


def page_start(context: Context, purpose: str) -> Any:
    """The position in the query's page token; None for the first page. `purpose`: the list and the filters that it must
    have been signed for, else it is Malformed."""
    text = context.query.get("page_token")
    return position_in(context, purpose, text) if text is not None else None


def position_in(context: Context, purpose: str, text: str) -> Any:
    """The position in a page token. Raises Malformed."""
    token = context.deps.signing_keys.verified(f"page:{purpose}", text)
    if token is None:
        raise Malformed("PAGE_TOKEN_INVALID", "This page_token is not one of this list's; start without it.")
    return json.loads(token)


def visible_page(
    context: Context,
    purpose: str,
    read_rows_after: Callable[[str | None, int], Sequence[T]],
    may_see: Callable[[T], bool],
    position: Callable[[T], str],
) -> tuple[list[T], str | None]:
    """A page of the rows that the caller may see, and the position of its last row (None: this is the last page).

    The position is always that of a visible row, since clients can decode a page token. `read_rows_after` gives
    rows after a position.
    """
    most, after = limit(context.query), page_start(context, purpose)
    items: list[T] = []
    rows = most + 1
    while len(items) <= most:
        read_rows = read_rows_after(after, rows)
        items += filter(may_see, read_rows)
        if len(read_rows) < rows:
            break
        after, rows = position(read_rows[-1]), MAX_PAGE
    return items[:most], position(items[most - 1]) if len(items) > most else None


def counted_topics(context: Context, purpose: str) -> "tuple[list[TopicSurvey], str | None]":
    """A page of the topics that the token may use, by name, with what is in them, without those that have an unreadable
    row; shorter where counting takes long."""
    caller = context.caller
    if caller is None:
        return [], None

    def read(after: str | None, rows: int) -> list[Topic]:
        start = caller.behind(after or "")
        return [] if start is None else context.deps.adapters.control.topics(start or None, rows)

    topics, last = visible_page(context, purpose, read, lambda t: caller.may_use(t.name), lambda t: t.name)
    surveys = context.deps.surveyor.exact_topics(topics)
    if len(surveys) < len(topics):
        last = topics[len(surveys) - 1].name
    return [survey.seen_by(caller) for survey in surveys if survey], last


def purpose(kind: str, names: Sequence[str], query: Mapping[str, str], filter_names: Sequence[str]) -> str:
    """What the page tokens of a list are for: this kind of list, of what has these names, with these filters. A token
    of another list is refused."""
    return f"{kind}:" + json.dumps([*names, {name: query[name] for name in filter_names if name in query}])


def of_query(query: Mapping[str, str]) -> "Filters":
    """The filters that any list of messages takes. Raises Malformed. Whether the topic has the shard is said by
    `topic_and_shard`."""
    from ..services.inspect.lookup import Filters

    from_ms, to_ms = time_ms(query, "from"), time_ms(query, "to")
    tag, tenant = query.get("tag"), query.get("tenant")
    return Filters(tag=tag, tenant=tenant, shard=shard(query), from_ms=from_ms, to_ms=to_ms)


def letter_filter(fields: Mapping[str, str], at: str = "") -> FailureFilter:
    """Which dead letters these fields (of a query, or at a path in a body) mean. Raises Malformed."""

    values: dict[str, Any] = {name: fields[name] for name in LETTER_FILTERS if name in fields}
    if "reason" in values and values["reason"] not in _REASONS:
        raise invalid(f"{at}reason", f"must be one of {', '.join(_REASONS)}")
    for name in ("since", "until"):
        if name in values:
            values[f"{name}_ms"] = parse.time_ms(values.pop(name), f"{at}{name}")
    # Raises for a filter that it does not have: left out, a redrive would take all dead letters.
    return FailureFilter(**values)


def key(query: Mapping[str, str]) -> str | None:
    """The key that the messages are to have. Raises Malformed."""
    return bounded_text(query, "key", MAX_KEY_CHARS)


def bounded_text(query: Mapping[str, str], name: str, most: int) -> str | None:
    """The text of this name, of 1 to `most` characters; None where the query has none. Raises Malformed."""
    text = query.get(name)
    if text is not None and not 1 <= len(text) <= most:
        raise invalid(name, f"must have 1 to {most} characters")
    return text
