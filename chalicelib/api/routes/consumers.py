"""Consumers of a group: registration, heartbeat, rank, secrets."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...delivery.webhooks import format_secret, parse_secret
from ...domain.call_result import Verdict
from ...domain.errors import Refused, Unavailable
from ...domain.topic import Consumer, ConsumerKind, ConsumerState, Group, Scope, Topic
from ...wiring import Deps
from .. import list_pages
from ..calls import ANY, Context, Response, call
from ..http import invalid
from ..requests import ConsumerBody, NoBody, RotateBody
from ..responses import consumers
from ..responses.common import Page, page
from ..responses.consumers import MemberView, RegisteredConsumer, SecretView

if TYPE_CHECKING:
    from ...services.manage.registry import Contact, Membership

_CONSUMER = "/v1/topics/{topic}/groups/{group}/consumers/{consumer}"
_ROLES = (Scope.CONSUME, Scope.ADMIN)


@call("PUT", _CONSUMER, scopes=_ROLES, body=ConsumerBody, statuses=(200, 201))
def put_consumer(context: Context) -> Response[RegisteredConsumer]:
    """Register a consumer, or renew its registration; in a broadcast it gets messages from now on."""
    topic, group = context.group(consistent=True)
    contact = _contact(context.body, context.deps)
    if contact.kind == ConsumerKind.URL:  # its owner had seconds to answer: for longer than a deletion waits
        topic, group = context.group(consistent=True)
    member, is_new, secret = context.deps.registry.register(topic, group, context.params["consumer"], contact)
    with suppress(Unavailable):  # its secret is shown now or never, and the sweep finds what waits for it
        context.deps.waker.wake_for(topic, group, member.consumer)
    text = format_secret(secret) if secret else None
    return Response(consumers.registered_view(_view(context, member), text), 201 if is_new else 200)


def _contact(body: ConsumerBody, deps: Deps) -> Contact:
    """How to reach the consumer; a URL whose owner does not agree at once is PENDING."""
    from ...services.manage.registry import PULLS, Contact

    if body.url is not None and body.function is not None:
        raise Refused("TARGET_AMBIGUOUS", "Give either url or function, or neither to pull.")
    if body.secret is not None and body.url is None:
        raise Refused("SECRET_NEEDS_URL", "Give a secret with a url only: nothing else is signed.")
    if body.timeout_seconds is not None and body.function is None:
        raise Refused("TIMEOUT_NEEDS_FUNCTION", "Give timeout_seconds with a function only.")
    secret = _secret(body.secret) if body.secret is not None else None
    target = body.url if body.url is not None else body.function
    if target is None:
        return PULLS
    kind = ConsumerKind.URL if body.url is not None else ConsumerKind.FUNCTION
    refusal = deps.sender.refusal(kind, target)
    if refusal:
        raise Refused("TARGET_REFUSED", f"This {kind} {refusal}.")
    if kind == ConsumerKind.FUNCTION:
        return Contact(kind, target, timeout_seconds=body.timeout_seconds)
    greeting = deps.outbound.greet(target)
    if greeting.verdict is Verdict.DONE:
        return Contact(kind, target, secret=secret)
    return Contact(kind, target, ConsumerState.PENDING, greeting.detail, secret)


def _secret(text: str) -> bytes:
    secret = parse_secret(text)
    if isinstance(secret, str):
        raise invalid("secret", secret)
    return secret


@call("GET", _CONSUMER, scopes=ANY)
def get_consumer(context: Context) -> Response[MemberView]:
    """A consumer, its rank among those online, and its shards."""
    topic, group, consumer = _find(context)
    return Response(_view(context, context.deps.registry.membership(topic, group, consumer)))


@call("GET", "/v1/topics/{topic}/groups/{group}/consumers", scopes=ANY, query=("limit", "page_token"))
def list_consumers(context: Context) -> Response[Page[MemberView]]:
    """The group's consumers, by name."""
    topic, group = context.group()
    purpose = f"consumers:{topic.name}:{group.name}"
    limit = list_pages.limit(context.query)
    after = list_pages.page_start(context, purpose) or ""
    rest = [c for c in context.deps.catalog.consumers(topic, group) if c.name > after]
    items = [_view(context, context.deps.registry.membership(topic, group, c)) for c in rest[:limit]]
    return Response(page(context, purpose, items, rest[limit - 1].name if len(rest) > limit else None))


@call("POST", f"{_CONSUMER}/heartbeat", scopes=_ROLES, body=NoBody)
def heartbeat(context: Context) -> Response[MemberView]:
    """Stay online; the response has rank, total and shards."""
    topic, group, consumer = _find(context)
    return Response(_view(context, context.deps.registry.heartbeat(topic, group, consumer)))


@call("POST", f"{_CONSUMER}/rotate-secret", scopes=_ROLES, body=RotateBody)
def rotate_secret(context: Context) -> Response[SecretView]:
    """Sign with a new secret; the old one signs, too, for `overlap_seconds` (a day)."""
    topic, group, consumer = _find(context, consistent=True)
    secret = context.deps.registry.rotate_secret(topic, group, consumer, context.body.overlap_seconds)
    return Response({"secret": format_secret(secret)})


@call("DELETE", _CONSUMER, scopes=_ROLES, statuses=(204,))
def delete_consumer(context: Context) -> Response[None]:
    """Remove a consumer; its shards go to the others at once."""
    topic, group = context.group(consistent=True)
    consumer = context.deps.registry.consumer_to_remove(topic, group, context.params["consumer"])
    context.deps.registry.unregister(topic, group, consumer)
    with suppress(Unavailable):  # the consumer is gone, and the sweep finds what it left behind
        context.deps.waker.wake_for(topic, group, consumer)
    return Response(None, 204)


def _find(context: Context, *, consistent: bool = False) -> tuple[Topic, Group, Consumer]:
    topic, group = context.group(consistent=consistent)
    return topic, group, context.deps.catalog.consumer(topic, group, context.params["consumer"])


def _view(context: Context, member: Membership) -> MemberView:
    body = consumers.member(member, context.deps.adapters.clock.now_ms())
    is_admin = context.caller is not None and Scope.ADMIN in context.caller.scopes
    return body if is_admin else consumers.masked(body)
