"""What commands on many share: the choice, the preview, the question, the counter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from ..models import OfMany, OneOfMany, States
from .arguments import sure
from .output import number_of, table_of
from .session import NOT_FOUND, PARTLY, REFUSED, Session

Ids = Annotated[list[str] | None, typer.Argument(help="Message ids; without them all that match.")]
Reason = Annotated[
    str | None,
    typer.Option(help="ATTEMPTS_EXHAUSTED, REJECTED, EXPIRED, RATE_LIMITED or UNDECODABLE."),
]
Error = Annotated[str | None, typer.Option(help="Only those whose last error has this text in it.")]
Key = Annotated[str | None, typer.Option(help="Only those with this key.")]
Tag = Annotated[str | None, typer.Option(help="Only those with this tag.")]
Tenant = Annotated[str | None, typer.Option(help="Only those of this tenant.")]
Since = Annotated[
    str | None, typer.Option(help="Only those that failed since this time (2030-01-01T00:00:00Z).")
]
Until = Annotated[str | None, typer.Option(help="Only those that last failed until this time.")]
Most = Annotated[int | None, typer.Option("--limit", min=1, help="How many at most.")]
Preview = Annotated[bool, typer.Option("--preview", help="Only count them.")]
Doing = Callable[..., int]
"""Does it, with `on_progress`."""


def chosen(ids: list[str] | None, limit: int | None, **fields: str | None) -> dict[str, Any]:
    """What is meant: ids, or a filter. Raises BadParameter for both."""
    which = {name: value for name, value in fields.items() if value is not None}
    if ids and (which or limit):
        raise typer.BadParameter("Give ids or options that choose, not both.")
    return {"ids": list(dict.fromkeys(ids))} if ids else {"filter": which, "limit": limit}


def on_many(
    s: Session,
    act: tuple[str, str, str],
    ids: list[str] | None,
    seen: OfMany,
    do: Doing,
    preview: bool,
    yes: bool,
) -> None:
    """Show how many a preview counted and the first of them, ask, do it with a counter, and print how many it was done
    to. `act` is verb, noun, and the name of the count. The exit code says whether ids are missing, and whether it was
    done to fewer than were counted."""
    verb, noun, done = act
    missing = _missing(ids or [], seen)
    if missing:
        s.output.fail(f"There is no such {noun}: {missing}.")
    if preview:
        count = seen.count
        counted = {"count": count, "sample": seen.sample, "plan": seen.plan}
        s.output.one(counted, [("count", count), *((each.id, _why(each)) for each in seen.sample)])
    else:
        if seen.count and not yes:
            s.output.say(f"{number_of(seen.count, noun)}; the first:")
            s.output.err.print(
                table_of(("ID", "FAILED", "WHY"), ((x.id, x.failed_at, _why(x)) for x in seen.sample))
            )
            sure(f"{verb} {number_of(seen.count, noun)}?", yes)
        count = _done(s, verb, done, seen.count, do) if seen.count else 0
        s.output.one({done: count}, [(done, count)])
    is_short = count < seen.count and (ids or seen.plan)  # waiting deliveries also become due by themselves
    if is_short:
        s.output.fail(f"{seen.count - count} of {seen.count} have changed meanwhile, or cannot be {done}.")
    if is_short or missing:
        raise typer.Exit(PARTLY if count else REFUSED if is_short else NOT_FOUND)


def _missing(ids: list[str], seen: OfMany) -> str:
    """The ids that a preview did not find: which, where it shows all that it found, else how many."""
    asked = dict.fromkeys(ids)
    if seen.count == len(seen.sample):
        return ", ".join(id for id in asked if id not in {each.id for each in seen.sample})
    return f"{len(asked) - seen.count} of {len(asked)} ids" if seen.count < len(asked) else ""


def _why(one: OneOfMany) -> str:
    return " ".join(filter(None, (one.reason, one.error)))


def _done(s: Session, verb: str, done: str, total: int, do: Doing) -> int:
    """Do it, with a counter. What ends it early leaves word of how many it was done to."""
    count = 0
    with s.output.progress() as progress:
        task = progress.add_task(verb, total=total)

        def advance(number: int) -> None:
            nonlocal count
            count = number
            progress.update(task, completed=number)

        try:
            return do(on_progress=advance)
        except BaseException:  # also Ctrl-C
            progress.stop()
            s.output.one({done: count}, [(done, count)])
            s.output.say(
                f"{count} of {total}, and perhaps those of the call that was under way. Run it again for the rest."
            )
            raise


def on_all(s: Session, question: str, kinds: Mapping[str, int], preview: bool, yes: bool) -> bool:
    """Whether to go on with what one call does to all: shows how many it concerns, by kind, and asks."""
    counts = {"count": sum(kinds.values()), **kinds}
    if preview:
        s.output.one(counts, counts.items())
        return False
    shown = [f"{count} {kind.replace('_', ' ')}" for kind, count in kinds.items() if count]
    sure(f"{question} ({', '.join(shown) or 'nothing'})?", yes)
    return True


def owed(*states: States) -> dict[str, int]:
    """What groups are owed, by kind."""
    return {
        "waiting": sum(each.NEW for each in states),
        "in_flight": sum(each.RUNNING for each in states),
        "retrying": sum(each.RETRYING for each in states),
    }
