"""What undoes a deed: a form's fields that put back what was there before; so it is looked at before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..api.http import check_name
from ..domain.errors import HeadraceError
from .deeds import Deed
from .forms import GROUP_SETTINGS, RETRY, TOPIC_SETTINGS, touched
from .http import Visit
from .views.figures import moment

if TYPE_CHECKING:
    from ..domain.ladder import Retry
    from ..domain.message import Draft, Message
    from ..domain.topic import Group, Topic

Fields = Mapping[str, str]


def prepare(visit: Visit, deed: Deed) -> Fields | None:
    """The fields of the form that will undo it; None where nothing can, or nothing was there before."""
    way = _WAYS.get(deed.name)
    try:
        for kind, name in deed.params.items():
            check_name(kind, name)
        fields = way(visit, deed) if way else None
    except HeadraceError:  # it will say so itself
        return None
    return {"deed": deed.name, **deed.params, **fields} if fields else None


def of_changed(fields: Fields, answer: Any) -> Fields | None:
    """The same for those of many that the deed did change; None where it changed none."""
    if "ids" not in fields:
        return fields
    ids = [item["id"] for item in answer["items"] if item.get("changed")]
    return {**fields, "ids": " ".join(ids)} if ids else None


def _topic(visit: Visit, deed: Deed) -> Fields:
    return _of_sent(visit, topic_fields(visit.deps.catalog.topic(deed.params["topic"], consistent=True)))


def _of_sent(visit: Visit, settings: Fields) -> Fields:
    """Those that the form changes: what somebody else changes before it is undone stays."""
    names = set(touched(visit.form))
    names |= RETRY if names & RETRY else set()
    return {name: value for name, value in settings.items() if name in names}


def topic_fields(topic: Topic) -> Fields:
    """A topic's settings as the form sends them; without `shards`, which only grow."""
    names = [name for name in TOPIC_SETTINGS if name != "shards"]
    return _as_fields(topic, *names) | _retry(topic.retry)


def _group(visit: Visit, deed: Deed) -> Fields:
    topic = visit.deps.catalog.topic(deed.params["topic"], consistent=True)
    return _of_sent(
        visit, group_fields(visit.deps.catalog.group(topic, deed.params["group"], consistent=True))
    )


def group_fields(group: Group) -> Fields:
    """A group's settings as the form sends them; without those that are for life."""
    tags = " || ".join(group.tags) if group.tags is not None else "*"
    retry = _retry(group.retry) if group.retry else {"max_attempts": "", "ladder": ""}
    return _as_fields(group, *GROUP_SETTINGS) | {"filter": tags} | retry


def _message(visit: Visit, deed: Deed) -> Fields | None:
    from ..domain.message import Message
    from ..services.produce.delayed import DelayedMessage

    topic = visit.deps.catalog.topic(deed.params["topic"])
    message = visit.deps.lookup.find(topic, deed.params["id"])
    fields: dict[str, str] = {}
    if "body" in deed.body:
        body = _body(visit, message if isinstance(message, Message) else message.message)
        if body is None:
            return None
        fields["body"] = body
    if "deliver_at" in deed.body and isinstance(message, DelayedMessage):
        fields["deliver_at"] = moment(message.timer.due_ms)
    return fields


def _letter(visit: Visit, deed: Deed) -> Fields | None:
    topic = visit.deps.catalog.topic(deed.params["topic"])
    group = visit.deps.catalog.group(topic, deed.params["group"])
    letters = visit.deps.letter_lookup.find(topic, group, deed.params["id"])
    body = _body(visit, letters[0].message) if len(letters) == 1 else None
    return {"body": body} if body is not None else None


def _consumer(visit: Visit, deed: Deed) -> Fields | None:
    """One that pulls is registered again. Another's secret, or its position in a broadcast, is gone."""
    from ..domain.topic import Mode

    topic = visit.deps.catalog.topic(deed.params["topic"])
    group = visit.deps.catalog.group(topic, deed.params["group"])
    consumer = visit.deps.catalog.consumer(topic, group, deed.params["consumer"])
    is_lost = consumer.is_called or group.mode == Mode.BROADCAST
    return None if is_lost else {"deed": "put_consumer"}


def _delayed(visit: Visit, deed: Deed) -> Fields | None:
    seconds = deed.body.get("postpone_seconds")
    ids = " ".join(deed.body.get("ids", ()))
    return {"postpone_seconds": str(-seconds), "ids": ids} if seconds and ids else None


def _body(visit: Visit, message: Message) -> str | None:
    """Its JSON text; None where it is none, or longer than what pages let edit: the page would hold it twice."""
    from ..domain.message import holds_json
    from ..services.core.bodies import with_body
    from .views.message import is_cut

    draft: Draft = with_body(visit.deps.adapters.blobs, message).draft
    is_editable = draft.has_body and holds_json(draft) and not is_cut(draft, "raw")
    return draft.body.decode() if is_editable else None


def _as_fields(settings: Any, *names: str) -> dict[str, str]:
    """Settings as fields; None is an empty one."""
    values = {name: getattr(settings, name) for name in names}
    return {name: "" if value is None else str(value) for name, value in values.items()}


def _retry(retry: Retry) -> dict[str, str]:
    ladder = retry.ladder if isinstance(retry.ladder, str) else ", ".join(map(str, retry.ladder))
    steps = ("base_seconds", "factor", "cap_seconds") if ladder == "exponential" else ()
    return {"ladder": ladder, **_as_fields(retry, "max_attempts", "jitter", *steps)}


_WAYS: Mapping[str, Callable[[Visit, Deed], Fields | None]] = {
    "put_topic": _topic,
    "put_group": _group,
    "amend_message": _message,
    "edit_dead_letter": _letter,
    "change_delayed": _delayed,
    "delete_consumer": _consumer,
}
