"""A consumer that is called: its state and why, its latest attempts, a test, its secret, and what failed since a
moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...api import lists
from ...domain.errors import HeadraceError
from ...domain.topic import Consumer, Group, Topic
from ...services.inspect.attempts import PastAttempt, latest_attempts
from .. import actions
from ..forms import whole_time
from ..visit import Page, Shown, Visit
from .groups import members

_ROWS = 50
_MOST_COUNTED = 500  # ten reads, which is where a page ends anyway
_READ_UNITS = 5  # of one read of the traces of a broadcast
_LEFT = 6  # so much is left, when another page of dead letters is read
WIDTH, HEIGHT = 1_000, 40
MOST_TICKS = 50
_STEP = WIDTH // MOST_TICKS
_SHORTEST = 6
_FOLDER = Path(__file__).parents[1] / "verify"
LANGUAGES = {"python": "Python", "javascript": "JavaScript", "go": "Go", "java": "Java"}


def subscriber(visit: Visit) -> Shown:
    """Its state and why, its circuit, its latest attempts; and what can be done."""
    deps = visit.deps
    topic, group, who = _find(visit)
    assignment = deps.adapters.control.assignment(topic, group)
    (member,) = members([who], assignment, visit.now_ms)
    failures, problem = _failed_since(visit, topic, group)
    history = latest_attempts(
        deps.adapters.traces,
        topic,
        group,
        who,
        member.shards or (),
        MOST_TICKS,
        may_go_on=lambda: visit.has_read_units(_READ_UNITS),
    )
    is_admin = "admin" in visit.caller.scopes
    model: dict[str, Any] = {
        "topic": topic,
        "group": group,
        "member": member,
        "target": member.target_for(visit.session.token),
        "is_admin": is_admin,
        "history": history,
        "ticks": ticks(history.attempts),
        "overlap_until_ms": who.overlap_until_ms(visit.now_ms),
        "snippets": verification_snippets(),
        "failed": failures,
        "problem": problem,
    }
    return Page("subscriber.html", model)


def _find(visit: Visit) -> tuple[Topic, Group, Consumer]:
    topic, group = visit.group()
    return topic, group, visit.deps.catalog.consumer(topic, group, visit.params["consumer"])


def _failed_since(
    visit: Visit, topic: Topic, group: Group
) -> tuple[dict[str, Any] | None, HeadraceError | None]:
    """How many dead letters a moment has behind it; or what is wrong with the moment."""
    text = visit.query.get("since", "").strip()
    if not text:
        return None, None
    since = whole_time(text)
    try:
        visit.check_may_read()
        letter_filter = lists.letter_filter({"since": since})
    except HeadraceError as error:
        return None, error
    letters, position = visit.deps.letter_lookup.page(
        topic,
        group,
        letter_filter,
        None,
        _MOST_COUNTED,
        rows_per_read=_ROWS,
        may_go_on=lambda: visit.has_read_units(_LEFT),
    )
    return {"since": since, "number": len(letters), "at_least": position is not None}, None


def subscriber_test(visit: Visit) -> Shown:
    """A test event: what was sent and what came back, side by side."""
    answer = actions.do(visit, actions.Action("test_consumer", visit.params, body={}))
    return Page("subscriber_test.html", {"params": visit.params, "tested": answer})


@dataclass(kw_only=True, frozen=True, slots=True)
class Tick:
    """An attempt as a bar: the longer it took, the taller."""

    kind: str
    x: int
    y: int
    height: int
    attempt: PastAttempt


def ticks(attempts: Sequence[PastAttempt]) -> list[Tick]:
    """The newest attempts, the oldest of them left. `attempts` come the newest first."""
    latest = attempts[:MOST_TICKS][::-1]
    longest = max((each.duration_ms for each in latest), default=0) or 1
    left_edge = WIDTH - _STEP * len(latest)
    return [_tick(each, left_edge + _STEP * n, longest) for n, each in enumerate(latest)]


def _tick(attempt: PastAttempt, x: int, longest_ms: int) -> Tick:
    height = _SHORTEST + round((HEIGHT - _SHORTEST) * attempt.duration_ms / longest_ms)
    return Tick(
        kind="ok" if attempt.outcome == "SUCCESS" else "fail",
        x=x,
        y=HEIGHT - height,
        height=height,
        attempt=attempt,
    )


@cache
def verification_snippets() -> dict[str, str]:
    """The code by the language's name. Nothing in it is secret."""
    return {name: (_FOLDER / f"{file}.txt").read_text() for file, name in LANGUAGES.items()}
