"""`headrace consumers`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import models
from .arguments import Group, Noun, Overlap, Topic, Yes, sure
from .output import Output, failure, number_of
from .session import session

app = typer.Typer(
    cls=Noun, name="consumers", help="Consumers: list, put, delete, their attempts, a test, a new secret."
)
Consumer = Annotated[str, typer.Argument(help="The consumer.")]


@app.command("list", epilog="Example: headrace consumers list orders mailer")
def list_consumers(context: typer.Context, topic: Topic, group: Group) -> None:
    """List a group's consumers: when they were last seen, and the health of push consumers."""
    s = session(context)
    rows = ((c, _row(c)) for c in s.hr.list_consumers(topic, group))
    columns = ("CONSUMER", "KIND", "STATE", "LAST SEEN", "WHY", "CIRCUIT", "FAILING SINCE")
    s.output.many(columns, rows, "No consumers yet.")


def _row(c: models.Consumer) -> tuple[Any, ...]:
    return c.consumer, c.kind, c.state, c.last_seen_at, c.why, c.breaker, c.failing_since_at


@app.command(
    epilog="Example: headrace consumers put orders mailer shop --endpoint https://shop.example/hooks --timeout 120"
)
def put(
    context: typer.Context,
    topic: Topic,
    group: Group,
    consumer: Consumer,
    endpoint: Annotated[str | None, typer.Option(help="The URL that is called.")] = None,
    function: Annotated[str | None, typer.Option(help="Or the Lambda function that is called.")] = None,
    secret: Annotated[str | None, typer.Option(help="A signing secret of your own (whsec_…).")] = None,
    timeout: Annotated[int | None, typer.Option(help="Seconds that a call may take, up to 840.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="'Name: value', sent with each message; @FILE reads lines of a file (-: input)."),
    ] = None,
    no_headers: Annotated[bool, typer.Option("--no-headers", help="Remove its headers.")] = False,
    reject_status: Annotated[
        list[int] | None, typer.Option(help="A status (4xx) that makes a dead letter at once.")
    ] = None,
    transform: Annotated[str | None, typer.Option(help="JMESPath: what is sent of a message.")] = None,
    batch_wait: Annotated[
        int | None, typer.Option(help="Seconds to wait for a full batch, up to 20.")
    ] = None,
) -> None:
    """Register a consumer, or replace its registration: what is not given gets its default, but headers stay."""
    s = session(context)
    made = s.hr.put_consumer(
        topic,
        group,
        consumer,
        url=endpoint,
        function=function,
        secret=secret,
        timeout_seconds=timeout,
        headers={} if no_headers else _headers(header) if header else None,
        reject_statuses=reject_status,
        transform=transform,
        batch_wait_seconds=batch_wait,
    )
    facts = [(name, getattr(made, name)) for name in ("consumer", "kind", "state", "why", "secret")]
    s.output.one(made, [(name, value) for name, value in facts if value is not None])


def _headers(options: list[str]) -> dict[str, str]:
    lines: list[str] = []
    for option in options:
        if option.startswith("@"):
            text = sys.stdin.read() if option == "@-" else Path(option[1:]).read_text()
            lines += filter(None, map(str.strip, text.splitlines()))
        else:
            lines.append(option)
    pairs = [line.partition(":") for line in lines]
    if not all(colon for _, colon, _ in pairs):
        raise typer.BadParameter("Write 'Name: value'.", param_hint="--header")
    return {name.strip(): value.strip() for name, _, value in pairs}


@app.command(epilog="Example: headrace consumers delete orders mailer worker-1")
def delete(context: typer.Context, topic: Topic, group: Group, consumer: Consumer, yes: Yes = False) -> None:
    """Delete a consumer: its shards go to the others, in a broadcast its position ends."""
    s = session(context)
    shards = s.hr.get_group(topic, group).shards
    waiting = sum(each.backlog for each in shards if each.consumer == consumer)
    loss = f", which has {number_of(waiting, 'waiting message')}" if waiting else ""
    sure(f"Delete {consumer} of {group}{loss}?", yes)
    s.hr.delete_consumer(topic, group, consumer)
    s.output.did("deleted", f"{consumer} is deleted.")


@app.command(epilog="Example: headrace consumers attempts orders mailer shop --limit 5")
def attempts(
    context: typer.Context,
    topic: Topic,
    group: Group,
    consumer: Consumer,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 32,
) -> None:
    """Show the latest attempts at a consumer, and how long they took."""
    s = session(context)
    latest = s.hr.get_attempts(topic, group, consumer, limit=limit)
    rows = ((each, _attempt(each)) for each in latest.items)
    columns = ("AT", "SHARD", "OFFSET", "ATTEMPT", "OUTCOME", "MS", "DETAIL")
    s.output.many(columns, rows, "No attempt yet.")
    if latest.p50_ms is not None:
        s.output.say(f"Half took {latest.p50_ms} ms at most, 95 % took {latest.p95_ms} ms.")


def _attempt(each: models.Attempt) -> tuple[Any, ...]:
    return (
        each.at,
        each.shard,
        each.offset,
        each.attempt,
        each.outcome,
        each.duration_ms,
        failure(each.detail, each.answer),
    )


@app.command("test", epilog="Example: headrace consumers test orders mailer shop")
def send_test(
    context: typer.Context,
    topic: Topic,
    group: Group,
    consumer: Consumer,
    body: Annotated[str | None, typer.Option(help="Send this JSON as a message would be sent.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent.")] = False,
    transform: Annotated[
        str | None, typer.Option(help="With --dry-run: another JMESPath expression.")
    ] = None,
) -> None:
    """Send a signed test event to a consumer's URL. Exit code 1 if a message would have failed."""
    s = session(context)
    try:
        message = {"body": json.loads(body)} if body is not None else None
    except ValueError:
        raise typer.BadParameter("It is not JSON.", param_hint="--body") from None
    report = s.hr.test_consumer(topic, group, consumer, message=message, dry_run=dry_run, transform=transform)
    _show(s.output, report)
    if not report.ok:
        raise typer.Exit(1)


def _show(output: Output, report: models.Tested) -> None:
    request, answer = report.request, report.answer or {}
    lines = [("ok", report.ok), ("detail", report.detail), ("duration_ms", report.duration_ms)]
    lines += [("sent to", request["url"]), *request["headers"].items(), ("body", request["body"])]
    lines += [("answer", answer.get("status")), *(answer.get("headers") or {}).items()]
    output.one(report, [*lines, ("answer's body", answer.get("body"))])


@app.command(
    "rotate-secret",
    epilog="Example: headrace consumers rotate-secret orders mailer shop",
)
def rotate_secret(
    context: typer.Context,
    topic: Topic,
    group: Group,
    consumer: Consumer,
    overlap_seconds: Overlap = None,
) -> None:
    """Make a new signing secret. It is printed only once."""
    s = session(context)
    secret = s.hr.rotate_secret(topic, group, consumer, overlap_seconds=overlap_seconds)
    if s.output.as_json:
        s.output.document({"secret": secret})
        return
    s.output.out.print(secret, soft_wrap=True)
    s.output.say("Store it now: it is not shown again.")
