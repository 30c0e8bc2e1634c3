"""What commands on many share: the choice, the preview, the question, the counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..models import OfMany
from .arguments import sure
from .output import number_of
from .session import Session

Ids = Annotated[list[str] | None, typer.Argument(help="Message ids; without them all that match.")]
Reason = Annotated[
    str | None,
    typer.Option(help="ATTEMPTS_EXHAUSTED, REJECTED, EXPIRED, RATE_LIMITED or UNDECODABLE."),
]
Error = Annotated[str | None, typer.Option(help="Only those whose last error has this text in it.")]
Key = Annotated[str | None, typer.Option(help="Only those with this key.")]
Tag = Annotated[str | None, typer.Option(help="Only those with this tag.")]
Since = Annotated[
    str | None, typer.Option(help="Only those that failed since this time (2030-01-01T00:00:00Z).")
]
Until = Annotated[str | None, typer.Option(help="Only those that last failed until this time.")]
Most = Annotated[int | None, typer.Option("--limit", min=1, help="How many at most.")]
Preview = Annotated[bool, typer.Option("--preview", help="Only count them.")]
Doing = Callable[..., int]
"""Does it, with `ids`, `filter`, `limit` or `plan`, and `on_progress`."""


def choice(**fields: str | None) -> dict[str, str]:
    """The filter."""
    return {name: value for name, value in fields.items() if value is not None}


def on_many(
    s: Session,
    question: tuple[str, str],
    done: str,
    seen: OfMany,
    do: Doing,
    *,
    preview: bool,
    yes: bool,
) -> None:
    """Show how many a preview counted and the first of them, ask, and do it with a counter. `question` is verb and
    noun, `done` the name of the count."""
    verb, noun = question
    if preview:
        s.output.one(seen, [("count", seen.count), *((each.id, each.error) for each in seen.sample)])
        return
    if seen.count:
        sure(f"{verb} {number_of(seen.count, noun)}?", yes)
    count = 0
    if seen.count:
        with s.output.progress() as progress:
            task: Any = progress.add_task(verb, total=seen.count)
            count = do(on_progress=lambda number: progress.update(task, completed=number))
    s.output.one({done: count}, [(done, count)])
