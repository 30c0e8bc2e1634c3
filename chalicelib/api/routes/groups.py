"""Consumer groups: settings, position, assignment of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...domain.errors import NotFound, Refused
from ...domain.topic import EARLIEST, LATEST, Group, Scope, Topic, Where, cursor_keys
from .. import list_pages, parse
from ..calls import ANY, Context, Response, call
from ..requests import GroupBody, NoBody, SeekBody
from ..responses import assignments, groups
from ..responses.assignments import AssignmentView
from ..responses.common import Page, page
from ..responses.groups import GroupDetail, GroupSummary, GroupView
from ..responses.rates import GroupRatesView

if TYPE_CHECKING:
    from ...services.core.positions import Places

_BEGINS = f'"{EARLIEST}", "{LATEST}"'
_GROUP = "/v1/topics/{topic}/groups/{group}"


@call("PUT", _GROUP, scopes=(Scope.ADMIN,), body=GroupBody, statuses=(200, 201))
def put_group(context: Context) -> Response[GroupView]:
    """Create a group, or change the settings that are given."""
    topic, name = context.topic(consistent=True), context.params["group"]
    fields = parse.settings(context.body)
    if "begin" in fields:
        fields["begin"] = _begin(fields["begin"])
    if "filter" in fields:
        fields["tags"] = parse.tags(fields.pop("filter"))
    group, is_new = context.deps.admin.put_group(topic, name, fields, parse.new_retry(fields))
    # with the topic's `shards`, these decide how many runs of `deliver` a group has (`workers_of`)
    if not is_new and fields.keys() & {"max_in_flight", "batch_size"}:
        context.deps.waker.wake_after_redivision(topic)
    return Response(groups.view(group), 201 if is_new else 200)


def _begin(text: str) -> str:
    return text if text in (EARLIEST, LATEST) else f"@{parse.time_ms(text, 'from', _BEGINS)}"


@call("GET", _GROUP, scopes=ANY)
def get_group(context: Context) -> Response[GroupDetail]:
    """A group's settings, its counts, and each shard's tail, floor, next, backlog, owner and leases."""
    return Response(_detail(context, *context.group()))


@call("GET", _GROUP + "/rates", scopes=ANY, query=("window",))
def get_group_rates(context: Context) -> Response[GroupRatesView]:
    """A group's rates of settled messages and retries, and its backlog, also by shard, over time.

    `window` is 1h (each minute; the default), 24h (ten minutes) or 7d (hours)."""
    from ..responses import rates

    window = list_pages.window(context.query)
    topic, group = context.group()
    deps = context.deps
    buckets = deps.rate_charts.of(topic, window, deps.surveyor.reading(topic, group), only=group)
    return Response(rates.of_group(topic, group, window, buckets))


@call("GET", "/v1/topics/{topic}/groups", scopes=ANY, query=("limit", "page_token"))
def list_groups(context: Context) -> Response[Page[GroupSummary]]:
    """List the topic's groups, by name."""
    topic, counts = context.topic(), context.deps.counts
    purpose, limit = f"groups:{topic.name}", list_pages.limit(context.query)
    after = list_pages.page_start(context, purpose) or ""
    rest = [
        group
        for group in context.deps.catalog.groups(topic)
        if group.name > after and context.may_use_group(group.name)
    ]
    statuses = counts.group_statuses(topic, rest[:limit])
    items = [groups.summary(*pair) for pair in zip(rest, statuses, strict=False)]
    next_start = items[-1]["group"] if len(items) < len(rest) else None
    return Response(page(context, purpose, items, next_start))


@call("DELETE", _GROUP, scopes=(Scope.ADMIN,), statuses=(204,))
def delete_group(context: Context) -> Response[None]:
    """Delete a group with its consumers and positions.

    The answer takes some three seconds: after it, no process works for the group any more."""
    topic, admin = context.topic(consistent=True), context.deps.admin
    admin.delete_group(topic, admin.group_to_delete(topic, context.params["group"]))
    return Response(None, 204)


@call("POST", f"{_GROUP}/pause", scopes=(Scope.ADMIN,), body=NoBody)
def pause_group(context: Context) -> Response[GroupView]:
    """Pause the group: it gets no more messages until it is resumed; present leases stay valid."""
    topic = context.topic(consistent=True)
    return Response(groups.view(context.deps.admin.pause(topic, context.params["group"], True)))


@call("POST", f"{_GROUP}/resume", scopes=(Scope.ADMIN,), body=NoBody)
def resume_group(context: Context) -> Response[GroupView]:
    """Resume the group: it gets messages again."""
    topic = context.topic(consistent=True)
    group = context.deps.admin.pause(topic, context.params["group"], False)
    context.deps.waker.wake_after_resumption(topic, group)
    return Response(groups.view(group))


@call("POST", f"{_GROUP}/seek", scopes=(Scope.ADMIN,), body=SeekBody)
def seek_group(context: Context) -> Response[GroupDetail]:
    """Move the group to earliest, latest, a time or an offset; its open leases become invalid."""
    topic, group = context.group(consistent=True)
    where, shard = _where(context.body.to), context.body.shard
    if shard is not None and shard >= topic.shards:
        raise Refused("NO_SUCH_SHARD", f"Topic {topic.name!r} has shards 0 to {topic.shards - 1}.")
    places: Places = {}
    for uid in context.deps.catalog.cursor_owners(topic, group):
        try:
            for key in cursor_keys(topic, group, uid):
                if shard in (None, key.shard.shard):
                    context.deps.positions.seek(topic, key, where, places)
        except NotFound:  # a broadcast goes on without the consumer that has just left
            if not uid or context.group(consistent=True)[1].uid != group.uid:
                raise
    context.deps.waker.wake_group(topic, group)
    return Response(_detail(context, topic, group))


def _where(to: str | int) -> Where:
    if isinstance(to, int) or to in (EARLIEST, LATEST):
        return to
    return f"@{parse.time_ms(to, 'to', f'{_BEGINS}, an offset')}"


@call("GET", f"{_GROUP}/assignment", scopes=ANY)
def get_assignment(context: Context) -> Response[AssignmentView]:
    """Which consumer owns which shard, and why."""
    topic, group = context.group()
    assignment = context.deps.assignments.current(topic, group)
    consumers = context.deps.catalog.consumers(topic, group)
    return Response(assignments.view(topic, assignment, consumers))


def _detail(context: Context, topic: Topic, group: Group) -> GroupDetail:
    status = context.deps.counts.group_status(topic, group)
    assignment = context.deps.assignments.current(topic, group)
    names = context.deps.catalog.consumer_names(topic, group)
    return groups.detail(group, status, names, assignments.owners(topic, assignment, names))
