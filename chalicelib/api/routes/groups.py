"""Consumer groups: their settings, their position, who owns which shard."""

from __future__ import annotations

from typing import Any

from ...domain.errors import Refused
from ...domain.topic import Group, Topic
from ...services.core.positions import EARLIEST, LATEST, Where, keys
from .. import parse, render
from ..http import ANY, Context, Response, call
from ..requests import GroupBody, NoBody, SeekBody

_BEGINS = f'"{EARLIEST}", "{LATEST}"'
_GROUP = "/v1/topics/{topic}/groups/{group}"


@call("PUT", _GROUP, scopes=("admin",), body=GroupBody)
def put_group(context: Context, topic: str, group: str) -> Response:
    """Create a group, or change the settings that are given."""
    found = context.deps.catalog.topic(topic, fresh=True)
    fields = parse.settings(context.body)
    if "begin" in fields:
        fields["begin"] = _begin(fields["begin"])
    if "filter" in fields:
        fields["tags"] = parse.tags(fields.pop("filter"))
    if fields.get("retry"):
        fields["retry"] = parse.retry(fields["retry"], found.retry)
    made, created = context.deps.admin.put_group(found, group, fields)
    return Response(render.group(made), 201 if created else 200)


def _begin(text: str) -> str:
    return text if text in (EARLIEST, LATEST) else f"@{parse.time_ms(text, 'from', _BEGINS)}"


@call("GET", _GROUP, scopes=ANY)
def get_group(context: Context, topic: str, group: str) -> Response:
    """A group's settings, its counts, and each shard's tail, floor, next, backlog, owner and leases."""
    return Response(_shown(context, *_find(context, topic, group)))


@call("GET", "/v1/topics/{topic}/groups", scopes=ANY, query=("limit", "page_token"))
def list_groups(context: Context, topic: str) -> Response:
    """The topic's groups, by name."""
    found = context.deps.catalog.topic(topic)
    limit = parse.limit(context.query)
    after = parse.page_start(context, f"groups:{topic}") or ""
    groups = [g for g in context.deps.catalog.groups(found) if g.name > after]
    items = [
        {**render.group(g), **render.counts(context.deps.lookup.group_status(found, g))}
        for g in groups[:limit]
    ]
    following = groups[limit - 1].name if len(groups) > limit else None
    return Response(parse.page(context, f"groups:{topic}", items, following))


@call("DELETE", _GROUP, scopes=("admin",))
def delete_group(context: Context, topic: str, group: str) -> Response:
    """Delete a group with its consumers and positions.

    The answer takes some three seconds: behind it, nobody works for the group any more."""
    found = context.deps.catalog.topic(topic, fresh=True)
    context.deps.admin.delete_group(found, context.deps.admin.group_to_delete(found, group))
    return Response(status=204)


@call("POST", f"{_GROUP}/pause", scopes=("admin",), body=NoBody)
def pause_group(context: Context, topic: str, group: str) -> Response:
    """Hand out no more messages until resumed; leases run on."""
    found = context.deps.catalog.topic(topic, fresh=True)
    return Response(render.group(context.deps.admin.pause(found, group, True)))


@call("POST", f"{_GROUP}/resume", scopes=("admin",), body=NoBody)
def resume_group(context: Context, topic: str, group: str) -> Response:
    """Hand out messages again."""
    found = context.deps.catalog.topic(topic, fresh=True)
    resumed = context.deps.admin.pause(found, group, False)
    context.deps.waker.group(found, resumed)
    return Response(render.group(resumed))


@call("POST", f"{_GROUP}/seek", scopes=("admin",), body=SeekBody)
def seek_group(context: Context, topic: str, group: str) -> Response:
    """Send the group to earliest, latest, a time or an offset; its open leases are void."""
    found, wanted = _find(context, topic, group, fresh=True)
    where = _where(context.body.to)
    if context.body.shard is not None and context.body.shard >= found.shards:
        raise Refused("NO_SUCH_SHARD", f"Topic {topic!r} has shards 0 to {found.shards - 1}.")
    for uid in context.deps.catalog.cursor_owners(found, wanted):
        for key in keys(found, wanted, uid):
            if context.body.shard in (None, key.shard.shard):
                context.deps.positions.seek(found, key, where)
        if context.body.shard is None:
            context.deps.positions.mend_lane(found, wanted, uid)
    context.deps.waker.group(found, wanted)
    return Response(_shown(context, found, wanted))


def _where(to: str | int) -> Where:
    if isinstance(to, int) or to in (EARLIEST, LATEST):
        return to
    return f"@{parse.time_ms(to, 'to', f'{_BEGINS}, an offset')}"


@call("GET", f"{_GROUP}/assignment", scopes=ANY)
def get_assignment(context: Context, topic: str, group: str) -> Response:
    """Who owns which shard, and why."""
    found, wanted = _find(context, topic, group)
    held = context.deps.assignments.current(found, wanted)
    consumers = context.deps.catalog.consumers(found, wanted)
    return Response(render.assignment(found, held, consumers))


def _find(context: Context, topic: str, group: str, *, fresh: bool = False) -> tuple[Topic, Group]:
    found = context.deps.catalog.topic(topic, fresh=fresh)
    return found, context.deps.catalog.group(found, group, fresh=fresh)


def _shown(context: Context, topic: Topic, group: Group) -> dict[str, Any]:
    status = context.deps.lookup.group_status(topic, group)
    held = context.deps.assignments.current(topic, group)
    names = {c.uid: c.name for c in context.deps.catalog.consumers(topic, group)}
    owners = render.owners(topic, held, names)
    shards = [render.shard(s, names, owners[s.shard]) for s in status.shards]
    return {**render.group(group), **render.counts(status), "shards": shards}
