"""The handshake of CloudEvents' "HTTP 1.1 Web Hooks": a URL is called only after its owner has agreed."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..domain.call_result import CallResult, Verdict
from .addresses import parse_url
from .connections import Monotonic
from .egress import Egress, Unreached

SECONDS = 10.0
_TRUST_SECONDS = 3600.0
_MAX_TRUSTED = 4096

# May one more handshake go to this host now?
MayAsk = Callable[[str], bool]


def greet(egress: Egress, url: str, origin: str, may_ask: MayAsk, seconds: float = SECONDS) -> CallResult:
    """Ask a URL's owner for permission for `origin` (our host name), within so many seconds. The header
    WebHook-Allowed-Origin decides, not the status; redirects are not followed.

    A loopback URL, where those are allowed, is not asked: it is the caller's own.
    """
    target = parse_url(url, egress.rules)
    if not isinstance(target, str):
        if target.loopback:
            return CallResult(Verdict.DONE, "loopback needs no consent")
        if not may_ask(target.host):
            return CallResult(Verdict.FAILED, "the host was asked too often; it is asked again later")
    answer = egress.call("OPTIONS", url, {"WebHook-Request-Origin": origin}, b"", seconds)
    if isinstance(answer, Unreached):
        return CallResult(Verdict.FAILED, f"OPTIONS: {answer.detail}", duration_ms=answer.duration_ms)
    allowed_origin = answer.headers.get("webhook-allowed-origin", "").strip().lower()
    if allowed_origin in ("*", origin.lower()):
        return CallResult(Verdict.DONE, "its owner agreed", answer.status, duration_ms=answer.duration_ms)
    detail = f"OPTIONS: HTTP {answer.status} without WebHook-Allowed-Origin for us"
    if answer.status // 100 == 3:
        detail += "; redirects are not followed"
    return CallResult(Verdict.FAILED, detail, answer.status, duration_ms=answer.duration_ms)


class Trusted:
    """URLs whose owners have agreed, remembered in this process for an hour."""

    def __init__(self, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def has(self, url: str) -> bool:
        """Has the URL's owner agreed within the last hour?"""
        with self._lock:
            return self._until.get(url, 0.0) > self._monotonic()

    def add(self, url: str) -> None:
        """Remember for an hour that the URL's owner has agreed."""
        with self._lock:
            if len(self._until) >= _MAX_TRUSTED:
                self._until.clear()
            self._until[url] = self._monotonic() + _TRUST_SECONDS
