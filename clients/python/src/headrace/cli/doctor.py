"""`headrace doctor`: is everything as it must be to work with a service?"""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import typer

from ..errors import Forbidden, HeadraceError
from .profiles import Profiles, masked
from .session import Session, session

_SKEW_SECONDS = 60  # receivers of signed pushes allow five minutes
_SLOW_MS = 1000


@dataclass(frozen=True)
class Finding:
    """What a check came to. `ok` is None for a warning."""

    check: str
    ok: bool | None
    detail: str


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: headrace doctor --profile prod")(doctor)


def doctor(context: typer.Context) -> None:
    """Check address, database, clock, token; list what waits for a person, and groups with dead letters. Exit code 1 if
    a check fails, or something waits for a person."""
    s = session(context)
    findings = list(_findings(s))
    signs = {True: "ok", None: "look", False: "FAILS"}
    rows = (
        ({"check": f.check, "ok": f.ok, "detail": f.detail}, (signs[f.ok], f.check, f.detail))
        for f in findings
    )
    s.output.many(("", "CHECK", ""), rows, "")
    if any(f.ok is False for f in findings):
        raise typer.Exit(1)


def _findings(s: Session) -> Iterator[Finding]:
    yield Finding("service", True, f"{s.access.url}, token {masked(s.access.token)}, from {s.access.source}")
    yield from _file()
    findings = _service_findings(s)
    yield from findings
    if findings[0].ok is False:
        return
    token_finding = _token(s)
    yield token_finding
    if token_finding.ok:
        yield _admin(s)
        yield from _attention(s)
        yield from _dead_letters(s)


def _file() -> Iterator[Finding]:
    path = Profiles.read().path
    if path.exists():
        open_to_others = stat.S_IMODE(path.stat().st_mode) & 0o077
        advice = f" can be read by others: chmod 600 {path}" if open_to_others else ""
        yield Finding("profiles", None if open_to_others else True, f"{path}{advice}")


def _service_findings(s: Session) -> list[Finding]:
    import httpx

    start = time.monotonic()
    try:
        answer = httpx.get(s.hr.transport.urls[0] + "/v1/health", timeout=10)
    except httpx.HTTPError as error:
        why = f"no answer: {type(error).__name__} {error}. Is the URL right, the service up?"
        return [Finding("reached", False, why)]
    ms = (time.monotonic() - start) * 1000
    health = Finding("reached", True if ms < _SLOW_MS else None, f"in {ms:.0f} ms")
    store = Finding("store", answer.status_code == 200, f"status {answer.status_code}")
    date = answer.headers.get("date")
    clock = [clock_finding(datetime.now(timezone.utc), parsedate_to_datetime(date))] if date else []
    return [health, store, *clock]


def clock_finding(own_time: datetime, service_time: datetime) -> Finding:
    """Is the clock here right? The service's says whole seconds, so it may be up to a second further."""
    ahead = (own_time - service_time).total_seconds()
    seconds = min(ahead, 0.0) or max(ahead - 1, 0.0)
    detail = f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} the service's"
    if abs(seconds) < 1:
        detail = "within a second of the service's"
    return Finding("clock", True if abs(seconds) < _SKEW_SECONDS else None, detail)


def _token(s: Session) -> Finding:
    try:
        s.hr.list_topics(limit=1).page()
    except Forbidden as error:
        return Finding("token", True, f"valid, but: {error.detail}")
    except HeadraceError as error:
        return Finding("token", False, str(error))
    return Finding("token", True, "valid")


def _admin(s: Session) -> Finding:
    try:
        s.hr.list_tokens(limit=1).page()
    except HeadraceError as error:
        return Finding("admin", None, f"may not administer: {error.detail}")
    return Finding("admin", True, "may administer")


def _attention(s: Session) -> Iterator[Finding]:
    """The states in which work waits for a person; none in a service that has no list of them."""
    try:
        states = list(s.hr.list_attention())
    except HeadraceError:
        return
    for each in states:
        place = "/".join(name for name in (each.topic, each.group, each.consumer) if name) or "service"
        yield Finding(
            place, False, f"{each.kind} since {each.since:%Y-%m-%d %H:%M} UTC: {each.what} {each.to_do}"
        )


def _dead_letters(s: Session) -> Iterator[Finding]:
    """Groups with dead letters, on the first page of topics."""
    try:
        topics = s.hr.stats().page().items
    except HeadraceError:
        return
    for topic in topics:
        for name, counts in topic.groups.items():
            if counts.dead:
                detail = f"{counts.dead} dead letters: headrace dead-letters list {topic.topic} {name}"
                yield Finding(f"{topic.topic}/{name}", None, detail)
