"""The Chalice class of the front door: what arrives and leaves is put in order before and after Chalice."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, unquote

from chalice.app import AuthRequest, Chalice

from .. import wiring
from ..domain.errors import HeadraceError, Malformed, MethodNotAllowed, NotFound, unavailable
from ..domain.message import is_single
from . import problems
from .calls import ACCEPTED, GROUP
from .http import refusal

_LARGE_BYTES = 6_000_000  # Lambda answers with at most 6 MB
_HEALTH, _RECEIVE = "/v1/health", f"{GROUP}/receive"
_REST_ONLY = ("/v1/audit", "/v1/sign-in-links", "/v1/signing-key", "/v1/tokens")
_FOR_PAGES = re.compile("/v1/(?!tokens|sign-in-links)")


class Front(Chalice):
    """Chalice, with every body as bytes and its own errors as problem+json."""

    def __call__(self, event: Any, context: Any) -> dict[str, Any]:
        headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
        if name := _given_twice(event):
            error = Malformed("BAD_REQUEST", f"{name.title()} is given twice.")
            answer = self._refused(error, getattr(context, "aws_request_id", ""))
        else:
            answer = self._answer(event, headers, context)
        request = event.get("requestContext", {})
        answer["headers"] |= cors(headers.get("origin", ""), request.get("resourcePath", ""))
        if request.get("domainName"):  # on AWS, where all is by https
            answer["headers"] |= problems.ONLY_HTTPS
        return answer

    def at_url(self, event: Any, context: Any, *, waits: bool = False) -> dict[str, Any]:
        """Answer what came by a function URL, as if API Gateway had sent it: calls that need a token, and health; or
        where it `waits`, `receive` alone. Who calls, the header `Authorization` alone says."""
        origin, path = event["requestContext"], event["rawPath"]
        method = origin["http"]["method"]
        matches = ((route, match) for route, form in self._forms if (match := form.fullmatch(path)))
        route, match = next(matches, ("", None))
        entry = self.routes.get(route, {}).get(method)
        authorizer: Any = entry and entry.authorizer
        try:
            is_served = route == _RECEIVE if waits else authorizer or route == _HEALTH
            if not (match and entry and is_served) or route.startswith(_REST_ONLY):
                raise NotFound("ROUTE_NOT_FOUND", "This address has no such call; the REST API has all.")
            if authorizer:
                text = event["headers"].get("authorization", "")
                arn = f"arn:aws:lambda:::url/-/{method}{path}"
                caller = authorizer.func(AuthRequest("TOKEN", text, arn))
                authorizer = {**caller.context, "principalId": caller.principal_id}
        except HeadraceError as error:
            answer = self._refused(error, origin["requestId"])
            return {**answer, "headers": {**answer["headers"], **problems.ONLY_HTTPS}}
        identity, time_ms = {"sourceIp": origin["http"]["sourceIp"]}, origin["timeEpoch"]
        own = {"authorizer": authorizer, "identity": identity, "requestTimeEpoch": time_ms, "may_wait": waits}
        params = {name: unquote(value) for name, value in match.groupdict().items()}
        query = parse_qs(event["rawQueryString"], keep_blank_values=True)
        request_context = {**origin, **own, "httpMethod": method, "resourcePath": route}
        rest = {"requestContext": request_context, "pathParameters": params, "stageVariables": None}
        return self({"body": None, **event, **rest, "multiValueQueryStringParameters": query}, context)

    @cached_property
    def _forms(self) -> list[tuple[str, re.Pattern[str]]]:
        """The form of each route's paths; a fixed segment comes before a parameter."""
        routes = sorted(self.routes)
        return [(each, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", each))) for each in routes]

    def _refused(self, error: HeadraceError, request_id: str) -> dict[str, Any]:
        return refusal(error, request_id).to_dict(self.api.binary_types)

    def _answer(self, event: Any, headers: dict[str, str], context: Any) -> dict[str, Any]:
        # All media types are binary to us (raw publish); Chalice then insists on an Accept header that says so.
        event = {**event, "headers": {**headers, ACCEPTED: headers.get("accept", ""), "accept": "*/*"}}
        answer: dict[str, Any] = super().__call__(event, context)
        if answer["statusCode"] >= 400 and "X-Request-Id" not in answer["headers"]:
            return self._as_problem(answer, getattr(context, "aws_request_id", ""))
        return _as_text(answer) if len(answer["body"]) > _LARGE_BYTES else answer

    def _as_problem(self, answer: dict[str, Any], request_id: str) -> dict[str, Any]:
        """Chalice's own refusal (a method the path does not have) in our shape."""
        error: HeadraceError = unavailable("Something went wrong on our side; try again.")
        if answer["statusCode"] == problems.STATUS[MethodNotAllowed][0]:
            words = f"This path does not have this method; it has {answer['headers'].get('Allow')}."
            error = MethodNotAllowed("METHOD_NOT_ALLOWED", words)
        ours = self._refused(error, request_id)
        return {**ours, "headers": {**answer["headers"], **ours["headers"]}}


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


def _as_text(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer with its body as text: a large body in base64 would grow by a third if encoded once more."""
    if not answer.get("isBase64Encoded"):
        return answer
    text = base64.b64decode(answer["body"]).decode()
    return {**answer, "body": text, "isBase64Encoded": False}
