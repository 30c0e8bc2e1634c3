"""`headrace stats` and `headrace attention`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer
from rich.live import Live

from ..models import TopicStats
from .output import table_of
from .session import Session, session, topic_names

_COLUMNS = (
    "TOPIC",
    "ACCEPTED",
    "DELAYED",
    "GROUP",
    "WAITING",
    "IN FLIGHT",
    "RETRYING",
    "DEAD",
    "STOPPED",
    "DONE",
    "OLDEST",
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Example: headrace stats orders --watch")(stats)
    app.command(epilog="Example: headrace attention")(attention)


def attention(context: typer.Context) -> None:
    """List the states in which work waits for a person. Exit code 1 if there is one."""
    s = session(context)
    states = list(s.hr.list_attention())
    rows = [
        (each, (each.kind, each.topic, each.group, each.consumer, each.since, f"{each.what} {each.to_do}"))
        for each in states
    ]
    s.output.many(("KIND", "TOPIC", "GROUP", "CONSUMER", "SINCE", ""), rows, "Nothing waits for a person.")
    if states:
        raise typer.Exit(1)


def stats(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(help="One topic; without it all.", autocompletion=topic_names)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(help="The counts at the last full hour up to this time (RFC 3339), from the archive."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two reads.")] = 2.0,
    times: Annotated[int | None, typer.Option(help="With --watch: how many reads.")] = None,
) -> None:
    """Show the counts of topics and groups: waiting, in flight, retrying, dead."""
    s = session(context)
    if at is not None:
        if topic is None:
            raise typer.BadParameter("--at needs a topic: name it.")
        _as_of(s, topic, at)
        return
    look_count = (times or -1) if watch else 1
    if s.output.as_json or not watch:
        for look in _paced_range(look_count, every):
            if s.output.as_json:
                for each in _topics(s, topic):
                    s.output.document(each)
            elif look == 0:
                s.output.many(_COLUMNS, _rows(_topics(s, topic)), "No topics yet.")
        return
    with Live(console=s.output.out, auto_refresh=False) as live:
        for _ in _paced_range(look_count, every):
            live.update(table_of(_COLUMNS, (cells for _, cells in _rows(_topics(s, topic)))), refresh=True)


def _as_of(s: Session, topic: str, at: str) -> None:
    past = s.hr.get_as_of(topic, at)
    if s.output.as_json:
        s.output.document(past)
        return
    rows = [
        (each, (name, each.waiting, each.in_flight, each.retrying, each.dead))
        for name, each in past.groups.items()
    ]
    s.output.many(("GROUP", "WAITING", "IN FLIGHT", "RETRYING", "DEAD"), rows, "No groups then.")
    gap_note = "" if past.complete else "; the archive lacks something of that time"
    s.output.say(f"At {past.counted_at:%Y-%m-%d %H:%M} UTC{gap_note}.")


def _paced_range(look_count: int, seconds: float) -> Iterator[int]:
    """0, 1, 2 … with a pause in between; without end where `look_count` is negative."""
    look = 0
    while look != look_count:
        if look:
            time.sleep(seconds)
        yield look
        look += 1


def _topics(s: Session, topic: str | None) -> list[TopicStats]:
    if topic is None:
        return list(s.hr.stats())
    stats = s.hr.get_topic(topic).stats
    return [msgspec.structs.replace(stats, topic=topic)] if stats else []


def _rows(topics: list[TopicStats]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """A line for each group; the topic's own numbers stand on its first."""
    for topic in topics:
        first: tuple[Any, ...] = (topic.topic, topic.accepted, topic.delayed)
        for name, c in topic.groups.items() or [(None, None)]:
            if c is None:
                yield topic, (*first, *[""] * (len(_COLUMNS) - len(first)))
                continue
            oldest = f"{c.oldest_age_seconds:.0f} s" if c.oldest_age_seconds is not None else ""
            counts = (c.backlog, c.in_flight, c.retrying, c.dead, c.stopped_consumers, c.consumed)
            yield topic, (*first, name, *counts, oldest)
            first = ("", "", "")
