"""Producer on both stores: I1, I2, I3 and the ways offsets are taken, with concurrent writers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import cast

import pytest

from chalicelib.domain.append import Stored
from chalicelib.domain.errors import Unavailable, unavailable
from chalicelib.domain.limits import HOLE_AGE, LOSSES_BEFORE_RESERVING
from chalicelib.domain.segment import Allocation, ShardKey
from chalicelib.domain.times import DAY_MS
from chalicelib.services.core.bodies import with_body
from chalicelib.store.log import Log
from tests.support import factories as make
from tests.support.amending import cancel
from tests.support.desk import Desk, overtaken, require_stored
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Troubled

HOLE_MS = int(HOLE_AGE.total_seconds() * 1000)


def never_mixed(desk: Desk) -> bool:
    """Once a row was reserved, all rows behind it are."""
    ways = [row.allocation for row in desk.rows()]
    turn = ways.index(Allocation.RESERVED) if Allocation.RESERVED in ways else len(ways)
    return set(ways[turn:]) <= {Allocation.RESERVED}


def dense(desk: Desk) -> bool:
    at = 0
    for row in desk.rows():
        if row.first != at:
            return False
        at = row.end
    return True


def turn(desk: Desk, log: Log | None = None) -> None:
    """Let the desk's one shard turn RESERVED by overtaking a writer (with a log of its own) often enough."""
    rival = desk.deps.producer
    log = overtaken(
        log or desk.stage.another().log,
        lambda _: rival.produce(desk.topic, make.drafts(1)),
        LOSSES_BEFORE_RESERVING,
    )
    require_stored(desk.producer(log).produce(desk.topic, make.drafts(1)))


def test_i1_eight_racing_processes_on_one_shard_stay_dense_and_lose_nothing(stage: Stage) -> None:
    desk = Desk.at(stage)
    producers = [desk.producer() for _ in range(8)]
    start = threading.Barrier(8)

    def work(n: int) -> list[tuple[int, str]]:
        start.wait()
        drafts = [make.draft(f"{n}.{i}") for i in range(25)]
        places = [require_stored(producers[n].produce(desk.topic, [draft]))[0] for draft in drafts]
        offsets = [place.offset for place in places if place.offset is not None]
        assert offsets == sorted(offsets), "acknowledged before sent: lower"
        return [(offset, draft.body.decode()) for offset, draft in zip(offsets, drafts, strict=True)]

    with ThreadPoolExecutor(8) as pool:
        answers = dict(entry for part in pool.map(work, range(8)) for entry in part)
    bodies = {row.first + i: d.body.decode() for row in desk.rows() for i, d in enumerate(row.drafts)}
    assert bodies == answers
    assert sorted(bodies) == list(range(200))
    assert never_mixed(desk)


def test_who_turns_the_shard_is_answered_though_its_counter_cannot_be_created(stage: Stage) -> None:
    """The shard is hot, so this is when it is throttled."""
    desk = Desk.at(stage)
    throttled = Troubled(stage.another().log, lambda name, *_: name == "begin_reserving")
    turn(desk, cast(Log, throttled))
    assert throttled.refused == 1
    for producer in (desk.deps.producer, desk.producer()):
        require_stored(producer.produce(desk.topic, make.drafts(3)))
    assert dense(desk)
    assert never_mixed(desk)


def test_a_writer_that_may_choose_hops_to_another_shard_instead(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    lost_shards: list[ShardKey] = []

    def rival(shard: ShardKey) -> None:
        lost_shards.append(shard)
        require_stored(desk.deps.producer.produce(desk.topic, [make.draft(shard=shard.shard)]))

    [place] = require_stored(
        desk.producer(overtaken(stage.another().log, rival)).produce(desk.topic, make.drafts(1))
    )
    assert place.shard != lost_shards[0].shard


def test_a_writer_that_died_turning_the_shard_leaves_it_usable(stage: Stage) -> None:
    desk = Desk.at(stage)
    reserved_segment = make.segment(0, 2, allocation=Allocation.RESERVED)
    assert (
        stage.adapters.log.put(desk.topic.shard_key(0), reserved_segment, make.packed(reserved_segment))
        == Stored()
    )
    assert [p.offset for p in desk.produce(*make.drafts(2))] == [2, 3]
    assert [p.offset for p in require_stored(desk.producer().produce(desk.topic, make.drafts(1)))] == [4]
    assert never_mixed(desk)


def test_a_young_hole_is_waited_for_and_its_writer_may_still_come(stage: Stage) -> None:
    desk = Desk.at(stage)
    turn(desk)
    group, shard, log = desk.group(), desk.topic.shard_key(0), stage.adapters.log
    end = len(desk.drain(group))
    hole = log.reserve(shard, 2)
    assert hole == end
    desk.produce(make.draft("behind"))
    stage.clock.advance(HOLE_MS - 1)
    assert desk.receive(group) == []
    slow = make.segment(hole, 2, allocation=Allocation.RESERVED, accepted_ms=stage.clock.now_ms())
    assert log.put(shard, slow, make.packed(slow)) == Stored()
    assert desk.drain(group) == [hole, hole + 1, hole + 2]


def test_a_dead_writers_hole_is_closed_when_it_is_old(stage: Stage) -> None:
    desk = Desk.at(stage)
    turn(desk)
    group = desk.group()
    end = len(desk.drain(group))
    stage.adapters.log.reserve(desk.topic.shard_key(0), 3)
    [behind] = desk.produce(make.draft("behind"))
    stage.clock.advance(HOLE_MS)
    assert desk.drain(group) == [behind.offset] == [end + 3]
    assert dense(desk), "tombstones stand in the hole"


def test_i1_a_late_writer_finds_its_hole_closed_and_appends_anew(stage: Stage) -> None:
    desk = Desk.at(stage)
    turn(desk)
    group = desk.group()
    end = len(desk.drain(group))

    def hole_is_closed(_: ShardKey) -> None:
        desk.produce(make.draft("behind"))
        stage.clock.advance(HOLE_MS)
        assert desk.drain(group) == [end + 2]

    late_producer = desk.producer(overtaken(stage.another().log, hole_is_closed))
    first, second = require_stored(late_producer.produce(desk.topic, make.drafts(2)))
    assert (first.offset, second.offset) == (end + 3, end + 4)
    assert desk.drain(group) == [first.offset, second.offset]


def test_i1_a_hole_is_closed_from_its_start_for_a_group_sent_into_its_middle(stage: Stage) -> None:
    desk = Desk.at(stage)
    turn(desk)
    begun_group, sent_group = desk.group("begun"), desk.group("sent")
    end = len(desk.drain(begun_group))
    shard, log = desk.topic.shard_key(0), stage.adapters.log
    log.reserve(shard, 3)
    [behind] = desk.produce(make.draft("behind"))
    desk.seek(sent_group, end + 1)
    stage.clock.advance(HOLE_MS)
    assert desk.drain(sent_group) == [behind.offset]
    late_segment = make.segment(end, 3, allocation=Allocation.RESERVED)
    assert log.put(shard, late_segment, make.packed(late_segment)) != Stored(), (
        "else the sent group would never see it"
    )
    assert desk.drain(begun_group) == [behind.offset]


def test_i1_a_young_hole_behind_expired_rows_is_not_taken_for_expired(stage: Stage) -> None:
    desk = Desk.at(stage, retention_days=1)
    turn(desk)
    group, shard, log = desk.group(), desk.topic.shard_key(0), stage.adapters.log
    end = desk.rows()[-1].end
    stage.clock.advance(2 * DAY_MS)
    stage.drop_expired()
    hole = log.reserve(shard, 1)
    [behind] = require_stored(desk.producer().produce(desk.topic, make.drafts(1)))
    assert (hole, behind.offset) == (end, end + 1)
    assert desk.receive(group) == []
    slow = make.segment(end, 1, allocation=Allocation.RESERVED, accepted_ms=stage.clock.now_ms())
    assert log.put(shard, slow, make.packed(slow)) == Stored()
    stage.clock.advance(HOLE_MS)
    assert desk.drain(group) == [end, end + 1]


def test_i3_twenty_racing_twins_become_one_message_with_one_id(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    producers = [desk.producer() for _ in range(4)]
    start = threading.Barrier(20)
    twin = make.draft({"pay": 1}, dedup_id="order-1")

    def send(n: int) -> tuple[str, bool]:
        start.wait()
        [place] = require_stored(producers[n % 4].produce(desk.topic, [twin]))
        return place.id, place.duplicate

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(send, range(20)))
    assert len({message_id for message_id, _ in answers}) == 1
    assert [duplicate for _, duplicate in answers].count(False) == 1
    assert sum(row.count for shard in range(4) for row in desk.rows(shard)) == 1


def test_i3_a_dedup_id_that_is_freed_by_a_cancel_is_taken_once(stage: Stage) -> None:
    """Of twenty twins in processes that have read the message just before it was cancelled."""
    desk = Desk.at(stage)
    others = [stage.process() for _ in range(4)]
    draft = make.draft({"pay": 1}, dedup_id="order-1")
    [first] = desk.produce(draft)

    def send(n: int) -> tuple[str, bool]:
        other = others[n % 4]
        state_of = cache(other.lookup.state_by_id(desk.topic))
        outcomes = other.producer.produce(desk.topic, [draft], first_use=lambda id: state_of(id).use)
        [place] = require_stored(outcomes)
        return place.id, place.duplicate

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(send, range(20))) == {(first.id, True)}
        cancel(desk, first)
        answers = list(pool.map(send, range(20)))
    assert len({message_id for message_id, _ in answers} - {first.id}) == 1
    assert [duplicate for _, duplicate in answers].count(False) == 1
    assert sum(row.count for row in desk.rows()) == 2


def test_i3_the_window_outlives_the_acknowledgement_and_then_ends(stage: Stage) -> None:
    desk = Desk.at(stage, dedup_window_seconds=60)
    group, draft = desk.group(), make.draft(1, dedup_id="d")
    stage.clock.advance(700)  # the row's end is in seconds
    [first] = desk.produce(draft)
    assert desk.drain(group) == [0]
    stage.clock.advance(59_999)
    [again] = desk.produce(draft)
    assert (again.id, again.duplicate) == (first.id, True)
    stage.clock.advance(1)
    [anew] = desk.produce(draft)
    assert (anew.offset, anew.duplicate) == (1, False)


def test_a_large_body_travels_through_the_blob_store(stage: Stage) -> None:
    desk = Desk.at(stage, max_body_bytes=4 << 20)
    group, body = desk.group(), "é" * 200_000
    desk.produce(make.draft(body), make.draft("small"))
    [large, small] = desk.receive(group)
    assert large.message.draft.blob
    assert small.message.draft.blob is None
    assert with_body(stage.adapters.blobs, large.message).draft.body == make.draft(body).body


def test_one_batch_of_large_messages_spans_segments_and_keeps_its_order(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    places = desk.produce(*(make.draft(f"{n}" + "x" * 100_000) for n in range(9)))
    assert [p.offset for p in places] == list(range(9))
    assert len(desk.rows()) > 1
    assert [d.message.draft.body[1:2] for d in desk.receive(group)] == [b"%d" % n for n in range(9)]


def test_i7_what_follows_a_message_of_unknown_fate_in_a_batch_waits_for_it(stage: Stage) -> None:
    desk = Desk.at(stage)
    drafts = [make.draft(n, dedup_id=f"d{n}") for n in range(150)]  # in two rows

    def fail(_: ShardKey) -> None:
        raise unavailable()

    producer = desk.producer(overtaken(desk.stage.another().log, fail))
    assert {type(outcome) for outcome in producer.produce(desk.topic, drafts)} == {Unavailable}
    assert desk.rows() == []
    require_stored(producer.produce(desk.topic, drafts))
    bodies = [draft.body for row in desk.rows() for draft in row.drafts]
    assert bodies == [draft.body for draft in drafts]


@pytest.mark.parametrize("count", [99, 100, 199])
@pytest.mark.parametrize("delay_ms", [0, 60 * 1000])
def test_a_batch_of_named_messages_is_stored_in_transactions_that_hold_it(delay_ms: int, count: int) -> None:
    """DynamoDB takes a hundred actions."""
    stage = embedded_stage()
    desk = Desk.at(stage)
    due_ms = stage.clock.now_ms() + delay_ms if delay_ms else None
    drafts = [make.draft(n, dedup_id=f"d{n}", due_ms=due_ms) for n in range(count)]
    assert len({each.id for each in desk.produce(*drafts)}) == count
    assert all(each.duplicate for each in desk.produce(*drafts))
