"""Consumer groups: settings, position, assignment of shards."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from msgspec import Meta, Struct

from ...delivery.webhooks import format_secret
from ...domain import attention
from ...domain import limits as lim
from ...domain.errors import Forbidden, NotFound, Refused
from ...domain.meter import GroupBucket
from ...domain.ranges import total
from ...domain.settings import Destination
from ...domain.topic import EARLIEST, FOR_EVER_MS, LATEST, Group, Scope, Topic, Where
from ...modes import POLICIES
from .. import lists, parse, settings
from ..calls import ADMIN, ANY, GROUP, PAGED, READ, TOPIC, Context, Response, call
from ..fields import Count, Name, NoBody, RotateBody, Time, at, one_of, shown, taken
from ..http import invalid
from .consumers import AssignmentView, assignment_view, shard_owners

if TYPE_CHECKING:
    from ...domain.cursor import Lease
    from ...services.inspect.survey import GroupSurvey, Progress


class SeekBody(Struct, forbid_unknown_fields=True):
    """A group's new position: "earliest", "latest", a time (RFC 3339) or an offset; on one shard or on all. In a
    broadcast: of one `consumer`, or of all."""

    to: str | Annotated[int, Meta(ge=0, le=lim.MAX_OFFSET)]
    shard: Annotated[int, Meta(ge=0)] | None = None
    consumer: Name | None = None


class PauseBody(Struct, forbid_unknown_fields=True):
    """When a pause ends by itself; without `until`, the group is paused until it is resumed."""

    until: Time | None = None


class StoredGroup(settings.GroupView):
    """A group's settings; where `callbacks` were given, and after a rotation, the secret that signs callbacks to each
    host."""

    callback_secrets: NotRequired[dict[str, str]]


class GroupStates(TypedDict):
    """Deliveries by state; `skipped` were never to be delivered to this group. Their sum is the number of messages that
    the log has had."""

    NEW: Count
    RUNNING: Count
    RETRYING: Count
    SUCCESS: Count
    DEAD: Count
    skipped: Count


Limit = Annotated[str, one_of("rate", "concurrency", "keys")]


class GroupCounts(TypedDict):
    """A group's counts. `consumed` are settled as SUCCESS; the age is that of the oldest unsettled message.
    `limited_by`: why messages wait now: the `rate_limit`, `max_in_flight`, or earlier messages of their ordering
    keys."""

    backlog: Count
    in_flight: Count
    retrying: Count
    dead: Count
    consumed: Count
    oldest_age_seconds: Count | None
    limited_by: list[Limit]
    states: GroupStates


class Waiters(TypedDict):
    """Messages of one ordering key or tenant (null: of none), since when they wait, and for what; null: for the next
    claim."""

    value: str | None
    messages: Count
    oldest_at: Time
    waits_for: Limit | None


class WaitingView(TypedDict):
    """Who waits in a group, and what limits it. Of the messages next in line that were `read`, the ten ordering keys
    and the ten tenants that most have."""

    read: Count
    limited_by: list[Limit]
    keys: list[Waiters]
    tenants: list[Waiters]


class GroupStats(GroupCounts):
    """A group's counts, and how many of its consumers get nothing until a person acts."""

    stopped_consumers: Count


class StoppedConsumer(TypedDict):
    """A consumer that gets nothing until a person acts: DISABLED; PENDING for an hour; CIRCUIT_OPEN, whose calls have
    all failed for ten minutes."""

    consumer: str
    state: Annotated[str, one_of("DISABLED", "PENDING", "CIRCUIT_OPEN")]
    since: Time
    why: str


class LeaseView(TypedDict):
    """Messages in flight: ranges of offsets (first and last), the consumer that holds them, and until when."""

    offsets: list[list[Count]]
    attempt: Count
    consumer: str | None
    expires_at: Time


class ShardView(TypedDict):
    """One shard of a group: `tail` is the log's last offset (-1: it is empty), below `floor` everything is settled,
    from `next` on nothing has been claimed yet. In a broadcast there is one for each `consumer`."""

    shard: Count
    tail: int
    floor: Count
    next: Count
    backlog: Count
    settled_above_floor: Count
    waiting: Count
    owner: str | None
    consumer: NotRequired[str | None]
    leases: list[LeaseView]


class GroupSummary(settings.GroupView, GroupCounts):
    """A group's settings and its counts."""


class GroupDetail(settings.GroupView, GroupCounts):
    """A group's settings, its counts, its consumers that get nothing until a person acts, and its shards."""

    stopped_consumers: list[StoppedConsumer]
    shards: list[ShardView]


Rate = Annotated[float, Meta(ge=0)]


class GroupRates(TypedDict):
    """A group's settled messages and started retries a second (0 in a SERIAL group: its retries wait in their shards),
    and its backlog at the end. Null: not known."""

    settled_per_second: Rate | None
    retried_per_second: Rate | None
    backlog: Count | None


class GroupRatePoint(GroupRates):
    """A group's rates from `at` on, for a bucket's length, and its backlog at the end, also by shard. Null: not
    known."""

    at: Time
    backlog_by_shard: list[Count | None]


class GroupRatesView(TypedDict):
    """A group's rates in buckets of one length, the oldest first."""

    topic: str
    group: str
    bucket_seconds: Count
    points: list[GroupRatePoint]


@call("PUT", GROUP, scopes=ADMIN, body=settings.GroupBody, statuses=(200, 201))
def put_group(context: Context) -> Response[StoredGroup]:
    """Create a group, or change the settings that are given."""
    topic, name = context.topic(consistent=True), context.params["group"]
    fields = settings.given(context.body)
    if "begin" in fields:
        fields["begin"] = parse.beginning(fields["begin"])
    if "tags" in fields:
        fields["tags"] = settings.tags(fields["tags"])
    for name_of in ("on_dead", "on_success"):
        if to := fields.get(name_of):
            target = destination(context, to.topic, name_of, topic)
            fields[name_of] = Destination(target.name, target.uid, to.include_body)
    if to := fields.get("callbacks"):
        fields["callbacks"] = tuple(dict.fromkeys(to.hosts))
        context.deps.registry.will_be_called(topic)
    group, is_new = context.deps.admin.put_group(topic, name, fields, settings.new_retry(fields))
    if is_new:
        context.deps.signing_keys.present()  # the first use makes it, and `receive` may not
    # with the topic's `shards`, these decide how many runs of `deliver` a group has (`workers_of`)
    if not is_new and fields.keys() & {"max_in_flight", "batch_size"}:
        context.deps.waker.wake_after_redivision(topic)
    if fields.get("callbacks") or (not is_new and "rate_limit" in fields):
        context.deps.waker.wake_after_resumption(topic, group)
    if not fields.get("callbacks"):
        return Response({**settings.group_view(topic, group, context.now_ms)}, 201 if is_new else 200)
    return Response(_with_secrets(context, topic, group), 201 if is_new else 200)


def _with_secrets(context: Context, topic: Topic, group: Group) -> StoredGroup:
    of, now_ms = context.deps.secret_cipher.host_secrets, context.now_ms
    keys = {host: bytes.fromhex(of(topic, group, host, now_ms)[0].hex) for host in group.callbacks or ()}
    secrets = {host: format_secret(key) for host, key in keys.items()}
    return {**settings.group_view(topic, group, now_ms), "callback_secrets": secrets}


@call("POST", f"{GROUP}/rotate-secret", scopes=ADMIN, body=RotateBody)
def rotate_callback_secrets(context: Context) -> Response[StoredGroup]:
    """Sign callbacks with new secrets; the old ones sign, too, for `overlap_seconds` (a day)."""
    topic = context.topic(consistent=True)
    overlap_ms = context.body.overlap_seconds * 1000
    group = context.deps.admin.rotate_callback_secret(topic, context.params["group"], overlap_ms)
    return Response(_with_secrets(context, topic, group))


def destination(context: Context, name: str, setting: str, own: Topic | None = None) -> Topic:
    """The topic to which the caller has messages sent. Raises Forbidden first, so that only who may use it learns
    whether it is there, and Refused for the topic's own and an unknown one."""
    if context.caller and not context.caller.may_use(name):
        raise Forbidden("TOPIC_FORBIDDEN", f"The token is not for topic {name!r}, the {setting}.")
    if context.caller and Scope.PRODUCE not in context.caller.scopes:
        words = f"To have messages sent to {name!r} the token needs the scope 'produce'."
        raise Forbidden("SCOPE_MISSING", words)
    if own and own.name == name:
        words = f"{setting}: a group's messages cannot be sent to its own topic."
        raise Refused("DESTINATION_REFUSED", words)
    try:
        return context.deps.catalog.topic(name, consistent=True)
    except NotFound as error:
        raise Refused("DESTINATION_REFUSED", f"{setting}: {error.detail}") from None


@call("GET", GROUP, scopes=ANY)
def get_group(context: Context) -> Response[GroupDetail]:
    """A group's settings, its counts, and each shard's tail, floor, next, backlog, owner and leases."""
    return Response(_detail(context, *context.group()))


@call("GET", GROUP + "/rates", scopes=ANY, query=("window",))
def get_group_rates(context: Context) -> Response[GroupRatesView]:
    """A group's rates of settled messages and retries, and its backlog, also by shard, over time.

    `window` is 1h (each minute; the default), 24h (ten minutes) or 7d (hours)."""
    window = lists.window(context.query)
    topic, group = context.group()
    deps = context.deps
    buckets = deps.board.rates(topic, window, deps.surveyor.reading(topic, group), only=group)
    known = [(bucket.from_ms, bucket.groups[group.name]) for bucket in buckets if group.name in bucket.groups]
    points: list[GroupRatePoint] = [
        {"at": at(ms), **group_rates(rates), "backlog_by_shard": list(rates.by_shard)} for ms, rates in known
    ]
    own = {"topic": topic.name, "group": group.name, "bucket_seconds": window.bucket_ms // 1_000}
    return Response(shown(GroupRatesView, None, **own, points=points))


@call("GET", GROUP + "/waiting", scopes=READ)
def get_group_waiting(context: Context) -> Response[WaitingView]:
    """Who waits for what, by ordering key and by tenant: of the next 1,000 messages or so that no consumer has."""
    from ...services.inspect.waiting import next_in_line, who_waits

    topic, group = context.group()
    survey = context.deps.surveyor.survey(topic, only=group, ages=False).groups[0]
    found, limits = next_in_line(context.deps.reader, topic, survey), survey.limited_by
    keys, tenants = (
        [shown(Waiters, each) for each in who_waits(found, attrgetter(field), limits)]
        for field in ("ordering_key", "tenant")
    )
    return Response({"read": len(found), "limited_by": limits, "keys": keys, "tenants": tenants})


@call("GET", f"{TOPIC}/groups", scopes=ANY, query=PAGED)
def list_groups(context: Context) -> Response[lists.Page[GroupSummary]]:
    """List the topic's groups, by name."""
    topic = context.topic()
    purpose, limit = f"groups:{topic.name}", lists.limit(context.query)
    after = lists.page_start(context, purpose) or ""
    rest = [g for g in context.deps.catalog.groups(topic) if g.name > after and context.may_use_group(g.name)]
    items = [group_summary(topic, each) for each in context.deps.surveyor.exact_groups(topic, rest[:limit])]
    next_start = items[-1]["group"] if len(items) < len(rest) else None
    return lists.page(context, purpose, items, next_start)


@call("DELETE", GROUP, scopes=ADMIN, statuses=(204,))
def delete_group(context: Context) -> Response[None]:
    """Delete a group with its consumers and positions.

    The answer takes some three seconds: after it, no process works for the group any more."""
    topic, admin = context.topic(consistent=True), context.deps.admin
    admin.delete_group(topic, admin.group_to_delete(topic, context.params["group"]))
    return Response(None, 204)


@call("POST", f"{GROUP}/pause", scopes=ADMIN, body=PauseBody)
def pause_group(context: Context) -> Response[settings.GroupView]:
    """Pause the group: it gets no more messages until it is resumed, or until the given time.

    Present leases stay valid."""
    topic, text = context.topic(consistent=True), context.body.until
    until_ms = FOR_EVER_MS if text is None else parse.time_ms(text, "until")
    if until_ms <= context.now_ms:
        raise invalid("until", "must be in the future")
    group = context.deps.admin.pause(topic, context.params["group"], True, until_ms)
    return Response(settings.group_view(topic, group, context.now_ms))


@call("POST", f"{GROUP}/resume", scopes=ADMIN, body=NoBody)
def resume_group(context: Context) -> Response[settings.GroupView]:
    """Resume the group: it gets messages again."""
    topic = context.topic(consistent=True)
    group = context.deps.admin.pause(topic, context.params["group"], False)
    context.deps.waker.wake_after_resumption(topic, group)
    return Response(settings.group_view(topic, group, context.now_ms))


@call("POST", f"{GROUP}/seek", scopes=ADMIN, body=SeekBody)
def seek_group(context: Context) -> Response[GroupDetail]:
    """Move the group, or a `consumer` of a broadcast, to earliest, latest, a time or an offset.

    Open leases become invalid."""
    topic, group = context.group(consistent=True)
    where, shard = _where(context.body.to), context.body.shard
    lists.check_shard(topic, shard)
    context.deps.admin.seek(topic, group, where, _sought(context, topic, group), shard, context.by)
    context.deps.waker.wake_group(topic, group)
    return Response(_detail(context, topic, group))


def _sought(context: Context, topic: Topic, group: Group) -> Sequence[str]:
    """Whose cursors are moved."""
    name, catalog = context.body.consumer, context.deps.catalog
    if name is None:
        return catalog.cursor_owners(topic, group)
    if not POLICIES[group.mode].per_consumer:
        words = "Only consumers of a broadcast have positions of their own: leave out `consumer`."
        raise Refused("WRONG_MODE", words)
    return [catalog.consumer(topic, group, name).uid]


def _where(to: str | int) -> Where:
    if isinstance(to, int) or to in (EARLIEST, LATEST):
        return to
    return f"@{parse.time_ms(to, 'to', f'{parse.BEGINS}, an offset')}"


@call("GET", f"{GROUP}/assignment", scopes=ANY)
def get_assignment(context: Context) -> Response[AssignmentView]:
    """Which consumer owns which shard, and why."""
    topic, group = context.group()
    assignment = context.deps.assignments.current(topic, group)
    consumers = context.deps.catalog.consumers(topic, group)
    return Response(assignment_view(topic, assignment, consumers, context.now_ms))


def _detail(context: Context, topic: Topic, group: Group) -> GroupDetail:
    survey = context.deps.surveyor.exact_group(topic, group)
    assignment = context.deps.assignments.current(topic, group)
    names = context.deps.catalog.consumer_names(topic, group)
    owners = shard_owners(topic, assignment, names)
    shards = [_shard(each, names, owners[each.key.shard.shard]) for each in survey.shards]
    stopped = [
        shown(StoppedConsumer, state, state=state.kind, why=attention.why(consumer, state))
        for consumer, state in survey.stopped
    ]
    return {**group_summary(topic, survey), "stopped_consumers": stopped, "shards": shards}


def group_summary(topic: Topic, survey: "GroupSurvey") -> GroupSummary:
    """A group's settings and its counts."""
    return {**settings.group_view(topic, survey.group, survey.at_ms), **group_counts(survey)}


def group_counts(survey: "GroupSurvey") -> GroupCounts:
    """How far a group is."""
    states = {name: getattr(survey.account, name.lower()) for name in GroupStates.__annotations__}
    return shown(GroupCounts, survey, consumed=survey.account.success, states=states)


def group_stats(survey: "GroupSurvey") -> GroupStats:
    """How far a group is, and how many of its consumers are stopped."""
    return {**group_counts(survey), "stopped_consumers": len(survey.stopped)}


def _shard(progress: "Progress", names: Mapping[str, str], owner: str | None) -> ShardView:
    cursor, uid = progress.cursor, progress.key.consumer_uid
    waiting = sum(span.count for span in cursor.waiting)
    counts = {"settled_above_floor": total(cursor.settled), "waiting": waiting}
    leases = [_lease(lease, names) for lease in cursor.leases.values()]
    who = {"owner": owner, "leases": leases, **({"consumer": names.get(uid)} if uid else {})}
    return shown(ShardView, progress, **taken(cursor, "floor", "next"), **counts, **who)


def _lease(lease: "Lease", names: Mapping[str, str]) -> LeaseView:
    return {
        "offsets": sorted([low, high - 1] for span in lease.spans for low, high in span.ranges()),
        "attempt": max(span.attempt for span in lease.spans),
        "consumer": names.get(lease.owner),
        "expires_at": at(lease.deadline_ms),
    }


def group_rates(rates: GroupBucket) -> GroupRates:
    """A group's rates in a bucket."""
    settled, retried = rounded(rates.settled), rounded(rates.retried)
    return {"settled_per_second": settled, "retried_per_second": retried, "backlog": rates.backlog}


def rounded(rate: float | None) -> float | None:
    """A rate as answers show it."""
    return None if rate is None else round(rate, 4)
