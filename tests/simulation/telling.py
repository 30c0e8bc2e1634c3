"""The report of a failed seed: the violations, what clients saw of them, and the last port calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chalicelib.domain.cursor_write import Change
from chalicelib.domain.record import Record
from chalicelib.domain.segment import Segment, ShardKey
from chalicelib.domain.spans import Span
from chalicelib.domain.timer import Timer
from chalicelib.domain.topic import Consumer, CursorKey, Group, Topic
from tests.simulation.world import World
from tests.support.clock import START_MS
from tests.support.events import Event


def story(world: World, complaints: Iterable[str], last: int = 60) -> str:
    """Everything a reader needs to understand a seed's failure, and to see it again."""
    complaints = list(complaints)
    ids = {word.strip(":,") for complaint in complaints for word in complaint.split()}
    ids |= {e.message_id for e in world.events if e.label in ids and e.message_id}
    events = [e for e in world.events if {e.message_id, e.label} & ids]
    return "\n".join(
        [
            f"seed {world.seed} (again: HEADRACE_SEED={world.seed} pytest tests/simulation)",
            *complaints,
            "what clients saw of it:",
            *(_event(e) for e in sorted(events, key=lambda e: e.began)),
            f"the last {last} calls:",
            *(call(*each) for each in world.path[-last:]),
        ]
    )


def _event(e: Event) -> str:
    about = " ".join(filter(None, (e.reader, e.label, e.message_id, e.token, e.fate)))
    times = f"#{e.began}-{e.ended} {_s(e.began_ms)}-{_s(e.ended_ms)}"
    return f"  {times} {e.op} {e.told} {about} attempt {e.attempt} lease {e.lease_ms} delay {e.delay_ms}"


def _s(ms: float) -> str:
    return f"{(ms - START_MS) / 1000:.3f}"


def call(at: float, process: str, method: str, args: Any, fault: str) -> str:
    return f"  {_s(at)} {process} {method} {' '.join(map(brief, args))} {fault}"


def brief(value: Any) -> str:
    """Few words for what ports are given."""
    match value:
        case CursorKey():
            return f"[{brief(value.shard)} {value.group_uid} {value.consumer_uid}]"
        case ShardKey():
            return f"{value.topic}/{value.shard}"
        case Topic() | Group() | Consumer():
            return value.name
        case Segment():
            return f"{value.first}+{value.count} {value.request_id} {value.allocation}"
        case Timer():
            return f"<{value.kind} {_s(value.due_ms)} {value.id}>"
        case Span():
            return f"{value.start}+{value.count}:{value.attempt}"
        case Record():
            return f"<{value.status} {value.shard}.{value.offset} {value.attempts}>"
        case Change():
            leases = " ".join(
                [*(f"+{t}" for t in value.set_leases), *(f"-{t}" for t in value.removed_leases)]
            )
            c = value.after
            return (
                f"{c.floor}-{c.next} epoch {c.epoch} {leases} waiting {brief(c.waiting)} settled {c.settled}"
            )
        case list() | tuple():
            return "(" + " ".join(map(brief, value)) + ")"
        case _:
            return str(value)
