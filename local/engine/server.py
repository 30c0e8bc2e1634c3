"""Serves the engine to other processes of this user, on 127.0.0.1, in DynamoDB's JSON protocol.

A port of this machine is open to its other users, and to pages in a browser whose name leads to 127.0.0.1. So each
start makes a key pair, and a request that it did not sign (AWS's Signature Version 4, in the header Authorization) is
refused before its body is parsed. Signatures in the query, and bodies that are not part of the signature, are refused.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from local.gateway import Answer
from local.server import serve

from .client import Client, Streams
from .core import Engine

CONTENT_TYPE = "application/x-amz-json-1.0"
_SPACE = "com.amazonaws.dynamodb.v20120810#"
_TARGET = re.compile(r"(DynamoDB_20120810|DynamoDBStreams_20120810)\.([A-Za-z]+)\Z")
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_ALGORITHM = "AWS4-HMAC-SHA256"
_AUTHORIZATION = re.compile(
    _ALGORITHM + r" +Credential=(?P<key>\w+)/(?P<scope>(?P<day>\d{8})/[\w-]+/dynamodb/aws4_request)"
    r", *SignedHeaders=(?P<signed>[a-z0-9;-]+), *Signature=(?P<signature>[0-9a-f]{64})",
    re.ASCII,
)
_SKEW_SECONDS = 15 * 60
_UNSIGNED = "The security token included in the request is invalid: `headrace-local env` prints valid keys."
_FOREIGN = "The engine answers programs on this machine that call 127.0.0.1, and no pages in a browser."


class Protocol:
    """Answers requests of any SDK of AWS."""

    def __init__(self, engine: Engine) -> None:
        self._clients = {"DynamoDB_20120810": Client(engine), "DynamoDBStreams_20120810": Streams(engine)}

    def answer(self, target: str, body: bytes) -> tuple[int, bytes]:
        """Answer a request; `target` is its header X-Amz-Target."""
        try:
            method = self._method(target)
            request = json.loads(body, object_hook=_with_bytes)
            answer = method(**request)
        except ClientError as error:
            response: dict[str, Any] = dict(error.response)
            status = response.pop("ResponseMetadata")["HTTPStatusCode"]
            about = response.pop("Error")
            return _refusal(about["Code"], about["Message"], status, **response)
        except NotImplementedError as error:
            return _refusal("UnknownOperationException", str(error))
        except (ValueError, TypeError) as error:
            return _refusal("SerializationException", f"The request cannot be read: {error}")
        del answer["ResponseMetadata"]
        return 200, _encoded(answer)

    def _method(self, target: str) -> Callable[..., dict[str, Any]]:
        match = _TARGET.match(target)
        name = _WORD.sub("_", match[2]).lower() if match else ""
        method = getattr(self._clients[match[1]], name, None) if match and name[:4] != "get_w" else None
        if not callable(method):
            raise NotImplementedError(f"The embedded engine has no operation {target}.")
        return method  # type: ignore[no-any-return]


def _refusal(code: str, message: str, status: int = 400, **extra: Any) -> tuple[int, bytes]:
    return status, _encoded({"__type": _SPACE + code, "message": message, **extra})


def _encoded(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"no JSON: {value!r}")


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """An attribute value of bytes, which JSON has as text. (A map's member of that name is another value, no text.)"""
    if len(value) == 1 and isinstance(content := value.get("B"), str):
        return {"B": base64.b64decode(content, validate=True)}
    return value


class Door:
    """local.server's gateway for an engine."""

    def __init__(
        self, engine: Engine, key_id: str, secret: str, now_s: Callable[[], float] = time.time
    ) -> None:
        """`key_id` and `secret` sign requests."""
        self._protocol = Protocol(engine)
        self._key_id, self._secret = key_id, secret
        self._now_s = now_s
        # What the header Host may say.
        self.hosts: frozenset[str] = frozenset()

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Answer one request."""
        is_foreign = headers.get("host", "").lower() not in self.hosts or "origin" in headers
        if is_foreign or method == "OPTIONS":
            status, content = _refusal("AccessDeniedException", _FOREIGN, 403)
        elif path != "/" or not self._is_signed(method, headers, body or b""):
            status, content = _refusal("UnrecognizedClientException", _UNSIGNED)
        else:
            status, content = self._protocol.answer(headers.get("x-amz-target", ""), body or b"")
        return status, {"Content-Type": CONTENT_TYPE}, content

    def _is_signed(self, method: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Did the holder of the keys sign this request to the path `/`, at most 15 minutes ago?
        https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html"""
        match = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
        date = headers.get("x-amz-date", "")
        if match is None or not self._is_fresh(date) or match["day"] != date[:8]:
            return False
        signed = match["signed"].split(";")
        needed = {"host", "x-amz-date", *(name for name in headers if name.startswith("x-amz-"))}
        if not needed <= set(signed) <= headers.keys():
            return False
        lines = [f"{name}:{re.sub(' +', ' ', headers[name].strip(' '))}" for name in signed]
        canonical = "\n".join([method, "/", "", *lines, "", match["signed"], _hash(body)])
        text = "\n".join([_ALGORITHM, date, match["scope"], _hash(canonical.encode("latin-1"))])
        key = b"AWS4" + self._secret.encode()
        for part in (*match["scope"].split("/"), text):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        is_same = hmac.compare_digest(key.hex(), match["signature"])
        return hmac.compare_digest(match["key"], self._key_id) and is_same

    def _is_fresh(self, date: str) -> bool:
        try:
            at = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            return False
        return abs(at.timestamp() - self._now_s()) <= _SKEW_SECONDS


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def serving(engine: Engine) -> Iterator[dict[str, str]]:
    """Serve an engine with a new key pair, and say where: variables of the environment, as AWS's SDKs read them."""
    key_id, secret = "HR" + secrets.token_hex(9).upper(), secrets.token_urlsafe(30)
    door = Door(engine, key_id, secret)
    server = serve(door)
    door.hosts = frozenset(f"{name}:{server.port}" for name in ("127.0.0.1", "localhost"))
    server.start()
    url = f"http://127.0.0.1:{server.port}"
    try:
        yield {
            "AWS_ENDPOINT_URL_DYNAMODB": url,
            "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": url,
            "AWS_ACCESS_KEY_ID": key_id,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "false",
        }
    finally:
        server.shutdown()
