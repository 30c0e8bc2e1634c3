"""What API Gateway does around the app, without sockets: routes, authorizer, limits, its own answers (RFC 9457).

Not imitated: caching of what the authorizer said, throttling of calls that have a token.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import sys
import threading
import time
import traceback
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from chalice import local as aws
from chalice.app import Chalice

from chalicelib.api import problems
from chalicelib.api.gateway import cors
from chalicelib.domain import token_bucket
from chalicelib.domain.limits import MAX_REQUEST_BYTES

INTEGRATION_SECONDS = 29.0
_MEMORY_MB = 512
_HEADERS = {"Content-Type": problems.MEDIA_TYPE, **problems.EVERYWHERE}
_LATER = {"Retry-After": "1"}

# Status, headers, body.
Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Refusal(Exception):
    """A request that does not reach the app, and why."""

    status: int
    code: str
    detail: str
    retryable: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "-"  # for the log, with the target: of a request that could be read so far
    target: str = "-"

    def answer(self, request_id: str | None = None) -> Answer:
        """The problem document with its status and headers."""
        request_id = request_id or str(uuid.uuid4())
        document = {
            "type": f"/errors/{self.code}",
            "title": HTTPStatus(self.status).phrase.capitalize(),
            **{name: getattr(self, name) for name in ("status", "detail", "code", "retryable")},
            "request_id": request_id,
        }
        headers = {**_HEADERS, "X-Request-Id": request_id, **self.headers}
        body = json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"
        return self.status, headers, body.encode()


_MOST = f"A request body may have at most {MAX_REQUEST_BYTES} bytes."
body_too_large = partial(Refusal, 413, "BODY_TOO_LARGE", _MOST)
_WRONG = "Something went wrong on our side; try again."
# the app failed; whether the call took effect is unknown
unavailable = partial(Refusal, 503, "UNAVAILABLE", _WRONG, retryable=True, headers=_LATER)
_NO_TOKEN, _ASK = "A valid token is needed: Authorization: Bearer hr_…", {"WWW-Authenticate": "Bearer"}
unauthorized = partial(Refusal, 401, "UNAUTHORIZED", _NO_TOKEN, headers=_ASK)
forbidden = partial(Refusal, 403, "FORBIDDEN", "The token does not allow this call.")
_not_found = partial(Refusal, 404, "ROUTE_NOT_FOUND", "There is nothing at this path.")


class Throttle:
    """An account of permits for each call, by method and route. Safe for threads."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._lock = threading.Lock()
        self._given_until_ns: dict[tuple[str, str], int] = {}

    def lets_through(self, method: str, route: str, now_seconds: float) -> bool:
        """May this call be made now? Half a second's worth may come at once."""
        with self._lock:
            before = self._given_until_ns.get((method, route), 0)
            grant, after, _ = token_bucket.take(before, self._per_second, 1, round(now_seconds * 1000))
            self._given_until_ns[method, route] = after
        return bool(grant.count)


@dataclass(eq=False)
class Gateway:
    """Answers requests with a Chalice app. Safe for threads; makes the app so, too.

    The handler runs in the caller's thread, so one that takes longer than INTEGRATION_SECONDS is answered with
    504 when it is done, not before; like on AWS, what it did stays done.

    `now_ms` is the service's clock: events say by it when their request came; None: they don't say it. `prefix` is
    the stage's, as `/prod`: paths begin with it, as they do at API Gateway's own address. `throttle` bounds the calls
    that need no token; None: nothing does.
    """

    app: Chalice
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic
    now_ms: Callable[[], int] | None = None
    prefix: str = ""
    throttle: Throttle | None = None

    def __post_init__(self) -> None:
        _make_thread_safe(self.app)
        _log_to_stderr(self.app.log)
        self._forms: dict[int, list[tuple[str, re.Pattern[str]]]] = defaultdict(list)
        for route in sorted(self.app.routes):  # a fixed segment before a parameter
            form = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(route))
            self._forms[route.count("/")].append((route, re.compile(form)))
        self._authorizer = aws.LocalGatewayAuthorizer(self.app)

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Status, headers and body for a request. `path` is as sent, with its query; of a header given in two
        spellings the last counts. Never raises."""
        context = aws.LambdaContext(self.app.app_name, _MEMORY_MB, int(INTEGRATION_SECONDS * 1000))
        request_id = context.aws_request_id
        began_s = self.clock()
        try:
            answer = self._answer(method, path, {k.lower(): v for k, v in headers.items()}, body, context)
            if self.clock() - began_s > INTEGRATION_SECONDS:
                detail = f"No answer within {INTEGRATION_SECONDS:g} seconds; the call may have taken effect."
                raise Refusal(504, "TIMED_OUT", detail, retryable=True)
            return answer
        except Refusal as refusal:
            return refusal.answer(request_id)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            return unavailable().answer(request_id)

    def _answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, context: Any
    ) -> Answer:
        if body is not None and len(body) > MAX_REQUEST_BYTES:
            raise body_too_large()
        received_ms = self.now_ms() if self.now_ms else None
        if not path.startswith(self.prefix):
            raise _not_found()
        path, _, query = path.removeprefix(self.prefix).partition("?")
        route, params = self._match(path)
        entries = self.app.routes[route]
        if method not in entries:
            methods = sorted(entries)
            if method == "OPTIONS" and (pages := cors(headers.get("origin", ""), route, methods)):
                return 204, pages, b""
            detail = f"This path does not have this method; it has {(allow := ', '.join(methods))}."
            raise Refusal(405, "METHOD_NOT_ALLOWED", detail, headers={"Allow": allow})
        is_anonymous = not entries[method].authorizer
        throttle = self.throttle if is_anonymous else None
        if throttle and not throttle.lets_through(method, route, self.clock()):
            detail = "Too many calls at this moment; nothing happened."
            raise Refusal(429, "THROTTLED", detail, retryable=True, headers=_LATER)
        event = {
            "requestContext": {
                "httpMethod": method,
                "resourcePath": route,
                "path": self.prefix + path,
                "identity": {"sourceIp": "127.0.0.1"},
                "requestId": context.aws_request_id,
                "requestTimeEpoch": received_ms,
            },
            "headers": headers,
            "pathParameters": params,
            "multiValueQueryStringParameters": parse_qs(query, keep_blank_values=True) or None,
            "stageVariables": {},
            "body": body or None,
        }
        if not is_anonymous:
            event = self._authorize(path, event, context)
        response = self.app(event, context)
        if response["statusCode"] == 500:  # Chalice caught an exception and has logged it
            raise unavailable()
        return _unpack(response)

    def _match(self, path: str) -> tuple[str, dict[str, str]]:
        """The route of a path, and the parameters in it as they were sent."""
        if path.endswith("/") and path.strip("/"):
            path = path[:-1]
        for route, form in self._forms.get(path.count("/"), ()):
            if match := form.fullmatch(path):
                return route, match.groupdict()
        raise _not_found()

    def _authorize(self, path: str, event: dict[str, Any], context: aws.LambdaContext) -> dict[str, Any]:
        token = event["headers"].get("authorization", "")
        if not token.strip() or not token.isascii():
            raise unauthorized()
        try:
            return self._authorizer.authorize(path, event, context)[0]
        except aws.ForbiddenError:
            raise forbidden() from None
        except Exception as error:
            if str(error) == "Unauthorized":  # the word by which API Gateway knows a refusal from a failure
                raise unauthorized() from None
            raise


def _unpack(response: dict[str, Any]) -> Answer:
    """A Lambda proxy response as status, headers and bytes."""
    headers = {name: str(value) for name, value in response["headers"].items()}
    headers |= {name: ", ".join(values) for name, values in response["multiValueHeaders"].items()}
    body = response["body"] or ""
    content = base64.b64decode(body) if response.get("isBase64Encoded") else body.encode()
    return response["statusCode"], headers, content


def _make_thread_safe(app: Chalice) -> None:
    """Let each thread have the request that it answers; the Lambda context is asked for by way of that."""
    if not isinstance(app, aws.LocalChalice):
        app.__class__ = type("ThreadSafe" + type(app).__name__, (aws.CustomLocalChalice, type(app)), {})


def _log_to_stderr(log: logging.Logger) -> None:
    """Move Chalice's log to standard error. It logs to standard output for Lambda; here that is for the user."""
    for handler in log.handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)
