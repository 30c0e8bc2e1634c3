"""store.Log: dense offsets, one winner for each, and a tail that nothing makes fall back."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from chalicelib.domain.append import DedupHit, OffsetTaken, Stored
from chalicelib.domain.limits import MAX_LOOK_BYTES
from chalicelib.domain.segment import Allocation, Segment, ShardKey, Tail
from chalicelib.store.log import Log
from tests.support import factories as make
from tests.support.stages import Stage


@pytest.fixture
def log(stage: Stage) -> Log:
    return stage.adapters.log


@pytest.fixture
def shard() -> ShardKey:
    return make.shard()


def put(log: Log, shard: ShardKey, segment: Segment) -> Segment:
    assert log.put(shard, segment, log.pack(segment.drafts)) == Stored()
    return segment


def test_a_shard_that_never_had_a_message_has_no_tail(log: Log, shard: ShardKey) -> None:
    assert log.tail(shard) == Tail(-1, Allocation.OPTIMISTIC)
    assert log.read(shard, 0, 10) == []
    assert log.read_back(shard, 10, 10) == []


def test_what_was_put_is_read_as_it_was(log: Log, shard: ShardKey) -> None:
    drafts = [
        make.draft({"ä": [1, None]}, keys=("k1", "k2"), tag="paid", ordering_key="o-1", headers={"h": "v"}),
        replace(make.draft(), body=b"\x00\xff", is_json=False, content_type="image/png", max_attempts=3),
        replace(make.draft(), body=b"", blob="bodies/x", blob_bytes=300_000, expires_ms=5),
    ]
    segment = put(log, shard, make.segment(0, drafts, allocation=Allocation.RESERVED))
    assert log.read(shard, 0, 1) == [segment]
    assert log.tail(shard) == Tail(2, Allocation.RESERVED)


def test_a_read_says_whether_more_rows_follow_also_where_an_answer_is_full(log: Log, shard: ShardKey) -> None:
    """DynamoDB's answers end at a megabyte."""
    large = replace(make.draft(), body=random.Random(1).randbytes(350_000), is_json=False)
    segments = [put(log, shard, make.segment(first, [large])) for first in range(5)]
    pages = [log.read(shard, 0, 10, consistent=True)]
    while not pages[-1].is_end:
        assert pages[-1], "no progress"
        pages.append(log.read(shard, pages[-1][-1].end, 10, consistent=True))
    assert [row for page in pages for row in page] == segments
    assert not log.read(shard, 0, 1).is_end


def test_a_read_ends_where_its_bodies_fill_a_look_however_well_they_are_compressed(
    log: Log, shard: ShardKey
) -> None:
    large = replace(make.draft(), body=b"x" * 200_000, is_json=False)
    segments = [put(log, shard, make.segment(first, [large])) for first in range(30)]
    page, page_back = log.read(shard, 0, 30), log.read_back(shard, 29, 30)
    assert (page, page.is_end) == (segments[: len(page)], False)
    assert page_back == segments[: -len(page_back) - 1 : -1]
    assert MAX_LOOK_BYTES < len(page) * 200_000 <= MAX_LOOK_BYTES + 200_000
    assert len(page_back) == len(page)
    rest = log.read(shard, page[-1].end, 30)
    assert ([*page, *rest], rest.is_end) == (segments, True)


def test_i15_an_offset_is_given_once_and_the_loser_learns_who_has_it(log: Log, shard: ShardKey) -> None:
    winner = put(log, shard, make.segment(0, 2))
    loser = make.segment(0, 1)
    assert log.put(shard, loser, make.packed(loser)) == OffsetTaken(winner)
    assert log.read(shard, 0, 10) == [winner]


def test_the_tail_is_the_last_offset_of_the_last_segment(log: Log, shard: ShardKey) -> None:
    put(log, shard, make.segment(0, 3))
    put(log, shard, make.segment(3, 2))
    assert log.tail(shard) == Tail(4)


def test_an_empty_log_goes_on_after_its_checkpointed_tail(log: Log, shard: ShardKey) -> None:
    log.checkpoint(shard, Tail(41))
    assert log.tail(shard) == Tail(41)
    log.checkpoint(shard, Tail(7))
    assert log.tail(shard) == Tail(41), "a checkpoint never falls"
    put(log, shard, make.segment(42, 1))
    assert log.tail(shard) == Tail(42)


def test_i1_a_tail_never_falls_below_its_checkpoint_though_an_older_row_outlives_the_newest(
    log: Log, shard: ShardKey
) -> None:
    """TTL removes rows in any order, and a shortened retention lets newer rows expire first."""
    put(log, shard, make.segment(0, 1))
    log.checkpoint(shard, Tail(1))
    assert log.tail(shard) == Tail(1)


def test_a_checkpoint_is_no_segment(log: Log, shard: ShardKey) -> None:
    log.checkpoint(shard, Tail(41))
    assert log.read(shard, 0, 10) == []
    assert log.read(shard, -5, 10) == []
    assert log.read_back(shard, 100, 10) == []


def test_an_empty_log_goes_on_after_what_was_reserved(log: Log, shard: ShardKey) -> None:
    log.checkpoint(shard, Tail(3))
    log.begin_reserving(shard, 10)
    assert log.reserve(shard, 5) == 10
    assert log.tail(shard) == Tail(14, Allocation.RESERVED)


def test_reservations_never_overlap_and_the_counter_is_set_once(log: Log, shard: ShardKey) -> None:
    log.begin_reserving(shard, 7)
    assert [log.reserve(shard, 3), log.reserve(shard, 1)] == [7, 10]
    log.begin_reserving(shard, 0)
    assert log.reserve(shard, 1) == 11


def test_a_tombstone_keeps_a_late_writer_out(log: Log, shard: ShardKey) -> None:
    tombstone = log.put_tombstone(shard, 4, 100, 200)
    assert (tombstone.first, tombstone.count, tombstone.drafts) == (4, 1, ())
    assert tombstone.allocation == Allocation.RESERVED
    late_segment = make.segment(4, 2, allocation=Allocation.RESERVED)
    assert log.put(shard, late_segment, make.packed(late_segment)) == OffsetTaken(tombstone)
    assert log.put_tombstone(shard, 4, 999, 999) == tombstone, "closing it again changes nothing"


def test_reads_keep_their_bounds_and_their_order(log: Log, shard: ShardKey) -> None:
    a, b, c = (put(log, shard, make.segment(first, 2)) for first in (0, 2, 4))
    put(log, make.shard(), make.segment(0, 9))
    assert log.read(shard, 0, 10) == [a, b, c]
    assert log.read(shard, 1, 10) == [b, c], "a segment that began before is not meant"
    assert log.read(shard, 0, 2, consistent=True) == [a, b]
    assert log.read(shard, 5, 2) == []
    assert log.read_back(shard, 99, 10) == [c, b, a]
    assert log.read_back(shard, 3, 10) == [b, a]
    assert log.read_back(shard, 4, 1, consistent=True) == [c]
    assert log.read_back(shard, 0, 5) == [a]
    assert log.read_back(shard, -1, 5) == []


def test_i3_a_known_dedup_id_is_answered_and_nothing_is_written(log: Log, shard: ShardKey) -> None:
    first, topic_uid = make.segment(0, 1), make.uid("t")
    entry = make.dedup(first, topic_uid=topic_uid)
    assert log.put(shard, first, make.packed(first), [entry]) == Stored()
    second = make.segment(1, 2)
    other = make.dedup(second, 1, "d2", topic_uid=topic_uid)
    again = make.dedup(second, 0, "d1", topic_uid=topic_uid, content_hash="other")
    assert log.put(shard, second, make.packed(second), [again, other]) == DedupHit((entry,))
    assert log.tail(shard) == Tail(0)
    third = make.segment(1, 1)
    unused = make.dedup(third, 0, "d2", topic_uid=topic_uid)
    assert log.put(shard, third, make.packed(third), [unused]) == Stored(), "d2 was not remembered either"


def test_a_dedup_id_tells_what_it_was_used_for(log: Log, shard: ShardKey) -> None:
    segment, topic_uid = make.segment(0, 1), make.uid("t")
    entry = make.dedup(segment, topic_uid=topic_uid)
    assert log.dedup_entry(topic_uid, entry.dedup_id) is None
    log.put(shard, segment, make.packed(segment), [entry])
    assert log.dedup_entry(topic_uid, entry.dedup_id) == entry
    assert log.dedup_entry(topic_uid, "another") is None
    assert log.dedup_entry(make.uid("t"), entry.dedup_id) is None, "another topic's ids are its own"


def test_a_lost_offset_leaves_no_dedup_row(log: Log, shard: ShardKey) -> None:
    by, topic_uid = put(log, shard, make.segment(0, 1)), make.uid("t")
    loser = make.segment(0, 1)
    entry = make.dedup(loser, topic_uid=topic_uid)
    assert log.put(shard, loser, make.packed(loser), [entry]) == OffsetTaken(by)
    winner = replace(loser, first=1)
    assert log.put(shard, winner, make.packed(winner), [entry]) == Stored()


def test_an_offset_lost_to_another_outweighs_a_known_dedup_id(log: Log, shard: ShardKey) -> None:
    first, topic_uid = make.segment(0, 1), make.uid("t")
    log.put(shard, first, make.packed(first), [make.dedup(first, topic_uid=topic_uid)])
    loser = make.segment(0, 1)
    assert log.put(shard, loser, make.packed(loser), [make.dedup(loser, topic_uid=topic_uid)]) == OffsetTaken(
        first
    )


def test_dedup_ids_of_two_topics_are_strangers(log: Log, shard: ShardKey) -> None:
    for first in range(2):
        segment = make.segment(first, 1)
        entry = make.dedup(segment, topic_uid=make.uid("t"))
        assert log.put(shard, segment, make.packed(segment), [entry]) == Stored()
