"""One message: its body in several forms, and its time line, a lane for each group.

The line is to scale: the past on the left, from the first event to the last (or to now, while something is under way);
what is to come on the right, in a scale of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec

from ...domain.message import Draft, Message, holds_json
from ...domain.retry_policy import max_attempts, wait_ms
from ...domain.status import OVER
from ...domain.topic import Group, Topic
from ...services.inspect.statuses import DeliveryStatus
from ...services.inspect.trace import Event

WIDTH = 1_000
_PAST = 720  # of the width, where something is to come
_NARROWEST = 4.0
_MOST_COMING = 4
_MOST_BYTES = 65_536
_HEX_BYTES = 2_048
FORMS = ("pretty", "raw", "hex")


@dataclass(frozen=True, slots=True)
class Mark:
    """A piece of a lane, in thousandths of its width."""

    kind: str
    x: float
    width: float
    event: Event | None = None
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """A group's lane; the message's own where there is no group."""

    group: str | None
    marks: Sequence[Mark]


@dataclass(kw_only=True, frozen=True, slots=True)
class TimeLine:
    """The lanes, and the times at the ends of the scale."""

    lanes: Sequence[Lane]
    start_ms: int
    past_ms: int
    end_ms: int | None
    coming: Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class _Scale:
    start_ms: int
    past_ms: int
    end_ms: int | None

    def x(self, at_ms: int) -> float:
        past_width = _PAST if self.end_ms else WIDTH - _NARROWEST
        if at_ms <= self.past_ms or self.end_ms is None:
            part = (at_ms - self.start_ms) / max(1, self.past_ms - self.start_ms)
            return round(min(max(part, 0), 1) * past_width, 1)
        part = (at_ms - self.past_ms) / max(1, self.end_ms - self.past_ms)
        return round(_PAST + min(part, 1) * (WIDTH - _PAST - _NARROWEST), 1)


def body_as(draft: Draft, form: str) -> str:
    """The body as pretty JSON, as it is, or in hex; its beginning, where it is long."""
    if form == "hex":
        return _hex(draft.body[:_HEX_BYTES])
    if form == "pretty" and len(draft.body) <= _MOST_BYTES and holds_json(draft):
        return msgspec.json.format(draft.body, indent=2).decode()
    return draft.body[:_MOST_BYTES].decode(errors="replace")


def is_cut(draft: Draft, form: str) -> bool:
    """Is only the beginning shown?"""
    return len(draft.body) > (_HEX_BYTES if form == "hex" else _MOST_BYTES)


def editable_body(draft: Draft) -> str | None:
    """The whole body for a form that saves what stands in it, pretty if it is JSON; empty where it is gone or no text.
    None: it is too long for a page."""
    if not draft.has_body:
        return ""
    if is_cut(draft, "raw"):
        return None
    try:
        draft.body.decode()
    except UnicodeDecodeError:
        return ""
    return body_as(draft, "pretty")


def _hex(body: bytes) -> str:
    rows = [body[at : at + 16] for at in range(0, len(body), 16)]
    return "\n".join(
        f"{n * 16:08x}  {row.hex(' '):<47}  {''.join(chr(b) if 32 <= b < 127 else '.' for b in row)}"
        for n, row in enumerate(rows)
    )


def next_attempts_ms(topic: Topic, group: Group, message: Message, status: DeliveryStatus) -> list[int]:
    """When the next attempts are, should each of them fail: the steps of the ladder that are left."""
    if status.status != "RETRYING" or not status.next_attempt_ms:
        return []
    moments = [status.next_attempt_ms]
    next_attempt = max_attempts(topic, group, message.draft) - status.retries_left + 1  # since a redrive
    for attempt in range(next_attempt, next_attempt + min(status.retries_left, _MOST_COMING) - 1):
        moments.append(moments[-1] + wait_ms(topic, group, message.id, message.draft, attempt, None))
    return moments


def time_line(
    events: Sequence[Event],
    statuses: Mapping[str, DeliveryStatus],
    steps: Mapping[str, Sequence[int]],
    now_ms: int,
) -> TimeLine:
    """The time line of a message. `steps` are the moments of attempts to come, by group."""
    start_ms = min((event.at_ms for event in events), default=now_ms)
    last_ms = max((event.at_ms + (event.duration_ms or 0) for event in events), default=now_ms)
    under_way = not statuses or any(status.status not in OVER for status in statuses.values())
    past_ms = max(now_ms, start_ms + 1) if under_way else max(last_ms, start_ms + 1)
    later = [moment for moments in steps.values() for moment in moments]
    later += [event.deadline_ms for event in events if event.event == "leased" and event.deadline_ms]
    end_ms = max((moment for moment in later if moment > past_ms), default=None)
    scale = _Scale(start_ms, past_ms, end_ms)
    groups = dict.fromkeys([*statuses, *(event.group for event in events if event.group)])
    lanes = [Lane(None, [_point(event, scale) for event in events if event.group is None])]
    for group in groups:
        own = [event for event in events if event.group == group]
        lanes.append(Lane(group, _marks(own, steps.get(group, ()), scale)))
    return TimeLine(lanes=lanes, start_ms=start_ms, past_ms=past_ms, end_ms=end_ms, coming=steps)


def _marks(events: Sequence[Event], steps: Sequence[int], scale: _Scale) -> list[Mark]:
    """Attempts, the waits between them, the lease that runs, and what is to come."""
    attempts = [event for event in events if event.event == "delivered"]
    marks = [
        replace(_piece("wait", before.at_ms + (before.duration_ms or 0), after.at_ms, scale), event=None)
        for before, after in pairwise(attempts)
    ]
    if attempts and steps:
        last = attempts[-1]
        marks.append(_piece("wait", last.at_ms + (last.duration_ms or 0), steps[0], scale))
    for event in events:
        if event.event == "delivered":
            kind = "ok" if event.outcome == "SUCCESS" else "fail"
            end_ms = event.at_ms + (event.duration_ms or 0)
            marks.append(replace(_piece(kind, event.at_ms, end_ms, scale), event=event))
        elif event.event == "leased":
            marks.append(replace(_piece("lease", event.at_ms, event.deadline_ms or 0, scale), event=event))
        else:
            marks.append(_point(event, scale))
    return marks + [replace(_piece("coming", step, step, scale), at_ms=step) for step in steps]


def _piece(kind: str, start_ms: int, end_ms: int, scale: _Scale) -> Mark:
    x = scale.x(start_ms)
    return Mark(kind, x, round(max(_NARROWEST, scale.x(end_ms) - x), 1), at_ms=start_ms)


def _point(event: Event, scale: _Scale) -> Mark:
    return Mark("event", scale.x(event.at_ms), _NARROWEST, event, event.at_ms)
