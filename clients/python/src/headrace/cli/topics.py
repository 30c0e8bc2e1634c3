"""`headrace topics`."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import models
from . import many
from .arguments import Noun, Settings, Topic, Yes, settings_of
from .output import Output, number_of
from .session import session

app = typer.Typer(cls=Noun, name="topics", help="Topics: list, show, create, change, purge, delete.")


@app.command("list", epilog="Example: headrace topics list")
def list_topics(context: typer.Context) -> None:
    """List the topics that your token may use."""
    s = session(context)
    rows = ((t, (t.topic, t.mode, t.shards, f"{t.retention_days:g} d")) for t in s.hr.list_topics())
    s.output.many(("TOPIC", "MODE", "SHARDS", "KEPT"), rows, "No topics yet: headrace topics create orders")


@app.command(epilog="Example: headrace topics show orders")
def show(context: typer.Context, topic: Topic) -> None:
    """Show a topic's settings and counts."""
    s = session(context)
    _show(s.output, s.hr.get_topic(topic))


@app.command(epilog="Example: headrace topics create orders --shards 4 --set retention_days=14")
def create(
    context: typer.Context,
    topic: Topic,
    mode: Annotated[str | None, typer.Option(help="queue, serial or broadcast: the groups' default.")] = None,
    shards: Annotated[int | None, typer.Option(help="Number of shards; may grow, never shrink.")] = None,
    settings: Settings = None,
) -> None:
    """Create a topic, or change the settings that are given."""
    s = session(context)
    options = {"mode": mode, "shards": shards}
    fields = {name: value for name, value in options.items() if value is not None} | settings_of(settings)
    _show(s.output, s.hr.put_topic(topic, **fields))


@app.command(epilog="Example: headrace topics delete orders --preview")
def delete(context: typer.Context, topic: Topic, preview: many.Preview = False, yes: Yes = False) -> None:
    """Delete a topic with its groups and messages."""
    s = session(context)
    stats = s.hr.get_topic(topic).stats or models.TopicStats(accepted=0)
    kinds = _owed(stats) | {"dead": sum(each.dead for each in stats.groups.values())}
    groups = number_of(len(stats.groups), "group")
    if many.on_all(s, f"Delete {topic}, its {groups} and all messages", kinds, preview, yes):
        s.hr.delete_topic(topic, confirm=topic)
        s.output.did("deleted", f"{topic} is deleted.")


@app.command(epilog="Example: headrace topics purge orders --preview")
def purge(context: typer.Context, topic: Topic, preview: many.Preview = False, yes: Yes = False) -> None:
    """Drop what waits for all groups of a topic, and what is delayed. Dead letters stay."""
    s = session(context)
    kinds = _owed(s.hr.get_topic(topic).stats or models.TopicStats(accepted=0))
    if many.on_all(s, f"Drop for good what waits in {topic} for all its groups", kinds, preview, yes):
        purged = s.hr.purge_topic(topic, confirm=topic)
        s.output.one(purged, [("purged", purged.purged)])


def _owed(stats: models.TopicStats) -> dict[str, int]:
    return many.owed(*(each.states for each in stats.groups.values())) | {"delayed": stats.delayed}


def _show(output: Output, topic: models.Topic) -> None:
    stats = topic.stats
    fields = [(name, value) for name, value in topic.as_dict().items() if name != "stats"]
    if stats:
        fields += [("accepted", stats.accepted), ("delayed", stats.delayed), ("prepared", stats.prepared)]
        fields += [("spent_usd", stats.spent_usd)] if stats.spent_usd is not None else []
        fields += [
            (
                f"group {name}",
                f"{c.backlog} waiting, {c.in_flight} in flight, {c.retrying} retrying, {c.dead} dead",
            )
            for name, c in stats.groups.items()
        ]
    output.one(topic, fields)
