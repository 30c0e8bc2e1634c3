"""What API Gateway does around the app, without sockets: routes, authorizer, limits, its own answers.

Not imitated: caching of what the authorizer said, throttling of calls that have a token.
"""

from __future__ import annotations

import base64
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from chalice.app import Chalice
from chalice.config import Config
from chalice.local import (
    CustomLocalChalice,
    ForbiddenError,
    LambdaContext,
    LambdaEventConverter,
    LocalChalice,
    LocalGateway,
    LocalGatewayAuthorizer,
    LocalGatewayException,
    MatchResult,
    NotAuthorizedError,
)

from local import problems
from local.problems import Answer, Refusal
from local.routing import Routes
from local.throttle import Throttle

BODY_LIMIT_BYTES = 10 * 1024 * 1024
INTEGRATION_SECONDS = 29.0
_MEMORY_MB = 512


class Gateway:
    """Answers requests with a Chalice app. Safe for threads; makes the app so, too.

    The handler runs in the caller's thread, so one that takes longer than `integration_seconds` is answered with
    504 when it is done, not before; like on AWS, what it did stays done.
    """

    def __init__(
        self,
        app: Chalice,
        *,
        integration_seconds: float = INTEGRATION_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] | None = None,
        prefix: str = "",
        throttle: Throttle | None = None,
    ) -> None:
        """`now_ms` is the service's clock: events say by it when their request came; None: they don't say it. `prefix`
        is the stage's, as `/prod`: paths begin with it, as they do at API Gateway's own address. `throttle` bounds the
        calls that need no token; None: nothing does."""
        _make_thread_safe(app)
        _log_to_stderr(app.log)
        self._app = app
        self._seconds = integration_seconds
        self._clock = clock
        self._now_ms = now_ms
        self._prefix = prefix
        self._throttle = throttle
        self._routes = Routes(app.routes)
        self._events = LambdaEventConverter(self._routes, app.api.binary_types)
        self._authorizer = LocalGatewayAuthorizer(app)
        self._preflight = LocalGateway(app, Config.create(app_name=app.app_name))

    def handle(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Answer:
        """Status, headers and body for a request. `path` is as sent, with its query; of a header given in two
        spellings the last counts. Never raises."""
        context = LambdaContext(self._app.app_name, _MEMORY_MB, int(self._seconds * 1000))
        request_id = context.aws_request_id
        began_s = self._clock()
        try:
            answer = self._answer(method, path, {k.lower(): v for k, v in headers.items()}, body, context)
            if self._clock() - began_s > self._seconds:
                raise problems.timed_out(self._seconds)
            return answer
        except Refusal as refusal:
            return refusal.answer(request_id)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            return problems.unavailable().answer(request_id)

    def _answer(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, context: LambdaContext
    ) -> Answer:
        if body is not None and len(body) > BODY_LIMIT_BYTES:
            raise problems.body_too_large(BODY_LIMIT_BYTES)
        if not path.startswith(f"{self._prefix}/"):
            raise problems.not_found()
        path = path.removeprefix(self._prefix)
        received_ms = self._now_ms() if self._now_ms else None
        match = self._match(path)
        entries = self._app.routes[match.route]
        if method not in entries:
            if method == "OPTIONS" and any(entry.cors for entry in entries.values()):
                return _unpack(self._preflight.handle_request(method, match.route, headers, None))
            raise problems.method_not_allowed(list(entries))
        is_anonymous = not entries[method].authorizer
        if (
            self._throttle
            and is_anonymous
            and not self._throttle.lets_through(method, match.route, self._clock())
        ):
            raise problems.throttled()
        event = self._events.create_lambda_event(method, path, headers, body or None)
        event["requestContext"]["requestId"] = context.aws_request_id
        event["requestContext"]["requestTimeEpoch"] = received_ms
        event["requestContext"]["path"] = self._prefix + event["requestContext"]["path"]
        if not is_anonymous:
            event = self._authorize(path, event, context)
        response = self._app(event, context)
        if response["statusCode"] == 500:  # Chalice caught an exception and has logged it
            raise problems.unavailable()
        return _unpack(response)

    def _match(self, path: str) -> MatchResult:
        try:
            return self._routes.match_route(path)
        except ValueError:
            raise problems.not_found() from None

    def _authorize(self, path: str, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        token = event["headers"].get("authorization", "")
        if not token.strip() or not token.isascii():
            raise problems.unauthorized()
        try:
            result, _ = self._authorizer.authorize(path, event, context)
        except NotAuthorizedError:
            raise problems.unauthorized() from None
        except ForbiddenError:
            raise problems.forbidden() from None
        except LocalGatewayException as error:
            raise RuntimeError("The authorizer returned no policy") from error
        except Exception as error:
            if str(error) == "Unauthorized":  # the word by which API Gateway knows a refusal from a failure
                raise problems.unauthorized() from None
            raise
        return result


def _unpack(response: dict[str, Any]) -> Answer:
    """A Lambda proxy response as status, headers and bytes."""
    headers = {name: str(value) for name, value in response["headers"].items()}
    headers.update({name: ", ".join(values) for name, values in response["multiValueHeaders"].items()})
    body = response["body"] or b""
    if response.get("isBase64Encoded"):
        body = base64.b64decode(body)
    return response["statusCode"], headers, body if isinstance(body, bytes) else body.encode()


class _PerThread(CustomLocalChalice):
    """Chalice for several threads: theirs covers the current request, this the Lambda context as well."""

    _CONTEXTS = threading.local()

    @property
    def lambda_context(self) -> Any:
        return self._CONTEXTS.value

    @lambda_context.setter
    def lambda_context(self, value: Any) -> None:
        self._CONTEXTS.value = value


def _make_thread_safe(app: Chalice) -> None:
    if not isinstance(app, LocalChalice):
        app.__class__ = type("ThreadSafe" + type(app).__name__, (_PerThread, type(app)), {})


def _log_to_stderr(log: logging.Logger) -> None:
    """Move Chalice's log to standard error. It logs to standard output for Lambda; here that is for the user."""
    for handler in log.handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            handler.setStream(sys.stderr)
