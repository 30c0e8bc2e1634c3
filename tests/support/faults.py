"""Faults below the services: one plan watches every client's requests and spoils chosen ones.

It hooks into botocore's `before-send`, the last event before the wire: a handler may answer in the place of the
store, raise as the connection would, or send by itself and lose the answer. Whether a spoilt request is sent
again is then left to the SDK, as in life.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any, cast

import botocore.endpoint
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError

WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "BatchWriteItem"}
READS = {"GetItem", "Query"}
_SPACE = "com.amazonaws.dynamodb.v20120810#"


class Death(BaseException):
    """The process dies here. Not an Exception, so that no handler swallows it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request on its way out."""

    operation: str
    request: AWSPreparedRequest
    send: Callable[[AWSPreparedRequest], AWSResponse]

    @property
    def body(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(cast(bytes, self.request.body))
        return document

    @property
    def actions(self) -> list[tuple[str, dict[str, Any]]]:
        """What it does where: the actions of a transaction, else the request itself."""
        if self.operation == "TransactWriteItems":
            return [next(iter(action.items())) for action in self.body["TransactItems"]]
        if self.operation == "BatchWriteItem":
            return [(self.operation, {"TableName": table}) for table in self.body["RequestItems"]]
        return [(self.operation, self.body)]

    @property
    def is_of_assignment(self) -> bool:
        """Does it write which consumer has which shard?"""
        return str(self.body.get("Item", {}).get("sk", {}).get("S")).startswith("assignment#")

    @property
    def shape(self) -> str:
        """The form of a request: tables and conditions, without names and values."""
        descriptions = {f"{kind} {_table(of)} if {_condition(of)}" for kind, of in self.actions}
        return f"{self.operation}: {', '.join(sorted(descriptions))}"


def _table(request: dict[str, Any]) -> str:
    return str(request["TableName"]).rpartition("-")[2]


def _condition(request: dict[str, Any]) -> str:
    text = request.get("ConditionExpression") or request.get("KeyConditionExpression") or "-"
    different = dict.fromkeys(re.sub(r"\d+", "", text).split(" AND "))
    return " AND ".join(different) + (" consistently" if request.get("ConsistentRead") else "")


Step = Callable[[Call], AWSResponse | None]
"""What happens to one request: an answer, an exception, or None for nothing unusual."""


def die_before(call: Call) -> AWSResponse | None:
    raise Death(f"before {call.operation}")


def die_after(call: Call) -> AWSResponse | None:
    _send(call)
    raise Death(f"after {call.operation}")


def lose(call: Call) -> AWSResponse | None:
    """The store does it, but the answer is lost."""
    _send(call)
    raise ConnectionClosedError(endpoint_url=call.request.url)


def fail(call: Call) -> AWSResponse | None:
    return _answer(call, 500, {"__type": f"{_SPACE}InternalServerError", "message": "planted"})


def throttle(call: Call) -> AWSResponse | None:
    kind = f"{_SPACE}ProvisionedThroughputExceededException"
    return _answer(call, 400, {"__type": kind, "message": "planted"})


def conflict(call: Call) -> AWSResponse | None:
    """Another transaction holds an item of this write."""
    if call.operation != "TransactWriteItems":
        return _answer(call, 400, {"__type": f"{_SPACE}TransactionConflictException", "message": "planted"})
    codes = ["TransactionConflict", *["None"] * (len(call.body["TransactItems"]) - 1)]
    return cancel(codes)(call)


def cancel(codes: Sequence[str]) -> Step:
    """Cancel a transaction with these reasons, one for each of its actions."""

    def step(call: Call) -> AWSResponse | None:
        reasons = [{"Code": code, "Message": "planted"} for code in codes]
        kind = f"{_SPACE}TransactionCanceledException"
        return _answer(call, 400, {"__type": kind, "Message": "planted", "CancellationReasons": reasons})

    return step


def stale(call: Call) -> AWSResponse | None:
    """A replica answers that has seen nothing yet: allowed wherever no consistent read was asked for."""
    empty = {"Items": [], "Count": 0, "ScannedCount": 0} if call.operation == "Query" else {}
    return _answer(call, 200, empty)


def leave_unprocessed(call: Call) -> AWSResponse | None:
    """The store takes nothing of a batch now."""
    return _answer(call, 200, {"UnprocessedItems": call.body["RequestItems"]})


def _send(call: Call) -> None:
    call.send(call.request).content  # noqa: B018 - reading the answer to its end frees the connection


def _answer(call: Call, status: int, document: dict[str, Any]) -> AWSResponse:
    body = json.dumps(document).encode()
    headers = {"Content-Type": "application/x-amz-json-1.0", "Content-Length": str(len(body))}
    return AWSResponse(call.request.url, status, cast(Any, headers), _Body(body))


class _Body:
    """What botocore reads an answer from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._content


def _is_write(call: Call) -> bool:
    return call.operation in WRITES


def _meets_transactions(call: Call) -> bool:
    """Could a transaction be in this write's way? Control rows are in none, and batches are none of its business."""
    return _is_write(call) and all(
        kind != "BatchWriteItem" and _table(of) != "control" for kind, of in call.actions
    )


def _is_unconditional(call: Call) -> bool:
    """Would nothing tell that it was carried out before?"""
    is_put = call.operation in ("PutItem", "UpdateItem", "DeleteItem")
    return _is_batch(call) or (is_put and "ConditionExpression" not in call.body)


def _is_batch(call: Call) -> bool:
    return call.operation == "BatchWriteItem"


def _is_lax_read(call: Call) -> bool:
    return call.operation in READS and not call.body.get("ConsistentRead")


def _any(call: Call) -> bool:
    return True


class Fault(Enum):
    """What happens from the chosen call on: steps for it and those after it, and to which calls it can happen."""

    DIE_BEFORE = ((die_before,), _any)
    DIE_AFTER = ((die_after,), _any)
    LOST_ANSWER = ((lose,), _any)
    FAIL_ONCE = ((fail,), _any)
    FAIL_ALWAYS = ((fail,) * 1000, _any)
    THROTTLED = ((throttle,), _any)
    LOST_FOR_GOOD = ((lose,) * 3, _is_write)
    LOST_LATE = ((lose,), _is_unconditional)  # and movers go on before it is sent again
    CONFLICT = ((conflict,), _meets_transactions)
    LOST_THEN_CONFLICT = ((lose, conflict), _meets_transactions)
    UNPROCESSED = ((leave_unprocessed,), _is_batch)
    STALE_READ = ((stale,), _is_lax_read)

    @property
    def steps(self) -> tuple[Step, ...]:
        steps: tuple[Step, ...] = self.value[0]
        return steps

    def fits(self, call: Call) -> bool:
        return bool(self.value[1](call))


DEADLY = {Fault.DIE_BEFORE, Fault.DIE_AFTER}
HARMLESS = {
    Fault.LOST_ANSWER,
    Fault.FAIL_ONCE,
    Fault.THROTTLED,
    Fault.CONFLICT,
    Fault.LOST_THEN_CONFLICT,
    Fault.UNPROCESSED,
}
"""Those after which the SDK, or our own repetition, comes through: nobody outside may notice."""
_COMPOUND = {
    Fault.FAIL_ONCE,
    Fault.THROTTLED,
    Fault.LOST_THEN_CONFLICT,
    Fault.LOST_FOR_GOOD,
    Fault.LOST_LATE,
}
QUICK_FAULTS = tuple(fault for fault in Fault if fault not in _COMPOUND)
"""All but those that take the ways of others: of LOST_ANSWER (the SDK sends again) and of CONFLICT, of LOST_ANSWER and
FAIL_ALWAYS. The soak has them all."""


@dataclass(frozen=True, slots=True)
class Note:
    """A call as it went out. `outside` counts the calls to outside hosts before it."""

    operation: str
    shape: str
    outside: int
    spoilt_by: frozenset[Fault]
    is_of_assignment: bool

    @property
    def is_write(self) -> bool:
        return self.operation in WRITES

    @property
    def is_of_cursor(self) -> bool:
        """A claim or a settlement: only these write cursors, once they are there."""
        return self.is_write and " cursors " in self.shape

    @property
    def is_of_waking(self) -> bool:
        """Wake-ups, the mark for the sweep, and the assignment, which the next reader makes: a wake-up is a hint, so
        the result stands without it."""
        return (
            (self.operation in READS and " control " in self.shape)
            or (self.is_write and " rounds " in self.shape)
            or self.is_of_assignment
        )

    @property
    def reads_cursor(self) -> bool:
        return self.operation == "GetItem" and " cursors " in self.shape

    @property
    def is_trace(self) -> bool:
        """Traces are witnesses: what they tell of stands without them."""
        return self.is_write and " traces " in self.shape


@dataclass
class FaultPlan:
    """Counts requests; the `at`-th (from 1) and those after it meet the fault's steps. Attach it to each client."""

    fault: Fault | None = None
    at: int = 0
    calls: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    fired: bool = False
    outside: int = 0
    spoilt: list[Note] = field(default_factory=list)
    meanwhile: Callable[[], object] = lambda: None
    """What others do before a request is sent again (LOST_LATE)."""

    def attach(self, client: Any) -> None:
        """Watch a client from now on (wiring's `on_client`)."""

        def before_send(request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse | None:
            operation = event_name.rsplit(".", 1)[-1]
            return self.meet(Call(operation, request, client._endpoint._send))

        client.meta.events.register_first(
            f"before-send.{client.meta.service_model.service_name}", before_send
        )

    def meet(self, call: Call) -> AWSResponse | None:
        """Note the call; spoil it if it is its turn."""
        spoilt_by = frozenset(fault for fault in Fault if fault.fits(call))
        self.calls.append(call.operation)
        note = Note(call.operation, call.shape, self.outside, spoilt_by, call.is_of_assignment)
        self.notes.append(note)
        after = len(self.calls) - self.at
        if self.fault is None or not 0 <= after < len(self.fault.steps):
            return None
        if not self.fired and (after or not self.fault.fits(call)):
            return None
        self.fired = True
        self.spoilt.append(note)
        try:
            return self.fault.steps[after](call)
        finally:
            if self.fault is Fault.LOST_LATE:
                self.meanwhile()


def without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's pauses between attempts take no time; it still counts attempts as it does in life."""
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda _: None))
