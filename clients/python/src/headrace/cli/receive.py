"""`headrace receive`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from ..models import Settled
from .arguments import Group, Topic
from .output import short
from .session import PARTLY, REFUSED, session
from .settling import refusals

_WHY = {
    "paused": "Nothing: the group is paused.",
    "rate_limited": "Nothing yet: the group had as many as its rate_limit allows. Wait, or raise it.",
    "not_owner": "Nothing for this consumer: other consumers have the shards, or their part of the messages.",
    "cursor_full": "Nothing more: too many leases are open. Settle some messages first.",
    "keys_wait": "Nothing yet: messages wait for earlier ones of their keys.",
    "in_flight": "Nothing yet: messages are leased, or wait for their next attempt.",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: headrace receive orders mailer --max 10 --wait 5s --ack")(receive)


def receive(
    context: typer.Context,
    topic: Topic,
    group: Group,
    max: Annotated[int, typer.Option("--max", "-n", help="How many at most (1 to 1000).")] = 1,
    wait: Annotated[str, typer.Option(help="How long to wait for the first, up to 20s.")] = "0s",
    consumer: Annotated[
        str | None, typer.Option(help="The consumer that receives; needed in a broadcast.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Of a serial group: messages of one ordering key, in order.")
    ] = False,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge the messages after printing them.")] = False,
    back: Annotated[
        bool, typer.Option("--back", help="Give the messages back at once; an attempt is counted.")
    ] = False,
) -> None:
    """Receive messages of a group. Without --ack or --back they are delivered again when their lease ends."""
    if ack and back:
        raise typer.BadParameter("Choose --ack or --back.")
    s = session(context)
    messages = s.hr.receive(topic, group, max=max, wait=wait, consumer=consumer, run=run)
    rows = ((m, (m.id, m.attempt, m.keys, m.tag, short(m.body), m.receipt[:12] + "…")) for m in messages)
    nothing = _WHY.get(messages.because or "", "Nothing there.")
    s.output.many(("ID", "ATTEMPT", "KEYS", "TAG", "BODY", "RECEIPT"), rows, nothing)
    if not (ack or back):
        return
    settle: Callable[..., list[Settled]] = s.hr.ack if ack else partial(s.hr.nack, delay=0)
    count = 0
    for message, error in refusals(messages, partial(settle, topic, group)):
        s.output.fail(f"{message.id}: {error}")
        count += 1
    if count:
        raise typer.Exit(PARTLY if count < len(messages) else REFUSED)
