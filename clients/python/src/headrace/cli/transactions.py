"""`headrace transactions`."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Annotated

import typer

from . import many
from .arguments import Limit, Noun, Topic, Yes
from .output import short
from .session import session

app = typer.Typer(cls=Noun, name="transactions", help="Transactions: list, ask their producers again.")


@app.command("list", epilog="Example: headrace transactions list orders")
def list_transactions(context: typer.Context, topic: Topic, limit: Limit = 20) -> None:
    """List the messages of transactions that are not decided yet."""
    s = session(context)
    messages = s.hr.list_messages(topic, status="PREPARED", limit=min(limit, 200))
    rows = ((m, (m.transaction_id, m.id, m.keys, m.tag, short(m.body))) for m in islice(messages, limit))
    s.output.many(("TRANSACTION", "ID", "KEYS", "TAG", "BODY"), rows, "None.")


@app.command(epilog="Example: headrace transactions recheck orders")
def recheck(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(help="The topic; without it all.", show_default=False)
    ] = None,
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
    """Ask the producers of undecided transactions again."""
    s = session(context)
    which = many.chosen(None, limit, error=error, key=key, tag=tag, tenant=tenant, since=since, until=until)
    seen = s.hr.preview("recheck", topic, **which)
    do = partial(s.hr.recheck, topic, **which)
    many.on_many(s, ("Ask about", "transaction", "rechecked"), None, seen, do, preview, yes)
