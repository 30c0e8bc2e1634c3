"""Producing one message or a batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Required, TypedDict

import msgspec
from msgspec import Meta, Struct

from ...domain import limits as lim
from ...domain import strict_json
from ...domain.errors import ChangedMeanwhile, HeadraceError, TooLarge, Unavailable
from ...domain.message import Draft, Message
from ...domain.topic import Topic
from ...services.produce.drafts import takes_all
from .. import parse
from ..calls import PRODUCE, TOPIC, Context, Response, call
from ..fields import Count, MessageStatus, Time, at, either, shown
from ..http import convert
from ..problems import Problem, problem

if TYPE_CHECKING:
    from ...services.inspect.lookup import MessageState
    from ...services.produce.appender import ProduceResult
    from ...services.produce.dedup import FirstUseOf


class BatchBody(Struct, forbid_unknown_fields=True):
    """Up to 1,000 messages; each is checked individually."""

    messages: Annotated[list[Any], Meta(min_length=1, max_length=lim.MAX_BATCH)]


class Produced(TypedDict):
    """Where a message was stored; a delayed message has no offset before it is due. For a `duplicate`, all fields
    describe the first message."""

    id: str
    topic: str
    status: MessageStatus
    shard: Count | None
    offset: Count | None
    accepted_at: Time
    deliver_at: NotRequired[Time]
    duplicate: bool


class BatchItem(TypedDict, total=False):
    """Where one message of a batch was stored, or the error."""

    index: Required[Count]
    id: str
    topic: str
    status: MessageStatus
    shard: Count | None
    offset: Count | None
    accepted_at: Time
    deliver_at: Time
    duplicate: bool
    error: Problem


class BatchView(TypedDict):
    """The result for each message of a batch, in the same order."""

    results: list[Annotated[BatchItem, either(sorted(Produced.__required_keys__), ["error"])]]


class _JsonTexts(msgspec.Struct):
    """The messages of a batch as JSON texts."""

    messages: list[msgspec.Raw]


_TAKES: Any = {"scopes": PRODUCE, "headers": parse.PRODUCER_HEADERS}


@call("POST", f"{TOPIC}/messages", **_TAKES, body=parse.MessageBody, statuses=(200, 201))
def produce(context: Context) -> Response[Produced]:
    """Accept one message: 201 once it is durable, 200 for a repeated dedup_id."""
    return store_one(context, parse.draft(context, context.body, context.raw))


def store_one(context: Context, draft: Draft) -> Response[Produced]:
    """Store a single message; the answer has its status."""
    topic = context.topic_for(takes_all([draft]))
    state_of = state_lookup(context, topic)
    (outcome,) = _store(context, topic, [draft], state_of)
    if isinstance(outcome, HeadraceError):
        raise outcome
    return Response(_view(topic, outcome, state_of), 200 if outcome.duplicate else 201)


StateLookup = Callable[[str], "MessageState | None"]


def state_lookup(context: Context, topic: Topic) -> StateLookup:
    """Returns a lookup of messages' states, which reads nothing unless there is a duplicate. None where a state cannot
    be read, and for all after it: to refuse what is stored would have it produced twice, and so might a late answer."""
    state_by_id = cache(lambda: context.deps.lookup.state_by_id(topic))
    can_be_read = True

    @cache
    def state(message_id: str) -> "MessageState | None":
        nonlocal can_be_read
        try:
            return state_by_id()(message_id) if can_be_read else None
        except (Unavailable, ChangedMeanwhile):
            can_be_read = False
            return None

    return state


def first_use(state_of: StateLookup) -> "FirstUseOf":
    """What a state says of the message's dedup id; one that cannot be read says nothing."""
    from ...services.produce.dedup import unknown_use

    return lambda message_id: state.use if (state := state_of(message_id)) else unknown_use(message_id)


def _view(topic: Topic, stored: "ProduceResult", state_of: StateLookup) -> Produced:
    """The answer for one message; for a duplicate, the present state of the first, if it can be read."""
    state = state_of(stored.id) if stored.duplicate else None
    if state is None:
        return produced_view(topic.name, stored)
    from ...services.produce.delayed import DelayedMessage

    message = state.message
    if isinstance(message, Message):
        stored = replace(stored, shard=message.shard, offset=message.offset, due_ms=message.draft.due_ms)
    elif isinstance(message, DelayedMessage):
        stored = replace(stored, due_ms=message.timer.due_ms)
    return produced_view(topic.name, stored, state.status)


def _store(
    context: Context, topic: Topic, drafts: Sequence[Draft], state_of: StateLookup
) -> "list[ProduceResult | HeadraceError]":
    request, by = parse.request(context), parse.producer(context)
    outcomes = context.deps.producer.produce(topic, drafts, by, request, first_use(state_of))
    context.deps.waker.wake_after_append(topic, [o for o in outcomes if not isinstance(o, HeadraceError)])
    return outcomes


@call("POST", f"{TOPIC}/messages/batch", **_TAKES, body=BatchBody)
def produce_batch(context: Context) -> Response[BatchView]:
    """Accept up to 1,000 messages; invalid ones are refused individually, the others are stored."""
    if len(context.raw) > lim.MAX_BATCH_BYTES:
        raise TooLarge("BATCH_TOO_LARGE", f"A batch may have {lim.MAX_BATCH_BYTES} bytes in all.")
    now_ms = context.now_ms
    texts = strict_json.decoded(context.raw, _JsonTexts).messages
    items = zip(context.body.messages, texts, strict=True)
    results = [_parsed(context, item, i, now_ms, bytes(text)) for i, (item, text) in enumerate(items)]
    drafts = [each for each in results if isinstance(each, Draft)]
    topic = context.topic_for(takes_all(drafts))
    state_of = state_lookup(context, topic)
    outcomes = _store(context, topic, drafts, state_of)
    return batch_view(context, results, outcomes, lambda each: _view(topic, each, state_of))


def _parsed(context: Context, item: Any, index: int, now_ms: int, raw: bytes) -> Draft | HeadraceError:
    path = f"messages[{index}]"
    try:
        return parse.draft(context, convert(item, parse.MessageBody, path), raw, now_ms=now_ms, path=path)
    except HeadraceError as error:
        return error


def produced_view(topic: str, message: "ProduceResult", status: str | None = None) -> Produced:
    """Where a message was stored; `status` is what has become of one that was stored before."""
    status = status or ("NEW" if message.due_ms is None else "DELAYED")
    body = shown(Produced, message, topic=topic, status=status)
    if message.due_ms is not None:
        body["deliver_at"] = at(message.due_ms)
    return body


def batch_view(
    context: Context,
    items: Sequence[object],
    outcomes: "Sequence[ProduceResult | HeadraceError]",
    view: "Callable[[ProduceResult], Produced]",
) -> Response[BatchView]:
    """The result for each item of a batch: its error, else the next one of the outcomes."""
    rest = iter(outcomes)
    found = [each if isinstance(each, HeadraceError) else next(rest) for each in items]
    results: list[BatchItem] = [
        {"index": index, "error": problem(each, context.request_id)}
        if isinstance(each, HeadraceError)
        else {"index": index, **view(each)}
        for index, each in enumerate(found)
    ]
    return Response({"results": results})
