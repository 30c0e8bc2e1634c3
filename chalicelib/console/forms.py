"""The fields of a form as the action (a call of the HTTP interface) that they ask for, and settings as such fields.

What is left empty is not sent; but where a setting can be null, an empty field sends null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import msgspec

from ..api.http import invalid
from ..api.lists import LETTER_FILTERS
from ..api.parse import whole_number
from ..domain import strict_json
from ..domain.errors import Malformed
from ..domain.ladder import Retry
from ..domain.settings import Destination, GroupSettings, Setting, TopicSettings, rows_of
from ..domain.topic import Group, Topic
from . import actions
from .actions import Action
from .visit import query_text

Fields = Mapping[str, str]
UNDONE_BY = {
    "pause_group": "resume_group",
    "resume_group": "pause_group",
    "pause_schedule": "resume_schedule",
    "resume_schedule": "pause_schedule",
}
"""Actions that another one undoes."""
TOPIC_ROWS = tuple(row for row in rows_of(TopicSettings) if row.label)
GROUP_ROWS = tuple(row for row in rows_of(GroupSettings) if row.label)
"""The settings that the console shows as one field each."""
LABELS = {row.name: row.label for row in (*TOPIC_ROWS, *GROUP_ROWS) if row.name != "mode"}
_MOST_DIGITS = 32
_ZONE = r"(?:Z|[+-]\d\d:\d\d)\Z"
_NUMBER = re.compile(r"-?([0-9]{1,32}|[0-9]{0,32}\.[0-9]{1,32})(e[+-]?[0-9]{1,3})?\Z")
_RETRY_NUMBERS = ("max_attempts", "jitter", "base_seconds", "factor", "cap_seconds")
RETRY = frozenset({"ladder", *_RETRY_NUMBERS})
"""The fields of a retry policy, which is one thing."""
_WITH_BODY = ".include_body"
_WHOLE = (RETRY, *({row.name, row.name + _WITH_BODY} for row in GROUP_ROWS if row.given is Destination))
_CONSUMER = ("topic", "group", "consumer")
WAS = "was."
"""Before the name of a field: a hidden one with what the page showed in it."""


@dataclass(frozen=True, slots=True)
class Form:
    """A action, and the page to show when it is done."""

    action: Action
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
    make = _FORMS.get(name)
    if make is None:
        raise Malformed("FORM_UNREADABLE", "This form is none of the console's.")
    return Form(make(name, touched(fields)), fields.get("back", ""))


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


def _words(fields: Fields, name: str) -> list[str]:
    return fields.get(name, "").replace(",", " ").split()


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
    if steps := _words(fields, "ladder"):
        is_list = all(map(is_whole_number, steps))
        retry["ladder"] = list(map(int, steps)) if is_list else fields["ladder"].strip()
    return {"retry": retry} if retry else {}


def _retry_or_null(fields: Fields) -> dict[str, Any]:
    """Null where all fields of the policy are empty."""
    is_shown = any(name in fields for name in ("ladder", *_RETRY_NUMBERS))
    return _retry(fields) or ({"retry": None} if is_shown else {})


def _plain(*names: str, typed: str = "") -> Callable[[str, Fields], Action]:
    """An action of path parameters only. `typed`: the one that a person types to confirm."""
    simple = _simple(*names, typed=typed)
    return lambda name, fields: replace(simple(name, fields), body=None)


def _simple(
    *names: str,
    required: Sequence[str] = (),
    texts: Sequence[str] = (),
    numbers: Sequence[str] = (),
    json: Sequence[str] = (),
    typed: str = "",
) -> Callable[[str, Fields], Action]:
    """An action of path parameters, and of fields that its body has as they are. `typed` as for `_plain`."""

    def make(name: str, fields: Fields) -> Action:
        if typed:
            _check_name_typed(fields, typed)
        body = _required(fields, *required) | _given_texts(fields, *texts) | _numbers(fields, *numbers)
        body |= {each: _json(fields, each) for each in json}
        return Action(name, _required(fields, *names), body=body)

    return make


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
}


def _put_topic(name: str, fields: Fields) -> Action:
    return Action(name, _required(fields, "topic"), body=_settings(fields, TOPIC_ROWS) | _retry(fields))


def _delete_topic(name: str, fields: Fields) -> Action:
    _check_name_typed(fields, "topic")
    return Action(name, _required(fields, "topic"), {"confirm": fields["confirm"]})


def _put_group(name: str, fields: Fields) -> Action:
    body = _given_texts(fields, "mode", "from") | _settings(fields, GROUP_ROWS, is_new="from" in fields)
    return Action(name, _required(fields, "topic", "group"), body=body | _retry_or_null(fields))


def _seek(name: str, fields: Fields) -> Action:
    to = fields.get("to", "").strip()
    body: dict[str, Any] = {"to": int(to) if is_whole_number(to) else to}
    body |= _numbers(fields, "shard") | _given_texts(fields, "consumer")
    return Action(name, _required(fields, "topic", "group"), body=body)


def _produce(name: str, fields: Fields) -> Action:
    body: dict[str, Any] = {"body": _json(fields, "body")}
    body |= _given_texts(fields, "tag", "tenant", "ordering_key", "dedup_id", "dedup_until", "deliver_at")
    body |= _numbers(fields, "delay_seconds", "expires_in_seconds", "shard")
    if keys := [key.strip() for key in fields.get("keys", "").split(",") if key.strip()]:
        body["keys"] = keys
    if headers := fields.get("headers", "").strip():
        body["headers"] = _headers(headers)
    return Action(name, _required(fields, "topic"), body=body)


def _headers(text: str) -> dict[str, str]:
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    if not all(name.strip() and colon for name, colon, _ in lines):
        raise invalid("headers", "must be one `Name: value` a line")
    return {name.strip(): value.strip() for name, _, value in lines}


def _amend(name: str, fields: Fields) -> Action:
    body: dict[str, Any] = {"body": _json(fields, "body")} if "body" in fields else {}
    body |= _given_texts(fields, "deliver_at", "next_attempt_at") | _retry(fields)
    body |= _numbers(fields, "attempts_left")
    query = _given_texts(fields, "group", "consumer")
    return Action(name, _required(fields, "topic", "id"), query, body)


def _change_delayed(name: str, fields: Fields) -> Action:
    body: dict[str, Any] = {"ids": _words(_required(fields, "ids"), "ids")}
    body |= _given_texts(fields, "deliver_at") | _numbers(fields, "postpone_seconds")
    body |= {"cancel": True} if fields.get("cancel") else {}
    return Action(name, _required(fields, "topic"), body=body)


def _merge_letters(name: str, fields: Fields) -> Action:
    body = {"patch": _json(fields, "patch"), "ids": fields.get("ids", "").split()}
    return Action(name, _required(fields, "topic", "group"), body=body)


def _many(name: str, fields: Fields) -> Action:
    """An action on what `ids` name, else on all that the filter has. To delete dead letters a name is typed."""
    body: dict[str, Any] = _numbers(fields, "limit", "rate") | _given_texts(fields, "page_token")
    if ids := fields.get("ids", "").split():
        body["ids"] = ids
    else:
        body["filter"] = _given_texts(fields, *LETTER_FILTERS)
    if name == "recheck":
        return Action(name, body=body | _required(fields, "topic"))
    if name == "delete_dead_letters":
        _check_name_typed(fields, "group")
        body["confirm"] = fields["confirm"]
    return Action(name, _required(fields, "topic", "group"), body=body)


def _create_replay(name: str, fields: Fields) -> Action:
    body = _required(fields, "from", "to") | _given_texts(fields, "tag", "key", "where", "into", "group")
    more: dict[str, Any] = {"dry_run": True} if fields.get("dry_run") else {}
    return Action(name, _required(fields, "topic"), body=body | _numbers(fields, "rate") | more)


def _move_clock(name: str, fields: Fields) -> Action:
    body = _numbers(fields, "advance_seconds")
    if hours := _numbers(fields, "advance_hours").get("advance_hours"):
        if not isfinite(hours * 3600):
            raise invalid("advance_hours", "must be a number")
        body["advance_seconds"] = round(hours * 3600)
    if not actions.has(name):
        raise Malformed("FORM_UNREADABLE", "This service's clock cannot be moved.")
    return Action(name, body=body)


def _put_schedule(name: str, fields: Fields) -> Action:
    message = {"body": _json(fields, "body"), **_given_texts(fields, "tag")}
    body = {**_required(fields, "topic"), "message": message, **_numbers(fields, "every_seconds")}
    body |= _given_texts(fields, "cron", "timezone", "missed", "overlap")
    return Action(name, _required(fields, "schedule"), body=body)


def _create_token(name: str, fields: Fields) -> Action:
    scopes = [scope for scope in ("produce", "consume", "admin") if fields.get(f"scope_{scope}")]
    own = _numbers(fields, "expires_in_days", "rate_limit") | _given_texts(fields, "tenant")
    kinds = ("topics", "groups", "jobs")
    limits = {kind: patterns for kind in kinds if (patterns := _words(fields, kind))}
    return Action(name, body={"name": fields.get("name", ""), "scopes": scopes} | limits | own)


def _put_consumer(name: str, fields: Fields) -> Action:
    body = _given_texts(fields, "url", "function", "secret", "from", "transform")
    body |= _numbers(fields, "timeout_seconds", "batch_wait_seconds", "expires_after_seconds")
    if statuses := _words(fields, "reject_statuses"):
        if not all(map(is_whole_number, statuses)):
            raise invalid("reject_statuses", "must be numbers, such as 404, 422")
        body["reject_statuses"] = list(map(int, statuses))
    headers = _headers(fields.get("headers", ""))
    if headers or fields.get("no_headers"):
        body["headers"] = headers
    return Action(name, _required(fields, *_CONSUMER), body=body)


def preview(fields: Fields) -> dict[str, Any]:
    """The body of a test: of the message in a form, what would be sent; nothing where there is none."""
    if not fields.get("message"):
        return {}
    message = {"body": _json(fields, "message")}
    return {"message": message, "dry_run": True} | _given_texts(fields, "transform")


def _put_events(name: str, fields: Fields) -> Action:
    types = _words(fields, "types")
    return Action(name, body={"topic": fields.get("to", "").strip()} | ({"types": types} if types else {}))


_FORMS: Mapping[str, Callable[[str, Fields], Action]] = {
    "put_topic": _put_topic,
    "delete_topic": _delete_topic,
    "put_group": _put_group,
    "delete_group": _plain("topic", "group", typed="group"),
    "pause_group": _simple("topic", "group"),
    "resume_group": _simple("topic", "group"),
    "seek_group": _seek,
    "purge_group": _simple("topic", "group", texts=("confirm", "consumer"), typed="group"),
    "purge_topic": _simple("topic", texts=("confirm",), typed="topic"),
    "produce": _produce,
    "amend_message": _amend,
    "change_delayed": _change_delayed,
    "cancel_message": _plain("topic", "id"),
    "retry_now": _simple("topic", "id", required=("group",)),
    "settle_message": _simple("topic", "id", required=("group", "outcome"), texts=("reason", "consumer")),
    **dict.fromkeys(("redrive", "delete_dead_letters", "retry_many", "recheck"), _many),
    "edit_dead_letter": _simple("topic", "group", "id", json=("body",)),
    "merge_dead_letters": _merge_letters,
    "delete_dead_letter": _plain("topic", "group", "id"),
    "put_consumer": _put_consumer,
    "delete_consumer": _plain(*_CONSUMER),
    "rotate_secret": _simple(*_CONSUMER, numbers=("overlap_seconds",)),
    "commit": _simple("id"),
    "roll_back": _simple("id"),
    "create_token": _create_token,
    "put_events": _put_events,
    "delete_events": _plain(),
    "move_clock": _move_clock,
    "create_replay": _create_replay,
    "put_schedule": _put_schedule,
    **dict.fromkeys(("run_schedule", "pause_schedule", "resume_schedule"), _simple("schedule")),
    "delete_schedule": _plain("schedule"),
    "rotate_token": _simple("id", numbers=("overlap_seconds",)),
    "delete_token": _plain("id"),
}


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
