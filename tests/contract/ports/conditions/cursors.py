"""Races for a group's cursor."""

from __future__ import annotations

from dataclasses import replace

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor, Disposition, Lease, Result
from chalicelib.domain.cursor_write import RefusalReason, WriteRefused
from chalicelib.domain.spans import Span
from tests.contract.ports.conditions.common import claim
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage


def a_cursor_is_created_once(stage: Stage) -> None:
    cursors, key = stage.adapters.cursors, make.cursor_key()
    first = Cursor(floor=3, next=3, begin=3)
    assert cursors.create(key, first) == first
    assert cursors.create(key, Cursor()) == first
    change = cursor_write.replacement(Cursor(), make.leased_cursor(0, 2))
    assert cursors.write(key, change, exists=False) == WriteRefused(RefusalReason.LOST, first)
    assert cursors.get(key, consistent=True) == first


def a_claim_is_made_from_the_epoch_that_was_read(stage: Stage) -> None:
    cursors, key = stage.adapters.cursors, make.cursor_key()
    cursors.create(key, Cursor())
    ours, theirs = (claim(Cursor(), f"{n}.aa", Span(0, n)) for n in (2, 3))
    assert cursors.write(key, cursor_write.change(Cursor(), theirs)) == theirs
    assert cursors.write(key, cursor_write.change(Cursor(), ours)) == WriteRefused(RefusalReason.LOST, theirs)


def a_cursor_is_replaced_in_the_epoch_that_was_read(stage: Stage) -> None:
    cursors, key, before = stage.adapters.cursors, make.cursor_key(), make.leased_cursor(0, 2)
    cursors.create(key, before)
    first, second = transitions.seek(before, 5), transitions.seek(before, 9)
    assert cursors.write(key, cursor_write.replacement(before, first)) == first
    assert cursors.write(key, cursor_write.replacement(before, second)) == WriteRefused(
        RefusalReason.LOST, first
    )


def a_settlement_needs_its_lease(stage: Stage) -> None:
    cursors, key, before = stage.adapters.cursors, make.cursor_key(), make.leased_cursor(0, 2)
    cursors.create(key, before)
    after, _ = transitions.settle(before, "1.aaaa", [Result(0, Disposition.SUCCESS)])
    settlement = cursor_write.change(before, after)
    lapse = transitions.lapse(before, START_MS + 30_000)
    taken_over = claim(lapse, "2.bb", *lapse.waiting)
    assert cursors.write(key, cursor_write.change(before, taken_over)) == taken_over
    assert cursors.write(key, settlement) == WriteRefused(RefusalReason.LOST, taken_over)
    assert cursors.write(key, settlement, [make.record(0)]) == WriteRefused(RefusalReason.LOST, taken_over)
    assert stage.adapters.records.get(key, 0) is None


def a_change_has_room_for_what_waits(stage: Stage) -> None:
    cursors, key = stage.adapters.cursors, make.cursor_key()
    waits = Cursor(next=9, waiting=(Span(1), Span(5)))
    cursors.create(key, waits)
    after = claim(waits, "1.aa", Span(9))
    change = cursor_write.change(waits, after)
    assert cursors.write(key, replace(change, most_waiting=1)) == WriteRefused(RefusalReason.LOST, waits)
    assert cursors.write(key, replace(change, most_waiting=2)) == after


def a_large_change_loses_nothing_of_others(stage: Stage) -> None:
    """One too large for an update expression replaces the item."""
    cursors = stage.adapters.cursors
    lease = Lease("1.aa", (Span(399),), START_MS)
    many = Cursor(next=400, waiting=make.odd_spans(399), leases={"1.aa": lease})
    large = cursor_write.change(many, claim(many, "2.bb", *many.waiting))
    assert large.entries > 120
    settlement = cursor_write.change(
        many, transitions.settle(many, "1.aa", [Result(399, Disposition.SUCCESS)])[0]
    )
    next_claim = cursor_write.change(many, claim(many, "3.cc", Span(400)))
    for meanwhile, token, is_there in ((settlement, "1.aa", False), (next_claim, "3.cc", True)):
        key = make.cursor_key()
        cursors.create(key, many)
        assert isinstance(cursors.write(key, meanwhile), Cursor)
        cursors.write(key, large)
        current = cursors.get(key, consistent=True)
        assert current
        assert (token in current.leases) is is_there
    key = make.cursor_key()
    cursors.create(key, many)
    assert cursors.write(key, large) == large.after


SCENES = (
    a_cursor_is_created_once,
    a_claim_is_made_from_the_epoch_that_was_read,
    a_cursor_is_replaced_in_the_epoch_that_was_read,
    a_settlement_needs_its_lease,
    a_change_has_room_for_what_waits,
    a_large_change_loses_nothing_of_others,
)
