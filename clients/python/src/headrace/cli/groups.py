"""`headrace groups`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer

from .. import models
from ..errors import GroupNotFound
from . import many
from .arguments import Consumer, Group, Noun, Overlap, Settings, Topic, Yes, settings_of, sure
from .output import Output, number_of, table_of, text
from .session import Session, session

app = typer.Typer(
    cls=Noun,
    name="groups",
    help="Groups: list, show, waiting, create, set, pause, resume, retry, seek, purge, delete, rotate-secret.",
)
Filter = Annotated[str | None, typer.Option(help="Tags, as in 'paid || refunded'; '*' for all.")]
OnDead = Annotated[
    str | None,
    typer.Option(
        "--on-dead", metavar="TOPIC", help="The topic that gets a message for each dead letter; '' for none."
    ),
]
OnSuccess = Annotated[
    str | None,
    typer.Option("--on-success", metavar="TOPIC", help="As --on-dead, for each message that succeeds."),
]
Callbacks = Annotated[
    list[str] | None,
    typer.Option(
        "--callback-host",
        metavar="HOST",
        help="A host that a message's callback_url may name; repeatable, '' for none.",
    ),
]
IncludeBody = Annotated[bool, typer.Option("--include-body", help="With the messages' bodies.")]
_COUNTED = 2000
_TIME = re.compile(r"\d{4}-\d\d-\d\dT", re.ASCII)


@app.command("list", epilog="Example: headrace groups list orders")
def list_groups(context: typer.Context, topic: Topic) -> None:
    """List a topic's groups."""
    s = session(context)
    stats = s.hr.get_topic(topic).stats
    counts = stats.groups if stats else {}
    rows = ((g, (g.group, g.mode, *_count_cells(counts.get(g.group)))) for g in s.hr.list_groups(topic))
    columns = ("GROUP", "MODE", "WAITING", "IN FLIGHT", "RETRYING", "DEAD")
    s.output.many(columns, rows, f"No groups yet: headrace groups create {topic} mailer")


def _count_cells(counts: models.GroupCounts | None) -> Sequence[Any]:
    return (counts.backlog, counts.in_flight, counts.retrying, counts.dead) if counts else ("", "", "", "")


@app.command(epilog="Example: headrace groups show orders mailer")
def show(context: typer.Context, topic: Topic, group: Group) -> None:
    """Show a group's settings, its position in each shard, its consumers."""
    s = session(context)
    details = s.hr.get_group(topic, group)
    if s.output.as_json:
        s.output.document(details)
        return
    _show(s.output, details)
    s.output.out.print(_shards(details.shards))
    consumers = [(c.consumer, c.kind, c.state, c.rank, c.shards) for c in s.hr.list_consumers(topic, group)]
    if consumers:
        s.output.out.print(table_of(("CONSUMER", "KIND", "STATE", "RANK", "SHARDS"), consumers))


@app.command(epilog="Example: headrace groups waiting orders mailer")
def waiting(context: typer.Context, topic: Topic, group: Group) -> None:
    """Show who waits for what: the ordering keys and tenants with most messages next in line, and the limits."""
    s = session(context)
    answer = s.hr.get_group_waiting(topic, group)
    if s.output.as_json:
        s.output.document(answer)
        return
    s.output.say(f"Limited by: {', '.join(answer.limited_by) or 'nothing'}. Messages read: {answer.read}.")
    for name, waiters in (("KEY", answer.keys), ("TENANT", answer.tenants)):
        rows = [(w.value or "none", w.messages, w.oldest_at, w.waits_for or "a claim") for w in waiters]
        s.output.out.print(table_of((name, "MESSAGES", "SINCE", "WAITS FOR"), rows))


@app.command(epilog="Example: headrace groups create orders mailer --from earliest")
def create(
    context: typer.Context,
    topic: Topic,
    group: Group,
    begin: Annotated[
        str | None, typer.Option("--from", help="earliest, latest (the default), or a time.")
    ] = None,
    mode: Annotated[str | None, typer.Option(help="queue, serial or broadcast.")] = None,
    filter: Filter = None,
    settings: Settings = None,
    yes: Yes = False,
) -> None:
    """Create a group, or change the settings that are given."""
    s = session(context)
    fields = _fields(settings, mode=mode, filter=filter)
    with suppress(GroupNotFound):
        _check_filter(s, s.hr.get_group(topic, group), fields, yes)
    _show(s.output, s.hr.put_group(topic, group, begin=begin, **fields))


@app.command("set", epilog="Example: headrace groups set orders mailer --filter 'paid || refunded'")
def set_settings(
    context: typer.Context,
    topic: Topic,
    group: Group,
    filter: Filter = None,
    on_dead: OnDead = None,
    on_success: OnSuccess = None,
    include_body: IncludeBody = False,
    callback_host: Callbacks = None,
    settings: Settings = None,
    yes: Yes = False,
) -> None:
    """Change a group's settings. It shows each before and after, and what another filter means for waiting messages."""
    fields = _fields(settings, filter=filter)
    for name, to in {"on_dead": on_dead, "on_success": on_success}.items():
        if to is not None:
            fields[name] = {"topic": to, "include_body": include_body} if to else None
    if callback_host:
        fields["callbacks"] = {"hosts": callback_host} if any(callback_host) else None
    if not fields:
        raise typer.BadParameter("Give what to change: --filter, or --set NAME=VALUE.")
    s = session(context)
    before = s.hr.get_group(topic, group)
    _check_filter(s, before, fields, yes)
    after = s.hr.put_group(topic, group, **fields)
    old, new = before.as_dict(), after.as_dict()
    rows = [
        (name, f"{text(old.get(name)) or 'none'} → {text(new[name]) or 'none'}")
        for name in fields
        if name in new
    ]
    s.output.one(after, [("group", group), *rows, *after.callback_secrets.items()])


@app.command("rotate-secret", epilog="Example: headrace groups rotate-secret orders mailer")
def rotate_secret(
    context: typer.Context, topic: Topic, group: Group, overlap_seconds: Overlap = None
) -> None:
    """Make new secrets for the group's callbacks, and print them by host."""
    s = session(context)
    after = s.hr.rotate_callback_secrets(topic, group, overlap_seconds=overlap_seconds)
    s.output.one(after, after.callback_secrets.items())


def _fields(settings: list[str] | None, **options: str | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None} | settings_of(settings)


def _check_filter(s: Session, before: models.Group, fields: dict[str, Any], yes: bool) -> None:
    """Say what another filter means, and ask if messages wait: it may skip them for good."""
    topic, group, waiting = before.topic, before.group, many.owed(before.states or models.States())["waiting"]
    filter = fields.get("filter", before.filter) or "*"
    if filter != before.filter:
        s.output.say(
            f"Within seconds {filter!r} decides about each message that was never attempted, also about the {waiting} "
            "that wait: those that it excludes count as SUCCESS without a delivery. Retries and redriven dead letters "
            "are still delivered."
        )
        if before.filter != "*":
            s.output.say(
                f"Messages that {before.filter!r} has excluded so far stay excluded: `headrace seek {topic} {group} "
                "TIME` goes back to them, and to all others since that time."
            )
        if waiting:
            sure(f"Change the filter of {group}, which has {number_of(waiting, 'waiting message')}?", yes)


@app.command(epilog="Example: headrace groups pause orders mailer --until 2030-01-01T00:00:00Z")
def pause(
    context: typer.Context,
    topic: Topic,
    group: Group,
    until: Annotated[
        str | None, typer.Option(help="Until this time (2030-01-01T00:00:00Z); then it resumes by itself.")
    ] = None,
) -> None:
    """Pause a group: it gets no messages until `resume`, or until a time."""
    s = session(context)
    _show(s.output, s.hr.pause_group(topic, group, until=until))


@app.command(epilog="Example: headrace groups retry orders mailer --error timeout")
def retry(
    context: typer.Context,
    topic: Topic,
    group: Group,
    ids: many.Ids = None,
    error: many.Error = None,
    key: many.Key = None,
    tag: many.Tag = None,
    tenant: many.Tenant = None,
    since: many.Since = None,
    until: many.Until = None,
    consumer: Annotated[str | None, typer.Option(help="Of a broadcast: only this one's.")] = None,
    limit: many.Most = None,
    preview: many.Preview = False,
    yes: Yes = False,
) -> None:
    """Make the next attempts of waiting deliveries now."""
    s = session(context)
    which = many.chosen(ids, limit, error=error, key=key, tag=tag, tenant=tenant, since=since, until=until)
    seen = s.hr.preview("retry", topic, group, **which, consumer=consumer)
    do = partial(s.hr.retry_many, topic, group, **which, consumer=consumer)
    many.on_many(s, ("Retry now", "waiting delivery", "retried"), ids, seen, do, preview, yes)


@app.command(epilog="Example: headrace groups resume orders mailer")
def resume(context: typer.Context, topic: Topic, group: Group) -> None:
    """Resume a group: it gets messages again."""
    s = session(context)
    _show(s.output, s.hr.resume_group(topic, group))


@app.command(epilog="Example: headrace groups delete orders mailer")
def delete(
    context: typer.Context, topic: Topic, group: Group, preview: many.Preview = False, yes: Yes = False
) -> None:
    """Delete a group with its consumers, positions and dead letters."""
    s = session(context)
    details = s.hr.get_group(topic, group)
    kinds = many.owed(details.states or models.States()) | {"dead": details.dead or 0}
    if many.on_all(s, f"Delete {group} of {topic} and what waits for it", kinds, preview, yes):
        s.hr.delete_group(topic, group)
        s.output.did("deleted", f"{group} is deleted.")


@app.command(epilog="Example: headrace groups purge orders mailer --preview")
def purge(
    context: typer.Context,
    topic: Topic,
    group: Group,
    consumer: Consumer = None,
    preview: many.Preview = False,
    yes: Yes = False,
) -> None:
    """Drop what waits for a group: backlog, retries, leases. Dead letters stay."""
    s = session(context)
    details = s.hr.get_group(topic, group)
    kinds = many.owed(details.states or models.States())
    if consumer:
        s.hr.get_consumer(topic, group, consumer)
        kinds = {"waiting": sum(each.backlog for each in details.shards if each.consumer == consumer)}
    owner = f"{consumer} alone, with its retries," if consumer else group
    if many.on_all(s, f"Drop for good what waits for {owner}", kinds, preview, yes):
        purged = s.hr.purge_group(topic, group, confirm=group, consumer=consumer)
        s.output.one(purged, [("purged", purged.purged)])


@app.command(epilog="Example: headrace groups seek orders mailer 2030-01-01T00:00:00Z --preview")
def seek(
    context: typer.Context,
    topic: Topic,
    group: Group,
    to: Annotated[str, typer.Argument(help="earliest, latest, a time (2030-01-01T00:00:00Z) or an offset.")],
    shard: Annotated[int | None, typer.Option(help="Only this shard.")] = None,
    consumer: Annotated[str | None, typer.Option(help="Of a broadcast, only this consumer.")] = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show the effect.")] = False,
    yes: Yes = False,
) -> None:
    """Move a group, or a consumer of a broadcast, back or forward, after showing the effect."""
    s = session(context)
    target = _place(to)
    before = s.hr.get_group(topic, group)
    moved = [
        each for each in before.shards if shard in (None, each.shard) and consumer in (None, each.consumer)
    ]
    if not s.output.as_json:
        s.output.out.print(_shards(moved))
    effect = _preview(s, before.topic, moved, target, shard)
    s.output.say(effect.sentence(consumer or before.group))
    if preview:
        if s.output.as_json:
            s.output.document(effect)
        return
    sure("Its open leases are void then. Go?", yes)
    after = s.hr.seek_group(topic, group, target, shard=shard, consumer=consumer)
    if s.output.as_json:
        s.output.document(after)
    else:
        places = {(each.shard, each.consumer) for each in moved}
        s.output.out.print(_shards([each for each in after.shards if (each.shard, each.consumer) in places]))


def _place(to: str) -> str | int:
    """Where a seek goes. Raises BadParameter."""
    if to.isascii() and to.isdigit():
        return int(to)
    if to not in ("earliest", "latest") and not _TIME.match(to):
        raise typer.BadParameter(
            f"{to!r} is neither earliest, latest, a time like 2030-01-01T00:00:00Z, nor an offset."
        )
    return to


@dataclass(frozen=True)
class Preview:
    """What waits for a group now, and what would after a seek: exactly, "at_least" or "at_most" so many."""

    waiting: int
    would_wait: int
    bound: str = "exactly"

    def sentence(self, group: str) -> str:
        """For people."""
        if self.waiting and not self.would_wait:
            return f"{group} would skip {number_of(self.waiting, 'message')}."
        bound = {"exactly": "", "at_least": "at least ", "at_most": "up to "}[self.bound]
        messages = number_of(self.would_wait, "message")
        return f"{group} would have {bound}{messages} before it; now it has {self.waiting}."


def _preview(
    s: Session, topic: str, shards: Sequence[models.Shard], to: str | int, shard: int | None
) -> Preview:
    backlog = sum(each.backlog for each in shards)
    if to == "latest":
        return Preview(backlog, 0)
    if isinstance(to, int):
        return Preview(backlog, sum(max(0, each.tail - to + 1) for each in shards), "at_most")
    begin = None if to == "earliest" else to
    messages = s.hr.list_messages(topic, begin=begin, shard=shard, limit=200)
    count = sum(1 for _ in islice(messages, _COUNTED))
    return Preview(backlog, count, "at_least" if count == _COUNTED else "exactly")


def _shards(shards: Sequence[models.Shard]) -> Any:
    rows = [(each.shard, each.tail, each.next, each.backlog, each.owner or each.consumer) for each in shards]
    return table_of(("SHARD", "TAIL", "NEXT", "WAITING", "OWNER"), rows)


def _show(output: Output, group: models.Group) -> None:
    output.one(group, ((name, value) for name, value in group.as_dict().items() if name != "shards"))
