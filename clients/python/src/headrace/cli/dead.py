"""`headrace dead`: dead letters."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import msgspec
import typer

from ..models import DeadLetter, Redriven
from .arguments import Group, Limit, MessageId, Topic, Yes, parsed, sure
from .editor import edited
from .output import failure, short
from .session import session

app = typer.Typer(name="dead", help="Dead letters: list, show, edit, redrive, delete.", no_args_is_help=True)

Reason = Annotated[
    str | None,
    typer.Option(help="ATTEMPTS_EXHAUSTED, REJECTED, EXPIRED, RATE_LIMITED or UNDECODABLE."),
]
Key = Annotated[str | None, typer.Option(help="Only those with this key.")]
Tag = Annotated[str | None, typer.Option(help="Only those with this tag.")]
Since = Annotated[str | None, typer.Option(help="Only dead letters since this time (2030-01-01T00:00:00Z).")]


@app.command("list")
def list_dead(
    context: typer.Context,
    topic: Topic,
    group: Group,
    reason: Reason = None,
    key: Key = None,
    tag: Tag = None,
    since: Since = None,
    limit: Limit = 20,
) -> None:
    """List a group's dead letters, with their reasons."""
    s = session(context)
    letters = s.hr.list_dead_letters(
        topic, group, reason=reason, key=key, tag=tag, since=since, limit=min(limit, 200)
    )
    rows = ((each, _cells(each)) for each in islice(letters, limit))
    s.output.many(("DEAD SINCE", "ID", "REASON", "ATTEMPTS", "KEYS", "LAST ERROR", "BODY"), rows, "None.")


def _cells(each: DeadLetter) -> tuple[Any, ...]:
    return (
        each.dead_at,
        each.id,
        each.reason,
        each.attempts,
        each.keys,
        failure(each.last_error, each.answer),
        short(each.body),
    )


@app.command()
def show(context: typer.Context, topic: Topic, group: Group, id: MessageId) -> None:
    """Show a dead letter."""
    s = session(context)
    letter = s.hr.get_dead_letter(topic, group, id)
    names = (
        "id",
        "reason",
        "attempts",
        "last_error",
        "dead_at",
        "accepted_at",
        "keys",
        "tag",
        "headers",
        "edited",
    )
    fields = [(name, getattr(letter, name)) for name in names]
    answer = letter.answer.text if letter.answer else None
    s.output.one(letter, [*fields, ("answer", answer), ("body", letter.body)])


@app.command()
def edit(
    context: typer.Context,
    topic: Topic,
    group: Group,
    id: MessageId,
    body: Annotated[
        str | None, typer.Argument(help="The new body, JSON. Without it your editor opens.")
    ] = None,
) -> None:
    """Edit a dead letter's body; `redrive` then sends it."""
    s = session(context)
    if body is None:
        old = s.hr.get_dead_letter(topic, group, id).body
        if isinstance(old, bytes):
            raise typer.BadParameter("Its body is no JSON: give the new one as an argument.")
        body = edited(msgspec.json.format(msgspec.json.encode(old)).decode() + "\n")
        if body is None:
            s.output.say("Nothing was changed.")
            return
    letter = s.hr.edit_dead_letter(topic, group, id, parsed(body))
    s.output.one(letter, [("id", letter.id), ("body", letter.body)])


@app.command()
def redrive(
    context: typer.Context,
    topic: Topic,
    group: Group,
    ids: Annotated[list[str] | None, typer.Argument(help="Message ids; without them all that match.")] = None,
    reason: Reason = None,
    key: Key = None,
    tag: Tag = None,
    since: Since = None,
    limit: Annotated[int | None, typer.Option(help="How many at most.")] = None,
    yes: Yes = False,
) -> None:
    """Send dead letters to their group again; attempts are counted from the start."""
    s = session(context)
    filters = {"reason": reason, "key": key, "tag": tag, "since": since}
    choice = {name: value for name, value in filters.items() if value is not None}
    if not ids and not choice and limit is None:
        sure(f"Redrive all dead letters of {group}?", yes)
    count = s.hr.redrive(topic, group, ids=ids or None, filter=choice or None, limit=limit)
    s.output.one({"redriven": count}, [("redriven", count)])
    if not ids and limit is None and count == Redriven.MOST:
        s.output.say("More may be left: run it again.")


@app.command()
def delete(context: typer.Context, topic: Topic, group: Group, id: MessageId, yes: Yes = False) -> None:
    """Delete a dead letter for good."""
    s = session(context)
    sure(f"Delete {id} for good?", yes)
    s.hr.delete_dead_letter(topic, group, id)
    s.output.say(f"{id} is deleted.")
