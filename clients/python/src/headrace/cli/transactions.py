"""`headrace transactions`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from . import many
from .arguments import Yes
from .session import session

app = typer.Typer(name="transactions", help="Transactions: ask their producers again.", no_args_is_help=True)


@app.callback()
def transactions() -> None:
    """Transactions."""


@app.command()
def recheck(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(help="The topic; without it all.", show_default=False)
    ] = None,
    error: many.Error = None,
    key: many.Key = None,
    tag: many.Tag = None,
    since: many.Since = None,
    until: many.Until = None,
    limit: many.Most = None,
    preview: many.Preview = False,
    yes: Yes = False,
) -> None:
    """Ask the producers of undecided transactions again."""
    s = session(context)
    which = many.choice(error=error, key=key, tag=tag, since=since, until=until)
    seen = s.hr.preview("recheck", topic, filter=which, limit=limit)
    do = partial(s.hr.recheck, topic, filter=which, limit=limit)
    question = ("Ask about", "transaction")
    many.on_many(s, question, "rechecked", seen, do, preview=preview, yes=yes)
