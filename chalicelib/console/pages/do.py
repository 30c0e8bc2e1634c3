"""What people do: each button's form names an action. And what undoes it: a form's fields that put back what was there
before, so that is read before the action."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from ...api.http import check_name
from ...domain.errors import HeadraceError
from ...domain.message import Draft, Message, holds_json
from ...domain.times import rfc3339
from ...domain.topic import Mode
from ...services.core.bodies import shown_body
from ...services.produce.delayed import DelayedMessage
from .. import actions, corrections, forms
from ..visit import Page, SeeOther, Shown, Visit
from .message import is_cut

# What a call answers once and never again.
_SECRETS = ("secret", "token", "callback_secrets")
Fields = Mapping[str, str]


def do_action(visit: Visit) -> Shown:
    """Do what the form says; then back to where it stood, by way of a page with a button that undoes it, if one can."""
    form = forms.of(visit.form)
    before = prepare_undo(visit, form.action) if "undoes" not in visit.form else None
    answer = actions.do(visit, form.action, corrections.resend_headers(visit, form.action))
    for name in _SECRETS:
        if isinstance(answer, dict) and answer.get(name):
            secret = answer[name]
            text = secret if isinstance(secret, str) else "\n".join(map(" ".join, secret.items()))
            return Page("secret.html", {"name": name, "secret": text})
    after, refusals = form.after(answer), _refusals(answer)
    before = _undo_of_changed(before, answer) if before else None
    if before is None and not refusals:
        return SeeOther(visit.links.back(after))
    undo = {"undo": before, "undo_action": forms.of(before).action if before else None}
    query = defaultdict(str, parse_qsl(after.partition("?")[2]))
    place = {"after": form.back, "back": form.back, "query": query}
    return Page("done.html", {**undo, **place, "refusals": refusals})


def _refusals(answer: Any) -> list[tuple[HeadraceError, int]]:
    """Why some of many were refused, and how many for each reason."""
    items = answer.get("items", ()) if isinstance(answer, dict) else ()
    problems = [item["error"] for item in items if "error" in item]
    counts = Counter((problem["code"], problem["detail"]) for problem in problems)
    return [(HeadraceError(code, detail), number) for (code, detail), number in counts.items()]


def prepare_undo(visit: Visit, action: actions.Action) -> Fields | None:
    """The fields of the form that will undo it; None where nothing can, or nothing was there before."""
    way = _WAYS.get(action.name)
    try:
        for kind, name in action.params.items():
            check_name(kind, name)
        fields = way(replace(visit, params=action.params), action) if way else None
    except HeadraceError:  # it will say so itself
        return None
    return {"call": action.name, **action.params, **fields} if fields else None


def _undo_of_changed(fields: Fields, answer: Any) -> Fields | None:
    """The same for those of many that the action did change; None where it changed none."""
    if "ids" not in fields:
        return fields
    ids = [item["id"] for item in answer["items"] if item.get("changed")]
    return {**fields, "ids": " ".join(ids)} if ids else None


def _topic(visit: Visit, action: actions.Action) -> Fields:
    return _of_sent(visit, forms.topic_fields(visit.topic(consistent=True)))


def _of_sent(visit: Visit, settings: Fields) -> Fields:
    """The settings that the form changes. Changes that others make before it is undone stay."""
    names = set(forms.touched(visit.form))
    names |= forms.RETRY if names & forms.RETRY else set()
    return {name: value for name, value in settings.items() if name in names}


def _group(visit: Visit, action: actions.Action) -> Fields:
    return _of_sent(visit, forms.group_fields(visit.group(consistent=True)[1]))


def _message(visit: Visit, action: actions.Action) -> Fields | None:
    if action.query.get("group"):  # what it was for this group alone is not read
        return None
    message = visit.deps.lookup.find(visit.topic(), visit.params["id"])
    fields: dict[str, str] = {}
    if "body" in action.body:
        body = _body(visit, message.message)
        if body is None:
            return None
        fields["body"] = body
    if "deliver_at" in action.body and isinstance(message, DelayedMessage):
        fields["deliver_at"] = rfc3339(message.timer.due_ms)
    return fields


def _letter(visit: Visit, action: actions.Action) -> Fields | None:
    letters = visit.deps.letter_lookup.find(*visit.group(), visit.params["id"])
    body = _body(visit, letters[0].message) if len(letters) == 1 else None
    return {"body": body} if body is not None else None


def _consumer(visit: Visit, action: actions.Action) -> Fields | None:
    """One that pulls is registered again. Another's secret, or its position in a broadcast, is gone."""
    topic, group = visit.group()
    consumer = visit.deps.catalog.consumer(topic, group, visit.params["consumer"])
    is_lost = consumer.is_called or group.mode == Mode.BROADCAST
    seconds = consumer.expires_after_seconds
    return None if is_lost else {"call": "put_consumer", "expires_after_seconds": str(seconds or "")}


def _delayed(visit: Visit, action: actions.Action) -> Fields | None:
    seconds = action.body.get("postpone_seconds")
    ids = " ".join(action.body.get("ids", ()))
    return {"postpone_seconds": str(-seconds), "ids": ids} if seconds and ids else None


def _body(visit: Visit, message: Message) -> str | None:
    """Its JSON text; None where it is none, or longer than what pages let edit: the page would hold it twice."""
    draft: Draft = shown_body(visit.deps.adapters.blobs, visit.topic(), message).draft
    is_editable = draft.has_body and holds_json(draft) and not is_cut(draft, "raw")
    return draft.body.decode() if is_editable else None


_WAYS: Mapping[str, Callable[[Visit, actions.Action], Fields | None]] = {
    "put_topic": _topic,
    "put_group": _group,
    "amend_message": _message,
    "edit_dead_letter": _letter,
    "change_delayed": _delayed,
    "delete_consumer": _consumer,
}
