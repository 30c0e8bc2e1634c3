"""`headrace receive`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from .._pause import pause
from ..errors import HeadraceError, of_problem
from ..models import Message, Settled
from .arguments import Group, Topic
from .output import short
from .session import session

_PAUSES = (1.0, 2.0, 4.0)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(receive)


def receive(
    context: typer.Context,
    topic: Topic,
    group: Group,
    max: Annotated[int, typer.Option("--max", "-n", help="How many at most (1 to 1000).")] = 1,
    wait: Annotated[str, typer.Option(help="How long to wait for the first, up to 20s.")] = "0s",
    consumer: Annotated[
        str | None, typer.Option(help="The consumer that receives; needed in a broadcast.")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge the messages after printing them.")] = False,
    back: Annotated[
        bool, typer.Option("--back", help="Give the messages back at once; an attempt is counted.")
    ] = False,
) -> None:
    """Receive messages of a group. Without --ack or --back they are delivered again when their lease ends."""
    if ack and back:
        raise typer.BadParameter("Choose --ack or --back.")
    s = session(context)
    messages = s.hr.receive(topic, group, max=max, wait=wait, consumer=consumer)
    rows = ((m, (m.id, m.attempt, m.keys, m.tag, short(m.body), m.receipt[:12] + "…")) for m in messages)
    s.output.many(("ID", "ATTEMPT", "KEYS", "TAG", "BODY", "RECEIPT"), rows, "Nothing there.")
    refusals: list[tuple[Message, HeadraceError]] = []
    if ack:
        refusals = _refusals(messages, lambda *some: s.hr.ack(topic, group, *some))
    if back:
        refusals = _refusals(messages, lambda *some: s.hr.nack(topic, group, *some, delay=0))
    for message, error in refusals:
        s.output.fail(f"{message.id}: {error}")
    if refusals:
        raise typer.Exit(1)


def _refusals(
    messages: Sequence[Message], settle: Callable[..., list[Settled]]
) -> list[tuple[Message, HeadraceError]]:
    """What could not be settled, and why. A busy shard is asked again."""
    refusals: list[tuple[Message, HeadraceError]] = []
    for seconds in (*_PAUSES, None):
        answers = settle(*messages)
        errors = [(m, of_problem(a.error)) for m, a in zip(messages, answers, strict=True) if a.error]
        again = [m for m, error in errors if error.retryable and seconds is not None]
        refusals += [(m, error) for m, error in errors if m not in again]
        if not again or seconds is None:
            break
        pause(seconds)
        messages = again
    return refusals
