"""Sending a message by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pprint import pformat

from ...domain.limits import MAX_OFFSET
from ...domain.message import Message
from ...domain.topic import Topic
from ...services.core.bodies import with_body
from .. import forms
from ..visit import Page, Shown, Visit
from .message import editable_body

NEWEST = "newest"
_EMPTY = dict.fromkeys(
    ("keys", "tag", "ordering_key", "delay_seconds", "expires_in_seconds", "dedup_id", "headers"), ""
)
_ORDER = {**_EMPTY, "body": '{"order": 188}'}
TEMPLATES: Mapping[str, Mapping[str, str]] = {
    "plain": _ORDER,
    "keys": {**_ORDER, "keys": "order-188, customer-17", "tag": "paid"},
    "ordered": {**_ORDER, "ordering_key": "customer-17"},
    "later": {**_ORDER, "delay_seconds": "3600"},
    "once": {**_ORDER, "dedup_id": "order-188-paid"},
    "headers": {**_ORDER, "headers": "X-Request: 17", "expires_in_seconds": "86400"},
}
_FOR_OTHERS = 2  # read units that are left when the newest message is looked for


def send(visit: Visit) -> Shown:
    """The form, filled in with a template, or like a message (the newest, or one that is to be sent again)."""
    topic = visit.topic()
    template = visit.query.get("template", "")
    template = template if template in TEMPLATES else "plain"
    may_read = bool(visit.caller.scopes & {"consume", "admin"})
    like = visit.query.get("like") if may_read else None
    message = _message(visit, topic, like) if like else None
    fields = _fields_of(message) if message else TEMPLATES[template]
    example = forms.of({"call": "produce", "topic": topic.name, **TEMPLATES[template]}).action
    model = {
        "topic": topic,
        "fields": fields,
        "template": "" if message else template,
        "templates": TEMPLATES,
        "may_read": may_read,
        "action": example,
        "python": pformat(json.loads(example.raw), width=80, sort_dicts=False),
    }
    return Page("send.html", model)


def _message(visit: Visit, topic: Topic, like: str) -> Message | None:
    """The message to fill the form with; None where the topic has none."""
    message = _newest(visit, topic) if like == NEWEST else visit.deps.lookup.find(topic, like)
    if message is None:
        return None
    return with_body(visit.deps.adapters.blobs, message if isinstance(message, Message) else message.message)


def _newest(visit: Visit, topic: Topic) -> Message | None:
    """The newest message of those shards that the page may read."""
    messages = []
    for shard in range(topic.shards):
        if not visit.has_read_units(_FOR_OTHERS):
            break
        for row in visit.deps.adapters.log.read_back(topic.shard_key(shard), MAX_OFFSET, 1):
            messages += [message] if (message := row.message(shard, row.end - 1)) else []
    return max(messages, key=lambda message: message.accepted_ms, default=None)


def _fields_of(message: Message) -> dict[str, str | None]:
    """The form's fields. The body is None where it is too long for a page."""
    draft = message.draft
    return {
        **_EMPTY,
        "body": editable_body(draft),
        "keys": ", ".join(draft.keys),
        "tag": draft.tag or "",
        "ordering_key": draft.ordering_key or "",
        "headers": "\n".join(f"{name}: {value}" for name, value in draft.headers.items()),
    }
