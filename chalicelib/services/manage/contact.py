"""What a registration says of a consumer, and the consumer after it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...domain.assignment import is_silent, seen
from ...domain.errors import Refused
from ...domain.limits import MAX_CONSUMERS, MAX_QUICK_SECONDS, MAX_SLOW_IN_FLIGHT
from ...domain.topic import LATEST, Consumer, ConsumerKind, ConsumerState, Where


@dataclass(frozen=True, slots=True)
class Membership:
    """A consumer and what it serves at the moment."""

    consumer: Consumer
    rank: int | None
    total: int
    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contact:
    """How to reach a consumer: it pulls, or is called at `target`. `state` is ACTIVE or PENDING, with the reason in
    `why`. `secret`: a signing secret chosen by its owner. `headers`: the static headers of a URL; None: those that it
    has. For the rest, see Consumer; `begin` is the first position of a new consumer of a broadcast."""

    kind: ConsumerKind = ConsumerKind.PULL
    target: str = ""
    state: ConsumerState = ConsumerState.ACTIVE
    why: str | None = None
    secret: bytes | None = None
    timeout_seconds: int | None = None
    headers: Mapping[str, str] | None = None
    reject_statuses: tuple[int, ...] = ()
    transform: str | None = None
    batch_wait_seconds: int = 0
    expires_after_seconds: int | None = None
    instance: str | None = None
    instance_by: str = ""
    begin: Where = LATEST


class Registration(NamedTuple):
    """The result of a registration; `secret` only if it is a new one. `taken_from`: the token of the instance that had
    the name before, if another one has it now."""

    member: Membership
    created: bool
    secret: bytes | None
    taken_from: str | None = None


PULLS = Contact()
_SETTINGS = ("timeout_seconds", "reject_statuses", "transform", "batch_wait_seconds", "expires_after_seconds")


def with_contact(consumer: Consumer, contact: Contact, now_ms: int) -> Consumer:
    """The consumer with this contact; one that has it and is called stays as it is: that a twin was first is no
    reason to write again."""
    if (consumer.kind, consumer.target) != (contact.kind, contact.target):
        if consumer.headers and contact.kind == ConsumerKind.URL and contact.headers is None:
            raise Refused(
                "HEADERS_NEEDED",
                "The consumer has headers, and they do not go to another URL by themselves: send `headers` again with "
                "this `url`, or `{}` to remove them.",
            )
        consumer = replace(consumer, kind=contact.kind, target=contact.target, state=ConsumerState.PENDING)
        consumer = replace(consumer, state_ms=now_ms, instance_by=contact.instance_by)
        consumer = replace(consumer, secrets=(), headers=(), header_names=())
    if consumer.state != ConsumerState.ACTIVE:
        since_ms = consumer.state_ms if consumer.state == contact.state else now_ms
        consumer = fresh(consumer, contact.state, contact.why, since_ms)
    consumer = consumer.with_instance(contact.instance, contact.instance_by, takes_back=True)
    settings = {name: getattr(contact, name) for name in _SETTINGS}
    return seen(replace(consumer, **settings), now_ms, receives=True)


def taken_from(before: Consumer, after: Consumer) -> str | None:
    """The token of the instance that lost the name between the two, if one did."""
    return before.instance_by if before.instance not in (None, after.instance) else None


def check_number(consumers: Sequence[Consumer], now_ms: int) -> None:
    """May the group have one more? Silent consumers do not count, but there is a limit to them, too."""
    living_count = sum(not is_silent(consumer, now_ms) for consumer in consumers)
    if living_count >= MAX_CONSUMERS:
        raise Refused("TOO_MANY_CONSUMERS", f"A group has {MAX_CONSUMERS} consumers at most.")
    if len(consumers) >= 2 * MAX_CONSUMERS:
        advice = "delete these, and register consumers with `expires_after_seconds`."
        text = f"The group has {len(consumers)} consumers, most of them OFFLINE: {advice}"
        raise Refused("TOO_MANY_CONSUMERS", text)


def check_slow(consumers: Sequence[Consumer], name: str, contact: Contact, per_consumer: bool) -> None:
    """May a broadcast have one more slow consumer? Each may hold a run of `deliver_slow`."""
    others = [each.timeout_seconds or 0 for each in consumers if each.name != name]
    is_slow = (contact.timeout_seconds or 0) > MAX_QUICK_SECONDS
    if per_consumer and is_slow and sum(each > MAX_QUICK_SECONDS for each in others) >= MAX_SLOW_IN_FLIGHT:
        slow = f"{MAX_SLOW_IN_FLIGHT} consumers with a timeout_seconds over {MAX_QUICK_SECONDS}"
        text = f"A broadcast has {slow} at most: use another group for more."
        raise Refused("TOO_MANY_CONSUMERS", text)


def fresh(consumer: Consumer, state: ConsumerState, why: str | None, since_ms: int | None) -> Consumer:
    """The consumer in this state, with the health of a new one."""
    state_ms = None if state == ConsumerState.ACTIVE else since_ms
    consumer = replace(consumer, state=state, why=why, state_ms=state_ms)
    return replace(consumer, failing_ms=None, open_until_ms=None, times_opened=0)
