"""What each condition of the store is for: somebody else was there first, and both stores say so alike.

Each of these plays one race by hand. With one condition dropped or weakened, one of them fails
(`test_planted_conditions.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.assignment import Assignment
from chalicelib.domain.cursor import Cursor, Fate, Lease, Result, Selection, start_at
from chalicelib.domain.rate import Grant
from chalicelib.domain.record import DeadLetter
from chalicelib.domain.replay import Replay
from chalicelib.domain.secret import KeyRing, Secret
from chalicelib.domain.segment import Segment, ShardKey, Tail, Way
from chalicelib.domain.spans import Span
from chalicelib.domain.timer import ANY_EDITION, Timer
from chalicelib.domain.topic import CursorKey, Topic
from chalicelib.domain.transaction import Transaction, TransactionState, check_timer, rolled_back
from chalicelib.ports.cursors import RefusalReason, WriteRefused
from chalicelib.ports.log import (
    AlreadyMoved,
    DedupEntry,
    Known,
    Moved,
    OffsetTaken,
    Promotable,
    PutResult,
    Stored,
)
from chalicelib.ports.rounds import Place
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage

_KEEP_S = START_MS // 1000 + 86_400


def _put(stage: Stage, shard: ShardKey, segment: Segment, *moved: Promotable) -> PutResult:
    return stage.adapters.log.put(shard, segment, make.packed(segment), moved=moved)


def _claimed(cursor: Cursor, token: str, *spans: Span) -> Cursor:
    upto = max(cursor.next, spans[-1].end)
    return transitions.claim(cursor, Selection(spans, next=upto), token, "me", START_MS + 60_000)


# The log


def an_append_never_replaces_a_row(stage: Stage) -> None:
    shard, first, second = make.shard(), make.segment(0, 2), make.segment(0, 1)
    assert _put(stage, shard, first) == Stored()
    assert _put(stage, shard, second) == OffsetTaken(first)
    assert _put(stage, shard, second, filed(stage)) == OffsetTaken(first)
    assert stage.adapters.log.read(shard, 0, 9, consistent=True) == [first]
    assert stage.adapters.log.tail(shard).offset == 1


def an_appended_message_has_its_dedup_id_once(stage: Stage) -> None:
    log, shard, offsets = stage.adapters.log, make.shard(), itertools.count()

    def appends(entry: DedupEntry) -> tuple[DedupEntry, ...]:
        segment = make.segment(next(offsets), 1)
        result = log.put(shard, segment, make.packed(segment), [entry])
        return result.entries if isinstance(result, Known) else ()

    _is_remembered_for_its_window(appends)


def only_a_counter_that_is_there_reserves(stage: Stage) -> None:
    log, shard = stage.adapters.log, make.shard()
    assert log.reserve(shard, 3) is None
    assert log.tail(shard) == Tail(-1)
    log.begin_reserving(shard, 7)
    log.begin_reserving(shard, 1)
    assert log.reserve(shard, 3) == 7
    assert log.reserve(shard, 1) == 10


def a_tombstone_replaces_nothing(stage: Stage) -> None:
    log, shard, there = stage.adapters.log, make.shard(), make.segment(4, 1, way=Way.RESERVED)
    assert _put(stage, shard, there) == Stored()
    assert log.put_tombstone(shard, 4, 1, 2) == there
    assert log.read(shard, 0, 9, consistent=True) == [there]
    closed = log.put_tombstone(shard, 5, 1, 2)
    assert log.put_tombstone(shard, 5, 3, 4) == closed


def an_amendment_replaces_what_was_read(stage: Stage) -> None:
    log, shard, first = stage.adapters.log, make.shard(), make.segment(0, 2)
    assert _put(stage, shard, first) == Stored()
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
    assert _put(stage, shard, first) == Stored()
    pack = log.pack(make.drafts(5, tag="t"), whole=True)
    key = make.cursor_key(shard)

    def amends(offset: int, cursor: Cursor | None) -> bool:
        (row,) = log.read(shard, 0, 1, consistent=True)
        return log.amend(shard, row, pack, offset, {key: cursor})

    at_two = Cursor(floor=2, next=2, begin=1)
    cursors.create(key, at_two)
    assert not amends(3, None), "it came up meanwhile"
    at_three = cursors.write(key, cursor_write.change(at_two, _claimed(at_two, "1.aa", Span(2))))
    assert isinstance(at_three, Cursor)
    assert not amends(2, at_two), "claimed meanwhile"
    assert not amends(1, Cursor(floor=1, next=1, begin=1)), "the first that is owed"
    assert amends(0, at_three), "not owed"
    assert not amends(3, at_three), "its first note was made meanwhile"
    noted = replace(at_three, epoch=2, amended=((0, 1),))
    assert cursors.get(key, consistent=True) == noted
    assert amends(3, noted), "the next that is claimed"
    assert not amends(4, noted), "other notes were made meanwhile"
    assert cursors.get(key, consistent=True) == replace(noted, epoch=3, amended=((0, 1), (3, 4)))


def a_row_is_kept_longer_and_never_shorter(stage: Stage) -> None:
    log, shard, row = stage.adapters.log, make.shard(), make.segment(0, 1)
    assert _put(stage, shard, row) == Stored()
    assert log.keep(shard, 0, row.expires_s + 9)
    assert not log.keep(shard, 0, row.expires_s + 9)
    assert not log.keep(shard, 0, row.expires_s + 8)
    (kept,) = log.read(shard, 0, 1, consistent=True)
    assert (kept.expires_s, kept.planned_s) == (row.expires_s + 9, row.expires_s)
    assert not log.keep(shard, 1, row.expires_s + 9)
    assert len(log.read(shard, 0, 9, consistent=True)) == 1, "what is gone does not come back"


def a_checkpoint_rises(stage: Stage) -> None:
    log, shard = stage.adapters.log, make.shard()
    for offset, highest in ((5, 5), (3, 5), (6, 6)):
        log.checkpoint(shard, Tail(offset))
        assert log.tail(shard) == Tail(highest)


# Cursors


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
    ours, theirs = (_claimed(Cursor(), f"{n}.aa", Span(0, n)) for n in (2, 3))
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
    after, _ = transitions.settle(leased, "1.aaaa", [Result(0, Fate.SUCCESS)])
    settled = cursor_write.change(leased, after)
    expired = transitions.expire(leased, START_MS + 30_000)
    taken = _claimed(expired, "2.bb", *expired.waiting)
    assert cursors.write(key, cursor_write.change(leased, taken)) == taken
    assert cursors.write(key, settled) == WriteRefused(RefusalReason.LOST, taken)
    assert cursors.write(key, settled, [make.record(0)]) == WriteRefused(RefusalReason.LOST, taken)
    assert stage.adapters.records.get(key, 0) is None


def a_change_has_room_for_what_waits(stage: Stage) -> None:
    cursors, key = stage.adapters.cursors, make.cursor_key()
    waits = Cursor(next=9, waiting=(Span(1), Span(5)))
    cursors.create(key, waits)
    claimed = _claimed(waits, "1.aa", Span(9))
    change = cursor_write.change(waits, claimed)
    assert cursors.write(key, replace(change, most_waiting=1)) == WriteRefused(RefusalReason.LOST, waits)
    assert cursors.write(key, replace(change, most_waiting=2)) == claimed


def a_large_change_loses_nothing_of_others(stage: Stage) -> None:
    """One too large for an update expression replaces the item."""
    cursors = stage.adapters.cursors
    lease = Lease("1.aa", (Span(399),), START_MS)
    many = Cursor(next=400, waiting=make.odd_spans(399), leases={"1.aa": lease})
    large = cursor_write.change(many, _claimed(many, "2.bb", *many.waiting))
    assert large.entries > 120
    settled = cursor_write.change(many, transitions.settle(many, "1.aa", [Result(399, Fate.SUCCESS)])[0])
    claimed = cursor_write.change(many, _claimed(many, "3.cc", Span(400)))
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


# Dead letters


def _letter(stage: Stage, of: CursorKey | None = None, at_ms: int = START_MS) -> DeadLetter:
    key, cursors = of or make.cursor_key(), stage.adapters.cursors
    told, current = make.dead_record(1, at_ms=at_ms), cursors.get(key, consistent=True)
    sought = cursor_write.replacement(current or Cursor(), transitions.seek(current or Cursor(), 2))
    assert isinstance(cursors.write(key, sought, [told], exists=current is not None), Cursor)
    return make.letter(key, told)


def _outdated(stage: Stage) -> Iterator[DeadLetter]:
    """Letters that are there no more as they are known: one was edited, the other redriven and buried anew."""
    edited = _letter(stage)
    assert stage.adapters.records.edit(edited)
    yield edited
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
        assert _put(stage, make.shard(), make.segment(0, 1), letter) == AlreadyMoved((0,))
        current = records.dead_letter(letter.key, 1)
        assert current
        assert _put(stage, make.shard(), make.segment(0, 1), current) == Stored()
        assert records.dead_letter(letter.key, 1) is None
        record = records.get(letter.key, 1)
        assert record
        assert record.status == "RETRYING"


def only_what_is_dead_leaves_a_letter(stage: Stage) -> None:
    key, records = make.cursor_key(), stage.adapters.records
    told = [make.dead_record(1), make.record(2), make.record(3, "RETRYING"), make.record(4, "SUCCESS")]
    begun = cursor_write.replacement(Cursor(), start_at(5))
    assert isinstance(stage.adapters.cursors.write(key, begun, told, exists=False), Cursor)
    assert [n for n in range(1, 5) if records.dead_letter(key, n)] == [1]
    assert records.count_dead(key.shard.topic_uid, key.group_uid) == 2, "of one the message is gone"


# Timers


def filed(stage: Stage, changes: int = 0) -> Timer:
    """A timer that was changed so often, as its next reader knows it."""
    timers, timer = stage.adapters.timers, make.timer(START_MS + 60_000)
    timers.file([timer])
    for n in range(changes):
        assert timers.amend(replace(timer, edits=n), timer, _KEEP_S)
    return replace(timer, edits=changes)


def there(stage: Stage, timer: Timer) -> int | None:
    """How often the timer that is there was changed; None where none is."""
    row = stage.adapters.timers.find(timer.due_ms, timer.id)
    return row.edits if row else None


Take = Callable[[Stage, Timer], bool]


def moves(stage: Stage, timer: Timer) -> bool:
    result = _put(stage, make.shard(), make.segment(0, 1), timer)
    assert result in (Stored(), AlreadyMoved((0,)))
    return result == Stored()


def edits(stage: Stage, timer: Timer) -> bool:
    return stage.adapters.timers.amend(timer, replace(timer, draft=make.draft("new")), _KEEP_S)


def _postpones(stage: Stage, timer: Timer) -> bool:
    return stage.adapters.timers.amend(timer, replace(timer, due_ms=timer.due_ms + 5), _KEEP_S)


def _cancels(stage: Stage, timer: Timer) -> bool:
    return stage.adapters.timers.cancel(timer, _KEEP_S)


def _is_taken_as_it_was_read(stage: Stage, take: Take) -> None:
    for known, current in ((0, 1), (1, 2), (2, 1)):
        timer = replace(filed(stage, current), edits=known)
        assert not take(stage, timer), f"known after {known} changes, there after {current}"
        assert there(stage, timer) == current
        assert take(stage, replace(timer, edits=current))
        assert not take(stage, replace(timer, edits=current)), "it is gone"
    fresh = filed(stage)
    assert take(stage, fresh)
    assert not take(stage, fresh), "it is gone"
    assert not take(stage, make.timer())


def a_timer_is_moved_as_it_was_read(stage: Stage) -> None:
    _is_taken_as_it_was_read(stage, moves)


def a_timer_is_edited_as_it_was_read(stage: Stage) -> None:
    _is_taken_as_it_was_read(stage, edits)
    timer = filed(stage)
    assert edits(stage, timer)
    assert stage.adapters.timers.moved(timer.id) is None


def a_timer_is_postponed_as_it_was_read(stage: Stage) -> None:
    _is_taken_as_it_was_read(stage, _postpones)
    timer = filed(stage)
    assert _postpones(stage, timer)
    assert stage.adapters.timers.moved(timer.id) == Moved(timer.due_ms + 5, edits=1)


def a_timer_is_cancelled_as_it_was_read(stage: Stage) -> None:
    _is_taken_as_it_was_read(stage, _cancels)


def a_timer_without_an_edition_is_taken_once(stage: Stage) -> None:
    """The row of a damaged one tells its edition no more."""
    for take in (moves, _postpones, _cancels):
        assert not take(stage, make.timer(edits=ANY_EDITION))


def a_timer_is_set_aside_once(stage: Stage) -> None:
    timers, timer = stage.adapters.timers, filed(stage)
    timers.set_aside(timer)
    assert there(stage, timer) is None
    timers.set_aside(timer)
    timers.bring_back()
    assert not moves(stage, make.timer(id=timer.id + "x"))


def a_fragment_is_held_by_one(stage: Stage) -> None:
    timers, fragment = stage.adapters.timers, uuid4().int >> 90
    assert timers.hold(fragment, "a", 1_000, 2_000)
    assert timers.hold(fragment, "a", 1_500, 2_500)
    assert not timers.hold(fragment, "b", 2_499, 3_000)
    timers.let_go(fragment, "b")
    assert not timers.hold(fragment, "b", 2_499, 3_000)
    assert timers.hold(fragment, "b", 2_500, 3_000)
    timers.let_go(fragment, "a")
    assert not timers.hold(fragment, "a", 2_999, 4_000)
    timers.let_go(fragment, "b")
    assert timers.hold(fragment, "a", 2_999, 4_000)


def a_delayed_message_has_its_dedup_id_once(stage: Stage) -> None:
    def files(entry: DedupEntry) -> tuple[DedupEntry, ...]:
        timer = make.timer(START_MS + 60_000)
        known = stage.adapters.timers.file([timer], [entry])
        assert (there(stage, timer) is None) is bool(known)
        return known

    _is_remembered_for_its_window(files)


# Transactions


def _transaction() -> Transaction:
    check_ms = START_MS + 60_000
    return Transaction(make.uid("t"), "orders", "u1", START_MS, check_ms, 60_000, 86_400, make.draft(1))


def a_transaction_has_its_dedup_id_once(stage: Stage) -> None:
    def prepares(entry: DedupEntry) -> tuple[DedupEntry, ...]:
        made = _transaction()
        known = stage.adapters.transactions.prepare(made, [entry])
        assert (stage.adapters.transactions.get(made.id) is None) is bool(known)
        return known

    _is_remembered_for_its_window(prepares)


def _is_remembered_for_its_window(use: Callable[[DedupEntry], tuple[DedupEntry, ...]]) -> None:
    entry = make.dedup(make.segment(), topic_uid=make.uid("t"))
    until_ms = entry.expires_s * 1000
    assert use(entry) == ()
    assert use(replace(entry, message_id="m2", accepted_ms=until_ms - 1)) == (entry,)
    assert use(replace(entry, message_id="m3", accepted_ms=until_ms, expires_s=entry.expires_s + 60)) == ()


def a_transaction_is_decided_as_it_was_read(stage: Stage) -> None:
    transactions = stage.adapters.transactions
    made = _transaction()
    assert transactions.prepare(made) == ()
    checked = replace(made, checks=1)
    assert transactions.change(made, checked)
    decisions: tuple[Callable[[], bool], ...] = (
        lambda: transactions.change(made, rolled_back(made, START_MS)),
        lambda: _put(stage, make.shard(), make.segment(0, 1), made) == Stored(),
    )
    for decide in decisions:
        assert not decide()
        undecided = transactions.get(made.id)
        assert undecided
        assert (undecided.state, undecided.checks) == (TransactionState.PREPARED, 1)
    current = replace(checked, version=1)
    assert _put(stage, make.shard(), make.segment(0, 1), current) == Stored()
    decided = transactions.get(made.id)
    assert decided
    assert (decided.state, decided.offset) == (TransactionState.COMMITTED, 0)
    assert not transactions.change(current, rolled_back(current, START_MS))
    assert there(stage, check_timer(made)) is None, "nobody is asked any more"


# What is set up


def _topic(stage: Stage) -> Topic:
    made = make.topic(make.uid("orders-"))
    assert stage.adapters.control.put_topic(made, None)
    return replace(made, version=1)


def _is_put_as_it_was_read(put: Callable[[Any, Any], bool], made: Any) -> None:
    assert put(made, None)
    assert not put(made, None), "it is there"
    first = replace(made, version=1)
    assert put(first, first)
    assert not put(first, first), "it was changed"
    assert put(first, replace(made, version=2))


def settings_are_changed_as_they_were_read(stage: Stage) -> None:
    control, topic = stage.adapters.control, _topic(stage)
    group = make.group(topic)
    _is_put_as_it_was_read(control.put_topic, make.topic(make.uid("t")))
    _is_put_as_it_was_read(lambda new, old: control.put_group(topic, new, old), group)
    _is_put_as_it_was_read(
        lambda new, old: control.put_consumer(topic, group, new, old), make.consumer(group)
    )
    _is_put_as_it_was_read(control.put_token, make.token(make.uid("t")))
    _is_put_as_it_was_read(
        control.put_replay, Replay(make.uid("r"), topic.name, topic.name, START_MS, 1, 2, 100)
    )
    ring = KeyRing((Secret("01"),))
    held = control.key_ring()
    assert not control.put_key_ring(ring, replace(ring, version=99))
    assert control.put_key_ring(ring, None) == (held is None)
    assert not control.put_key_ring(ring, None), "it is there"
    held = control.key_ring()
    assert held
    assert control.put_key_ring(held, held)
    assert not control.put_key_ring(ring, held), "it was changed"


def an_assignment_follows_the_one_before(stage: Stage) -> None:
    control, topic = stage.adapters.control, _topic(stage)
    group = make.group(topic)
    first, second = Assignment(1, "mod"), Assignment(2, "mod")
    assert not control.put_assignment(topic, group, second)
    assert control.put_assignment(topic, group, first)
    assert not control.put_assignment(topic, group, replace(first, strategy="other"))
    assert control.put_assignment(topic, group, second)
    assert not control.put_assignment(topic, group, replace(second, strategy="other"))
    assert control.assignment(topic, group) == second


def what_was_changed_meanwhile_is_not_retired(stage: Stage) -> None:
    control, topic = stage.adapters.control, _topic(stage)
    group = make.group(topic)
    assert control.put_group(topic, group, None)
    assert control.put_group(topic, group, replace(group, version=1))
    assert not control.retire_group(topic, replace(group, version=1))
    assert control.group(topic, group.name)
    assert control.retire_group(topic, replace(group, version=2))
    assert control.put_topic(topic, topic)
    assert not control.retire_topic(topic)
    assert control.topic(topic.name)
    assert control.retire_topic(replace(topic, version=2))


def a_deletion_takes_only_the_life_that_was_meant(stage: Stage) -> None:
    control, topic = stage.adapters.control, _topic(stage)
    group = make.group(topic)
    assert control.put_group(topic, group, None)
    control.delete_group(topic, replace(group, uid=make.uid("earlier")))
    assert control.group(topic, group.name)
    control.delete_group(topic, group)
    assert control.group(topic, group.name) is None
    control.delete_topic(replace(topic, uid=make.uid("earlier")))
    assert control.topic(topic.name)
    control.delete_topic(topic)
    assert control.topic(topic.name) is None


# Jobs


def a_job_goes_on_from_the_place_that_was_read(stage: Stage) -> None:
    rounds, job = stage.adapters.rounds, make.uid("job-")
    first = rounds.keep(job, Place("a"))
    assert first == Place("a", version=1)
    assert rounds.keep(job, Place("b")) is None
    assert rounds.keep(job, replace(first, after="b")) == Place("b", version=2)
    assert rounds.keep(job, first) is None
    assert rounds.place(job) == Place("b", version=2)


def permits_are_given_once(stage: Stage) -> None:
    rates, uid = stage.adapters.rates, make.uid("t")
    assert rates.take(uid, 10, 3, START_MS) == Grant(3)
    assert rates.take(uid, 10, 3, START_MS) == Grant(2, 100)
    assert rates.take(uid, 10, 3, START_MS) == Grant(0, 100)


def a_link_signs_in_once(stage: Stage) -> None:
    tickets, id = stage.adapters.tickets, make.uid("t")
    assert tickets.use(id, START_MS, START_MS // 1000 + 60)
    assert not tickets.use(id, START_MS, START_MS // 1000 + 60)
    assert tickets.use(id + "x", START_MS, START_MS // 1000 + 60), "another one"


SCENES: dict[str, Callable[[Stage], None]] = {
    scene.__name__: scene
    for scene in (
        an_append_never_replaces_a_row,
        an_appended_message_has_its_dedup_id_once,
        only_a_counter_that_is_there_reserves,
        a_tombstone_replaces_nothing,
        an_amendment_replaces_what_was_read,
        a_cursor_that_moved_on_refuses_an_amendment,
        a_row_is_kept_longer_and_never_shorter,
        a_checkpoint_rises,
        a_cursor_is_created_once,
        a_claim_is_made_from_the_epoch_that_was_read,
        a_cursor_is_replaced_in_the_epoch_that_was_read,
        a_settlement_needs_its_lease,
        a_change_has_room_for_what_waits,
        a_large_change_loses_nothing_of_others,
        a_letter_is_edited_as_it_was_read,
        a_letter_is_discarded_as_it_was_read,
        a_letter_is_redriven_as_it_was_read,
        only_what_is_dead_leaves_a_letter,
        a_timer_is_moved_as_it_was_read,
        a_timer_is_edited_as_it_was_read,
        a_timer_is_postponed_as_it_was_read,
        a_timer_is_cancelled_as_it_was_read,
        a_timer_without_an_edition_is_taken_once,
        a_timer_is_set_aside_once,
        a_fragment_is_held_by_one,
        a_delayed_message_has_its_dedup_id_once,
        a_transaction_has_its_dedup_id_once,
        a_transaction_is_decided_as_it_was_read,
        settings_are_changed_as_they_were_read,
        an_assignment_follows_the_one_before,
        what_was_changed_meanwhile_is_not_retired,
        a_deletion_takes_only_the_life_that_was_meant,
        a_job_goes_on_from_the_place_that_was_read,
        permits_are_given_once,
        a_link_signs_in_once,
    )
}


@pytest.fixture(scope="module")
def stage(make_stage: Callable[[], Stage]) -> Stage:
    """Of its own: other tests would find the timers that are left."""
    return make_stage()


@pytest.mark.parametrize("name", SCENES)
def test_whoever_comes_second_changes_nothing(stage: Stage, name: str) -> None:
    SCENES[name](stage)
