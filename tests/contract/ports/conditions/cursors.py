"""Races for a group's cursor."""

from __future__ import annotations

from dataclasses import replace

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor, Disposition, Lease, Result
from chalicelib.domain.spans import Span
from chalicelib.ports.cursors import RefusalReason, WriteRefused
from tests.contract.ports.conditions.common import claim
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage


def a_cursor_is_created_once(stage: Stage) -> None:
    cursors, key = stage.adapters.cursors, make.cursor_key()
    first = Cursor(floor=3, next=3, begin=3)
    assert cursors.create(key, first) == first
    assert cursors.create(key, Cursor()) == first
    begun = cursor_write.replacement(Cursor(), make.leased(0, 2))
    assert cursors.write(key, begun, exists=False) == WriteRefused(RefusalReason.LOST, first)
    assert cursors.get(key, consistent=True) == first


def a_claim_is_made_from_the_epoch_that_was_read(stage: Stage) -> None:
    cursors, key = stage.adapters.cursors, make.cursor_key()
    cursors.create(key, Cursor())
    ours, theirs = (claim(Cursor(), f"{n}.aa", Span(0, n)) for n in (2, 3))
    assert cursors.write(key, cursor_write.change(Cursor(), theirs)) == theirs
    assert cursors.write(key, cursor_write.change(Cursor(), ours)) == WriteRefused(RefusalReason.LOST, theirs)


def a_cursor_is_replaced_in_the_epoch_that_was_read(stage: Stage) -> None:
    cursors, key, leased = stage.adapters.cursors, make.cursor_key(), make.leased(0, 2)
    cursors.create(key, leased)
    first, second = transitions.seek(leased, 5), transitions.seek(leased, 9)
    assert cursors.write(key, cursor_write.replacement(leased, first)) == first
    assert cursors.write(key, cursor_write.replacement(leased, second)) == WriteRefused(
        RefusalReason.LOST, first
    )


def a_settlement_needs_its_lease(stage: Stage) -> None:
    cursors, key, leased = stage.adapters.cursors, make.cursor_key(), make.leased(0, 2)
    cursors.create(key, leased)
    after, _ = transitions.settle(leased, "1.aaaa", [Result(0, Disposition.SUCCESS)])
    settled = cursor_write.change(leased, after)
    expired = transitions.expire(leased, START_MS + 30_000)
    taken = claim(expired, "2.bb", *expired.waiting)
    assert cursors.write(key, cursor_write.change(leased, taken)) == taken
    assert cursors.write(key, settled) == WriteRefused(RefusalReason.LOST, taken)
    assert cursors.write(key, settled, [make.record(0)]) == WriteRefused(RefusalReason.LOST, taken)
    assert stage.adapters.records.get(key, 0) is None


def a_change_has_room_for_what_waits(stage: Stage) -> None:
    cursors, key = stage.adapters.cursors, make.cursor_key()
    waits = Cursor(next=9, waiting=(Span(1), Span(5)))
    cursors.create(key, waits)
    claimed = claim(waits, "1.aa", Span(9))
    change = cursor_write.change(waits, claimed)
    assert cursors.write(key, replace(change, most_waiting=1)) == WriteRefused(RefusalReason.LOST, waits)
    assert cursors.write(key, replace(change, most_waiting=2)) == claimed


def a_large_change_loses_nothing_of_others(stage: Stage) -> None:
    """One too large for an update expression replaces the item."""
    cursors = stage.adapters.cursors
    lease = Lease("1.aa", (Span(399),), START_MS)
    many = Cursor(next=400, waiting=make.odd_spans(399), leases={"1.aa": lease})
    large = cursor_write.change(many, claim(many, "2.bb", *many.waiting))
    assert large.entries > 120
    settled = cursor_write.change(
        many, transitions.settle(many, "1.aa", [Result(399, Disposition.SUCCESS)])[0]
    )
    claimed = cursor_write.change(many, claim(many, "3.cc", Span(400)))
    for meanwhile, token, held in ((settled, "1.aa", False), (claimed, "3.cc", True)):
        key = make.cursor_key()
        cursors.create(key, many)
        assert isinstance(cursors.write(key, meanwhile), Cursor)
        cursors.write(key, large)
        current = cursors.get(key, consistent=True)
        assert current
        assert (token in current.leases) is held
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
