"""Pulling: receive, ack, nack, extend."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import UNSET, Meta, Struct, UnsetType

from ...domain import limits as lim
from ...domain.errors import HeadraceError, Refused
from ...domain.receipt import lease_mark, sign_receipt
from ...domain.status import Because
from ...domain.topic import Mode
from .. import parse
from ..calls import CONSUME, GROUP, Context, Response, call
from ..fields import Count, Instance, LeaseSeconds, Name, either
from ..http import invalid
from ..problems import Problem, problem
from .consumers import take_over
from .message_views import Content, base_content

if TYPE_CHECKING:
    from ...services.consume.claimant import ClaimedMessage
    from ...services.consume.claimant import Received as ReceivedMessages
    from ...services.consume.lease_settlement import SettleAnswer
    from ...services.consume.settle import Acks


Receipts = Annotated[list[str], Meta(min_length=1, max_length=lim.MAX_RECEIPTS)]


class ReceiveBody(Struct, forbid_unknown_fields=True):
    """How many messages to claim, how long to wait for the first, for which consumer, and for which instance of it.
    While a lease of this receive runs, the same caller gets the same messages for the same `receive_id`. The receipts
    of `ack` are acknowledged first; with `max` 0, nothing is claimed then. `run`: messages of one ordering key, in
    order under one lease."""

    max: Annotated[int, Meta(ge=0, le=lim.MAX_RECEIVE)] = lim.DEFAULT_RECEIVE
    wait_seconds: Annotated[float, Meta(ge=0, le=lim.MAX_RECEIVE_WAIT_SECONDS)] = 0
    consumer: Name | None = None
    instance: Instance | None = None
    lease_seconds: LeaseSeconds | None = None
    receive_id: Annotated[str, Meta(min_length=1, max_length=lim.MAX_RECEIVE_ID_CHARS)] | None = None
    ack: Annotated[list[str], Meta(max_length=lim.MAX_RECEIPTS)] | None = None  # a loop begins with none
    run: bool = False


class AckBody(Struct, forbid_unknown_fields=True):
    """Deliveries that succeeded."""

    receipts: Receipts


class NackBody(Struct, forbid_unknown_fields=True):
    """Deliveries to try again, or to turn into dead letters. Without `delay_seconds` the ladder gives the delay; 0: at
    once. `untried`: processing did not begin, so no attempt is counted; without a delay they come again at once."""

    receipts: Receipts
    delay_seconds: Annotated[int, Meta(ge=0, le=lim.MAX_RETRY_SECONDS)] | UnsetType = UNSET
    dead_letter: bool = False
    untried: bool = False
    reason: Annotated[str, Meta(max_length=lim.MAX_REASON_CHARS)] | None = None


class ExtendBody(Struct, forbid_unknown_fields=True):
    """Deliveries that need more time."""

    receipts: Receipts
    lease_seconds: LeaseSeconds


class ReceivedMessage(Content):
    """A message under a lease, with the receipt that settles it."""

    shard: Count
    offset: Count
    attempt: Count
    receipt: str


class ReceiptResult(TypedDict):
    """The result for one receipt: `ok` (`already`: this lease had the same result before), or the error."""

    receipt: str
    ok: NotRequired[Literal[True]]
    already: NotRequired[Literal[True]]
    error: NotRequired[Problem]


EachReceipt = list[Annotated[ReceiptResult, either(["ok"], ["error"])]]


class ReceiptResults(TypedDict):
    """The result for each receipt, in the same order."""

    results: EachReceipt


class Received(TypedDict):
    """The messages of one receive; if there is none, `because` says why. With `ack`, the result for each receipt."""

    messages: list[ReceivedMessage]
    because: NotRequired[Because]
    acked: NotRequired[EachReceipt]


@call("POST", f"{GROUP}/receive", scopes=CONSUME, body=ReceiveBody, headers=(parse.RESEND,))
def receive(context: Context) -> Response[Received]:
    """Claim messages; each has a receipt that is valid for the lease. Before, acknowledge those of `ack`."""
    deps, body = context.deps, context.body
    if not (body.max or body.ack):
        raise invalid("max", "0 claims nothing: give ack, or a larger number")
    topic, group = context.group()
    if body.run and group.mode is not Mode.SERIAL:
        raise Refused("WRONG_MODE", f"Group {group.name!r} is not serial: receive without run.")
    consumer, wait_seconds = None, body.wait_seconds if context.may_wait else 0
    if body.consumer is not None:
        consumer = deps.catalog.consumer(topic, group, body.consumer)
        take_over(context, topic, group, consumer, body.instance)
        deps.registry.sign_of_life(topic, group, consumer, wait_seconds, receives=True)
    acks = deps.settler.acks(topic, group, body.ack or ())
    if not body.max:
        acks.settle()
        return Response(_acked({"messages": []}, acks, context))
    signing_key = deps.signing_key  # what could fail comes before the claim
    lease_seconds = body.lease_seconds or group.lease_seconds or topic.lease_seconds
    mark, may_be_repeat = "", parse.seconds_since_first(context) != 0
    if body.receive_id:
        who = context.by, consumer.uid if consumer else "", body.instance or ""
        mark = lease_mark(signing_key, body.receive_id, group.uid, *who)
    more: Any = {"may_be_repeat": may_be_repeat, "instance": body.instance, "acks": acks, "is_run": body.run}
    found = deps.receiver.receive(topic, group, consumer, body.max, wait_seconds, lease_seconds, mark, **more)
    if consumer is not None:
        deps.registry.note_alive(topic, group, consumer.uid)
    return Response(_acked(received_view(found, signing_key), acks, context))


def _acked(answer: Received, acks: "Acks", context: Context) -> Received:
    """The answer of a receive with the result for each receipt of `ack`."""
    if context.body.ack is not None:
        answer["acked"] = _results(context, context.body.ack, acks.answers)
    return answer


def _settled(context: Context, answers: "Sequence[SettleAnswer]") -> Response[ReceiptResults]:
    return Response({"results": _results(context, context.body.receipts, answers)})


@call("POST", f"{GROUP}/ack", scopes=CONSUME, body=AckBody)
def ack(context: Context) -> Response[ReceiptResults]:
    """Acknowledge messages: they were processed successfully."""
    return _settled(context, context.deps.settler.ack(*context.group(), context.body.receipts))


@call("POST", f"{GROUP}/nack", scopes=CONSUME, body=NackBody)
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
    return _settled(context, context.deps.settler.nack(topic, group, body.receipts, how))


@call("POST", f"{GROUP}/extend", scopes=CONSUME, body=ExtendBody)
def extend(context: Context) -> Response[ReceiptResults]:
    """Give a lease more time, counted from now."""
    body, extend = context.body, context.deps.settler.extend
    return _settled(context, extend(*context.group(), body.receipts, body.lease_seconds))


def received_view(received: "ReceivedMessages", key: bytes) -> Received:
    """Messages with their receipts, which `key` signs."""
    if not received:
        return {"messages": [], "because": received.because}
    return {"messages": [_received_message(each, key) for each in received]}


def _received_message(claimed_message: "ClaimedMessage", key: bytes) -> ReceivedMessage:
    message = claimed_message.message
    return {
        **base_content(message),
        "shard": message.shard,
        "offset": message.offset,
        "attempt": claimed_message.attempt,
        "receipt": sign_receipt(key, claimed_message.receipt),
    }


def _results(context: Context, receipts: Sequence[str], answers: "Sequence[SettleAnswer]") -> EachReceipt:
    """What became of each receipt."""
    pairs = zip(receipts, answers, strict=True)
    return [_result(receipt, answer, context.request_id) for receipt, answer in pairs]


def _result(receipt: str, answer: "SettleAnswer", request_id: str) -> ReceiptResult:
    if answer is None:
        return {"receipt": receipt, "ok": True}
    if isinstance(answer, HeadraceError):
        return {"receipt": receipt, "error": problem(answer, request_id)}
    return {"receipt": receipt, "ok": True, "already": True}
