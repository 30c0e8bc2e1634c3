"""What goes into the audit trail: every call that changes something, but for the traffic of messages itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET

from .. import observe
from ..domain.audit import AuditEntry
from ..domain.errors import HeadraceError
from ..domain.ids import NAME
from .calls import CONSUMER, Call, Context

if TYPE_CHECKING:
    from ..domain.topic import Consumer

# Handlers of what is done for each message: its trace says who it was.
TRAFFIC = frozenset(
    {
        *("produce", "produce_batch", "publish", "prepare", "commit", "roll_back"),
        *("amend_message", "cancel_message", "retry_now", "settle_message", "put_job", "delete_job"),
        *("receive", "ack", "nack", "extend", "heartbeat"),
        *("send_archived", "tell_progress"),  # a replay's job
        "preview_schedule",  # which changes nothing
    }
)

_OBJECT_CHARS = 300


class Entry(Protocol):
    """A call of the HTTP interface, or a page of the console."""

    @property
    def method(self) -> str: ...

    @property
    def path(self) -> str: ...


def is_audited(entry: Call) -> bool:
    """Does the call leave an entry?"""
    return entry.method != "GET" and bool(entry.scopes) and entry.handler.__name__ not in TRAFFIC


def note(entry: Entry, context: Context, result: str, created_id: str = "") -> None:
    """Add an entry. The call stays done: an entry that cannot be stored is only logged."""
    _add(context, entry.method, entry.path, _object(entry, context, created_id), result, context.request_id)


def note_taken_over(context: Context, consumer: Consumer, token_id: str | None) -> None:
    """Add an entry for a consumer's name that the caller's instance took over from one with this token; None: from
    none."""
    if token_id is not None:
        what = f"consumer {consumer.topic}/{consumer.group}/{consumer.name}, taken over from {token_id}"
        # The call may leave an entry of its own in the same millisecond.
        _add(context, "PUT", CONSUMER, what[:_OBJECT_CHARS], "OK", f"{context.request_id}-taken-over")


def _add(context: Context, method: str, path: str, what: str, result: str, request_id: str) -> None:
    caller, clock = context.caller, context.deps.adapters.clock
    topic = context.params.get("topic") or getattr(context.body, "topic", None)
    if caller is None:
        return
    new_entry = AuditEntry(
        at_ms=clock.now_ms(),
        token_id=caller.token_id,
        token_name=caller.name,
        method=method,
        path=path,
        object=what,
        result=result,
        request_id=request_id,
        topic=topic if topic and NAME.match(topic) else None,
        source=context.source or None,
    )
    try:
        context.deps.adapters.audit.add(new_entry)
    except HeadraceError as error:
        observe.event("audit entry lost", call=f"{method} {path}", detail=str(error))


def note_denied(entry: Entry, context: Context, code: str) -> None:
    """Add an entry for a call that was refused at the door: of each token and code one an hour and process, so that who
    is refused a thousand times buys no thousand writes."""
    who = (context.by, code)
    if not context.deps.denials.get(who):
        context.deps.denials.put(who, True)
        note(entry, context, code)


def _object(entry: Entry, context: Context, created_id: str) -> str:
    """What it was about: `consumer orders/mailer/me`. `created_id` is the id of what the call made."""
    params = dict(context.params)
    kind = next(reversed(params), "") if params else ""
    if not kind or kind == "id":
        parts = entry.path.split("/")
        segment = parts[parts.index("{id}") - 1] if kind else parts[-1]
        kind = segment.removesuffix("s").replace("-", " ")
    values = [value for value in (*params.values(), created_id) if value and not value.startswith("hr_")]
    hidden = getattr(context.body, "redact", UNSET)
    pointers = f", redact {' '.join(hidden)}" if hidden is not UNSET else ""
    return f"{kind} {'/'.join(values)}{pointers}"[:_OBJECT_CHARS].strip()
