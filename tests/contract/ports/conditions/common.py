"""What the races of all ports share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain.append import DedupEntry, Promotable, PutResult
from chalicelib.domain.cursor import Cursor, Selection
from chalicelib.domain.segment import Segment, ShardKey
from chalicelib.domain.spans import Span
from chalicelib.domain.timer import Timer
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage

KEEP_SECONDS = START_MS // 1000 + 86_400


def put(stage: Stage, shard: ShardKey, segment: Segment, *promotables: Promotable) -> PutResult:
    return stage.adapters.log.put(shard, segment, make.packed(segment), promotables=promotables)


def claim(cursor: Cursor, token: str, *spans: Span) -> Cursor:
    upto = max(cursor.next, spans[-1].end)
    return transitions.claim(cursor, Selection(spans, next=upto), token, "me", START_MS + 60_000)


def filed(stage: Stage, changes: int = 0) -> Timer:
    """A timer that was changed so often, as its next reader knows it."""
    timers, timer = stage.adapters.timers, make.timer(START_MS + 60_000)
    timers.store([timer])
    for n in range(changes):
        assert timers.amend(replace(timer, edits=n), timer, KEEP_SECONDS)
    return replace(timer, edits=changes)


def there(stage: Stage, timer: Timer) -> int | None:
    """How often the timer that is there was changed; None where none is."""
    row = stage.adapters.timers.find(timer.due_ms, timer.id)
    return row.edits if row else None


def is_remembered_for_its_window(use: Callable[[DedupEntry], tuple[DedupEntry, ...]]) -> None:
    entry = make.dedup(make.segment(), topic_uid=make.uid("t"))
    until_ms = entry.ends_ms
    assert use(entry) == ()
    assert use(replace(entry, message_id="m2", accepted_ms=until_ms - 1)) == (entry,)
    assert use(replace(entry, message_id="m3", accepted_ms=until_ms, ends_ms=until_ms + 60_000)) == ()
    current = replace(entry, message_id="m3", accepted_ms=until_ms, ends_ms=until_ms + 60_000)
    assert use(replace(current, message_id="m4", instead_of=entry.message_id)) == (current,)
    assert use(replace(current, message_id="m4", instead_of="m3")) == ()
