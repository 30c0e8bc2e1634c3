"""store.Cursors and store.Records: conditional writes that say what stands there, and records beside them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import CLOSED, Cursor, Disposition, Lease, Result, Selection, start_at
from chalicelib.domain.cursor_write import RefusalReason, WriteRefused
from chalicelib.domain.spans import Span
from chalicelib.domain.topic import CursorKey
from chalicelib.store.cursors import Cursors
from chalicelib.store.records import Records
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage

FULL = Cursor(
    floor=3,
    next=30,
    leases={
        "3.ab": Lease("3.ab", (Span(3, 2), Span(7, 1, 4, "a1b2c3")), 99_000, "c1"),
        "4.cd": Lease("4.cd", (Span(8, 1, 2, "-"),), 98_000),
    },
    waiting=(Span(12, 10), Span(22, 8, 3, "ffffff", 77_000)),
    epoch=4,
    begin=2,
    segment_at=25,
)


@pytest.fixture
def cursors(stage: Stage) -> Cursors:
    return stage.adapters.cursors


@pytest.fixture
def records(stage: Stage) -> Records:
    return stage.adapters.records


@pytest.fixture
def key() -> CursorKey:
    return make.cursor_key()


def claimed(cursor: Cursor, upto: int, token: str = "9.zz") -> Cursor:
    spans = (Span(cursor.next, upto - cursor.next),)
    return transitions.claim(cursor, Selection(spans, next=upto, segment_at=upto), token, "me", 50_000)


def acked(
    cursor: Cursor, token: str, *offsets: int, fate: Disposition = Disposition.SUCCESS
) -> cursor_write.Change:
    after, answers = transitions.settle(cursor, token, [Result(o, fate, 7_000) for o in offsets])
    assert len(answers) == len(offsets)
    return cursor_write.change(cursor, after)


def test_a_cursor_nobody_stored_is_not_there(cursors: Cursors, key: CursorKey) -> None:
    assert cursors.get(key) is None


@pytest.mark.parametrize("cursor", [Cursor(), FULL, make.leased_cursor(2**50, 1)])
def test_a_cursor_is_read_as_it_was_stored(cursors: Cursors, key: CursorKey, cursor: Cursor) -> None:
    assert cursors.create(key, cursor) == cursor
    assert cursors.get(key, consistent=True) == cursor


def test_owners_and_shards_have_cursors_of_their_own(cursors: Cursors) -> None:
    shard, group = make.shard(), make.uid("g")
    keys = [CursorKey(shard, group), CursorKey(shard, group, "c1"), CursorKey(replace(shard, shard=1), group)]
    for n, key in enumerate(keys):
        cursors.create(key, start_at(n))
    cursors.close(keys[:1], START_MS // 1000)
    assert [cursors.get(key, consistent=True) for key in keys] == [
        CLOSED,
        start_at(1),
        start_at(2),
    ]


@pytest.mark.parametrize("there", [True, False])
def test_i16_nobody_gets_through_a_closed_cursor_whatever_he_knows(
    cursors: Cursors, key: CursorKey, there: bool
) -> None:
    with_lease = claimed(Cursor(), 3, "1.aa")
    if there:
        cursors.create(key, with_lease)
    cursors.close([key], START_MS // 1000)
    change = cursor_write.replacement(Cursor(), with_lease)
    assert cursors.write(key, change, exists=False) == WriteRefused(RefusalReason.LOST, CLOSED)
    assert cursors.create(key, Cursor()) == CLOSED
    assert cursors.write(key, acked(with_lease, "1.aa", 0, 1)) == WriteRefused(RefusalReason.LOST, CLOSED)
    again = cursor_write.change(with_lease, claimed(with_lease, 5, "2.bb"))
    assert cursors.write(key, again) == WriteRefused(RefusalReason.LOST, CLOSED)
    after_seek = cursor_write.replacement(with_lease, transitions.seek(with_lease, 0))
    assert cursors.write(key, after_seek) == WriteRefused(RefusalReason.LOST, CLOSED)
    assert cursors.get(key, consistent=True) == CLOSED
    assert cursors.of_owner(key.group_uid) == {str(key.shard): CLOSED}


def test_a_write_to_a_cursor_that_is_gone_is_refused_with_nothing(cursors: Cursors, key: CursorKey) -> None:
    change = cursor_write.change(FULL, claimed(FULL, 31))
    assert cursors.write(key, change) == WriteRefused(RefusalReason.LOST, None)
    assert cursors.get(key, consistent=True) is None


@pytest.mark.parametrize(
    "after",
    [
        claimed(FULL, 31),
        claimed(transitions.lapse(FULL, 98_000), 31),
        claimed(transitions.lapse(FULL, 200_000), 31),
        transitions.settle(
            FULL, "3.ab", [Result(3, Disposition.SUCCESS), Result(7, Disposition.RETRY, 5_000)]
        )[0],
        transitions.settle(FULL, "4.cd", [Result(8, Disposition.DEAD)])[0],
        transitions.extend(FULL, "3.ab", 123_456),
    ],
)
def test_a_change_makes_of_the_stored_cursor_what_the_algebra_says(
    cursors: Cursors, key: CursorKey, after: Cursor
) -> None:
    cursors.create(key, FULL)
    assert cursors.write(key, cursor_write.change(FULL, after)) == after
    assert cursors.get(key, consistent=True) == after


def test_i4_the_second_of_two_claims_is_refused_and_shown_the_first(cursors: Cursors, key: CursorKey) -> None:
    cursors.create(key, FULL)
    winner = cursors.write(key, cursor_write.change(FULL, claimed(FULL, 33)))
    assert isinstance(winner, Cursor)
    assert cursors.write(key, cursor_write.change(FULL, claimed(FULL, 40, "9.yy"))) == WriteRefused(
        RefusalReason.LOST, winner
    )


def test_settlements_of_different_leases_and_a_claim_do_not_disturb_one_another(
    cursors: Cursors, key: CursorKey
) -> None:
    cursors.create(key, FULL)
    stale = [acked(FULL, "3.ab", 4), acked(FULL, "4.cd", 8), cursor_write.change(FULL, claimed(FULL, 31))]
    expected = FULL
    for change in stale:
        expected = cursor_write.apply(expected, change)
        assert cursors.write(key, change) == expected


def test_i16_a_seek_voids_every_lease_and_replaces_the_whole(cursors: Cursors, key: CursorKey) -> None:
    cursors.create(key, FULL)
    after_seek = transitions.seek(FULL, 1_000)
    assert cursors.write(key, cursor_write.replacement(FULL, after_seek)) == after_seek
    assert cursors.write(key, acked(FULL, "3.ab", 3)) == WriteRefused(RefusalReason.LOST, after_seek)
    assert cursors.write(key, cursor_write.replacement(FULL, Cursor())) == WriteRefused(
        RefusalReason.LOST, after_seek
    )
    assert cursors.get(key, consistent=True) == after_seek


def test_a_change_of_many_entries_is_written_whole(cursors: Cursors, key: CursorKey) -> None:
    before = Cursor(next=800, waiting=make.odd_spans(800))
    cursors.create(key, before)
    selection = Selection(granted=before.waiting, next=800)
    after = transitions.claim(before, selection, "1.aa", "me", 50_000)
    assert cursors.write(key, cursor_write.change(before, after)) == after
    every_third = [Result(n, Disposition.SUCCESS) for n in range(0, 800, 6)]
    less, _ = transitions.settle(after, "1.aa", every_third)
    assert cursors.write(key, cursor_write.change(after, less)) == less
    assert cursors.get(key, consistent=True) == less


@pytest.mark.parametrize("exists", [True, False])
def test_records_are_written_with_the_cursor_or_not_at_all(
    cursors: Cursors, records: Records, key: CursorKey, exists: bool
) -> None:
    before = FULL if exists else Cursor()
    after = claimed(before, 31)
    change = cursor_write.change(FULL, after) if exists else cursor_write.replacement(before, after)
    dead_record, late_record = make.record(8, reason="EXPIRED"), make.record(9, "SUCCESS", attempts=3)
    if exists:
        answer = cursors.write(key, change, [dead_record, late_record])
        assert answer == WriteRefused(RefusalReason.LOST, None)
        assert records.get(key, 8) is None
        cursors.create(key, FULL)
    assert cursors.write(key, change, [dead_record, late_record], exists=exists) == after
    assert [records.get(key, 8), records.get(key, 9), records.get(key, 10)] == [
        dead_record,
        late_record,
        None,
    ]
    again = cursors.write(key, change, [make.record(10)], exists=exists)
    assert again == WriteRefused(RefusalReason.LOST, after)
    assert records.get(key, 10) is None


def test_dead_letters_are_counted_by_topic_and_group(cursors: Cursors, records: Records) -> None:
    topic, group = make.topic(), make.uid("g")
    keys = [make.cursor_key(topic.shard_key(0), group), make.cursor_key(topic.shard_key(1), group, "c1")]
    namesake = make.cursor_key(topic.shard_key(0), group + "x")
    for key in [*keys, namesake]:
        dead_records = [
            make.record(o, shard=key.shard.shard, consumer_uid=key.consumer_uid) for o in range(3)
        ]
        retry_record = make.record(7, "RETRYING", shard=key.shard.shard, consumer_uid=key.consumer_uid)
        change = cursor_write.replacement(Cursor(), claimed(Cursor(), 9))
        cursors.write(key, change, [*dead_records, retry_record], exists=False)
    assert records.count_dead(topic.uid, group).number == 6
    assert records.count_dead(topic.uid + "x", group).number == 0


def test_a_dead_letter_stays_one_when_a_replay_succeeds(
    cursors: Cursors, records: Records, key: CursorKey
) -> None:
    cursors.create(key, FULL)
    first = claimed(FULL, 31)
    cursors.write(key, cursor_write.change(FULL, first), [make.record(8)])
    cursors.write(
        key, cursor_write.change(first, claimed(first, 32, "9.yy")), [make.record(8, "SUCCESS", attempts=2)]
    )
    record = records.get(key, 8)
    assert record is not None
    assert record.status == "SUCCESS"
    assert records.count_dead(key.shard.topic_uid, key.group_uid).number == 1
