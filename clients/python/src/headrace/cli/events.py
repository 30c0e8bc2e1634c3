"""`headrace events`."""

from __future__ import annotations

from typing import Annotated

import typer

from .arguments import Noun, Topic
from .session import session

app = typer.Typer(
    cls=Noun, name="events", help="Operational events as messages of a topic: get, set, delete."
)


@app.command("set", epilog="Example: headrace events set alerts --type headrace.message.dead")
def set_events(
    context: typer.Context,
    topic: Topic,
    type: Annotated[list[str] | None, typer.Option(help="A type. Repeatable; without it all types.")] = None,
) -> None:
    """Send operational events to a topic."""
    s = session(context)
    events = s.hr.put_events(topic, types=type)
    s.output.one(events, [("topic", events.topic), ("types", events.types)])


@app.command(epilog="Example: headrace events get")
def get(context: typer.Context) -> None:
    """Show which topic gets operational events, and which types."""
    s = session(context)
    events = s.hr.get_events()
    s.output.one(events, [("topic", events.topic), ("types", events.types)])


@app.command(epilog="Example: headrace events delete")
def delete(context: typer.Context) -> None:
    """Send no operational events any more."""
    s = session(context)
    s.hr.delete_events()
    s.output.say("No topic gets operational events now.")
