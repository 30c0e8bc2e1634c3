"""Consumers of a group."""

from typing import TYPE_CHECKING, Annotated, NotRequired, TypedDict
from urllib.parse import urlsplit

from ...domain import breaker
from ...domain.topic import Consumer, ConsumerKind
from .common import Count, Time, at, at_or_none, one_of

if TYPE_CHECKING:
    from ...services.manage.registry import Membership

Kind = Annotated[str, one_of("pull", "url", "function")]
State = Annotated[str, one_of("ACTIVE", "PENDING", "DISABLED")]


class ConsumerView(TypedDict):
    """A consumer. A pull consumer was last seen at `last_seen_at`; a push consumer has a `url` or a `function`, and its
    health. Until `overlap_until_at` the secret from before a rotation signs, too."""

    consumer: str
    topic: str
    group: str
    kind: Kind
    state: State
    last_seen_at: NotRequired[Time]
    url: NotRequired[str]
    function: NotRequired[str]
    timeout_seconds: NotRequired[Count | None]
    why: NotRequired[str | None]
    failing_since_at: NotRequired[Time | None]
    disables_at: NotRequired[Time | None]
    breaker: NotRequired[Annotated[str, one_of("closed", "open", "half-open")]]
    open_until_at: NotRequired[Time | None]
    overlap_until_at: NotRequired[Time | None]
    created_at: Time


class MemberView(ConsumerView):
    """A consumer, its rank among those online (null: it is not online), and its shards."""

    rank: Count | None
    total: Count
    shards: list[Count]


class RegisteredConsumer(MemberView):
    """A consumer that was just registered; its new `secret` is shown only once."""

    secret: NotRequired[str]


class SecretView(TypedDict):
    """A secret to verify signatures with; it is shown only once."""

    secret: str


def member(membership: "Membership", now_ms: int) -> MemberView:
    """A consumer, its rank, and its shards."""
    return {
        **_view(membership.consumer, now_ms),
        "rank": membership.rank,
        "total": membership.total,
        "shards": list(membership.shards),
    }


def registered_view(member: MemberView, secret: str | None) -> RegisteredConsumer:
    """A consumer that was just registered, with its secret if that is new."""
    return {**member, "secret": secret} if secret else {**member}


def masked(member: MemberView) -> MemberView:
    """The same without what a URL tells beside its host: its path or query may be a secret."""
    if "url" not in member:
        return member
    return {**member, "url": without_path(member["url"])}


def without_path(url: str) -> str:
    """A URL without what may be a secret: its path, its query, its user."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/…"


def _view(consumer: Consumer, now_ms: int) -> ConsumerView:
    body: ConsumerView = {
        "consumer": consumer.name,
        "topic": consumer.topic,
        "group": consumer.group,
        "kind": consumer.kind,
        "state": consumer.state,
        "created_at": at(consumer.created_ms),
    }
    if not consumer.is_called:
        body["last_seen_at"] = at(consumer.seen_ms)
        return body
    if consumer.kind == ConsumerKind.FUNCTION:
        body["function"] = consumer.target
        body["timeout_seconds"] = consumer.timeout_seconds
    else:
        body["url"] = consumer.target
        body["overlap_until_at"] = at_or_none(consumer.overlap_until_ms(now_ms))
    body["why"] = consumer.why
    body["failing_since_at"] = at_or_none(consumer.failing_ms)
    body["disables_at"] = at_or_none(breaker.disables_ms(consumer.failing_ms, consumer.times_opened, now_ms))
    body["breaker"] = breaker.state(consumer.open_until_ms, now_ms)
    body["open_until_at"] = at_or_none(consumer.open_until_ms)
    return body
