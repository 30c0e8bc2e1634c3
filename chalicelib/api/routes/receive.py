"""Pulling: receive, ack, nack, extend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from ...domain.errors import HeadraceError
from ...domain.topic import Group, Topic
from .. import problems, render
from ..http import Context, Response, call
from ..requests import AckBody, ExtendBody, NackBody, ReceiveBody

if TYPE_CHECKING:
    from ...services.consume.settle import SettleAnswer

_GROUP = "/v1/topics/{topic}/groups/{group}"
_CONSUME = ("consume",)


@call("POST", f"{_GROUP}/receive", scopes=_CONSUME, body=ReceiveBody)
def receive(context: Context, topic: str, group: str) -> Response:
    """Claim messages; each comes with a receipt that is good for the lease."""
    deps, asked = context.deps, context.body
    found, wanted = _find(context, topic, group)
    consumer = None
    if asked.consumer is not None:
        consumer = deps.catalog.consumer(found, wanted, asked.consumer)
        deps.admin.sign_of_life(found, wanted, consumer, asked.wait_seconds)
    signing_key = deps.signing_key  # what could fail comes before the claim
    lease_seconds = asked.lease_seconds or wanted.lease_seconds or found.lease_seconds
    received = deps.receiver.receive(found, wanted, consumer, asked.max, asked.wait_seconds, lease_seconds)
    if consumer is not None:
        deps.admin.alive(found, wanted, consumer.uid)
    return Response(render.deliveries(received, signing_key))


@call("POST", f"{_GROUP}/ack", scopes=_CONSUME, body=AckBody)
def ack(context: Context, topic: str, group: str) -> Response:
    """Record success."""
    found, wanted = _find(context, topic, group)
    return _results(context, context.deps.settler.ack(found, wanted, context.body.receipts))


@call("POST", f"{_GROUP}/nack", scopes=_CONSUME, body=NackBody)
def nack(context: Context, topic: str, group: str) -> Response:
    """Give messages back for another attempt, or bury them as dead letters."""
    found, wanted = _find(context, topic, group)
    asked = context.body
    from ...services.consume.settle import Nack

    delay_ms = None if asked.delay_seconds is UNSET else asked.delay_seconds * 1000
    how = Nack(delay_ms, asked.dead_letter, asked.reason)
    return _results(context, context.deps.settler.nack(found, wanted, asked.receipts, how))


@call("POST", f"{_GROUP}/extend", scopes=_CONSUME, body=ExtendBody)
def extend(context: Context, topic: str, group: str) -> Response:
    """Give a lease more time, counted from now."""
    found, wanted = _find(context, topic, group)
    asked = context.body
    return _results(context, context.deps.settler.extend(found, wanted, asked.receipts, asked.lease_seconds))


def _find(context: Context, topic: str, group: str) -> tuple[Topic, Group]:
    found = context.deps.catalog.topic(topic)
    return found, context.deps.catalog.group(found, group)


def _results(context: Context, settled: Sequence[SettleAnswer]) -> Response:
    receipts = context.body.receipts
    return Response({"results": [_result(context, r, s) for r, s in zip(receipts, settled, strict=True)]})


def _result(context: Context, receipt: str, settled: SettleAnswer) -> dict[str, Any]:
    if settled is None:
        return {"receipt": receipt, "ok": True}
    if not isinstance(settled, HeadraceError):
        return {"receipt": receipt, "ok": True, "already": True}
    return {"receipt": receipt, "error": problems.problem(settled, context.request_id)}
