"""The fields of a form as the action (a call of the HTTP interface) that they ask for, and settings as such fields.

What is left empty is not sent; but where a setting can be null, an empty field sends null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from ..api.http import invalid
from ..api.lists import LETTER_FILTERS
from ..api.parse import whole_number
from ..domain import strict_json
from ..domain.errors import Malformed
from ..domain.ladder import Retry
from ..domain.settings import Destination, GroupSettings, Setting, TopicSettings, rows_of
from ..domain.topic import Group, Scope, Topic
from . import actions
from .visit import query_text

Fields = Mapping[str, str]
# Actions that another one undoes.
UNDONE_BY = {
    "pause_group": "resume_group",
    "resume_group": "pause_group",
    "pause_schedule": "resume_schedule",
    "resume_schedule": "pause_schedule",
}
TOPIC_ROWS = tuple(row for row in rows_of(TopicSettings) if row.label)
# The settings that the console shows as one field each.
GROUP_ROWS = tuple(row for row in rows_of(GroupSettings) if row.label)
LABELS = {row.name: row.label for row in (*TOPIC_ROWS, *GROUP_ROWS) if row.name != "mode"}
_MOST_DIGITS = 32
_ZONE = r"(?:Z|[+-]\d\d:\d\d)\Z"
_NUMBER = re.compile(r"-?([0-9]{1,32}|[0-9]{0,32}\.[0-9]{1,32})(e[+-]?[0-9]{1,3})?\Z")
_RETRY_NUMBERS = ("max_attempts", "jitter", "base_seconds", "factor", "cap_seconds")
# The fields of a retry policy, which is one thing.
RETRY = frozenset({"ladder", *_RETRY_NUMBERS})
_WITH_BODY = ".include_body"
_WHOLE = (RETRY, *({row.name, row.name + _WITH_BODY} for row in GROUP_ROWS if row.given is Destination))
# Before the name of a field: a hidden one with what the page showed in it.
WAS = "was."


class Form(NamedTuple):
    """A action, and the page to show when it is done."""

    action: actions.Action
    back: str

    def after(self, answer: Any) -> str:
        """The place to go to, which says what was done (and, of many, to how many)."""
        answer = answer if isinstance(answer, dict) else {}
        back = self.back
        if back.endswith("="):  # the page of what was made
            back = back.removesuffix("=") + str(answer.get("id", ""))
        news = {
            "did": _outcome(answer) or self.action.name,
            "n": _number_of(answer),
            "of": self.action.params.get("group") if self.action.name in UNDONE_BY else None,
            "next": answer.get("next_page_token"),
            "rate": (self.action.body or {}).get("rate"),
        }
        return f"{back}{query_text(news).replace('?', '&' if '?' in back else '?')}"


def _outcome(answer: dict[str, Any]) -> str | None:
    """What to say of an action that did less than its name says; None: it did all."""
    if answer.get("duplicate"):
        return "duplicate"
    return "unfinished" if answer.get("finished") is False else None


def _number_of(answer: dict[str, Any]) -> int | None:
    """To how many of many it was done."""
    counts = [item["changed"] for item in answer.get("items", ()) if "changed" in item]
    names = ("redriven", "deleted", "purged", "retried", "rechecked")
    return sum(counts) if counts else next((answer[name] for name in names if name in answer), None)


def of(fields: Fields) -> Form:
    """The form that was sent. Raises Malformed for what no page of ours sends."""
    name = fields.get("call", "")
    if name not in ACTIONS or not actions.has(name):  # only a local service's clock can be moved
        raise Malformed("FORM_UNREADABLE", "This form is none of the console's.")
    return Form(_action(name, touched(fields)), fields.get("back", ""))


def touched(fields: Fields) -> dict[str, str]:
    """The fields without those that are as the page showed them: changes that others made since then stay."""
    as_shown = {name for name, value in fields.items() if fields.get(WAS + name) == value}
    for whole in _WHOLE:
        if not as_shown >= whole & fields.keys():
            as_shown -= whole
    return {name: value for name, value in fields.items() if name not in as_shown}


def _required(fields: Fields, *names: str) -> dict[str, str]:
    for name in names:
        if not fields.get(name):
            raise invalid(name, "is missing")
    return {name: fields[name] for name in names}


def _check_name_typed(fields: Fields, name: str) -> None:
    """Raises Malformed unless the name of what is to be deleted was typed."""
    if fields.get("confirm") != fields.get(name):
        raise Malformed("CONFIRM_MISSING", f"Nothing was done: type the {name}'s name to confirm.")


def _number(fields: Fields, name: str) -> int | float:
    """Not all that Python reads: infinity has no JSON, and a field that is null takes a limit away."""
    text = fields[name].strip()
    if not _NUMBER.match(text) or not isfinite(float(text)):
        raise invalid(name, "must be a number")
    return int(text) if is_whole_number(text.removeprefix("-")) else float(text)


def is_whole_number(text: str) -> bool:
    """Is it one, without a sign and not of very many digits?"""
    return whole_number(text, _MOST_DIGITS) is not None


def _numbers(fields: Fields, *names: str) -> dict[str, Any]:
    return {name: _number(fields, name) for name in names if fields.get(name, "").strip()}


def _given_texts(fields: Fields, *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name)}


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _json(fields: Fields, name: str) -> Any:
    """The field's JSON text, its numbers to the digit."""
    text = fields.get(name, "").strip().encode()
    try:
        strict_json.parse(text)
    except Malformed as error:
        raise invalid(name, f'must be JSON, such as {{"order": 188}}. {error.detail}') from None
    return msgspec.Raw(text)


def _retry(fields: Fields) -> dict[str, Any]:
    retry = _numbers(fields, *_RETRY_NUMBERS)
    if steps := _words(fields.get("ladder", "")):
        is_list = all(map(is_whole_number, steps))
        retry["ladder"] = list(map(int, steps)) if is_list else fields["ladder"].strip()
    return {"retry": retry} if retry else {}


def _action(name: str, fields: Fields) -> actions.Action:
    """The action of this name: what its path, its query and its body take of the fields."""
    call = actions.Action(name).call
    if typed := _TYPED.get(name):
        _check_name_typed(fields, typed)
    _required(fields, *_NEVER_WITHOUT.get(name, ()))
    query = _given_texts(fields, *(each for each in call.query if each in _IN_QUERY))
    body = None
    if name in _BODIES:
        body = _BODIES[name](fields)
    elif call.body:
        body = _values(fields, [each.encode_name for each in msgspec.structs.fields(call.body)])
    return actions.Action(name, _required(fields, *call.params), query, body)


def _values(fields: Fields, names: Iterable[str]) -> dict[str, Any]:
    """The fields of these names that are filled in, as a body has them. JSON is read also where it is empty."""
    given = (name for name in names if fields.get(name, "").strip() or (name in _JSON and name in fields))
    values = {name: _value(fields, name) for name in given}
    return values | (_retry(fields) if "retry" in names else {})


def _value(fields: Fields, name: str) -> Any:
    if name in _JSON:
        return _json(fields, name)
    if name in _NUMBERS or name.endswith("_seconds"):
        return _number(fields, name)
    if name in _FLAGS:
        return True
    return _OTHERS[name](fields[name]) if name in _OTHERS else fields[name]


def _headers(text: str) -> dict[str, str]:
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    if not all(name.strip() and colon for name, colon, _ in lines):
        raise invalid("headers", "must be one `Name: value` a line")
    return {name.strip(): value.strip() for name, _, value in lines}


def _statuses(text: str) -> list[int]:
    statuses = _words(text)
    if not all(map(is_whole_number, statuses)):
        raise invalid("reject_statuses", "must be numbers, such as 404, 422")
    return list(map(int, statuses))


def _destination(fields: Fields, name: str) -> dict[str, Any]:
    return {"topic": fields[name].strip(), "include_body": fields.get(name + _WITH_BODY) == "true"}


def _settings(fields: Fields, rows: Iterable[Setting], *, is_new: bool = False) -> dict[str, Any]:
    """The settings that a form gives. `is_new`: for a new group; where its name is that of an existing one, that keeps
    what is empty here."""
    body: dict[str, Any] = {}
    for row in rows:
        text = fields.get(row.name)
        if text is None:
            continue
        if text.strip() or (row.given is list and not is_new):
            body[row.name] = _READ[row.given](fields, row.name) if row.given in _READ else text
        elif row.nullable and not is_new:
            body[row.name] = None
    return body


_READ: Mapping[type, Callable[[Fields, str], Any]] = {
    int: _number,
    float: _number,
    bool: lambda fields, name: fields[name] == "true",
    list: lambda fields, name: fields[name].split(),
    Destination: _destination,
    dict: lambda fields, name: {"hosts": _words(fields[name])},
}


def _topic(fields: Fields) -> dict[str, Any]:
    return _settings(fields, TOPIC_ROWS) | _retry(fields)


def _group(fields: Fields) -> dict[str, Any]:
    """Its retry policy is null where all fields of it are empty."""
    body = _given_texts(fields, "mode", "from") | _settings(fields, GROUP_ROWS, is_new="from" in fields)
    return body | (_retry(fields) or ({"retry": None} if RETRY & fields.keys() else {}))


def _seek(fields: Fields) -> dict[str, Any]:
    to = fields.get("to", "").strip()
    return {"to": int(to) if is_whole_number(to) else to, **_values(fields, ("shard", "consumer"))}


def _many(fields: Fields) -> dict[str, Any]:
    """What `ids` name, else all that the filter has."""
    body = _values(fields, ("ids", "limit", "rate", "page_token", "confirm"))
    if fields["call"] == "recheck":
        body |= _required(fields, "topic")
    return body if "ids" in body else {**body, "filter": _given_texts(fields, *LETTER_FILTERS)}


def _clock(fields: Fields) -> dict[str, Any]:
    body = _values(fields, ("advance_seconds",))
    if hours := _numbers(fields, "advance_hours").get("advance_hours"):
        if not isfinite(hours * 3600):
            raise invalid("advance_hours", "must be a number")
        body["advance_seconds"] = round(hours * 3600)
    return body


def _schedule(fields: Fields) -> dict[str, Any]:
    times = ("every_seconds", "cron", "timezone", "missed", "overlap")
    message = {"body": _json(fields, "body"), **_given_texts(fields, "tag")}
    return {**_values(fields, ("topic",)), "message": message, **_values(fields, times)}


def _token(fields: Fields) -> dict[str, Any]:
    scopes = [scope for scope in Scope if fields.get(f"scope_{scope}")]
    limits = ("topics", "groups", "jobs", "expires_in_days", "rate_limit", "most_urgent", "tenant")
    return {"name": fields.get("name", ""), "scopes": scopes, **_values(fields, limits)}


def _consumer(fields: Fields) -> dict[str, Any]:
    names = ("url", "function", "secret", "from", "transform", "reject_statuses", "headers")
    seconds = ("timeout_seconds", "batch_wait_seconds", "expires_after_seconds")
    return ({"headers": {}} if fields.get("no_headers") else {}) | _values(fields, (*names, *seconds))


def _events(fields: Fields) -> dict[str, Any]:
    return {"topic": fields.get("to", "").strip(), **_values(fields, ("types",))}


def preview(fields: Fields) -> dict[str, Any]:
    """The body of a test: of the message in a form, what would be sent; nothing where there is none."""
    if not fields.get("message"):
        return {}
    message = {"body": _json(fields, "message")}
    return {"message": message, "dry_run": True} | _given_texts(fields, "transform")


# Without these fields the call would be for all.
_NEVER_WITHOUT = {"change_delayed": ("ids",), "merge_dead_letters": ("ids",), "recheck": ("topic",)}
# The name that a person types to confirm.
_TYPED = {
    **dict.fromkeys(("delete_topic", "purge_topic"), "topic"),
    **dict.fromkeys(("delete_group", "purge_group", "delete_dead_letters"), "group"),
}
_IN_QUERY = ("confirm", "group", "consumer")
_JSON = ("body", "patch")
_NUMBERS = (
    *("limit", "rate", "shard", "attempts_left"),
    *("expires_in_days", "rate_limit", "priority", "most_urgent"),
)
_FLAGS = ("cancel", "dry_run")
# How fields are read that a body has as something else than text.
_OTHERS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(("ids", "topics", "groups", "jobs", "types"), _words),
    "keys": lambda text: [key.strip() for key in text.split(",") if key.strip()],
    "headers": _headers,
    "reject_statuses": _statuses,
}
# Bodies that have not simply the fields of the form.
_BODIES: Mapping[str, Callable[[Fields], dict[str, Any]]] = {
    "put_topic": _topic,
    "put_group": _group,
    "put_consumer": _consumer,
    "put_schedule": _schedule,
    "put_events": _events,
    "create_token": _token,
    "seek_group": _seek,
    "move_clock": _clock,
    **dict.fromkeys(("redrive", "delete_dead_letters", "retry_many", "recheck"), _many),
}
ACTIONS = frozenset(
    (
        *_BODIES,
        *("delete_topic", "delete_group", "pause_group", "resume_group", "purge_group", "purge_topic"),
        *("produce", "amend_message", "change_delayed", "cancel_message", "retry_now", "settle_message"),
        *("edit_dead_letter", "merge_dead_letters", "delete_dead_letter", "create_replay"),
        *("delete_consumer", "rotate_secret", "rotate_callback_secrets", "rotate_token", "delete_token"),
        *("commit", "roll_back", "delete_events"),
        *("run_schedule", "pause_schedule", "resume_schedule", "delete_schedule"),
    )
)


def topic_fields(topic: Topic) -> dict[str, str]:
    """A topic's settings as the form sends them; without `shards`, which only grow."""
    names = [row.field for row in TOPIC_ROWS if row.name != "shards"]
    return _as_fields(topic, *names) | _retry_fields(topic.retry)


def group_fields(group: Group) -> dict[str, str]:
    """A group's settings as the form sends them; without those that are for life."""
    tags = " || ".join(group.tags) if group.tags is not None else "*"
    retry = _retry_fields(group.retry) if group.retry else {"max_attempts": "", "ladder": ""}
    names = [row.field for row in GROUP_ROWS if row.name != "filter" and row.given is not Destination]
    return _as_fields(group, *names) | {"filter": tags} | retry | destination_fields(group)


def destination_fields(group: Group) -> dict[str, str]:
    """A group's destinations as the form sends them."""
    fields: dict[str, str] = {}
    for name, to in {"on_dead": group.on_dead, "on_success": group.on_success}.items():
        fields |= {name: to.topic if to else "", name + _WITH_BODY: _as_field(bool(to and to.include_body))}
    return fields


def _as_fields(settings: Any, *names: str) -> dict[str, str]:
    """Settings as fields; None is an empty one."""
    return {name: _as_field(getattr(settings, name)) for name in names}


def _as_field(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)


def _retry_fields(retry: Retry) -> dict[str, str]:
    ladder = retry.ladder if isinstance(retry.ladder, str) else ", ".join(map(str, retry.ladder))
    steps = ("base_seconds", "factor", "cap_seconds") if ladder == "exponential" else ()
    return {"ladder": ladder, **_as_fields(retry, "max_attempts", "jitter", *steps)}


def whole_time(text: str) -> str:
    """A time as a form's field gives it, in UTC, as RFC 3339."""
    text = text.strip()
    if len(text) == 16:
        text += ":00"
    return text if re.search(_ZONE, text) else f"{text}Z"
