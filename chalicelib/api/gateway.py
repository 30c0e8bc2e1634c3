"""The Chalice class of the front door: what arrives and leaves is put in order before and after Chalice."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from chalice.app import Chalice

from .. import wiring
from ..domain import strict_json
from ..domain.errors import Malformed
from ..domain.message import is_single
from . import problems
from .calls import ACCEPTED

_LARGE_BYTES = 6_000_000  # Lambda answers with at most 6 MB
_NO_METHOD = "METHOD_NOT_ALLOWED", "Method not allowed", "This path does not have this method."
_FAILED = "UNAVAILABLE", "Unavailable", "Something went wrong on our side; try again."
_FOR_PAGES = re.compile("/v1/(?!tokens|sign-in-links)")


class Front(Chalice):
    """Chalice, with every body as bytes and its own errors as problem+json."""

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
        name, request_id = _given_twice(event), getattr(context, "aws_request_id", "")
        answer = _refusal(name, request_id) if name else self._answer(event, headers, context)
        request = event.get("requestContext", {})
        answer["headers"] = {
            **answer["headers"],
            **cors(headers.get("origin", ""), request.get("resourcePath", "")),
        }
        if request.get("domainName"):  # on AWS, where all is by https
            answer["headers"] |= problems.ONLY_HTTPS
        return answer

    def _answer(self, event: Any, headers: dict[str, str], context: Any) -> dict[str, Any]:
        # All media types are binary to us (raw publish); Chalice then insists on an Accept header that says so.
        event = {**event, "headers": {**headers, ACCEPTED: headers.get("accept", ""), "accept": "*/*"}}
        answer: dict[str, Any] = super().__call__(event, context)
        if answer["statusCode"] >= 400 and "X-Request-Id" not in answer["headers"]:
            return _as_problem(answer, getattr(context, "aws_request_id", ""))
        return _as_text(answer) if len(answer["body"]) > _LARGE_BYTES else answer


def cors(origin: str, path: str, methods: Iterable[str] = ()) -> dict[str, str]:
    """Headers that let a page of one of the stage's `cors_origins` read an answer at a route, or with `methods` make
    calls there (on AWS, API Gateway sends these: infra/api.py). None for tokens, sign-in links and the console."""
    if not _FOR_PAGES.match(path) or not (origins := wiring.deps().adapters.cors_origins):
        return {}
    if origin not in origins:
        return {"Vary": "Origin"}
    sent = {"Allow-Headers": "Authorization, *", "Allow-Methods": ", ".join(methods), "Max-Age": "7200"}
    headers = {"Allow-Origin": origin, "Expose-Headers": "*", **(sent if methods else {})}
    return {"Vary": "Origin", **{f"Access-Control-{name}": text for name, text in headers.items()}}


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
    code, title, detail = _NO_METHOD if is_method else _FAILED
    document = {"type": f"/errors/{code}", "title": title, "status": status, "detail": detail, "code": code}
    document |= {"retryable": not is_method, "request_id": request_id}
    own = {"Content-Type": problems.MEDIA_TYPE, "X-Request-Id": request_id, **problems.EVERYWHERE}
    headers = {**answer["headers"], **own}
    body = strict_json.dump(document).decode() + "\n"
    return {**answer, "statusCode": status, "headers": headers, "body": body, "isBase64Encoded": False}
