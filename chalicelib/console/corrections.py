"""A form that was refused, shown again with what was typed. A message that is sent again after a lost answer has the
name of its first request, so that it is stored once."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from ..api.parse import REQUEST, RESEND
from ..domain.errors import Forbidden, HeadraceError, NotFound, Unauthorized, Unavailable
from . import actions
from .forms import WAS, is_whole_number
from .visit import Visit

_NEVER_TYPED = frozenset(
    {"csrf", "call", "back", "undoes", "ids", "dry_run", "cancel"}
    | {"limit", "page_token", "since", "until", "error"}
)
_NOT_FINAL = frozenset({"TOO_MUCH", "FORM_EXPIRED"})
_LONG = frozenset({"body", "patch", "headers"})
_TICKS = {"create_token": ("scope_produce", "scope_consume", "scope_admin")}
_MOST_TYPED_BYTES = 1_000_000  # encoded; to sign in sends it encoded twice, and a function takes about 4.4 MB
_STEP = re.compile(r"\w+")
# Fields of a form that is shown again: the first try's name, and when it may have begun.
_RESEND_FIELDS = frozenset({"request", "since_ms"})
_LONGEST_MS = 30_000  # of a try: the gateway ends it after 29 s


class Field(NamedTuple):
    """A field that a person fills in or ticks."""

    name: str
    value: str
    is_wrong: bool
    is_long: bool
    is_tick: bool


class Correction(NamedTuple):
    """What was typed, and what the form says beside it. `may_be_done`: the outcome is unknown, and sent again it may
    be done twice."""

    fields: tuple[Field, ...]
    hidden: Mapping[str, str]
    may_be_done: bool


def of(visit: Visit, error: HeadraceError) -> Correction | None:
    """The form that was refused; None where correcting it cannot help, or it is not one of this session's."""
    form, name = visit.form, visit.form.get("call", "")
    is_final = isinstance(error, Forbidden | NotFound) and error.code not in _NOT_FINAL
    if is_final or not actions.has(name) or visit.signed_in is None:
        return None
    is_earlier = error.code == "FORM_EXPIRED" and "origin" in visit.headers  # which was looked at: it is ours
    if form.get("csrf") != visit.signed_in.csrf and not is_earlier:
        return None
    wrong = {step for issue in error.issues for step in _STEP.findall(issue.path)}
    wrong |= {"confirm"} if error.code == "CONFIRM_MISSING" else set()
    action, fields = actions.Action(name), _fields(form, wrong)
    shown_names = _RESEND_FIELDS | {field.name for field in fields}
    hidden_fields = {field: value for field, value in form.items() if field not in shown_names}
    hidden_fields |= _resend_fields(visit, action, error) | {"csrf": visit.signed_in.csrf}
    may_be_done = isinstance(error, Unavailable) and REQUEST not in action.call.headers
    return Correction(fields, hidden_fields, may_be_done) if fields else None


def _fields(form: Mapping[str, str], wrong: Collection[str]) -> tuple[Field, ...]:
    """What was typed or ticked in the form of an action."""
    name = form["call"]
    ticks = _TICKS.get(name, ())
    never_typed = (_NEVER_TYPED | set(actions.Action(name).call.params)).difference(wrong)
    values = {**form, **{tick: form.get(tick, "") for tick in ticks}}
    return tuple(
        Field(
            field,
            value,
            is_wrong=field in wrong or (field in ticks and "scopes" in wrong),
            is_long=field in _LONG or "\n" in value,
            is_tick=field in ticks,
        )
        for field, value in values.items()
        if field not in never_typed | _RESEND_FIELDS and not field.startswith(WAS)
    )


def encoded_form(form: Mapping[str, str]) -> str:
    """The form that came without a session, for the page that asks to sign in. Empty: no action was filled in, or the
    form is too long."""
    text = form.get("typed", "")
    if actions.has(form.get("call", "")):
        values = {name: value for name, value in form.items() if name != "csrf"}
        text = urlencode(values) if _fields(form, ()) else ""
    return text if len(text) <= _MOST_TYPED_BYTES else ""


def resumed_correction(visit: Visit) -> Correction | None:
    """What was typed before the session that has just begun, to be sent in it; None: nothing."""
    form = dict(parse_qsl(visit.form.get("typed", ""), keep_blank_values=True))
    again = replace(visit, form={**form, "csrf": visit.session.csrf})
    return of(again, Unauthorized("UNAUTHORIZED", "The session was over."))


def resend_headers(visit: Visit, action: actions.Action) -> dict[str, str]:
    """The headers that name the request; none where the call takes no name."""
    name, since_ms = visit.form.get("request"), visit.form.get("since_ms", "")
    if REQUEST not in action.call.headers:
        return {}
    if not name or not is_whole_number(since_ms):
        return {REQUEST: visit.request_id}
    return {REQUEST: name, RESEND: str(max(0, visit.now_ms - int(since_ms)) // 1000 + 1)}


def _resend_fields(visit: Visit, action: actions.Action, error: HeadraceError) -> dict[str, str]:
    """The fields with which the next request has the name of this one, which may have stored the message. Where it is
    too late to know, the next one has a new name."""
    if REQUEST not in action.call.headers or error.code == "RESEND_TOO_LATE":
        return {}
    if "request" not in visit.form and isinstance(error, Unavailable):
        return {"request": visit.request_id, "since_ms": str(visit.now_ms - _LONGEST_MS)}
    return {name: value for name, value in visit.form.items() if name in _RESEND_FIELDS}
