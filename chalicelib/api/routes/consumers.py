"""Consumers of a group: registration, heartbeat, rank, secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...delivery.webhooks import format_secret, parse_secret
from ...domain.errors import Refused
from ...domain.outcome import Verdict
from ...domain.topic import Group, Topic
from ...wiring import Deps
from .. import parse, render
from ..http import ANY, Context, Response, call, invalid
from ..requests import ConsumerBody, NoBody

if TYPE_CHECKING:
    from ...services.manage.admin import Contact, Membership

_CONSUMER = "/v1/topics/{topic}/groups/{group}/consumers/{consumer}"
_ROLES = ("consume", "admin")


@call("PUT", _CONSUMER, scopes=_ROLES, body=ConsumerBody)
def put_consumer(context: Context, topic: str, group: str, consumer: str) -> Response:
    """Register a consumer, or renew its registration; in a broadcast its messages begin now."""
    found, wanted = _find(context, topic, group, fresh=True)
    contact = _contact(context.body, context.deps)
    member, created, secret = context.deps.admin.register(found, wanted, consumer, contact)
    context.deps.waker.joined(found, wanted, member.consumer)
    shown = _shown(context, member) | ({"secret": format_secret(secret)} if secret else {})
    return Response(shown, 201 if created else 200)


def _contact(body: ConsumerBody, deps: Deps) -> Contact:
    """How to reach the consumer; a URL whose owner does not agree at once is PENDING."""
    from ...services.manage.admin import PULLS, Contact

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
    kind = "url" if body.url is not None else "function"
    refusal = deps.sender.refusal(kind, target)
    if refusal:
        raise Refused("TARGET_REFUSED", f"This {kind} {refusal}.")
    if kind == "function":
        return Contact(kind, target, timeout_seconds=body.timeout_seconds)
    greeting = deps.sender.greet(target)
    if greeting.verdict is Verdict.DONE:
        return Contact(kind, target, secret=secret)
    return Contact(kind, target, "PENDING", greeting.detail, secret)


def _secret(text: str) -> bytes:
    secret = parse_secret(text)
    if isinstance(secret, str):
        raise invalid("secret", secret)
    return secret


@call("GET", _CONSUMER, scopes=ANY)
def get_consumer(context: Context, topic: str, group: str, consumer: str) -> Response:
    """A consumer, its rank among those online, and its shards."""
    found, wanted = _find(context, topic, group)
    member = context.deps.admin.membership(
        found, wanted, context.deps.catalog.consumer(found, wanted, consumer)
    )
    return Response(_shown(context, member))


@call("GET", "/v1/topics/{topic}/groups/{group}/consumers", scopes=ANY, query=("limit", "page_token"))
def list_consumers(context: Context, topic: str, group: str) -> Response:
    """The group's consumers, by name."""
    found, wanted = _find(context, topic, group)
    purpose = f"consumers:{topic}:{group}"
    limit = parse.limit(context.query)
    after = parse.page_start(context, purpose) or ""
    left = [c for c in context.deps.catalog.consumers(found, wanted) if c.name > after]
    items = [_shown(context, context.deps.admin.membership(found, wanted, c)) for c in left[:limit]]
    return Response(parse.page(context, purpose, items, left[limit - 1].name if len(left) > limit else None))


@call("POST", f"{_CONSUMER}/heartbeat", scopes=_ROLES, body=NoBody)
def heartbeat(context: Context, topic: str, group: str, consumer: str) -> Response:
    """Stay online; the answer tells rank, total and shards."""
    found, wanted = _find(context, topic, group)
    seen = context.deps.catalog.consumer(found, wanted, consumer)
    return Response(_shown(context, context.deps.admin.heartbeat(found, wanted, seen)))


@call("POST", f"{_CONSUMER}/rotate-secret", scopes=_ROLES, body=NoBody)
def rotate_secret(context: Context, topic: str, group: str, consumer: str) -> Response:
    """Sign with a new secret; for a day more also with the old one."""
    found, wanted = _find(context, topic, group)
    signed = context.deps.catalog.consumer(found, wanted, consumer)
    return Response({"secret": format_secret(context.deps.admin.rotate_secret(found, wanted, signed))})


@call("DELETE", _CONSUMER, scopes=_ROLES)
def delete_consumer(context: Context, topic: str, group: str, consumer: str) -> Response:
    """Leave the group; its shards go to the others at once."""
    found, wanted = _find(context, topic, group, fresh=True)
    context.deps.admin.unregister(found, wanted, context.deps.catalog.consumer(found, wanted, consumer))
    return Response(status=204)


def _find(context: Context, topic: str, group: str, *, fresh: bool = False) -> tuple[Topic, Group]:
    found = context.deps.catalog.topic(topic, fresh=fresh)
    return found, context.deps.catalog.group(found, group, fresh=fresh)


def _shown(context: Context, member: Membership) -> dict[str, Any]:
    return render.member(member, context.deps.adapters.clock.now_ms())
