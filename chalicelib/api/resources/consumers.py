"""Consumers of a group: registration, heartbeat, rank, secrets."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict

from msgspec import Meta, Struct, field

from ...delivery.answers import HIDDEN
from ...delivery.webhooks import format_secret, parse_secret
from ...domain import breaker
from ...domain import limits as lim
from ...domain.assignment import EVERYONE, Assignment, is_silent
from ...domain.call_result import Verdict
from ...domain.errors import Refused, Unavailable
from ...domain.topic import LATEST, Consumer, ConsumerKind, ConsumerState, Group, Scope, Topic
from ...modes import POLICIES
from .. import audit, fields, lists, parse
from ..calls import ANY, CONSUMER, GROUP, PAGED, READ, Context, Response, call
from ..http import invalid

if TYPE_CHECKING:
    from ...services.manage.registry import Contact, Membership


RejectStatus = Annotated[int, Meta(ge=400, le=499)]
Expiry = Annotated[int, Meta(ge=lim.MIN_CONSUMER_EXPIRY_SECONDS, le=lim.MAX_CONSUMER_EXPIRY_SECONDS)]


class ConsumerBody(Struct, forbid_unknown_fields=True):
    """A consumer: `{}` is a pull consumer; `url` or `function` makes a push consumer. `timeout_seconds` is how long a
    call may take: 30 for a URL, of a Lambda function its own time-out. `batch_wait_seconds` is how long a batch waits
    to be filled. A URL gets the static `headers` with each message (absent: those that it has; `{}`: none), and what
    the JMESPath expression `transform` makes of the message. A status of `reject_statuses` makes it a dead letter at
    once. A pull consumer is removed after `expires_after_seconds` of silence (absent: never). `instance` names its
    process: a later one takes the consumer's name over. `from` is the first position of a new consumer of a broadcast:
    "earliest", "latest" (default) or a time."""

    url: Annotated[str, Meta(max_length=lim.MAX_URL_CHARS)] | None = None
    secret: Annotated[str, Meta(max_length=256)] | None = None
    function: Annotated[str, Meta(max_length=256)] | None = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=lim.MAX_TIMEOUT_SECONDS)] | None = None
    headers: fields.StaticHeaders | None = None
    reject_statuses: Annotated[list[RejectStatus], Meta(max_length=lim.MAX_REJECT_STATUSES)] = []
    transform: Annotated[str, Meta(min_length=1)] | None = None
    batch_wait_seconds: Annotated[int, Meta(ge=0, le=lim.MAX_BATCH_WAIT_SECONDS)] = 0
    expires_after_seconds: Expiry | None = None
    instance: fields.Instance | None = None
    begin: str | None = field(default=None, name="from")


class HeartbeatBody(Struct, forbid_unknown_fields=True):
    """Which instance of the consumer is alive."""

    instance: fields.Instance | None = None


_OFFLINE = "OFFLINE"
Kind = Annotated[str, fields.one_of("pull", "url", "function")]
State = Annotated[str, fields.one_of("ACTIVE", "PENDING", "DISABLED", _OFFLINE)]


class ConsumerView(TypedDict):
    """A consumer. A pull consumer was last seen at `last_seen_at`; after 30 seconds of silence it is OFFLINE, after
    `expires_after_seconds` it is removed (null: never). A push consumer has a `url` or a `function`, and its health.
    Until `overlap_until_at` the secret from before a rotation signs, too. `headers` has the names of a URL's static
    headers; their values are never shown."""

    consumer: str
    topic: str
    group: str
    kind: Kind
    state: State
    last_seen_at: NotRequired[fields.Time]
    expires_after_seconds: NotRequired[fields.Count | None]
    instance: NotRequired[str | None]
    url: NotRequired[str]
    function: NotRequired[str]
    timeout_seconds: NotRequired[fields.Count | None]
    headers: NotRequired[dict[str, str]]
    reject_statuses: NotRequired[list[int]]
    transform: NotRequired[str | None]
    batch_wait_seconds: NotRequired[fields.Count]
    why: NotRequired[str | None]
    failing_since_at: NotRequired[fields.Time | None]
    disables_at: NotRequired[fields.Time | None]
    breaker: NotRequired[Annotated[str, fields.one_of("closed", "open", "half-open")]]
    open_until_at: NotRequired[fields.Time | None]
    overlap_until_at: NotRequired[fields.Time | None]
    created_at: fields.Time


class MemberView(ConsumerView):
    """A consumer, its rank among those online (null: it is not online), and its shards."""

    rank: fields.Count | None
    total: fields.Count
    shards: list[fields.Count]


class RegisteredConsumer(MemberView):
    """A consumer that was just registered; its new `secret` is shown only once."""

    secret: NotRequired[str]


class SecretView(TypedDict):
    """A secret to verify signatures with; it is shown only once."""

    secret: str


class _NamedConsumer(TypedDict):
    consumer: str
    kind: Kind
    state: State


class AssignedConsumer(_NamedConsumer):
    """A consumer that is online: the `rank` of `total`, and its shards."""

    rank: fields.Count | None
    total: fields.Count
    shards: list[fields.Count]


class OfflineConsumer(_NamedConsumer):
    """A consumer that gets no messages now, and why."""

    why: str


class ShardOwner(TypedDict):
    """A shard's owner; null: none."""

    shard: fields.Count
    owner: str | None


class AssignmentView(TypedDict):
    """Which consumer owns which shard, and why. `epoch` rises with each change; 0: there was none."""

    strategy: str
    epoch: fields.Count
    why: str
    consumers: list[AssignedConsumer]
    offline: list[OfflineConsumer]
    shards: list[ShardOwner]


@call("PUT", CONSUMER, scopes=READ, body=ConsumerBody, statuses=(200, 201))
def put_consumer(context: Context) -> Response[RegisteredConsumer]:
    """Register a consumer, or renew its registration.

    In a broadcast it gets messages from now on, or `from` a position."""
    topic, group = context.group(consistent=True)
    contact = _contact(context, group)
    if contact.kind == ConsumerKind.URL:  # its owner had seconds to answer: for longer than a deletion waits
        topic, group = context.group(consistent=True)
    register, name = context.deps.registry.register, context.params["consumer"]
    member, is_new, secret, taken_from = register(topic, group, name, contact)
    audit.note_taken_over(context, member.consumer, taken_from)
    with suppress(Unavailable):  # its secret is shown now or never, and the sweep finds what waits for it
        context.deps.waker.wake_for(topic, group, member.consumer)
    body: RegisteredConsumer = {**_view(context, member)}
    if secret:
        body["secret"] = format_secret(secret)
    return Response(body, 201 if is_new else 200)


def take_over(context: Context, topic: Topic, group: Group, consumer: Consumer, instance: str | None) -> None:
    """Note that this instance (None: none is named) works under the consumer's name. Raises Conflict if a later one
    does."""
    taken_from = context.deps.registry.take_over(topic, group, consumer, instance, context.by)
    audit.note_taken_over(context, consumer, taken_from)


def _contact(context: Context, group: Group) -> "Contact":
    """How to reach the consumer; a URL whose owner does not agree at once is PENDING."""
    from ...services.manage.registry import Contact

    body: ConsumerBody = context.body
    deps = context.deps
    if body.url is not None and body.function is not None:
        raise Refused("TARGET_AMBIGUOUS", "Give either url or function, or neither to pull.")
    if body.secret is not None and body.url is None:
        raise Refused("SECRET_NEEDS_URL", "Give a secret with a url only: nothing else is signed.")
    _check_call_fields(body)
    if body.begin is not None and not POLICIES[group.mode].per_consumer:
        raise Refused("WRONG_MODE", "Only a broadcast's consumer has a position: give `from` to the group.")
    begin = parse.beginning(body.begin or LATEST)
    secret = _secret(body.secret) if body.secret is not None else None
    target = body.url if body.url is not None else body.function
    contact = Contact(
        _kind(body),
        target or "",
        secret=secret,
        reject_statuses=tuple(sorted(set(body.reject_statuses))),
        instance_by=context.by,
        begin=begin,
        **fields.taken(body, "timeout_seconds", "headers", "transform", "batch_wait_seconds"),
        **fields.taken(body, "expires_after_seconds", "instance"),
    )
    if target is None:
        return contact
    if body.expires_after_seconds is not None or body.instance is not None:
        raise Refused("PULL_NEEDED", "Give expires_after_seconds and instance to a pull consumer only.")
    if refusal := deps.sender.refusal(contact.kind, target):
        raise Refused("TARGET_REFUSED", f"This {contact.kind} {refusal}.")
    if contact.kind == ConsumerKind.FUNCTION:
        return contact
    greeting = deps.outbound.greet(target)
    if greeting.verdict is Verdict.DONE:
        return contact
    return replace(contact, state=ConsumerState.PENDING, why=greeting.detail)


def _kind(body: ConsumerBody) -> ConsumerKind:
    if body.url is not None:
        return ConsumerKind.URL
    return ConsumerKind.PULL if body.function is None else ConsumerKind.FUNCTION


def _check_call_fields(body: ConsumerBody) -> None:
    """The fields that say how a consumer is called."""
    if body.url is None:
        if body.headers is not None or body.reject_statuses or body.transform is not None:
            raise Refused("URL_NEEDED", "Give headers, reject_statuses and transform with a url only.")
        if body.function is None and (body.timeout_seconds is not None or body.batch_wait_seconds):
            words = "Give timeout_seconds and batch_wait_seconds with a url or a function."
            raise Refused("PUSH_NEEDED", words)
    if wrong := {410, 429} & set(body.reject_statuses):
        issue = f"{min(wrong)} has a meaning of its own; name other statuses of 400 to 499"
        raise invalid("reject_statuses", issue)
    if body.transform is not None:
        check_transform(body.transform)
    if body.headers:
        parse.check_headers(body.headers, is_static=True)


def check_transform(expression: str) -> None:
    """Raises Refused if a consumer may not have this expression."""
    from ...delivery.transform import refusal

    if why := refusal(expression):
        raise Refused("INVALID_TRANSFORM", f"The transform {why}.")


def _secret(text: str) -> bytes:
    secret = parse_secret(text)
    if isinstance(secret, str):
        raise invalid("secret", secret)
    return secret


@call("GET", CONSUMER, scopes=ANY)
def get_consumer(context: Context) -> Response[MemberView]:
    """A consumer, its rank among those online, and its shards."""
    topic, group, consumer = context.consumer()
    return Response(_view(context, context.deps.registry.membership(topic, group, consumer)))


@call("GET", f"{GROUP}/consumers", scopes=ANY, query=PAGED)
def list_consumers(context: Context) -> Response[lists.Page[MemberView]]:
    """The group's consumers, by name."""
    topic, group = context.group()
    purpose = f"consumers:{topic.name}:{group.name}"
    limit = lists.limit(context.query)
    after = lists.page_start(context, purpose) or ""
    rest = [c for c in context.deps.catalog.consumers(topic, group) if c.name > after]
    items = [_view(context, context.deps.registry.membership(topic, group, c)) for c in rest[:limit]]
    return lists.page(context, purpose, items, rest[limit - 1].name if len(rest) > limit else None)


@call("POST", f"{CONSUMER}/heartbeat", scopes=READ, body=HeartbeatBody)
def heartbeat(context: Context) -> Response[MemberView]:
    """Stay online; the response has rank, total and shards."""
    topic, group, consumer = context.consumer()
    take_over(context, topic, group, consumer, context.body.instance)
    return Response(_view(context, context.deps.registry.heartbeat(topic, group, consumer)))


@call("POST", f"{CONSUMER}/rotate-secret", scopes=READ, body=fields.RotateBody)
def rotate_secret(context: Context) -> Response[SecretView]:
    """Sign with a new secret; the old one signs, too, for `overlap_seconds` (a day)."""
    topic, group, consumer = context.consumer(consistent=True)
    secret = context.deps.registry.rotate_secret(topic, group, consumer, context.body.overlap_seconds)
    return Response({"secret": format_secret(secret)})


@call("DELETE", CONSUMER, scopes=READ, statuses=(204,))
def delete_consumer(context: Context) -> Response[None]:
    """Remove a consumer; its shards go to the others at once."""
    topic, group = context.group(consistent=True)
    consumer = context.deps.registry.consumer_to_remove(topic, group, context.params["consumer"])
    context.deps.registry.unregister(topic, group, consumer)
    with suppress(Unavailable):  # the consumer is gone, and the sweep finds what it left behind
        context.deps.waker.wake_for(topic, group, consumer)
    return Response(None, 204)


def _view(context: Context, member: "Membership") -> MemberView:
    """A consumer, its rank, and its shards. Only an admin sees more of its URL than the host."""
    body = fields.shown(MemberView, member, **_consumer_view(member.consumer, context.now_ms))
    is_admin = context.caller is not None and Scope.ADMIN in context.caller.scopes
    return body if is_admin or "url" not in body else {**body, "url": fields.without_path(body["url"])}


def _consumer_view(consumer: Consumer, now_ms: int) -> ConsumerView:
    names = {"consumer": consumer.name, "state": shown_state(consumer, now_ms)}
    if not consumer.is_called:
        more = fields.taken(consumer, "expires_after_seconds", "instance")
        return fields.shown(ConsumerView, consumer, **names, **more, last_seen_at=fields.at(consumer.seen_ms))
    more = fields.taken(consumer, "batch_wait_seconds", "timeout_seconds", "why", "open_until_at") | {
        "failing_since_at": fields.at_or_none(consumer.failing_ms),
        "disables_at": fields.at_or_none(
            breaker.disables_ms(consumer.failing_ms, consumer.times_opened, now_ms)
        ),
        "breaker": breaker.state(consumer.open_until_ms, now_ms),
        str(consumer.kind): consumer.target,
    }
    if consumer.kind == ConsumerKind.URL:
        more |= fields.taken(consumer, "reject_statuses", "transform") | {
            "timeout_seconds": consumer.timeout_seconds or lim.DEFAULT_URL_SECONDS,
            "headers": dict.fromkeys(consumer.header_names, HIDDEN),
            "overlap_until_at": fields.at_or_none(consumer.overlap_until_ms(now_ms)),
        }
    return fields.shown(ConsumerView, consumer, **names, **more)


def shown_state(consumer: Consumer, now_ms: int) -> str:
    """A consumer's state, or OFFLINE for one that pulls and is silent."""
    return _OFFLINE if is_silent(consumer, now_ms) else consumer.state


def assignment_view(
    topic: Topic, assignment: Assignment, consumers: Sequence[Consumer], now_ms: int
) -> AssignmentView:
    """Who has which shard, and why."""
    present = [c for c in consumers if c.uid in assignment.members]
    online = [_online(topic, assignment, c) for c in present]
    offline = [_offline(c, now_ms) for c in consumers if c not in present]
    owners = shard_owners(topic, assignment, {c.uid: c.name for c in consumers})
    shards = [{"shard": shard, "owner": owner} for shard, owner in owners.items()]
    own = {"why": _why(assignment), "consumers": online, "offline": offline}
    return fields.shown(AssignmentView, assignment, **own, shards=shards)


def shard_owners(topic: Topic, assignment: Assignment, names: Mapping[str, str]) -> dict[int, str | None]:
    """The name of each shard's owner."""
    owners = dict(zip(topic.shard_numbers, assignment.owners, strict=False))
    return {shard: names.get(owners.get(shard, "")) for shard in topic.shard_numbers}


def _online(topic: Topic, assignment: Assignment, consumer: Consumer) -> AssignedConsumer:
    everything = assignment.strategy == EVERYONE
    shards = list(topic.shard_numbers) if everything else assignment.shards(consumer.uid, topic.shard_numbers)
    place = {"rank": assignment.rank(consumer.uid), "total": len(assignment.members), "shards": shards}
    return fields.shown(AssignedConsumer, consumer, consumer=consumer.name, **place)


def _offline(consumer: Consumer, now_ms: int) -> OfflineConsumer:
    names = {"consumer": consumer.name, "state": shown_state(consumer, now_ms)}
    return fields.shown(OfflineConsumer, consumer, **names, why=_absence(consumer))


def _why(assignment: Assignment) -> str:
    if assignment.strategy == EVERYONE:
        return "broadcast: every consumer receives from every shard, with a position of its own"
    if not assignment.members:
        return "no registered consumer is online: any caller receives from any shard"
    return _STRATEGIES[assignment.strategy].format(total=len(assignment.members))


_STRATEGIES = {
    "mod": "shard s belongs to the consumer with rank = s mod {total}; ranks follow the names of those online",
    "average": "the shards are cut into {total} blocks of neighbours, as even as can be, and dealt by rank; "
    "ranks follow the names of those online",
    "rendezvous": "a shard belongs to the one of {total} consumers with the highest hash of (consumer, shard): "
    "when one joins or leaves, the others keep theirs",
}


def _absence(consumer: Consumer) -> str:
    """Why a consumer is not online."""
    if not consumer.is_called:
        return f"no heartbeat since {fields.at(consumer.seen_ms)}"
    if consumer.state != "ACTIVE":
        return f"{consumer.state}: {consumer.why}" if consumer.why else consumer.state
    return f"circuit breaker open until {fields.at(consumer.open_until_ms or 0)}"
