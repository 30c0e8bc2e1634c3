"""A consumer that is called: its state and why, its latest attempts, a test, its secret."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...services.inspect.attempts import PastAttempt, latest_attempts
from .. import actions, forms
from ..visit import Page, Shown, Visit
from .groups import members

_READ_UNITS = 5  # of one read of the traces of a broadcast
WIDTH, HEIGHT = 1_000, 40
MOST_TICKS = 50
_STEP = WIDTH // MOST_TICKS
_SHORTEST = 6
_FOLDER = Path(__file__).parents[1] / "verify"
LANGUAGES = {"python": "Python", "javascript": "JavaScript", "go": "Go", "java": "Java"}


def subscriber(visit: Visit) -> Shown:
    """Its state and why, its circuit, its latest attempts; and what can be done."""
    deps = visit.deps
    topic, group = visit.group()
    who = deps.catalog.consumer(topic, group, visit.params["consumer"])
    assignment = deps.adapters.control.assignment(topic, group)
    (member,) = members(visit, topic, [who], assignment)
    traces, shards = deps.adapters.traces, member["shards"] or ()
    may_go_on = visit.may_go_on(_READ_UNITS)
    history = latest_attempts(traces, topic, group, who, shards, MOST_TICKS, may_go_on)
    model: dict[str, Any] = {
        "member": member,
        "target": member["target"],
        "is_admin": "admin" in visit.caller.scopes,
        "history": history,
        "ticks": ticks(history.attempts),
        "overlap_until_ms": who.overlap_until_ms(visit.now_ms),
        "snippets": verification_snippets(),
    }
    return Page("subscriber.html", model)


def subscriber_test(visit: Visit) -> Shown:
    """A test event: what was sent and what came back, side by side; or, of a `message`, what would be sent."""
    body = forms.preview(visit.form)
    answer = actions.do(visit, actions.Action("test_consumer", visit.params, body=body))
    model = {"params": visit.params, "tested": answer, "body": body, "is_preview": bool(body)}
    return Page("subscriber_test.html", model)


def ticks(attempts: Sequence[PastAttempt]) -> list[dict[str, Any]]:
    """The newest attempts as bars, the oldest of them left: the longer one took, the taller. `attempts` come the newest
    first."""
    latest = attempts[:MOST_TICKS][::-1]
    longest = max((each.duration_ms for each in latest), default=0) or 1
    left_edge = WIDTH - _STEP * len(latest)
    return [_tick(each, left_edge + _STEP * n, longest) for n, each in enumerate(latest)]


def _tick(attempt: PastAttempt, x: int, longest_ms: int) -> dict[str, Any]:
    height = _SHORTEST + round((HEIGHT - _SHORTEST) * attempt.duration_ms / longest_ms)
    kind = "ok" if attempt.outcome == "SUCCESS" else "fail"
    return {"kind": kind, "x": x, "y": HEIGHT - height, "height": height, "attempt": attempt}


@cache
def verification_snippets() -> dict[str, str]:
    """The code by the language's name. Nothing in it is secret."""
    return {name: (_FOLDER / f"{file}.txt").read_text() for file, name in LANGUAGES.items()}
