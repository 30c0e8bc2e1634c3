"""`headrace delayed`: delayed messages."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Annotated

import typer

from ..durations import seconds
from ..outgoing import now
from .arguments import Limit, MessageId, Noun, Topic
from .output import short
from .session import session

app = typer.Typer(cls=Noun, name="delayed", help="Delayed messages: list, move, cancel.")


@app.command("list", epilog="Example: headrace delayed list orders --key order-188")
def list_delayed(
    context: typer.Context,
    topic: Topic,
    key: Annotated[str | None, typer.Option(help="Only those with this key.")] = None,
    limit: Limit = 20,
) -> None:
    """List delayed messages, soonest first."""
    s = session(context)
    messages = s.hr.list_messages(topic, status="DELAYED", key=key, limit=min(limit, 200))
    rows = ((m, (m.deliver_at, m.id, m.keys, m.tag, short(m.body))) for m in islice(messages, limit))
    s.output.many(("DUE", "ID", "KEYS", "TAG", "BODY"), rows, "None.")


@app.command(epilog="Example: headrace delayed move orders ID --delay 15m")
def move(
    context: typer.Context,
    topic: Topic,
    id: MessageId,
    delay: Annotated[str | None, typer.Option(help="Delay from now: 0s, 15m, 2h.")] = None,
    at: Annotated[str | None, typer.Option(help="At this time: 2030-01-01T00:00:00Z.")] = None,
) -> None:
    """Change when a message is delivered."""
    if (delay is None) == (at is None):
        raise typer.BadParameter("Say --delay or --at.")
    try:
        moment = at or now() + timedelta(seconds=seconds(delay or 0))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    s = session(context)
    message = s.hr.amend_message(topic, id, deliver_at=moment)
    s.output.one(message, [("id", message.id), ("status", message.status), ("due", message.deliver_at)])


@app.command(epilog="Example: headrace delayed cancel orders ID")
def cancel(context: typer.Context, topic: Topic, id: MessageId) -> None:
    """Cancel a message."""
    s = session(context)
    s.hr.cancel_message(topic, id)
    s.output.did("cancelled", f"{id} is cancelled.")
