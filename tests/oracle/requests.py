"""Requests in DynamoDB's JSON protocol: recorded, varied, and compared by how two engines answer them."""

from __future__ import annotations

import copy
import http.client
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from local.engine.server import Protocol
from local.engine.values import number_text

Document = dict[str, Any]

_SIGNED = "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"
_TEXTS = tuple(
    f"{kind}Expression" for kind in ("Condition", "Filter", "KeyCondition", "Projection", "Update")
)
_READS = ("GetItem", "Query", "Scan")
_NOT_COMPARED = ("message", "Message", "TableDescription", "Table", "TimeToLiveDescription")
_VALUES: tuple[Document, ...] = (
    {"S": "a"},
    {"S": "é"},
    {"S": "x" * 1100},
    {"S": ""},
    {"N": "0"},
    {"N": "1"},
    {"N": "-7"},
    {"N": "1.50"},
    {"N": "1E+3"},
    {"N": "12345678901234567890123456789012345678"},
    {"N": "-0.000000000000000000001"},
    {"B": "AP8="},
    {"BOOL": True},
    {"NULL": True},
    {"L": [{"N": "1"}, {"S": "b"}]},
    {"M": {"k": {"N": "2"}, "é": {"L": []}}},
)


@dataclass(frozen=True)
class Request:
    """An operation and what it is asked."""

    target: str
    body: Document

    @property
    def operation(self) -> str:
        return self.target.rpartition(".")[2]

    @property
    def shape(self) -> str:
        """What it has in common with requests of the same expressions for other rows."""
        parts = [self.operation]
        for action in actions(self.body):
            parts += [f"{name}={action[name]}" for name in _TEXTS if name in action] + [str(sorted(action))]
        return " ".join(parts)


def actions(body: Document) -> list[Document]:
    """The body itself, or those that a transaction or batch holds."""
    if "TransactItems" in body:
        return [action for each in body["TransactItems"] for action in each.values()]
    if "RequestItems" in body:
        return [
            action
            for requests in body["RequestItems"].values()
            for each in requests
            for action in each.values()
        ]
    return [body]


@contextmanager
def recording() -> Iterator[list[Request]]:
    """The requests that this process's embedded engine answers meanwhile."""
    requests: list[Request] = []
    answer = Protocol.answer

    def record(self: Protocol, target: str, body: bytes) -> tuple[int, bytes]:
        requests.append(Request(target, json.loads(body)))
        return answer(self, target, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Protocol, "answer", record)
        yield requests


class Wire:
    """DynamoDB Local, asked without an SDK."""

    def __init__(self, endpoint: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(endpoint).netloc, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def answer(self, target: str, body: bytes) -> tuple[int, bytes]:
        """The answer's status and body."""
        headers = {
            "X-Amz-Target": target,
            "Authorization": _SIGNED,
            "Content-Type": "application/x-amz-json-1.0",
        }
        self._connection.request("POST", "/", body, headers)
        response = self._connection.getresponse()
        return response.status, response.read()


def difference(request: Request, ours: Protocol, theirs: Wire) -> str | None:
    """How two engines answer a request, where they differ; None: alike."""
    body = request.body
    if request.operation in _READS:
        body = {**body, "ReturnConsumedCapacity": "TOTAL"}
    data = json.dumps(body).encode()
    answers = [
        comparable(request, status, json.loads(content))
        for status, content in (ours.answer(request.target, data), theirs.answer(request.target, data))
    ]
    both_refuse = all(answer["status"] == 400 for answer in answers)
    if answers[0] == answers[1] or (both_refuse and any(map(is_invalid, answers))):
        return None
    return f"{request.target} {json.dumps(body)}\nours:   {answers[0]}\ntheirs: {answers[1]}"


def is_invalid(answer: Document) -> bool:
    """Is something of the request invalid? Of several reasons to refuse it, DynamoDB may tell any."""
    is_reason = "ValidationError" in str(answer.get("CancellationReasons"))
    return is_reason or answer["code"] == "ValidationException"


def comparable(request: Request, status: int, answer: Document) -> Document:
    """An answer without its wording, and without what DynamoDB Local does unlike AWS: it says what the deletion of
    nothing costs, and inside of maps it keeps 2.0 as it was written."""
    answer = {name: _with_plain_numbers(value) for name, value in answer.items() if name not in _NOT_COMPARED}
    if request.operation not in _READS:
        answer.pop("ConsumedCapacity", None)
    if request.operation == "Scan":
        answer.get("Items", []).sort(key=str)
    for reason in answer.get("CancellationReasons", ()):
        reason.pop("Message", None)
    code = answer.pop("__type", "").rpartition("#")[2]
    return {**answer, "status": status, "code": code}


def _with_plain_numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_plain_numbers(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"N"} and isinstance(value["N"], str):
        return {"N": number_text(value["N"])}
    return {name: _with_plain_numbers(value[name]) for name in sorted(value)}


class Variations:
    """Random requests: recorded ones, with some values in the place of others."""

    def __init__(self, requests: list[Request], seed: int) -> None:
        self._random = random.Random(seed)
        self._by_shape: dict[str, list[Request]] = {}
        for request in requests:
            if request.operation not in ("CreateTable", "DeleteTable"):
                self._by_shape.setdefault(request.shape, []).append(request)
        self._pool = [*_VALUES, *self._seen(requests)]

    def _seen(self, requests: list[Request]) -> Iterator[Document]:
        for request in self._random.sample(requests, min(200, len(requests))):
            for action in actions(request.body):
                for part in ("Item", "Key", "ExpressionAttributeValues"):
                    yield from action.get(part, {}).values()

    def __iter__(self) -> Iterator[Request]:
        """One of each shape after the other, without end."""
        while True:
            for requests in self._by_shape.values():
                yield self._varied(self._random.choice(requests))

    def _varied(self, request: Request) -> Request:
        body = copy.deepcopy(request.body)
        body.pop("ClientRequestToken", None)
        for action in actions(body):
            for part in ("Item", "Key", "ExpressionAttributeValues"):
                for name, value in action.get(part, {}).items():
                    if self._random.random() < 0.15:
                        action[part][name] = self._another(value)
        return Request(request.target, body)

    def _another(self, value: Document) -> Document:
        """Mostly one of the same type."""
        kind = next(iter(value))
        same = [each for each in self._pool if kind in each]
        return copy.deepcopy(
            self._random.choice(same if same and self._random.random() < 0.8 else self._pool)
        )
