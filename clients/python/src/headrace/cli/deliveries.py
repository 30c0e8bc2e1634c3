"""`headrace messages`: settle one delivery, or change one that waits for its next attempt."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .arguments import Consumer, Group, MessageId, Noun, Topic, Yes, headers_of, parsed, sure
from .session import session

app = typer.Typer(cls=Noun, name="messages", help="Messages: list; one delivery by hand: settle, edit.")


@app.command(epilog="Example: headrace messages settle orders ID mailer success --reason 'paid by phone'")
def settle(
    context: typer.Context,
    topic: Topic,
    id: MessageId,
    group: Group,
    outcome: Annotated[str, typer.Argument(help="success, or dead (a dead letter).", show_default=False)],
    reason: Annotated[str | None, typer.Option(help="Why: the delivery and its trace show it.")] = None,
    consumer: Consumer = None,
    yes: Yes = False,
) -> None:
    """End a delivery that is new, running or waiting for a retry."""
    if outcome not in ("success", "dead"):
        raise typer.BadParameter(f"{outcome!r} is neither success nor dead.")
    s = session(context)
    sure(f"End the delivery of {id} to {group} as {outcome}?", yes)
    delivery = s.hr.settle_message(topic, id, group, outcome, reason=reason, consumer=consumer)  # type: ignore[arg-type]
    s.output.one(delivery, delivery.as_dict().items())


@app.command(epilog="Example: headrace messages edit orders ID mailer --attempts-left 3")
def edit(
    context: typer.Context,
    topic: Topic,
    id: MessageId,
    group: Group,
    body: Annotated[str | None, typer.Option(help="The new body, as JSON.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="All headers.")] = None,
    at: Annotated[
        str | None, typer.Option(help="When the next attempt is due; a past time means now.")
    ] = None,
    attempts_left: Annotated[int | None, typer.Option(min=1, help="How many attempts are left.")] = None,
    consumer: Consumer = None,
) -> None:
    """Change a delivery that waits for a retry, for this group alone."""
    changes: dict[str, Any] = {"next_attempt_at": at, "attempts_left": attempts_left}
    changes = {name: value for name, value in changes.items() if value is not None}
    if body is not None:
        changes["body"] = parsed(body)
    if header:
        changes["headers"] = headers_of(header)
    if not changes:
        raise typer.BadParameter("Give what to change: --body, --header, --at or --attempts-left.")
    s = session(context)
    message = s.hr.amend_message(topic, id, group=group, consumer=consumer, **changes)
    delivery = message.deliveries[group]
    s.output.one(delivery, delivery.as_dict().items())
