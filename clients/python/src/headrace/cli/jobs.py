"""`headrace jobs`: messages under names of yours."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from .arguments import CallbackUrl, Limit, Noun, Topic, headers_of, parsed
from .messages import show_message
from .output import short
from .session import session

app = typer.Typer(cls=Noun, name="jobs", help="Jobs, by names of yours: list, put, get, delete.")
Name = Annotated[str, typer.Argument(help="The job's name.", show_default=False)]


@app.command("list", epilog="Example: headrace jobs list orders --prefix order-")
def list_jobs(
    context: typer.Context,
    topic: Topic,
    prefix: Annotated[str | None, typer.Option(help="Only names that begin with this.")] = None,
    limit: Limit = 20,
) -> None:
    """List the jobs that wait for their time, soonest first."""
    s = session(context)
    jobs = s.hr.list_jobs(topic, prefix=prefix, limit=min(limit, 200))
    rows = ((m, (m.deliver_at, m.job, m.id, m.tag, short(m.body))) for m in islice(jobs, limit))
    s.output.many(("DUE", "JOB", "ID", "TAG", "BODY"), rows, "None.")


@app.command(epilog="Example: headrace jobs put orders order-188 '{\"close\": 188}' --delay 30m")
def put(
    context: typer.Context,
    topic: Topic,
    job: Name,
    body: Annotated[str, typer.Argument(help="The body, JSON.", show_default=False)],
    delay: Annotated[str | None, typer.Option(help="A delay: 30s, 15m, 2h, 7d.")] = None,
    at: Annotated[str | None, typer.Option(help="When to deliver it: 2030-01-01T00:00:00Z.")] = None,
    tag: Annotated[str | None, typer.Option(help="A tag that groups may filter by.")] = None,
    callback_url: CallbackUrl = None,
    tenant: Annotated[str | None, typer.Option(help="Whom it is for.")] = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None,
) -> None:
    """Store a message under a name, or replace the one that waits under it: content and time."""
    s = session(context)
    sent = s.hr.put_job(
        topic,
        job,
        parsed(body),
        delay=delay,
        deliver_at=at,
        tag=tag,
        callback_url=callback_url,
        tenant=tenant,
        headers=headers_of(header),
    )
    s.output.one(sent, [(name, getattr(sent, name)) for name in ("id", "job", "status", "deliver_at")])


@app.command(epilog="Example: headrace jobs get orders order-188")
def get(context: typer.Context, topic: Topic, job: Name) -> None:
    """Show the last message of a name."""
    s = session(context)
    show_message(s, s.hr.get_job(topic, job))


@app.command(epilog="Example: headrace jobs delete orders order-188")
def delete(context: typer.Context, topic: Topic, job: Name) -> None:
    """Cancel a job that no group has claimed."""
    s = session(context)
    s.hr.delete_job(topic, job)
    s.output.did("deleted", f"{job} is cancelled.")
