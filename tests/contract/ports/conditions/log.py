"""Races for rows of the log."""

from __future__ import annotations

import itertools
from dataclasses import replace

from chalicelib.domain import cursor_write
from chalicelib.domain.append import DedupEntry, DedupHit, OffsetTaken, Stored
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.segment import Allocation, Tail
from chalicelib.domain.spans import Span
from tests.contract.ports.conditions.common import claim, filed, is_remembered_for_its_window, put
from tests.support import factories as make
from tests.support.stages import Stage


def an_append_never_replaces_a_row(stage: Stage) -> None:
    shard, first, second = make.shard(), make.segment(0, 2), make.segment(0, 1)
    assert put(stage, shard, first) == Stored()
    assert put(stage, shard, second) == OffsetTaken(first)
    assert put(stage, shard, second, filed(stage)) == OffsetTaken(first)
    assert stage.adapters.log.read(shard, 0, 9, consistent=True) == [first]
    assert stage.adapters.log.tail(shard).offset == 1


def an_appended_message_has_its_dedup_id_once(stage: Stage) -> None:
    log, shard, offsets = stage.adapters.log, make.shard(), itertools.count()

    def appends(entry: DedupEntry) -> tuple[DedupEntry, ...]:
        segment = make.segment(next(offsets), 1)
        result = log.put(shard, segment, make.packed(segment), [entry])
        return result.entries if isinstance(result, DedupHit) else ()

    is_remembered_for_its_window(appends)


def only_a_counter_that_is_there_reserves(stage: Stage) -> None:
    log, shard = stage.adapters.log, make.shard()
    assert log.reserve(shard, 3) is None
    assert log.tail(shard) == Tail(-1)
    log.begin_reserving(shard, 7)
    log.begin_reserving(shard, 1)
    assert log.reserve(shard, 3) == 7
    assert log.reserve(shard, 1) == 10


def a_tombstone_replaces_nothing(stage: Stage) -> None:
    log, shard, there = stage.adapters.log, make.shard(), make.segment(4, 1, allocation=Allocation.RESERVED)
    assert put(stage, shard, there) == Stored()
    assert log.put_tombstone(shard, 4, 1, 2) == there
    assert log.read(shard, 0, 9, consistent=True) == [there]
    tombstone = log.put_tombstone(shard, 5, 1, 2)
    assert log.put_tombstone(shard, 5, 3, 4) == tombstone


def an_amendment_replaces_what_was_read(stage: Stage) -> None:
    log, shard, first = stage.adapters.log, make.shard(), make.segment(0, 2)
    assert put(stage, shard, first) == Stored()
    pack = log.pack(make.drafts(2, tag="t"), whole=True)
    assert not log.amend(shard, replace(first, request_id="another0000x"), pack, 0, {})
    assert log.amend(shard, first, pack, 0, {})
    assert not log.amend(shard, first, pack, 1, {}), "the first edition is gone"
    (second,) = log.read(shard, 0, 1, consistent=True)
    assert not log.amend(shard, replace(second, request_id="another0000x"), pack, 0, {})
    assert log.amend(shard, second, pack, 0, {})
    assert not log.amend(shard, second, pack, 1, {}), "so is the second"
    assert log.read(shard, 0, 1, consistent=True)[0].edition == 2


def a_cursor_that_moved_on_refuses_an_amendment(stage: Stage) -> None:
    log, cursors = stage.adapters.log, stage.adapters.cursors
    shard, first = make.shard(), make.segment(0, 5)
    assert put(stage, shard, first) == Stored()
    pack = log.pack(make.drafts(5, tag="t"), whole=True)
    key = make.cursor_key(shard)

    def amends(offset: int, cursor: Cursor | None) -> bool:
        (row,) = log.read(shard, 0, 1, consistent=True)
        return log.amend(shard, row, pack, offset, {key: cursor})

    at_two = Cursor(floor=2, next=2, begin=1)
    cursors.create(key, at_two)
    assert not amends(3, None), "it came up meanwhile"
    at_three = cursors.write(key, cursor_write.change(at_two, claim(at_two, "1.aa", Span(2))))
    assert isinstance(at_three, Cursor)
    assert not amends(2, at_two), "claimed meanwhile"
    assert not amends(1, Cursor(floor=1, next=1, begin=1)), "the first that is owed"
    assert amends(0, at_three), "not owed"
    assert not amends(3, at_three), "its first note was made meanwhile"
    cursor_with_note = replace(at_three, epoch=2, amended=((0, 1),))
    assert cursors.get(key, consistent=True) == cursor_with_note
    assert amends(3, cursor_with_note), "the next that is claimed"
    assert not amends(4, cursor_with_note), "other notes were made meanwhile"
    assert cursors.get(key, consistent=True) == replace(cursor_with_note, epoch=3, amended=((0, 1), (3, 4)))


def a_row_is_kept_longer_and_never_shorter(stage: Stage) -> None:
    log, shard, row = stage.adapters.log, make.shard(), make.segment(0, 1)
    assert put(stage, shard, row) == Stored()
    assert log.keep(shard, 0, row.expires_s + 9)
    assert not log.keep(shard, 0, row.expires_s + 9)
    assert not log.keep(shard, 0, row.expires_s + 8)
    assert log.keep(shard, 0, row.expires_s + 20)
    (longer,) = log.read(shard, 0, 1, consistent=True)
    assert (longer.expires_s, longer.planned_s) == (row.expires_s + 20, row.expires_s)
    assert not log.keep(shard, 1, row.expires_s + 9)
    assert len(log.read(shard, 0, 9, consistent=True)) == 1, "what is gone does not come back"


def a_checkpoint_rises(stage: Stage) -> None:
    log, shard = stage.adapters.log, make.shard()
    for offset, highest in ((5, 5), (3, 5), (6, 6)):
        log.checkpoint(shard, Tail(offset))
        assert log.tail(shard) == Tail(highest)


def a_counter_rises_and_is_not_made(stage: Stage) -> None:
    log, shard = stage.adapters.log, make.shard()
    log.raise_counter(shard, 4)
    assert log.reserve(shard, 1) is None
    log.begin_reserving(shard, 7)
    for offset, counter in ((5, 7), (9, 9), (9, 9)):
        log.raise_counter(shard, offset)
        assert log.tail(shard).offset == counter - 1


SCENES = (
    an_append_never_replaces_a_row,
    an_appended_message_has_its_dedup_id_once,
    only_a_counter_that_is_there_reserves,
    a_tombstone_replaces_nothing,
    an_amendment_replaces_what_was_read,
    a_cursor_that_moved_on_refuses_an_amendment,
    a_row_is_kept_longer_and_never_shorter,
    a_checkpoint_rises,
    a_counter_rises_and_is_not_made,
)
