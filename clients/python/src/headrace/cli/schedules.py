"""`headrace schedules`."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer

from .. import models
from ..outgoing import Missed, Overlap
from .arguments import CallbackUrl, Limit, Noun, Yes, headers_of, parsed, sure
from .output import Output, short, text
from .session import session

app = typer.Typer(cls=Noun, name="schedules", help="Schedules: list, show, set, preview, pause, run, delete.")

Name = Annotated[str, typer.Argument(help="The schedule.", show_default=False)]
Cron = Annotated[str | None, typer.Option(help='Five fields, such as "0 9 * * mon-fri", or @daily.')]
Every = Annotated[str | None, typer.Option(help="Each so often: 30s, 15m, 2h.")]
Zone = Annotated[str | None, typer.Option(help="The zone of the cron: Europe/Berlin (UTC).")]
Begin = Annotated[str | None, typer.Option("--from", help="Not before: 2030-01-01T00:00:00Z.")]
Until = Annotated[str | None, typer.Option(help="Not after: 2030-01-01T00:00:00Z.")]
Jitter = Annotated[str | None, typer.Option(help="Up to so much later, the same for each time: 30s.")]


@app.command("list", epilog="Example: headrace schedules list --app shop")
def list_schedules(
    context: typer.Context,
    application: Annotated[str | None, typer.Option("--app", help="Only those of this application.")] = None,
    limit: Limit = 20,
) -> None:
    """List schedules by name."""
    s = session(context)
    every = s.hr.list_schedules(app=application, limit=min(limit, 200))
    rows = (
        (each, (each.name, each.topic, _times(each), _next(each), short(each.message.get("body"))))
        for each in islice(every, limit)
    )
    s.output.many(("SCHEDULE", "TOPIC", "TIMES", "NEXT", "BODY"), rows, "None.")


@app.command(epilog="Example: headrace schedules show daily")
def show(context: typer.Context, schedule: Name) -> None:
    """Show a schedule, its next times and its last messages."""
    s = session(context)
    _show(s.output, s.hr.get_schedule(schedule))


@app.command(
    "set",
    epilog='Example: headrace schedules set daily reports \'{"kind": "daily"}\' --cron "0 9 * * mon-fri" '
    "--timezone Europe/Berlin",
)
def set_schedule(
    context: typer.Context,
    schedule: Name,
    topic: Annotated[str, typer.Argument(help="The topic that it sends to.", show_default=False)],
    body: Annotated[str, typer.Argument(help="The body, JSON.")] = "null",
    cron: Cron = None,
    every: Every = None,
    timezone: Zone = None,
    begin: Begin = None,
    until: Until = None,
    jitter: Jitter = None,
    missed: Annotated[
        Missed | None, typer.Option(help="What becomes of times that were missed (one).")
    ] = None,
    overlap: Annotated[
        Overlap | None, typer.Option(help="skip: not while the last message is unfinished (allow).")
    ] = None,
    key: Annotated[str | None, typer.Option(help="A key of its messages.")] = None,
    tag: Annotated[str | None, typer.Option(help="Their tag.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whom they are for.")] = None,
    ordering_key: Annotated[str | None, typer.Option(help="Their ordering key.")] = None,
    priority: Annotated[int | None, typer.Option(help="Their priority.")] = None,
    callback_url: CallbackUrl = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None,
    paused: Annotated[bool, typer.Option("--paused", help="It waits until it is resumed.")] = False,
    application: Annotated[str | None, typer.Option("--app", help="The application that it is of.")] = None,
) -> None:
    """Create or replace a schedule."""
    s = session(context)
    made = s.hr.put_schedule(
        schedule,
        topic,
        parsed(body),
        missed=missed,
        overlap=overlap,
        paused=paused,
        app=application,
        key=key,
        tag=tag,
        tenant=tenant,
        ordering_key=ordering_key,
        priority=priority,
        callback_url=callback_url,
        headers=headers_of(header),
        **_given(cron, every, timezone, begin, until, jitter),
    )
    _show(s.output, made)


@app.command(epilog='Example: headrace schedules preview --cron "0 2 * * *" --timezone Europe/Berlin')
def preview(
    context: typer.Context,
    cron: Cron = None,
    every: Every = None,
    timezone: Zone = None,
    begin: Begin = None,
    until: Until = None,
    jitter: Jitter = None,
) -> None:
    """Show the next ten times of a schedule, without storing it."""
    s = session(context)
    times = s.hr.preview_schedule(**_given(cron, every, timezone, begin, until, jitter))
    s.output.many(("NEXT",), (({"at": each}, (each,)) for each in times), "None.")


@app.command(epilog="Example: headrace schedules pause daily")
def pause(context: typer.Context, schedule: Name) -> None:
    """Stop a schedule until it is resumed."""
    s = session(context)
    _show(s.output, s.hr.pause_schedule(schedule))


@app.command(epilog="Example: headrace schedules resume daily")
def resume(context: typer.Context, schedule: Name) -> None:
    """Let a paused schedule go on with its next time."""
    s = session(context)
    _show(s.output, s.hr.resume_schedule(schedule))


@app.command(epilog="Example: headrace schedules run daily")
def run(context: typer.Context, schedule: Name) -> None:
    """Send the message of a schedule now, once."""
    s = session(context)
    sent = s.hr.run_schedule(schedule)
    s.output.one(sent, [("id", sent.id), ("topic", sent.topic), ("status", sent.status)])


@app.command(epilog="Example: headrace schedules delete daily")
def delete(context: typer.Context, schedule: Name, yes: Yes = False) -> None:
    """Delete a schedule. Messages that it has sent stay."""
    s = session(context)
    sure(f"Delete the schedule {schedule}?", yes)
    s.hr.delete_schedule(schedule)
    s.output.did("deleted", f"{schedule} is deleted.")


def _given(
    cron: str | None,
    every: str | None,
    timezone: str | None,
    begin: str | None,
    until: str | None,
    jitter: str | None,
) -> dict[str, Any]:
    if (cron is None) == (every is None):
        raise typer.BadParameter("Say either --cron or --every.")
    times = {
        "cron": cron,
        "every": every,
        "timezone": timezone,
        "begin": begin,
        "until": until,
        "jitter": jitter,
    }
    return {name: value for name, value in times.items() if value is not None}


def _times(schedule: models.Schedule) -> str:
    if schedule.cron is None:
        return f"each {schedule.every_seconds} s"
    return schedule.cron if schedule.timezone == "UTC" else f"{schedule.cron} {schedule.timezone}"


def _next(schedule: models.Schedule) -> Any:
    return "paused" if schedule.paused else next(iter(schedule.next), None)


def _show(output: Output, schedule: models.Schedule) -> None:
    fields = [(name, value) for name, value in schedule.as_dict().items() if name not in ("next", "last")]
    fields += [("next", each) for each in schedule.next]
    fields += [("last", f"{text(each.at)} {each.message_id}") for each in schedule.last or ()]
    output.one(schedule, fields)
