"""`headrace find`, `show`, `trace`, `tail`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Any

import typer

from ..errors import Unavailable
from ..models import Event, StoredMessage
from ..outgoing import now
from .arguments import AtMost, Limit, MessageId, Topic
from .output import Output, failure, number_of, short, table_of, text
from .session import Session, session

# clocks differ, and what is accepted a moment earlier may be listed a moment later
_OVERLAP = timedelta(seconds=5)
_MOST_AT_ONCE = 10_000  # they are held: the oldest, shown first, come last
_MOST_BYTES = 50_000_000
_REMEMBERED = 20_000
_COLUMNS = ("ACCEPTED", "ID", "STATUS", "KEYS", "TAG", "BODY")

Key = Annotated[str | None, typer.Option(help="Only messages with this key.")]
Tag = Annotated[str | None, typer.Option(help="Only messages with this tag.")]
Tenant = Annotated[str | None, typer.Option(help="Only messages of this tenant.")]
DedupId = Annotated[str | None, typer.Option(help="The message with this dedup id.")]
InGroup = Annotated[str | None, typer.Option("--group", help="Use the status in this group.")]
Status = Annotated[
    str | None, typer.Option(help="NEW, RUNNING, RETRYING, SUCCESS, DEAD; DELAYED, PREPARED, CANCELLED.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Example: headrace find orders --status DEAD --group mailer")(find)
    app.command(epilog="Example: headrace show orders ID")(show)
    app.command(epilog="Example: headrace trace orders ID")(trace)
    app.command(epilog="Example: headrace tail orders --grep 'order.*188'")(tail)


def find(
    context: typer.Context,
    topic: Topic,
    key: Key = None,
    tag: Tag = None,
    tenant: Tenant = None,
    group: InGroup = None,
    status: Status = None,
    begin: Annotated[str | None, typer.Option("--from", help="Accepted since this time.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Accepted before this time.")] = None,
    dedup_id: DedupId = None,
    limit: Limit = 20,
) -> None:
    """Find messages, newest first."""
    s = session(context)
    messages = s.hr.list_messages(
        topic,
        key=key,
        tag=tag,
        tenant=tenant,
        group=group,
        status=status,
        begin=begin,
        end=end,
        dedup_id=dedup_id,
        limit=min(limit, 200),
    )
    s.output.many(_COLUMNS, ((m, _cells(m)) for m in islice(messages, limit)), "None.")


def show(context: typer.Context, topic: Topic, id: MessageId) -> None:
    """Show everything known about a message."""
    s = session(context)
    show_message(s, s.hr.get_message(topic, id))


def show_message(s: Session, message: StoredMessage) -> None:
    """Print everything known about a message."""
    names = (
        "id",
        "job",
        "status",
        "accepted_at",
        "deliver_at",
        "expires_at",
        "keys",
        "tag",
        "tenant",
        "ordering_key",
        "priority",
        "callback_url",
        "headers",
    )
    fields = [(name, getattr(message, name)) for name in names]
    if message.shard is not None:
        fields.append(("shard, offset", f"{message.shard}, {message.offset}"))
    fields.append(("body", short(message.body)))
    fields += [
        (f"group {name}", f"{d.status}, {number_of(d.attempts, 'attempt')} {failure(d.last_error, d.answer)}")
        for name, d in message.deliveries.items()
    ]
    s.output.one(message, fields)


def trace(context: typer.Context, topic: Topic, id: MessageId) -> None:
    """Show a message's events, with the time since the event before."""
    s = session(context)
    events = s.hr.get_trace(topic, id)
    columns = ("AT", "AFTER", "EVENT", "GROUP", "ATTEMPT", "OUTCOME", "TOOK", "WHO", "DETAIL")
    before = [events[0].at, *(event.at for event in events)] if events else []
    rows = ((event, _step(event, at)) for event, at in zip(events, before, strict=False))
    s.output.many(columns, rows, "Nothing is known of its path.")


def _step(event: Event, before: datetime) -> tuple[Any, ...]:
    duration = f"{event.duration_ms:.0f} ms" if event.duration_ms is not None else ""
    actor = event.consumer or event.owner or (event.by and (event.by.name or event.by.id))
    detail = failure(event.detail, event.answer) or (event.deliver_at and f"until {text(event.deliver_at)}")
    after = _span(event.at - before)
    return event.at, after, event.event, event.group, event.attempt, event.outcome, duration, actor, detail


def _span(span: timedelta) -> str:
    """A time that passed, as short as it may be read."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"+{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"+{seconds:.1f} s"
    return f"+{timedelta(seconds=round(seconds))}"


def tail(
    context: typer.Context,
    topic: Topic,
    key: Key = None,
    tag: Tag = None,
    tenant: Tenant = None,
    group: InGroup = None,
    status: Status = None,
    grep: Annotated[str | None, typer.Option(help="Only bodies that match this regular expression.")] = None,
    begin: Annotated[str | None, typer.Option("--from", help="Begin at this time instead of now.")] = None,
    max: AtMost = None,
    every: Annotated[float, typer.Option(help="Seconds between two reads.")] = 1.0,
) -> None:
    """Show messages as they are accepted. Groups do not change; each read costs read units for the new messages."""
    s = session(context)
    try:
        pattern = re.compile(grep) if grep else None
    except re.error as error:
        raise typer.BadParameter(f"--grep is no regular expression: {error}") from None
    since = _moment(begin) if begin else now()
    filters = {"key": key, "tag": tag, "tenant": tenant, "group": group, "status": status}
    fresh = (m for m in _fresh(s, topic, since, filters, every) if not pattern or pattern.search(_text(m)))
    for message in islice(fresh, max):
        _print(s.output, message)


def _moment(text: str) -> datetime:
    """A time. Raises BadParameter for one that is none, or has no zone."""
    try:
        moment = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} is no time: write 2030-01-01T00:00:00Z.")
    return moment


def _fresh(
    s: Session, topic: str, since: datetime, filters: dict[str, str | None], seconds: float
) -> Iterator[StoredMessage]:
    """Messages as they come, each once. Where a look finds more than it can hold, it says that it shows the newest."""
    ids: dict[str, None] = {}
    earliest = newest = since
    while True:
        try:
            look = s.hr.list_messages(topic, begin=earliest, limit=200, **filters)  # type: ignore[arg-type]
            held, behind = _held(look)
        except Unavailable as error:
            s.output.say(f"{error}; looking again.")
            time.sleep(seconds)
            continue
        page = [m for m in held if m.id not in ids]
        if page and behind and behind.id not in ids:
            s.output.say(f"There are more than {len(page)} new ones: older ones are skipped; see `find`.")
        for message in reversed(page):
            ids[message.id] = None
            yield message
        for old in list(islice(ids, len(ids) - _REMEMBERED if len(ids) > _REMEMBERED else 0)):
            del ids[old]
        newest = max([newest, *(m.accepted_at for m in page if m.accepted_at)])
        if behind:  # all of it would be read again each time
            earliest = newest
        elif page:
            earliest = max(earliest, newest - _OVERLAP)
        else:  # what is listed late has had so much time more
            earliest = min(newest, earliest + timedelta(seconds=seconds))
        time.sleep(seconds)


def _held(look: Iterable[StoredMessage]) -> tuple[list[StoredMessage], StoredMessage | None]:
    """As many as are held at once, and the one behind them."""
    messages: list[StoredMessage] = []
    room = _MOST_BYTES
    for message in look:
        room -= message.size
        if messages and (len(messages) == _MOST_AT_ONCE or room < 0):
            return messages, message
        messages.append(message)
    return messages, None


def _text(message: StoredMessage) -> str:
    body = message.body
    return body.decode(errors="replace") if isinstance(body, bytes) else bytes(message.raw_body).decode()


def _print(output: Output, message: StoredMessage) -> None:
    if output.as_json:
        output.document(message)
    else:
        table = table_of(("", "", "", "", "", ""), [_cells(message)])
        table.show_header = False
        output.out.print(table)


def _cells(message: StoredMessage) -> tuple[Any, ...]:
    return (
        message.accepted_at or message.deliver_at,
        message.id,
        message.status,
        message.keys,
        message.tag,
        short(message.body),
    )
