"""A form that was refused, shown again with what was typed: it is corrected there, and sent once more."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode

from ..domain.errors import Forbidden, HeadraceError, NotFound, Unauthorized, Unavailable
from . import deeds, resending
from .deeds import Deed
from .forms import WAS
from .http import Visit

_NEVER_TYPED = frozenset({"csrf", "deed", "back", "undoes", "ids", "dry_run", "cancel"})
_NOT_FINAL = frozenset({"TOO_MUCH", "FORM_EXPIRED"})
_LONG = frozenset({"body", "patch", "headers"})
_TICKS = {"create_token": ("scope_produce", "scope_consume", "scope_admin")}
_MOST_TYPED_BYTES = 1_000_000  # encoded; to sign in sends it encoded twice, and a function takes about 4.4 MB
_STEP = re.compile(r"\w+")
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Field:
    """One that somebody filled in, or may tick."""

    name: str
    value: str
    is_wrong: bool
    is_long: bool
    is_tick: bool


@dataclass(frozen=True, slots=True)
class Correction:
    """What was typed, and what the form says beside it. `may_be_done`: nobody knows whether it was, and sent again it
    may be done twice."""

    fields: tuple[Field, ...]
    hidden: Mapping[str, str]
    may_be_done: bool


def of(visit: Visit, error: HeadraceError) -> Correction | None:
    """The form that was refused; None where correcting it cannot help, or it is not one of this session's."""
    form, name = visit.form, visit.form.get("deed", "")
    is_final = isinstance(error, Forbidden | NotFound) and error.code not in _NOT_FINAL
    if is_final or not deeds.has(name) or visit.signed_in is None:
        return None
    is_earlier = error.code == "FORM_EXPIRED" and "origin" in visit.headers  # which was looked at: it is ours
    if form.get("csrf") != visit.signed_in.csrf and not is_earlier:
        return None
    wrong = {step for issue in error.issues for step in _STEP.findall(issue.path)}
    wrong |= {"confirm"} if error.code == "CONFIRM_MISSING" else set()
    deed, fields = Deed(name), _fields(form, wrong)
    shown_names = resending.FIELDS | {field.name for field in fields}
    hidden_fields = {field: value for field, value in form.items() if field not in shown_names}
    hidden_fields |= resending.fields(visit, deed, error) | {"csrf": visit.signed_in.csrf}
    may_be_done = isinstance(error, Unavailable) and not resending.is_safe(visit, deed)
    return Correction(fields, hidden_fields, may_be_done) if fields else None


def _fields(form: Mapping[str, str], wrong: Collection[str]) -> tuple[Field, ...]:
    """What somebody typed or ticked in the form of a deed."""
    name = form["deed"]
    ticks = _TICKS.get(name, ())
    never_typed = (_NEVER_TYPED | set(_PARAMETER.findall(Deed(name).call.path))).difference(wrong)
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
        if field not in never_typed | resending.FIELDS and not field.startswith(WAS)
    )


def encoded_form(form: Mapping[str, str]) -> str:
    """The form that came without a session, for the page that asks to sign in; empty: nothing was typed for a deed, or
    too much."""
    text = form.get("typed", "")
    if deeds.has(form.get("deed", "")):
        values = {name: value for name, value in form.items() if name != "csrf"}
        text = urlencode(values) if _fields(form, ()) else ""
    return text if len(text) <= _MOST_TYPED_BYTES else ""


def resumed_correction(visit: Visit) -> Correction | None:
    """What was typed before the session that has just begun, to be sent in it; None: nothing."""
    form = dict(parse_qsl(visit.form.get("typed", ""), keep_blank_values=True))
    again = replace(visit, form={**form, "csrf": visit.session.csrf})
    return of(again, Unauthorized("UNAUTHORIZED", "The session was over."))
