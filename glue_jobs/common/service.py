"""Headrace's HTTP interface, as a job calls it from the driver and from the executors."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from glue_jobs.common.failures import JobError

RETRYABLE = (429, 502, 503, 504)
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_SECONDS = 60


class Refused(JobError):
    """The service said no (4xx), or led elsewhere (3xx): the text says why."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.status = status
        self.code = code


class Unreachable(JobError):
    """No good answer came, however often it was tried."""


class _FollowsNothing(urllib.request.HTTPRedirectHandler):
    """Followed, a redirection would take the token to another host, and make a GET of a POST."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_FollowsNothing)


@dataclass(frozen=True)
class Service:
    """Calls by a token. What is called is repeated after a pause while the service is busy or away."""

    url: str
    token: str = field(repr=False)
    sleep: Callable[[float], None] = time.sleep
    pauses: tuple[float, ...] = _PAUSES

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer. Raises Refused and Unreachable."""
        for pause in (*self.pauses, None):
            try:
                return self._once(method, path, body)
            except Refused as error:
                if error.status not in RETRYABLE or pause is None:
                    raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                if pause is None:
                    raise Unreachable(f"{self.url} does not answer: {error}") from None
            self.sleep(pause)
        raise AssertionError("the last round raises or returns")

    def _once(self, method: str, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with _opener().open(request, timeout=_SECONDS) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code // 100 == 3:
                    raise Refused(
                        error.code,
                        "REDIRECTED",
                        f"{self.url} redirects to {error.headers.get('Location')}, and no redirection is followed: "
                        "--url (HEADRACE_URL) must be that of the service itself.",
                    ) from None
                raise _refusal(error.code, error.read()) from None


def _refusal(status: int, raw: bytes) -> Refused:
    try:
        problem = json.loads(raw)
        return Refused(status, str(problem["code"]), str(problem["detail"]))
    except (ValueError, KeyError, TypeError):
        return Refused(status, f"HTTP_{status}", raw[:200].decode(errors="replace"))
