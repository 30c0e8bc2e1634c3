"""Pulling: receive (its answer: `responses/messages.py`), ack, nack, extend (`responses/receipts.py`)."""

from __future__ import annotations

from msgspec import UNSET

from ...domain.topic import Scope
from ..calls import Context, Response, call
from ..http import invalid
from ..requests import AckBody, ExtendBody, NackBody, ReceiveBody
from ..responses import messages, receipts
from ..responses.messages import Received
from ..responses.receipts import ReceiptResults

_GROUP = "/v1/topics/{topic}/groups/{group}"
_CONSUME = (Scope.CONSUME,)


@call("POST", f"{_GROUP}/receive", scopes=_CONSUME, body=ReceiveBody)
def receive(context: Context) -> Response[Received]:
    """Claim messages; each has a receipt that is valid for the lease."""
    deps, body = context.deps, context.body
    topic, group = context.group()
    consumer = None
    if body.consumer is not None:
        consumer = deps.catalog.consumer(topic, group, body.consumer)
        deps.registry.sign_of_life(topic, group, consumer, body.wait_seconds)
    signing_key = deps.signing_key  # what could fail comes before the claim
    lease_seconds = body.lease_seconds or group.lease_seconds or topic.lease_seconds
    claimed_messages = deps.receiver.receive(
        topic, group, consumer, body.max, body.wait_seconds, lease_seconds
    )
    if consumer is not None:
        deps.registry.note_alive(topic, group, consumer.uid)
    return Response(messages.received_view(claimed_messages, signing_key))


@call("POST", f"{_GROUP}/ack", scopes=_CONSUME, body=AckBody)
def ack(context: Context) -> Response[ReceiptResults]:
    """Acknowledge messages: they were processed successfully."""
    answers = context.deps.settler.ack(*context.group(), context.body.receipts)
    return Response(receipts.results(context.body.receipts, answers, context.request_id))


@call("POST", f"{_GROUP}/nack", scopes=_CONSUME, body=NackBody)
def nack(context: Context) -> Response[ReceiptResults]:
    """Give messages back for another attempt, or turn them into dead letters."""
    topic, group = context.group()
    body = context.body
    from ...services.consume.settle import Nack

    if body.dead_letter and body.delay_seconds:  # UNSET is false
        raise invalid("delay_seconds", "a dead letter is not tried again: give dead_letter or a delay")
    if body.untried and (body.dead_letter or body.reason is not None):
        raise invalid("untried", "what nobody tried has not failed: give untried or what went wrong")
    delay_ms = None if body.delay_seconds is UNSET else body.delay_seconds * 1000
    how = Nack(delay_ms, body.dead_letter, body.reason, untried=body.untried)
    answers = context.deps.settler.nack(topic, group, body.receipts, how)
    return Response(receipts.results(body.receipts, answers, context.request_id))


@call("POST", f"{_GROUP}/extend", scopes=_CONSUME, body=ExtendBody)
def extend(context: Context) -> Response[ReceiptResults]:
    """Give a lease more time, counted from now."""
    body = context.body
    answers = context.deps.settler.extend(*context.group(), body.receipts, body.lease_seconds)
    return Response(receipts.results(body.receipts, answers, context.request_id))
