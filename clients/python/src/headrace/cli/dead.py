"""`headrace dead-letters`."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer

from ..models import DeadLetter
from . import many
from .arguments import Group, Limit, MessageId, Noun, Topic, Yes, parsed
from .editor import edited
from .output import failure, short
from .session import session

app = typer.Typer(cls=Noun, name="dead-letters", help="Dead letters: list, show, edit, redrive, delete.")


@app.command("list", epilog="Example: headrace dead-letters list orders mailer --reason REJECTED")
def list_dead(
    context: typer.Context,
    topic: Topic,
    group: Group,
    reason: many.Reason = None,
    error: many.Error = None,
    key: many.Key = None,
    tag: many.Tag = None,
    tenant: many.Tenant = None,
    since: many.Since = None,
    until: many.Until = None,
    limit: Limit = 20,
) -> None:
    """List a group's dead letters, with their reasons."""
    s = session(context)
    letters = s.hr.list_dead_letters(
        topic,
        group,
        reason=reason,
        error=error,
        key=key,
        tag=tag,
        tenant=tenant,
        since=since,
        until=until,
        limit=min(limit, 200),
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


@app.command(epilog="Example: headrace dead-letters show orders mailer ID")
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
        "tenant",
        "headers",
        "edited",
    )
    fields = [(name, getattr(letter, name)) for name in names]
    answer = letter.answer.text if letter.answer else None
    s.output.one(letter, [*fields, ("answer", answer), ("body", letter.body)])


@app.command(epilog="Example: headrace dead-letters edit orders mailer ID")
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


@app.command(epilog="Example: headrace dead-letters redrive orders mailer --error 'no number' --rate 10")
def redrive(
    context: typer.Context,
    topic: Topic,
    group: Group,
    ids: many.Ids = None,
    reason: many.Reason = None,
    error: many.Error = None,
    key: many.Key = None,
    tag: many.Tag = None,
    tenant: many.Tenant = None,
    since: many.Since = None,
    until: many.Until = None,
    rate: Annotated[int | None, typer.Option(min=1, help="So many a second.")] = None,
    limit: many.Most = None,
    preview: many.Preview = False,
    yes: Yes = False,
) -> None:
    """Send dead letters to their group again; attempts are counted from the start."""
    s = session(context)
    which = many.chosen(
        ids, limit, reason=reason, error=error, key=key, tag=tag, tenant=tenant, since=since, until=until
    )
    seen = s.hr.preview("redrive", topic, group, **which)
    do = partial(s.hr.redrive, topic, group, ids=which.get("ids"), plan=seen.plan, rate=rate, limit=limit)
    verb = f"At {rate} a second redrive" if rate else "Redrive"
    many.on_many(s, (verb, "dead letter", "redriven"), ids, seen, do, preview, yes)


@app.command(
    epilog="Example: headrace dead-letters delete orders mailer --until 2030-01-01T00:00:00Z --preview"
)
def delete(
    context: typer.Context,
    topic: Topic,
    group: Group,
    ids: many.Ids = None,
    reason: many.Reason = None,
    error: many.Error = None,
    key: many.Key = None,
    tag: many.Tag = None,
    tenant: many.Tenant = None,
    since: many.Since = None,
    until: many.Until = None,
    limit: many.Most = None,
    preview: many.Preview = False,
    yes: Yes = False,
) -> None:
    """Delete dead letters for good."""
    s = session(context)
    which = many.chosen(
        ids, limit, reason=reason, error=error, key=key, tag=tag, tenant=tenant, since=since, until=until
    )
    seen = s.hr.preview("delete", topic, group, **which)
    do = partial(s.hr.delete_dead_letters, topic, group, ids=which.get("ids"), plan=seen.plan, limit=limit)
    many.on_many(s, ("Delete for good", "dead letter", "deleted"), ids, seen, do, preview, yes)
