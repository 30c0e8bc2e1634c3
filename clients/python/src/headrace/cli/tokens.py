"""`headrace tokens`."""

from __future__ import annotations

from typing import Annotated

import typer

from .arguments import Noun, Yes, sure
from .session import session

app = typer.Typer(cls=Noun, name="tokens", help="Access tokens: list, create, rotate, made, delete.")


@app.command("list", epilog="Example: headrace tokens list")
def list_tokens(context: typer.Context) -> None:
    """List the tokens, without their texts, which are not stored."""
    s = session(context)
    rows = (
        (t, (t.id, t.name, t.scopes, t.topics, t.created_at, t.last_used_at, t.expires_at))
        for t in s.hr.list_tokens()
    )
    s.output.many(("ID", "NAME", "SCOPES", "TOPICS", "CREATED", "LAST USED", "EXPIRES"), rows, "None.")


@app.command(epilog="Example: headrace tokens create shop --scope produce --topic 'orders.*'")
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A name for the token.")],
    scope: Annotated[list[str], typer.Option(help="produce, consume, admin. Repeatable.")],
    topic: Annotated[list[str] | None, typer.Option(help="A pattern, as orders.*. Repeatable.")] = None,
    job: Annotated[
        list[str] | None,
        typer.Option(help="Only jobs of these names: a pattern, as partner-7/*. Repeatable."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="What it sends is for this tenant.")] = None,
    days: Annotated[int | None, typer.Option(help="For how many days it is valid.")] = None,
) -> None:
    """Create a token. Its text is printed only once."""
    s = session(context)
    token = s.hr.create_token(name, scope, topics=topic, jobs=job, tenant=tenant, expires_in_days=days)
    if s.output.as_json:
        s.output.document(token)
        return
    s.output.out.print(token.token, soft_wrap=True)
    s.output.say(f"Store it now: it is not shown again. Its id is {token.id}.")


@app.command(epilog="Example: headrace tokens rotate ID --overlap-seconds 3600")
def rotate(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="The token's id.")],
    overlap_seconds: Annotated[
        int | None, typer.Option(help="Seconds for which the old text stays valid (a day; 0: not at all).")
    ] = None,
) -> None:
    """Give a token a new text. It is printed only once."""
    s = session(context)
    token = s.hr.rotate_token(id, overlap_seconds=overlap_seconds)
    if s.output.as_json:
        s.output.document(token)
        return
    s.output.out.print(token.token, soft_wrap=True)
    s.output.say("Store it now: it is not shown again.")


@app.command(epilog="Example: headrace tokens made ID")
def made(context: typer.Context, id: Annotated[str, typer.Argument(help="The token's id.")]) -> None:
    """List what a token has made that goes on without it: schedules, push consumers."""
    s = session(context)
    found = s.hr.get_made(id)
    consumers = [("consumer", f"{each.topic}/{each.group}/{each.consumer}") for each in found.consumers]
    s.output.one(found, [*(("schedule", name) for name in found.schedules), *consumers])


@app.command(epilog="Example: headrace tokens delete ID --stop")
def delete(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="The token's id.")],
    stop: Annotated[
        bool, typer.Option("--stop", help="Also pause its schedules and remove its push consumers.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Revoke a token. What it has made goes on, unless you --stop it."""
    s = session(context)
    sure(f"Revoke {id}{' and stop what it has made' if stop else ''}?", yes)
    s.hr.delete_token(id, stop=stop)
    s.output.did("deleted", f"{id} is revoked, everywhere within 60 seconds.")
