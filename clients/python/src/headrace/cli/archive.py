"""`headrace archive`."""

from __future__ import annotations

from typing import Annotated

import typer

from .session import session


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: headrace archive --days 7")(archive)


def archive(
    context: typer.Context,
    to: Annotated[str | None, typer.Option(help="The last day, as 2030-01-01 (today).")] = None,
    days: Annotated[int, typer.Option(help="How many days, 31 at most.")] = 14,
) -> None:
    """Show what is archived of each day and topic: proved, open, or with holes."""
    s = session(context)
    answer = s.hr.get_archive(to=to, limit=days)
    rows = (
        (each, (day.day, each.topic, each.proof, each.messages, each.deliveries, each.missing))
        for day in answer.items
        for each in day.topics
    )
    columns = ("DAY", "TOPIC", "PROOF", "MESSAGES", "ATTEMPTS", "MISSING")
    if s.output.as_json:
        for day in answer.items:
            s.output.document(day)
        return
    s.output.many(columns, rows, "Nothing is archived of these days: make archive")
