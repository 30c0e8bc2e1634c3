"""The CloudEvents web hook handshake: nobody is sent messages who has not agreed to them."""

from __future__ import annotations

from ..domain.outcome import Outcome, Verdict
from .addresses import parse_url
from .egress import Egress, Unreached

_SECONDS = 10.0


def greet(egress: Egress, url: str, origin: str) -> Outcome:
    """Ask a URL's owner whether `origin` (our host name) may call it. The header consents, never the status.

    A loopback URL, where those are allowed, is the caller's own: it is not asked.
    """
    target = parse_url(url, egress.rules)
    if not isinstance(target, str) and target.loopback:
        return Outcome(Verdict.DONE, "loopback needs no consent")
    answer = egress.call("OPTIONS", url, {"WebHook-Request-Origin": origin}, b"", _SECONDS)
    if isinstance(answer, Unreached):
        return Outcome(Verdict.FAILED, answer.detail, duration_ms=answer.duration_ms)
    allowed = answer.headers.get("webhook-allowed-origin", "").strip().lower()
    if allowed in ("*", origin.lower()):
        return Outcome(Verdict.DONE, "its owner agreed", answer.status, duration_ms=answer.duration_ms)
    return Outcome(
        Verdict.FAILED, "no WebHook-Allowed-Origin for us", answer.status, duration_ms=answer.duration_ms
    )
