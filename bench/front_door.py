"""Calls the front door in this process as API Gateway would: one Lambda event, one answer, no socket."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from chalicelib import wiring
from chalicelib.wiring import Deps

_CALLER = {"token_id": "bench", "scopes": ["admin", "consume", "produce"]}
_ALL = {"principalId": "bench", "caller": json.dumps(_CALLER)}


class _LambdaContext:
    aws_request_id = "bench"
    function_name = "bench"
    memory_limit_in_mb = 256
    invoked_function_arn = ""


class Api:
    """`app.py` on given services. One at a time: the front door finds its services in the process."""

    def __init__(self, deps: Deps) -> None:
        import app

        self._app = app.app
        self.use(deps)

    def use(self, deps: Deps) -> None:
        """Go on with other services: new ones are as cold as a new process."""
        wiring.deps = lambda: deps  # type: ignore[assignment]

    def event(self, method: str, path: str, body: Any = None, **params: str) -> dict[str, Any]:
        """The event of a call; `path` is the route, `params` fill it."""
        resource = path.format(**{name: f"{{{name}}}" for name in params})
        return {
            "resource": resource,
            "path": path.format(**{name: quote(value) for name, value in params.items()}),
            "headers": {"content-type": "application/json"},
            "pathParameters": params,
            "multiValueQueryStringParameters": None,
            "stageVariables": None,
            "body": None if body is None else json.dumps(body),
            "isBase64Encoded": False,
            "requestContext": {
                "resourcePath": resource,
                "httpMethod": method,
                "requestId": "bench",
                "authorizer": _ALL,
                "identity": {},
            },
        }

    def answer(self, event: dict[str, Any]) -> dict[str, Any]:
        """What Lambda would return."""
        answer: dict[str, Any] = self._app(event, _LambdaContext())
        return answer

    def call(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """The JSON of the answer; RuntimeError for anything but a 2xx."""
        answer = self.answer(self.event(method, path, body, **params))
        text = text_of(answer)
        if answer["statusCode"] >= 300:
            raise RuntimeError(f"{method} {path}: {answer['statusCode']} {text[:300]}")
        return json.loads(text) if text else None


def text_of(answer: dict[str, Any]) -> str:
    """The text of an answer's body."""
    if answer.get("isBase64Encoded"):
        import base64

        return base64.b64decode(answer["body"]).decode()
    return str(answer.get("body") or "")
