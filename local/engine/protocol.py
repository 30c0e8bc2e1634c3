"""DynamoDB's JSON protocol: a request's target and body in, the answer's status and body out."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from .client import Client, Streams
from .core import Engine

CONTENT_TYPE = "application/x-amz-json-1.0"
_SPACE = "com.amazonaws.dynamodb.v20120810#"
_TARGET = re.compile(r"(DynamoDB_20120810|DynamoDBStreams_20120810)\.([A-Za-z]+)\Z")
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


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
            return status, _encoded(
                {"__type": _SPACE + about["Code"], "message": about["Message"], **response}
            )
        except NotImplementedError as error:
            return refusal("UnknownOperationException", str(error))
        except (ValueError, TypeError) as error:
            return refusal("SerializationException", f"The request cannot be read: {error}")
        del answer["ResponseMetadata"]
        return 200, _encoded(answer)

    def _method(self, target: str) -> Callable[..., dict[str, Any]]:
        match = _TARGET.match(target)
        name = _WORD.sub("_", match[2]).lower() if match else ""
        method = getattr(self._clients[match[1]], name, None) if match and name[:4] != "get_w" else None
        if not callable(method):
            raise NotImplementedError(f"The embedded engine has no operation {target}.")
        return method  # type: ignore[no-any-return]


def refusal(code: str, message: str, status: int = 400) -> tuple[int, bytes]:
    """The answer to a request that is refused."""
    return status, _encoded({"__type": _SPACE + code, "message": message})


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
