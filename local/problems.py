"""The gateway's own answers, in the shape the app gives its errors (RFC 9457).

On AWS the same shape is set with gateway responses; API Gateway's own bodies never reach a client.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from http import HTTPStatus

MEDIA_TYPE = "application/problem+json"
_EVERYWHERE = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}

Answer = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""


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
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "retryable": self.retryable,
            "request_id": request_id,
        }
        headers = {"Content-Type": MEDIA_TYPE, "X-Request-Id": request_id, **_EVERYWHERE, **self.headers}
        body = json.dumps(document, separators=(",", ":"), ensure_ascii=False) + "\n"
        return self.status, headers, body.encode()


def unauthorized() -> Refusal:
    """401: no token, or none that is good."""
    detail = "A valid token is needed: Authorization: Bearer hr_…"
    return Refusal(401, "UNAUTHORIZED", detail, headers={"WWW-Authenticate": "Bearer"})


def forbidden() -> Refusal:
    """403: the authorizer knows the caller, and says no."""
    return Refusal(403, "FORBIDDEN", "The token does not allow this call.")


def not_found() -> Refusal:
    """404: the path belongs to no route."""
    return Refusal(404, "ROUTE_NOT_FOUND", "There is nothing at this path.")


def method_not_allowed(methods: list[str]) -> Refusal:
    """405: the path has routes, this method has none."""
    detail = "This path does not have this method."
    return Refusal(405, "METHOD_NOT_ALLOWED", detail, headers={"Allow": ", ".join(sorted(methods))})


def body_too_large(limit_bytes: int) -> Refusal:
    """413: over API Gateway's payload limit."""
    return Refusal(413, "BODY_TOO_LARGE", f"A request body may have at most {limit_bytes} bytes.")


def throttled() -> Refusal:
    """429: too many calls a second of those that need no token."""
    detail = "Too many calls at this moment; nothing happened."
    return Refusal(429, "THROTTLED", detail, retryable=True, headers={"Retry-After": "1"})


def unavailable() -> Refusal:
    """503: the app failed; whether the call took effect is unknown."""
    detail = "Something went wrong on our side; try again."
    return Refusal(503, "UNAVAILABLE", detail, retryable=True, headers={"Retry-After": "1"})


def timed_out(limit_seconds: float) -> Refusal:
    """504: the app took longer than API Gateway waits; whether the call took effect is unknown."""
    detail = f"No answer within {limit_seconds:g} seconds; the call may have taken effect."
    return Refusal(504, "TIMED_OUT", detail, retryable=True)
