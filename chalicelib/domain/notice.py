"""Messages that Headrace makes: for a group's destination about a message that ended, and operational events.

Each is stored as a timer that is due now, in the transaction of what it is about; the mover puts it into its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from . import redact
from .attention import RULES, Attention, Kind
from .message import Draft, body_fields
from .record import Record
from .segment import ShardKey
from .settings import Destination
from .status import Status
from .timer import ANY, Schedule, Timer, TimerKind, retry_id
from .times import rfc3339
from .topic import Group, Topic

# The message was made here, about this group (`topic/group`), or a state (`/`). It starts no destination, wherever a
# retry, a redrive or a replay takes it.
ABOUT_HEADER = "headrace-about"
_Member = tuple[Record, Draft]  # what ended, and the message about it
_ROW_BYTES = 250_000
MESSAGE_DEAD = "headrace.message.dead"
SCHEDULE_MISSED = "headrace.schedule.missed"
# The types of the events when a state that needs a person begins, and when it ends.
OF_STATE: Mapping[Kind, tuple[str, str | None]] = {
    Kind.DISABLED: ("headrace.consumer.disabled", None),
    Kind.PENDING: ("headrace.consumer.pending", None),
    Kind.CIRCUIT_OPEN: ("headrace.consumer.circuit_opened", "headrace.consumer.circuit_closed"),
    Kind.UNDECIDED: ("headrace.transaction.undecided", None),
    Kind.BACKLOG: ("headrace.backlog.over", "headrace.backlog.under"),
}
_OF_STATES = (name for names in OF_STATE.values() for name in names if name)
TYPES = (MESSAGE_DEAD, *_OF_STATES, SCHEDULE_MISSED)


@dataclass(frozen=True, slots=True)
class Events:
    """Where operational events go, and which types of them."""

    topic: str
    uid: str
    types: tuple[str, ...] = TYPES
    version: int = 0


def mark_of(draft: Draft) -> Mapping[str, str]:
    """The header by which a message of our own is known; none if it is a producer's."""
    return {name: value for name, value in draft.headers.items() if name == ABOUT_HEADER}


def of_record(group: Group, record: Record) -> Destination | None:
    """The destination of a delivery that ended so."""
    of_status = {Status.DEAD: group.on_dead, Status.SUCCESS: group.on_success}.get(record.status)
    is_ours = record.message is not None and ABOUT_HEADER in record.message.draft.headers
    return None if is_ours else of_status


def without_needless_body(group: Group, record: Record) -> Record:
    """The record with only as much of its message as is told of it."""
    destination = of_record(group, record)
    if record.message is None or (destination and destination.include_body):
        return record
    draft = replace(record.message.draft, body=b"", is_json=False, blob=None, blob_bytes=0)
    return replace(record, message=replace(record.message, draft=draft))


def timers(
    topic: Topic, group: Group, ended: Sequence[Record], find_events: Callable[[], Events | None]
) -> list[Timer]:
    """The timers that bring the messages about deliveries that ended. Each record has its message, also where that is a
    success."""
    events = find_events() if any(record.status == Status.DEAD for record in ended) else None
    drafts: dict[tuple[str, Destination], list[_Member]] = {}
    for record in {(each.shard, each.offset): each for each in ended}.values():
        is_dead = record.status == Status.DEAD
        if destination := of_record(group, record):
            draft = _about(topic, group, record, destination.include_body)
            drafts.setdefault(("dead" if is_dead else "success", destination), []).append((record, draft))
        if is_dead and events and MESSAGE_DEAD in events.types and topic.uid != events.uid:
            told = _about(topic, group, record)
            event = _event(MESSAGE_DEAD, f"{topic.name}/{group.name}", told.body)
            place = Destination(events.topic, events.uid)
            drafts.setdefault(("event", place), []).append((record, event))
    return [timer for (kind, to), members in drafts.items() for timer in _timers(group, kind, to, members)]


def _timers(group: Group, kind: str, to: Destination, members: Iterable[_Member]) -> Iterable[Timer]:
    """As few as can hold them: a row takes 400 KB."""
    rows: list[list[_Member]] = []
    size = 0
    for record, draft in members:
        size += len(draft.body) + 1_000
        if not rows or size > _ROW_BYTES:
            rows.append([])
            size = len(draft.body)
        rows[-1].append((record, draft))
    for (first, draft), *rest in rows:
        place = first.consumer_uid, first.shard, first.offset, first.attempts
        id = f"out.{retry_id(group.uid, *place)}.{kind}"
        yield _timer(to.topic, to.uid, id, first.at_ms, draft, tuple(draft for _, draft in rest))


def _timer(topic: str, uid: str, id: str, due_ms: int, draft: Draft, more: tuple[Draft, ...] = ()) -> Timer:
    shard = ShardKey(topic, uid, ANY)
    return Timer(due_ms, id, TimerKind.OUTBOX, shard, draft, stored_ms=due_ms, more=more)


def _about(topic: Topic, group: Group, record: Record, include_body: bool = False) -> Draft:
    message = record.message
    assert message is not None
    draft = message.draft
    of = {"topic": topic.name, "group": group.name, "message_id": message.id, "keys": draft.keys}
    how = {name: getattr(record, name) for name in ("reason", "attempts", "last_error", "answer")}
    of |= {"tenant": draft.tenant} if draft.tenant is not None else {}
    told = {**of, "tag": draft.tag, "outcome": record.status, **how, "ended_at": rfc3339(record.at_ms)}
    headers = {ABOUT_HEADER: f"{topic.name}/{group.name}"}
    body = msgspec.json.encode(told)
    about = Draft(body, ordering_key=draft.ordering_key, tenant=draft.tenant, headers=headers)
    if not (include_body and draft.body):
        return about
    hidden = [f"/body{pointer}" for pointer in redact.pointers(topic, message)]
    shown = (*hidden, "/body_base64") if hidden else ()
    return replace(about, body=msgspec.json.encode(told | body_fields(draft)), redact=shown)


def of_state(events: Events | None, now_ms: int, state: Attention, is_over: bool) -> Timer | None:
    """The timer of the event that a state has begun, or is over; None: there is none of it."""
    type = OF_STATE.get(state.kind, (None, None))[is_over]
    if not events or type not in events.types or type is None or state.topic == events.topic:
        return None
    rule = RULES[state.kind]
    place = {name: getattr(state, name) or None for name in ("topic", "group", "consumer")}
    told = {**place, "since": rfc3339(state.since_ms), "what": rule.what, "to_do": rule.to_do}
    draft = _event(type, state.place, msgspec.json.encode(told))
    return _timer(events.topic, events.uid, f"event.{state.key}.{state.noted_ms}.{is_over:d}", now_ms, draft)


def of_missed(events: Events | None, schedule: Schedule, at_ms: int, now_ms: int) -> tuple[Timer, ...]:
    """The timer of the event that a schedule has missed its time `at_ms`; none if nobody asked for it."""
    if not events or SCHEDULE_MISSED not in events.types or schedule.topic == events.topic:
        return ()
    told = {"schedule": schedule.name, "topic": schedule.topic, "scheduled_at": rfc3339(at_ms)}
    draft = _event(SCHEDULE_MISSED, schedule.name, msgspec.json.encode({**told, "missed": schedule.missed}))
    return (_timer(events.topic, events.uid, f"event.missed.{schedule.uid}.{at_ms}", now_ms, draft),)


def _event(type: str, subject: str, body: bytes) -> Draft:
    headers = {"ce-specversion": "1.0", "ce-type": type, "ce-subject": subject, ABOUT_HEADER: "/"}
    return Draft(body, tag=type, headers=headers)
