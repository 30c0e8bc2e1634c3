"""Dead letters of a group: list, edit, redrive, delete; and retry waiting deliveries now."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...domain import limits as lim
from ...domain import redact, strict_json
from ...domain.errors import HeadraceError, Malformed, Refused, TooLarge
from ...domain.message import Message, holds_json
from ...domain.topic import Group, Topic
from ...modes import POLICIES
from ...services.core.bodies import shown_body, with_body
from ...services.produce.drafts import check_size
from .. import lists, many, parse
from ..calls import GROUP, MESSAGE, PAGED, READ, Context, Response, call
from ..fields import Count, Name, Time, at, either, shown
from ..http import check_group
from ..problems import Problem, problem
from .message_views import Answer, Reason, Retried, StoredContent, answer_view, content, retried_view

if TYPE_CHECKING:
    from ...domain.record import DeadLetter
    from ...services.inspect.lookup import AnyMessage
    from ...services.inspect.statuses import DeliveryStatus
    from ...services.manage.retries import WaitingRetry

    Letters = Sequence[DeadLetter]
    Act = Callable[[Letters, int, int], int]


class RedriveBody(many.PlannedBody):
    """Dead letters to redrive. `rate`: so many a second; the n-th is due n / rate seconds after the first call."""

    rate: Annotated[int, Meta(ge=1, le=lim.MAX_REPLAY_RATE)] | None = None


class DeleteBody(many.PlannedBody):
    """Dead letters to delete. Without ids, filter or plan it deletes all: `confirm` then repeats the group's name."""

    confirm: str | None = None


class RetryManyBody(many.ManyBody):
    """Waiting deliveries to retry now; in a broadcast of one `consumer`, or of all."""

    consumer: Name | None = None


class BodyBody(Struct, forbid_unknown_fields=True):
    """A new body (any JSON)."""

    body: Any


class MergeBody(Struct, forbid_unknown_fields=True):
    """A JSON merge patch (RFC 7386) for bodies: null removes a member. It applies to the dead letters with these
    ids, or to a page of those that match the query. `dry_run`: only show the changes."""

    patch: dict[str, Any]
    ids: Annotated[list[str], Meta(min_length=1, max_length=lim.MAX_PAGE)] | UnsetType = UNSET
    dry_run: bool = False


class RetryNowBody(Struct, forbid_unknown_fields=True):
    """The group whose delivery is retried."""

    group: Name


class DeadLetterView(StoredContent):
    """A dead letter with its whole message. `edited`: the body was changed after it was sent."""

    shard: Count
    offset: Count
    reason: Reason
    attempts: Count
    last_error: str | None
    answer: NotRequired[Answer]
    dead_at: Time
    edited: bool
    consumer: NotRequired[str | None]


class RedrivenLetters(many.ManyAnswer):
    redriven: NotRequired[Count]


class DeletedLetters(many.ManyAnswer):
    deleted: NotRequired[Count]


class RetriedDeliveries(many.ManyAnswer):
    retried: NotRequired[Count]


_DRY = ["count", "sample"]
Redriven = Annotated[RedrivenLetters, either(["redriven"], _DRY)]
Deleted = Annotated[DeletedLetters, either(["deleted"], _DRY)]
RetriedMany = Annotated[RetriedDeliveries, either(["retried"], _DRY)]


class MergedLetter(TypedDict):
    """The result of a patch for one dead letter: its new body or, if `changed` is false, the old one. Or the error."""

    id: str
    changed: NotRequired[bool]
    body: NotRequired[Any]
    error: NotRequired[Problem]


Merged = Annotated[MergedLetter, either(["changed", "body"], ["error"])]
_LETTERS = f"{GROUP}/dead-letters"


@call("GET", _LETTERS, scopes=READ, query=(*lists.LETTER_FILTERS, *PAGED))
def list_dead_letters(context: Context) -> Response[lists.Page[DeadLetterView]]:
    """List dead letters by shard and offset, each with its message, reason and last error."""
    topic, group = context.group()
    purpose, letters, position = _page(context, topic, group)
    return lists.page(context, purpose, _views(context, topic, group, letters), position)


def _page(context: Context, topic: Topic, group: Group, growth: int = 0) -> "tuple[str, Letters, str | None]":
    """The purpose of its page tokens, a page of dead letters that match the query, and where the next one begins."""
    query, deps, limit = context.query, context.deps, lists.limit(context.query)
    letter_filter = lists.letter_filter(query)
    purpose = lists.purpose("dead", [topic.name, group.name], query, lists.LETTER_FILTERS)
    after = lists.page_start(context, purpose)
    letters, position = deps.letter_lookup.page(topic, group, letter_filter, after, limit)
    if (fit := _count_that_fits(letters, growth)) < len(letters):
        letters, position = deps.letter_lookup.page(topic, group, letter_filter, after, fit)
    return purpose, letters, position


def _count_that_fits(letters: "Letters", growth: int) -> int:
    """How many of the dead letters fit into one answer, if each grows by so many bytes; at least one."""
    sizes = accumulate(letter.message.draft.weight + growth for letter in letters)
    return max(1, sum(size <= lim.MAX_ANSWER_BYTES for size in sizes))


@call("GET", f"{_LETTERS}/{{id}}", scopes=READ)
def get_dead_letter(context: Context) -> Response[DeadLetterView]:
    """One dead letter by its message's id."""
    topic, group = context.group()
    letters = context.deps.letter_lookup.find(topic, group, context.params["id"])
    return Response(_views(context, topic, group, letters[:1])[0])


@call("POST", f"{_LETTERS}/redrive", scopes=READ, body=RedriveBody)
def redrive(context: Context) -> Response[Redriven]:
    """Send dead letters again: those with the ids, those that match the filter, or all; at once or at a rate.

    With a rate each waits as a retry does; a pause of the group stops them."""
    topic, group = context.group(consistent=True)
    letters, rate, by = context.deps.dead_letters, context.body.rate, context.by

    def act(items: "Letters", done: int, at_ms: int) -> int:
        if rate is None:
            return letters.redrive(topic, group, items, by)
        return letters.redrive_later(topic, group, items, lambda n: at_ms + (done + n + 1) * 1000 // rate, by)

    return _answer(context, topic, group, "redriven", act)


@call("POST", f"{_LETTERS}/delete", scopes=READ, body=DeleteBody)
def delete_dead_letters(context: Context) -> Response[Deleted]:
    """Delete dead letters for good: those with the ids, those that match the filter, those of a plan, or all."""
    topic, group = context.group(consistent=True)
    body, by = context.body, context.by
    chosen = (body.ids, body.plan, body.filter)
    is_all = all(choice in (UNSET, lists.DeadFilter()) for choice in chosen)
    if is_all and not body.dry_run and body.confirm != group.name:
        raise Malformed("CONFIRM_MISSING", f'Deleting all dead letters needs "confirm": "{group.name}".')
    discard = context.deps.dead_letters.discard_many
    return _answer(context, topic, group, "deleted", lambda items, *_: discard(topic, group, items, by))


def _answer(context: Context, topic: Topic, group: Group, counted: str, act: "Act") -> Response[Any]:
    """The answer of a call for many dead letters."""
    lookup = context.deps.letter_lookup
    work: many.Work[DeadLetter] = many.Work(
        counted=counted,
        names=[topic.name, group.name],
        by_ids=lambda ids: lookup.letters_of(topic, group, ids),
        page=lambda which, after, most: lookup.page(topic, group, which, after, most),
        act=act,
        failure=lambda letter: letter.to_filter,
        plan_for=f"{topic.uid}/{group.uid}",
    )
    return Response(many.answer(context, work))


@call("POST", f"{GROUP}/retry", scopes=READ, body=RetryManyBody)
def retry_many(context: Context) -> Response[RetriedMany]:
    """Make the next attempts of waiting deliveries now. Those that are due already are not counted."""
    topic, group = context.group(consistent=True)
    retries, name = context.deps.retries, context.body.consumer
    uid = context.deps.catalog.consumer(topic, group, name).uid if name else None
    if uid and not POLICIES[group.mode].per_consumer:
        raise Refused("WRONG_MODE", "Only a broadcast has deliveries of one consumer: leave `consumer` out.")
    work: many.Work[WaitingRetry] = many.Work(
        counted="retried",
        names=[topic.name, group.name],
        by_ids=lambda ids: retries.of_messages(topic, group, uid, ids),
        page=lambda which, after, most: retries.page(topic, group, uid, which, after, most),
        act=lambda items, *_: retries.make_due(topic, group, items),
        failure=lambda each: each.failure,
    )
    return Response(many.answer(context, work))


@call("PATCH", f"{_LETTERS}/{{id}}", scopes=READ, body=BodyBody)
def edit_dead_letter(context: Context) -> Response[DeadLetterView]:
    """Replace a dead letter's body, before it is redriven."""
    topic, group = context.group(consistent=True)
    body = parse.json_body(context.raw, context.body.body)
    letters = context.deps.dead_letters.edit_all(topic, group, context.params["id"], body, context.by)
    return Response(_views(context, topic, group, letters[:1])[0])


@call("PATCH", _LETTERS, scopes=READ, body=MergeBody, query=(*lists.LETTER_FILTERS, *PAGED))
def merge_dead_letters(context: Context) -> Response[lists.Page[Merged]]:
    """Change the bodies of many dead letters by a JSON merge patch (RFC 7386).

    It works page by page; with `dry_run` it only shows the changes. Bodies that are not JSON stay as they are."""
    topic, group = context.group(consistent=True)
    patch, position = strict_json.member(context.raw, "patch"), None
    purpose, ids = "", context.body.ids
    if ids is UNSET:
        purpose, letters, position = _page(context, topic, group, len(patch))
    elif context.query:
        raise Refused("CHOICE_AMBIGUOUS", "Give either ids or a query, or neither for a page of all.")
    else:
        letters = context.deps.letter_lookup.letters_of(topic, group, ids)
        if _count_that_fits(letters, len(patch)) < len(letters):
            raise TooLarge("BATCH_TOO_LARGE", "No answer can hold all these bodies: give fewer ids.")
    items = [_merged(context, topic, group, letter, patch) for letter in letters]
    return lists.page(context, purpose, items, position)


def _merged(context: Context, topic: Topic, group: Group, letter: "DeadLetter", patch: bytes) -> MergedLetter:
    id = letter.message.id
    message = with_body(context.deps.adapters.blobs, letter.message)
    if not (message.draft.has_body and holds_json(message.draft)):
        return {"id": id, "error": problem(Refused("NO_JSON", "The body is no JSON."), context.request_id)}
    before = message.draft.body
    hidden = redact.pointers(topic, message)
    after = redact.restored(strict_json.merged(before, patch), message.draft, hidden)
    is_changed = after != strict_json.merged(before, b"{}")
    try:
        if is_changed:
            check_size(topic, after)
            if not context.body.dry_run:
                context.deps.dead_letters.edit(topic, group, letter, after, context.by)
    except HeadraceError as error:  # too large now, or another call was faster
        return {"id": id, "error": problem(error, context.request_id)}
    shown = redact.masked(replace(message.draft, body=after), hidden) if hidden else after
    return {"id": id, "changed": is_changed, "body": msgspec.Raw(shown)}


@call("DELETE", f"{_LETTERS}/{{id}}", scopes=READ, statuses=(204,))
def delete_dead_letter(context: Context) -> Response[None]:
    """Delete a dead letter for good."""
    topic, group = context.group(consistent=True)
    context.deps.dead_letters.discard_all(topic, group, context.params["id"], context.by)
    return Response(None, 204)


@call("POST", f"{MESSAGE}/retry", scopes=READ, body=RetryNowBody)
def retry_now(context: Context) -> Response[Retried]:
    """Try a RETRYING or DEAD delivery again now."""
    topic, id = context.topic(consistent=True), context.params["id"]
    check_group(context.caller, context.body.group)
    group = context.deps.catalog.group(topic, context.body.group, consistent=True)
    message = context.deps.lookup.find_with_dead_letters(topic, id, context.may_use_group)
    context.deps.dead_letters.retry_now(topic, group, id, context.by)
    return Response(retried_view(id, group.name, _status(context, topic, group, message)))


def _status(context: Context, topic: Topic, group: Group, message: "AnyMessage") -> "DeliveryStatus | None":
    """The delivery's status after the retry; None if its row is unreadable."""
    if not isinstance(message, Message):
        return None
    try:
        return context.deps.statuses.of_topic(topic).delivery(group, message)
    except HeadraceError:  # the retry is done: no error may deny it
        return None


def _views(context: Context, topic: Topic, group: Group, letters: "Letters") -> list[DeadLetterView]:
    """Dead letters with their bodies."""
    blobs = context.deps.adapters.blobs
    names = context.deps.catalog.consumer_names(topic, group)
    return [dead_letter_view(letter, shown_body(blobs, topic, letter.message), names) for letter in letters]


def dead_letter_view(letter: "DeadLetter", message: Message, names: Mapping[str, str]) -> DeadLetterView:
    """The view of a dead letter. `message` has the full body; `names` maps consumer uids to names."""
    own = {**content(message), "shard": message.shard, "dead_at": at(letter.at_ms)}
    body = shown(DeadLetterView, letter, **own)
    if letter.answer:
        body["answer"] = answer_view(letter.answer)
    if uid := letter.key.consumer_uid:
        body["consumer"] = names.get(uid)
    return body
