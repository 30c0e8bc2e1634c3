"""The Chalice class of the front door: what arrives and leaves is put in order before and after Chalice."""

from __future__ import annotations

import base64
from collections import Counter
from typing import Any

from chalice.app import Chalice

from ..domain import strict_json
from ..domain.errors import Malformed
from ..domain.message import is_single
from . import problems
from .calls import ACCEPTED

_LARGE_BYTES = 6_000_000  # Lambda answers with at most 6 MB


class Front(Chalice):
    """Chalice, with every body as bytes and its own errors as problem+json."""

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        if name := _given_twice(event):
            return _refusal(name, getattr(context, "aws_request_id", ""))
        answer = self._answer(event, context)
        if event.get("requestContext", {}).get("domainName"):  # on AWS, where all is by https
            answer["headers"] = {**answer["headers"], **problems.ONLY_HTTPS}
        return answer

    def _answer(self, event: Any, context: Any) -> dict[str, Any]:
        headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
        # All media types are binary to us (raw publish); Chalice then insists on an Accept header that says so.
        event = {**event, "headers": {**headers, ACCEPTED: headers.get("accept", ""), "accept": "*/*"}}
        answer: dict[str, Any] = super().__call__(event, context)
        if answer["statusCode"] >= 400 and "X-Request-Id" not in answer["headers"]:
            return _as_problem(answer, getattr(context, "aws_request_id", ""))
        return _as_text(answer) if len(answer["body"]) > _LARGE_BYTES else answer


def _given_twice(event: Any) -> str | None:
    """A header that must be there once and is there twice. `headers` has only the last of each."""
    counts = Counter[str]()
    for name, values in (event.get("multiValueHeaders") or {}).items():
        counts[name.lower()] += len(values)
    return next((name for name, count in counts.items() if count > 1 and is_single(name)), None)


def _refusal(name: str, request_id: str) -> dict[str, Any]:
    error = Malformed("BAD_REQUEST", f"{name.title()} is given twice.")
    body = strict_json.dump(problems.problem(error, request_id)).decode() + "\n"
    headers = {"X-Request-Id": request_id, **problems.EVERYWHERE, **problems.headers(error)}
    return {"statusCode": 400, "headers": headers, "multiValueHeaders": {}, "body": body}


def _as_text(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with its body as text: a large body in base64 would grow by a third if encoded once more."""
    if not answer.get("isBase64Encoded"):
        return answer
    text = base64.b64decode(answer["body"]).decode()
    return {**answer, "body": text, "isBase64Encoded": False}


def _as_problem(answer: dict[str, Any], request_id: str) -> dict[str, Any]:
    """Chalice's own refusal (a method the path does not have) in our shape."""
    status = answer["statusCode"] if answer["statusCode"] != 500 else 503
    is_method = status == problems.METHOD_NOT_ALLOWED
    document = {
        "type": "/errors/METHOD_NOT_ALLOWED" if is_method else "/errors/UNAVAILABLE",
        "title": "Method not allowed" if is_method else "Unavailable",
        "status": status,
        "detail": "This path does not have this method."
        if is_method
        else "Something went wrong on our side; try again.",
        "code": "METHOD_NOT_ALLOWED" if is_method else "UNAVAILABLE",
        "retryable": not is_method,
        "request_id": request_id,
    }
    own = {"Content-Type": problems.MEDIA_TYPE, "X-Request-Id": request_id, **problems.EVERYWHERE}
    headers = {**answer["headers"], **own}
    body = strict_json.dump(document).decode() + "\n"
    return {**answer, "statusCode": status, "headers": headers, "body": body, "isBase64Encoded": False}
