"""Sending a message by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pprint import pformat
from textwrap import indent

import msgspec

from ...domain.errors import Malformed
from ...domain.limits import MAX_OFFSET
from ...domain.message import Message
from ...domain.topic import Topic
from ...services.core.bodies import shown_body
from .. import forms
from ..actions import Action
from ..visit import Page, Shown, Visit
from .message import editable_body

NEWEST = "newest"
_OPTIONS = (
    *("keys", "tag", "tenant", "ordering_key", "priority", "delay_seconds", "expires_in_seconds"),
    *("dedup_id", "dedup_until", "callback_url", "headers"),
)
_EMPTY = dict.fromkeys(_OPTIONS, "")
_ORDER = {**_EMPTY, "body": '{"order": 188}'}
TEMPLATES: Mapping[str, Mapping[str, str]] = {
    "plain": _ORDER,
    "keys": {**_ORDER, "keys": "order-188, customer-17", "tag": "paid"},
    "ordered": {**_ORDER, "ordering_key": "customer-17"},
    "later": {**_ORDER, "delay_seconds": "3600"},
    "once": {**_ORDER, "dedup_id": "order-188-paid"},
    "headers": {**_ORDER, "headers": "X-Request: 17", "expires_in_seconds": "86400"},
}
# The Python client's names for fields of the interface.
_PYTHON = {"delay_seconds": "delay", "expires_in_seconds": "expires_in"}
_PYTHON_START = "from headrace import Headrace\n\nhr = Headrace.from_env()  # HEADRACE_URL, HEADRACE_TOKEN\n"
_LINE_CHARS = 78
_FOR_OTHERS = 2  # read units that are left when the newest message is looked for


def send(visit: Visit) -> Shown:
    """The form, filled in with a template, or like a message (the newest, or one to be sent again); and as code. A POST
    shows the code of what was filled in, and sends nothing."""
    topic = visit.topic()
    template = visit.query.get("template", "")
    template = template if template in TEMPLATES else "plain"
    like = visit.query.get("like") if visit.may_read else None
    message = _message(visit, topic, like) if like else None
    fields = (
        {**_EMPTY, **visit.form} if visit.form else _fields_of(message) if message else TEMPLATES[template]
    )
    problem = None
    try:
        action = _action(topic, {**fields, "body": fields["body"] or _ORDER["body"]})
    except Malformed as error:
        action, problem = _action(topic, TEMPLATES[template]), error
    model = {
        "fields": fields,
        "template": "" if message or visit.form else template,
        "templates": TEMPLATES,
        "may_read": visit.may_read,
        "action": action,
        "problem": problem,
        "code": {"Python": _python(topic, action), "TypeScript": _typescript(topic, action)},
        "poll_seconds": 0,
    }
    return Page("send.html", model, 400 if problem else 200)


def _action(topic: Topic, fields: Mapping[str, str | None]) -> Action:
    texts = {name: text for name, text in fields.items() if text is not None}
    return forms.of({**texts, "call": "produce", "topic": topic.name}).action


def _python(topic: Topic, action: Action) -> str:
    """What is sent, with the Python client."""
    body, *options = (
        (_PYTHON.get(name, name), pformat(value, width=80, sort_dicts=False))
        for name, value in json.loads(action.raw).items()
    )
    lines = [repr(topic.name), body[1], *(f"{name}={text}" for name, text in options)]
    arguments = "".join(indent(f"{line},\n", "    ") for line in lines)
    if len(", ".join(lines)) < _LINE_CHARS and "\n" not in body[1]:
        return f"{_PYTHON_START}hr.send({', '.join(lines)})"
    return f"{_PYTHON_START}hr.send(\n{arguments})"


def _typescript(topic: Topic, action: Action) -> str:
    """What is sent, with the TypeScript client."""
    options = {name: value for name, value in action.body.items() if name != "body"}
    parts = [action.body["body"], *([options] if options else [])]
    texts = [msgspec.json.format(msgspec.json.encode(part), indent=2).decode() for part in parts]
    start = 'import { Headrace } from "headrace";\n\nconst hr = Headrace.fromEnv(); // HEADRACE_URL, HEADRACE_TOKEN\n'
    return f"{start}await hr.send({', '.join([json.dumps(topic.name), *texts])});"


def _message(visit: Visit, topic: Topic, like: str) -> Message | None:
    """The message to fill the form with; None where the topic has none."""
    message = _newest(visit, topic) if like == NEWEST else visit.deps.lookup.find(topic, like)
    return shown_body(visit.deps.adapters.blobs, topic, message.message) if message else None


def _newest(visit: Visit, topic: Topic) -> Message | None:
    """The newest message of those shards that the page may read."""
    messages = []
    for shard in topic.shard_numbers:
        if not visit.has_units(_FOR_OTHERS):
            break
        for row in visit.deps.adapters.log.read_back(topic.shard_key(shard), MAX_OFFSET, 1):
            messages += [message] if (message := row.message(shard, row.end - 1)) else []
    return max(messages, key=lambda message: message.accepted_ms, default=None)


def _fields_of(message: Message) -> dict[str, str | None]:
    """The form's fields. The body is None where it is too long for a page."""
    draft, names = message.draft, ("tag", "tenant", "ordering_key", "callback_url")
    return {
        **_EMPTY,
        **{name: getattr(draft, name) or "" for name in names},
        "body": editable_body(draft),
        "keys": ", ".join(draft.keys),
        "priority": "" if draft.priority is None else str(draft.priority),
        "headers": "\n".join(f"{name}: {value}" for name, value in draft.headers.items()),
    }
