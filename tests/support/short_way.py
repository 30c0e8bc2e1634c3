"""A short way to the embedded engine: what botocore does for each call, its events and its repetitions too, but neither
sockets, nor what it works out for each call (where to send it, how to sign it, what each part of an answer is)."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.client import BaseClient
from botocore.endpoint import Endpoint
from botocore.httpsession import URLLib3Session
from botocore.parsers import JSONParser

from local.engine.core import Engine
from local.engine.server import CONTENT_TYPE, Protocol

_OF_ITEMS = {
    f"{operation}Output"
    for operation in (
        "BatchWriteItem",
        "DeleteItem",
        "GetItem",
        "PutItem",
        "Query",
        "Scan",
        "TransactWriteItems",
        "UpdateItem",
    )
}
"""Answers whose JSON is what botocore makes of it, but for bytes."""


@contextmanager
def short_way(endpoint: str, engine: Engine) -> Iterator[None]:
    """All clients of this process call the engine that is served at this URL directly. Other processes use botocore."""
    protocol = Protocol(engine)
    send, create_request = URLLib3Session.send, Endpoint.create_request
    resolve, parse_body = BaseClient._resolve_endpoint_ruleset, JSONParser._handle_json_body

    def resolve_once(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.meta.endpoint_url != endpoint:
            return resolve(self, *args, **kwargs)
        return endpoint, {}, {}

    def create_unsigned(self: Any, params: Any, operation_model: Any = None) -> Any:
        if not params["url"].startswith(f"{endpoint}/"):
            return create_request(self, params, operation_model)
        return AWSPreparedRequest(params["method"], params["url"], params["headers"], params["body"], False)

    def send_short(self: Any, request: Any) -> Any:
        if not request.url.startswith(f"{endpoint}/"):
            return send(self, request)
        status, content = protocol.answer(request.headers["X-Amz-Target"], request.body)
        headers: Any = {"content-type": CONTENT_TYPE, "content-length": str(len(content))}
        response = AWSResponse(request.url, status, headers, None)
        response._content = content
        return response

    def parse_items(self: Any, body: bytes, shape: Any) -> Any:
        if shape.name not in _OF_ITEMS:
            return parse_body(self, body, shape)
        return json.loads(body, object_hook=_with_bytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseClient, "_resolve_endpoint_ruleset", resolve_once)
        patch.setattr(Endpoint, "create_request", create_unsigned)
        patch.setattr(URLLib3Session, "send", send_short)
        patch.setattr(JSONParser, "_handle_json_body", parse_items)
        yield


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """An item's value, of bytes if it is of those. (A map's member of that name is another value, and no text.)"""
    if len(value) == 1 and isinstance(content := value.get("B"), str):
        return {"B": b64decode(content)}
    return value
