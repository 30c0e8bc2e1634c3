"""A message as the service pushes it: CloudEvents in binary mode, signed by Standard Webhooks."""

from __future__ import annotations

import base64
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ..consume.outcomes import LONGEST_WAIT_SECONDS
from ..durations import asked_wait, rfc3339, whole_seconds
from ..models import Message
from ..webhook.signing import sign

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))
_PLAIN = "".join(char for char in _PRINTABLE if char not in ' "%')  # CloudEvents' HTTP binding, 3.1.3.2
_OURS = ("ce-", "webhook-", "headrace-")
_NOT_FORWARDED = {"content-type", "authorization", "cookie", "set-cookie", "x-api-key"}
_NOT_KEPT = {"id", "source", "specversion", "time", "datacontenttype", "data", "data_base64"}
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
_EVERYWHERE = {"User-Agent": "headrace", "Accept-Encoding": "identity", "Headrace-Hop": "1"}
_NEVER_AGAIN = 489
_SLOW_DOWN = (429, 503)


@dataclass(frozen=True)
class Result:
    """The result of a request. `status` is 0 if no answer came back."""

    status: int
    ms: float
    detail: str
    retry_after: int | None = None

    @property
    def done(self) -> bool:
        """Was it taken?"""
        return 200 <= self.status < 300

    @property
    def never_again(self) -> bool:
        """Shall it become a dead letter?"""
        return self.status == _NEVER_AGAIN


class Forwarder:
    """Sends messages of a group to a URL. Threads may share it."""

    def __init__(self, url: str, topic: str, group: str, secret: str, timeout: float) -> None:
        import httpx

        self._client = httpx.Client(timeout=timeout, follow_redirects=False, headers=_EVERYWHERE)
        self._url, self._topic, self._group, self._secret = url, topic, group, secret

    def __enter__(self) -> Forwarder:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def send(self, message: Message) -> Result:
        """One request."""
        import httpx

        body = body_of(message)
        headers = headers_of(message, self._topic, self._group)
        headers |= sign(self._secret, message.id, int(time.time()), body)
        start = time.monotonic()
        try:
            answer = self._client.post(self._url, content=body, headers=headers)
        except httpx.HTTPError as error:
            return Result(0, (time.monotonic() - start) * 1000, f"{type(error).__name__} {error}".strip())
        after = answer.headers.get("retry-after") if answer.status_code in _SLOW_DOWN else None
        asked = asked_wait(after, time.time())
        wait = None if asked is None else whole_seconds(min(asked, LONGEST_WAIT_SECONDS))
        return Result(
            answer.status_code, (time.monotonic() - start) * 1000, f"HTTP {answer.status_code}", wait
        )


def body_of(message: Message) -> bytes:
    """The body, byte for byte."""
    if message.body_base64 is not None:
        return base64.b64decode(message.body_base64)
    return bytes(message.raw_body)


def headers_of(message: Message, topic: str, group: str) -> dict[str, str]:
    """The headers but for the signature."""
    headers = {
        name: _encoded(value, _PRINTABLE)
        for name, value in message.headers.items()
        if not name.lower().startswith(_OURS) and name.lower() not in _NOT_FORWARDED
    }
    place: dict[str, Any] = {"topic": topic, "group": group, "shard": message.shard, "offset": message.offset}
    place |= {"attempt": message.attempt} | ({"tag": message.tag} if message.tag else {})
    headers |= {
        f"Headrace-{name.capitalize()}": _encoded(str(value), _PRINTABLE) for name, value in place.items()
    }
    attributes = {"type": "headrace.message", **_producers(message)}
    if message.keys:
        attributes["subject"] = message.keys[0]
    attributes |= {"id": message.id, "source": f"/topics/{topic}", "specversion": "1.0"}
    if message.accepted_at:
        attributes["time"] = rfc3339(message.accepted_at)
    headers |= {f"ce-{name}": _encoded(value, _PLAIN) for name, value in attributes.items()}
    return headers | {"Content-Type": message.content_type}


def _producers(message: Message) -> dict[str, str]:
    """The attributes of the producer's own event that are kept."""
    attributes = (
        (name.lower()[3:], value) for name, value in message.headers.items() if name.lower().startswith("ce-")
    )
    return {n: value for n, value in attributes if value and n not in _NOT_KEPT and _ATTRIBUTE.fullmatch(n)}


def _encoded(value: str, safe: str) -> str:
    return quote(value, safe=safe)
