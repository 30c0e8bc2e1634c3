"""Sending a message by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..http import Page, Shown, Visit, page

if TYPE_CHECKING:
    from ...domain.topic import Topic


@page("GET", "/console/topics/{topic}/send")
def send(visit: Visit) -> Shown:
    """The form; filled in where a message is to be sent again."""
    from ..deeds import Deed

    topic = visit.topic()
    fields = {"body": '{"order": 188}', "keys": "", "tag": "", "ordering_key": "", "headers": ""}
    if (like := visit.query.get("like")) and visit.caller.scopes & {"consume", "admin"}:
        fields = _fields_of(visit, topic, like)
    deed = Deed(
        "produce", {"topic": topic.name}, body={"body": {"order": 188}, "keys": ["order-188"], "tag": "paid"}
    )
    return Page("send.html", {"topic": topic, "fields": fields, "deed": deed})


def _fields_of(visit: Visit, topic: Topic, message_id: str) -> dict[str, str]:
    from ...domain.message import Message
    from ...services.core.bodies import with_body
    from ..views.message import body_as

    entry = visit.deps.lookup.find(topic, message_id)
    message = with_body(visit.deps.adapters.blobs, entry if isinstance(entry, Message) else entry.message)
    draft = message.draft
    return {
        "body": body_as(draft, "pretty"),
        "keys": ", ".join(draft.keys),
        "tag": draft.tag or "",
        "ordering_key": draft.ordering_key or "",
        "headers": "\n".join(f"{name}: {value}" for name, value in draft.headers.items()),
    }
