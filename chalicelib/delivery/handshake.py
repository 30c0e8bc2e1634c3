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


class Consents:
    """What the owners of URLs answered, remembered in this process: for an hour that they agreed, and `refused_seconds`
    that they did not. Calls that need the same answer wait for one handshake."""

    def __init__(self, monotonic: Monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[threading.Lock, float, CallResult | None]] = {}

    def answer(self, url: str, ask: Callable[[], CallResult], refused_seconds: float = 0) -> CallResult:
        """The answer of the URL's owner, as it is remembered, or else to `ask`."""
        with self._lock:
            if len(self._answers) >= _MAX_TRUSTED:
                self._answers.clear()
            asking = self._answers.setdefault(url, (threading.Lock(), 0.0, None))[0]
        with asking:
            _, until, known = self._answers.get(url, (asking, 0.0, None))
            if known and until > self._monotonic():
                return known
            answer = ask()
            seconds = _TRUST_SECONDS if answer.verdict is Verdict.DONE else refused_seconds
            self._answers[url] = asking, self._monotonic() + seconds, answer
            return answer
