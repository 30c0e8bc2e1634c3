"""Races for a dead letter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.append import AlreadyMoved, Stored
from chalicelib.domain.cursor import Cursor, start_at
from chalicelib.domain.record import DeadLetter
from chalicelib.domain.timer import TimerKind
from chalicelib.domain.topic import CursorKey
from tests.contract.ports.conditions.common import put
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage


def _letter(stage: Stage, of: CursorKey | None = None, at_ms: int = START_MS) -> DeadLetter:
    key, cursors = of or make.cursor_key(), stage.adapters.cursors
    record, current = make.dead_record(1, at_ms=at_ms), cursors.get(key, consistent=True)
    change = cursor_write.replacement(current or Cursor(), transitions.seek(current or Cursor(), 2))
    assert isinstance(cursors.write(key, change, [record], exists=current is not None), Cursor)
    return make.letter(key, record)


def _outdated(stage: Stage) -> Iterator[DeadLetter]:
    """Dead letters that have changed since they were read: one was edited, one redriven and buried again."""
    letter = _letter(stage)
    assert stage.adapters.records.edit(letter)
    yield letter
    buried_anew = _letter(stage)
    _letter(stage, buried_anew.key, START_MS + 1)
    yield buried_anew


def a_letter_is_edited_as_it_was_read(stage: Stage) -> None:
    records = stage.adapters.records
    for letter in _outdated(stage):
        assert not records.edit(replace(letter, last_error="late"))
        there = records.dead_letter(letter.key, 1)
        assert there
        assert there.last_error is None


def a_letter_is_discarded_as_it_was_read(stage: Stage) -> None:
    records = stage.adapters.records
    for letter in _outdated(stage):
        assert not records.discard(letter)
        current = records.dead_letter(letter.key, 1)
        assert current
        assert records.discard(current)
        assert records.dead_letter(letter.key, 1) is None


def a_letter_is_redriven_as_it_was_read(stage: Stage) -> None:
    records = stage.adapters.records
    for letter in _outdated(stage):
        assert put(stage, make.shard(), make.segment(0, 1), letter) == AlreadyMoved((0,))
        current = records.dead_letter(letter.key, 1)
        assert current
        assert put(stage, make.shard(), make.segment(0, 1), current) == Stored()
        assert records.dead_letter(letter.key, 1) is None
        record = records.get(letter.key, 1)
        assert record
        assert record.status == "RETRYING"


def a_letter_is_redriven_later_as_it_was_read(stage: Stage) -> None:
    records, timers = stage.adapters.records, stage.adapters.timers
    for letter in _outdated(stage):
        timer = make.timer(due_ms=START_MS + 5, id=f"later-{letter.key.group_uid}", kind=TimerKind.RETRY)
        assert timers.send_later([(letter, timer)], START_MS) == [0]
        assert timers.find(timer.due_ms, timer.id) is None
        current = records.dead_letter(letter.key, 1)
        assert current
        assert timers.send_later([(current, timer)], START_MS) == ()
        assert timers.send_later([(current, timer)], START_MS) == [0]
        assert records.dead_letter(letter.key, 1) is None
        record = records.get(letter.key, 1)
        assert record
        assert (record.status, record.next_ms) == ("RETRYING", timer.due_ms)
        assert timers.find(timer.due_ms, timer.id) == timer


def only_what_is_dead_leaves_a_letter(stage: Stage) -> None:
    key, records = make.cursor_key(), stage.adapters.records
    four = [make.dead_record(1), make.record(2), make.record(3, "RETRYING"), make.record(4, "SUCCESS")]
    change = cursor_write.replacement(Cursor(), start_at(5))
    assert isinstance(stage.adapters.cursors.write(key, change, four, exists=False), Cursor)
    assert [n for n in range(1, 5) if records.dead_letter(key, n)] == [1]
    assert records.count_dead(key.shard.topic_uid, key.group_uid).number == 2, "of one the message is gone"


def a_record_is_restored_as_it_was_read(stage: Stage) -> None:
    key, records = make.cursor_key(), stage.adapters.records
    waiting = make.record(1, "RETRYING", at_ms=START_MS)
    assert records.restore(key, waiting, None)
    assert not records.restore(key, replace(waiting, attempts=9), None), "it is there"
    dead = make.dead_record(1, at_ms=START_MS + 1)
    assert not records.restore(key, dead, replace(waiting, at_ms=START_MS - 1)), "it has changed"
    assert records.dead_letter(key, 1) is None
    assert records.get(key, 1) == waiting
    assert records.restore(key, dead, waiting)
    assert records.dead_letter(key, 1) == make.letter(key, dead)
    assert not records.restore(key, waiting, waiting)


SCENES = (
    a_letter_is_edited_as_it_was_read,
    a_letter_is_discarded_as_it_was_read,
    a_letter_is_redriven_as_it_was_read,
    a_letter_is_redriven_later_as_it_was_read,
    only_what_is_dead_leaves_a_letter,
    a_record_is_restored_as_it_was_read,
)
