"""Dead letters of a group: seen, mended, sent again, deleted; and a delivery that waits, tried now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from ...domain.errors import Refused
from ...domain.limits import MAX_ANSWER_BYTES
from ...domain.message import Message
from ...domain.topic import Group, Topic
from ...services.core.bodies import with_body
from .. import parse, render
from ..http import Context, Response, call, invalid
from ..requests import BodyBody, RedriveBody, RetryNowBody

if TYPE_CHECKING:
    from ...domain.record import DeadLetter
    from ...services.manage.dead_letters import Wanted

_LETTERS = "/v1/topics/{topic}/groups/{group}/dead-letters"
_ROLES = ("consume", "admin")
_FILTERS = ("reason", "tag", "key")
_REASONS = ("ATTEMPTS_EXHAUSTED", "REJECTED", "EXPIRED", "RATE_LIMITED", "UNDECODABLE")


@call("GET", _LETTERS, scopes=_ROLES, query=(*_FILTERS, "limit", "page_token"))
def list_dead_letters(context: Context, topic: str, group: str) -> Response:
    """Dead letters by place, each whole, with its reason and last error."""
    found, wanted = _find(context, topic, group)
    which = _wanted(context.query)
    purpose = "dead:" + json.dumps([topic, group, {f: context.query.get(f) for f in _FILTERS}])
    after = parse.page_start(context, purpose)
    redriver, limit = context.deps.redriver, parse.limit(context.query)
    letters, mark = redriver.page(found, wanted, which, after, limit)
    if (fit := _that_fit(letters)) < len(letters):
        letters, mark = redriver.page(found, wanted, which, after, fit)
    names = _names(context, found, wanted)
    items = [render.dead_letter(x, with_body(context.deps.adapters.blobs, x.message), names) for x in letters]
    return Response(render.to_json(parse.page(context, purpose, items, mark)))


def _that_fit(letters: Sequence[DeadLetter]) -> int:
    """How many of the first letters one answer can hold; at least one."""
    sizes = accumulate(letter.message.draft.weight for letter in letters)
    return max(1, sum(size <= MAX_ANSWER_BYTES for size in sizes))


def _wanted(told: Any, at: str = "") -> Wanted:
    reason = told.get("reason")
    if reason is not None and reason not in _REASONS:
        raise invalid(f"{at}reason", f"must be one of {', '.join(_REASONS)}")
    from ...services.manage.dead_letters import Wanted

    return Wanted(reason, told.get("tag"), told.get("key"))


@call("GET", f"{_LETTERS}/{{id}}", scopes=_ROLES)
def get_dead_letter(context: Context, topic: str, group: str, id: str) -> Response:
    """One dead letter by its message's id."""
    found, wanted = _find(context, topic, group)
    letter = context.deps.redriver.find(found, wanted, id)[0]
    message = with_body(context.deps.adapters.blobs, letter.message)
    return Response(render.to_json(render.dead_letter(letter, message, _names(context, found, wanted))))


@call("POST", f"{_LETTERS}/redrive", scopes=_ROLES, body=RedriveBody)
def redrive(context: Context, topic: str, group: str) -> Response:
    """Send dead letters again: those with the ids, those that match the filter, or all."""
    found, wanted = _find(context, topic, group)
    body, redriver = context.body, context.deps.redriver
    if body.ids is not UNSET and body.filter is not UNSET:
        raise Refused("REDRIVE_AMBIGUOUS", "Give either ids or filter, or neither to redrive all.")
    if body.ids is UNSET:
        told = {f: getattr(body.filter, f) for f in _FILTERS} if body.filter is not UNSET else {}
        which = _wanted(told, "filter.")
        return Response({"redriven": redriver.redrive_some(found, wanted, which, body.limit, context.by)})
    letters = [x for id in dict.fromkeys(body.ids) for x in redriver.letters(found, wanted, id)]
    return Response({"redriven": redriver.redrive(found, wanted, letters[: body.limit], context.by)})


@call("PATCH", f"{_LETTERS}/{{id}}", scopes=_ROLES, body=BodyBody)
def edit_dead_letter(context: Context, topic: str, group: str, id: str) -> Response:
    """Give a dead letter another body, before it is redriven."""
    found, wanted = _find(context, topic, group)
    body = parse.json_body(context.raw, context.body.body)
    redriver = context.deps.redriver
    letters = [redriver.edit(found, wanted, x, body, context.by) for x in redriver.find(found, wanted, id)]
    message = with_body(context.deps.adapters.blobs, letters[0].message)
    return Response(render.to_json(render.dead_letter(letters[0], message, _names(context, found, wanted))))


@call("DELETE", f"{_LETTERS}/{{id}}", scopes=_ROLES)
def delete_dead_letter(context: Context, topic: str, group: str, id: str) -> Response:
    """Delete a dead letter for good."""
    found, wanted = _find(context, topic, group)
    for letter in context.deps.redriver.find(found, wanted, id):
        context.deps.redriver.discard(found, wanted, letter, context.by)
    return Response(status=204)


@call("POST", "/v1/topics/{topic}/messages/{id}/retry", scopes=_ROLES, body=RetryNowBody)
def retry_now(context: Context, topic: str, id: str) -> Response:
    """Make the next attempt of a RETRYING or DEAD delivery now."""
    found, wanted = _find(context, topic, context.body.group)
    message = context.deps.lookup.find(found, id)
    context.deps.redriver.try_now(found, wanted, id, context.by)
    statuses = context.deps.statuses
    status = statuses.delivery(found, wanted, message) if isinstance(message, Message) else None
    return Response({"id": id, "group": wanted.name, **(render.status(status) if status else {})})


def _find(context: Context, topic: str, group: str) -> tuple[Topic, Group]:
    found = context.deps.catalog.topic(topic)
    return found, context.deps.catalog.group(found, group)


def _names(context: Context, topic: Topic, group: Group) -> dict[str, str]:
    return {c.uid: c.name for c in context.deps.catalog.consumers(topic, group)}
