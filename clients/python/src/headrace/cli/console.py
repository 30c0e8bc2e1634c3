"""`headrace console`."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from .session import session


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: headrace console --open")(console)


def console(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser of this machine.")] = False,
) -> None:
    """Print a link that signs a browser in to the console: once, within a minute."""
    s = session(context)
    link = s.hr.create_sign_in_link()
    if s.output.as_json:
        s.output.document(link)
    else:
        s.output.out.print(link.url, soft_wrap=True)
    if show:
        webbrowser.open(link.url)
