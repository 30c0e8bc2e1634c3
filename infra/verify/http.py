"""One stage as an attacker calls it: requests by hand, and a note of each that was not answered as it should be."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_SECONDS = 35.0
_SHOWN_CHARS = 120
_SERVICE = re.compile(r"https?://([^/\s:@?#\[\]]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?(/[^\s?#]*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """What came back. `headers` by lower-case names."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The beginning of the body, for a person."""
        return self.body[:_SHOWN_CHARS].decode(errors="replace")

    @property
    def json(self) -> Any:
        """The body; None where it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class Unreachable(Exception):
    """No server answers at the URL; the text says why."""


class Stage:
    """The service at a URL (with its stage's path, as `https://….amazonaws.com/api`)."""

    def __init__(self, url: str) -> None:
        if not _SERVICE.fullmatch(url):
            raise Unreachable(
                f"{url!r} is no URL of a service: set HEADRACE_URL, such as https://q.example.com."
            )
        parts = urlsplit(url)
        self.is_tls = parts.scheme == "https"
        self._host, self._prefix = parts.netloc, parts.path.rstrip("/").removesuffix("/v1")

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str = "",
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        """One request; a `body` of bytes goes out as it is. Raises Unreachable."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        own_headers = [("Host", self._host), ("Content-Length", str(len(raw or b"")))]
        own_headers += [("Authorization", f"Bearer {token}")] if token else []
        kinds = (
            []
            if any(name == "Content-Type" for name, _ in headers)
            else [("Content-Type", "application/json")]
        )
        kind = http.client.HTTPSConnection if self.is_tls else http.client.HTTPConnection
        connection = kind(self._host, timeout=_SECONDS)
        try:
            connection.putrequest(method, self._prefix + path, skip_host=True, skip_accept_encoding=True)
            for name, value in (*own_headers, *kinds, *headers):
                connection.putheader(name, value)
            connection.endheaders(raw)
            response = connection.getresponse()
            answer_headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, answer_headers, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self._host} does not answer: {error}") from error
        finally:
            connection.close()


@dataclass
class Notes:
    """What was tried and found. `tell` is called with a line for each."""

    tell: Callable[[str], None]
    tries: int = 0
    findings: list[str] = field(default_factory=list)

    def expect(self, name: str, holds: bool, detail: str = "") -> None:
        """A try that came out as it should, or a finding."""
        self.tries += 1
        if holds:
            self.tell(f"ok       {name}")
            return
        self.findings.append(name)
        self.tell(f"FINDING  {name}: {detail}")

    def expect_status(self, name: str, answer: Answer, *statuses: int, is_problem: bool = False) -> None:
        """A request that should be answered with one of these statuses; `is_problem`: and with a problem document."""
        is_as_asked = not is_problem or answer.headers.get("content-type") == "application/problem+json"
        self.expect(name, answer.status in statuses and is_as_asked, f"{answer.status} {answer.text}")
