"""What several commands read: arguments, JSON, settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .profiles import Unusable
from .session import topic_names

Topic = Annotated[str, typer.Argument(help="The topic.", autocompletion=topic_names, show_default=False)]
Group = Annotated[str, typer.Argument(help="The group.", show_default=False)]
Consumer = Annotated[
    str | None, typer.Option("--consumer", help="In a broadcast: of this consumer alone.", show_default=False)
]
MessageId = Annotated[str, typer.Argument(help="The message's id.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many.")]
AtMost = Annotated[int | None, typer.Option("--max", "-n", min=1, help="Stop after this many messages.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
CallbackUrl = Annotated[
    str | None, typer.Option(help="Where to send it, in groups whose callbacks allow the host.")
]
Overlap = Annotated[
    int | None, typer.Option(help="Seconds for which the old secret signs, too (a day; 0: not at all).")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A setting of docs/settings.md; VALUE is JSON, or text."
    ),
]


class Noun(TyperGroup):
    """Commands on one kind of thing. Without a verb it lists, or shows what there is but one of."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_bare = not args and not ctx.resilient_parsing  # the shell's completion offers the verbs
        verb = "list" if "list" in self.commands else "get"
        return super().parse_args(ctx, [verb] if is_bare else args)


def parsed(text: str, name: str = "The body", hint: str = "") -> Any:
    """JSON. Raises BadParameter with how to write it, and `hint`."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{name} is no JSON ({error}). Quote it for the shell: '{{\"order\": 188}}'.{hint}"
        ) from None


def settings_of(pairs: Iterable[str] | None) -> dict[str, Any]:
    """NAME=VALUE as settings; a value that is no JSON is text. Raises BadParameter."""
    settings: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r} has no value: write --set name=value.")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def headers_of(pairs: Iterable[str] | None) -> dict[str, str]:
    """NAME=VALUE as headers. Raises BadParameter."""
    parts = [pair.partition("=") for pair in pairs or ()]
    if wrong := [name for name, equals, _ in parts if not equals]:
        raise typer.BadParameter(f"{wrong[0]!r} has no value: write --header name=value.")
    return {name: value for name, _, value in parts}


def sure(question: str, yes: bool) -> None:
    """Go on only if the answer is yes. Raises Abort, and Unusable where there is no terminal to ask on."""
    if yes:
        return
    if not (sys.stdin and sys.stdin.isatty()):
        raise Unusable(
            f"{question} Standard input is no terminal, so the command cannot ask: add --yes to answer yes."
        )
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort as error:  # Ctrl-C is no answer
        raise (error.__context__ if isinstance(error.__context__, KeyboardInterrupt) else error) from None
