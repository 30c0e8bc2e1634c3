"""store.Log.put with what is moved: into the log and out of its place at once, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.append import AlreadyMoved, DedupHit, OffsetTaken, PutResult, Stored
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.record import DeadLetter, Record
from chalicelib.domain.segment import Segment, ShardKey, Tail
from chalicelib.domain.status import Status
from chalicelib.domain.timer import Timer, TimerKind
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import CursorKey
from chalicelib.domain.transaction import Transaction, TransactionState, check_timer
from chalicelib.store.cursors import Cursors
from chalicelib.store.layout import FRAGMENTS
from chalicelib.store.log import Log
from chalicelib.store.timers import Timers
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.desk import Desk, offsets
from tests.support.stages import Stage
from tests.support.transacting import URL, prepare, reread, timers_of


@pytest.fixture
def log(stage: Stage) -> Log:
    return stage.adapters.log


@pytest.fixture
def timers(stage: Stage) -> Timers:
    return stage.adapters.timers


@pytest.fixture
def shard() -> ShardKey:
    return make.shard()


def filed(timers: Timers, count: int) -> list[Timer]:
    batch = [make.timer(fragment=n % 8) for n in range(count)]
    timers.store(batch)
    return batch


def left(timers: Timers, batch: list[Timer]) -> list[Timer]:
    there = {t.id for f in range(8) for t in timers.first_due(f, 10**14, 1_000).timers}
    return [timer for timer in batch if timer.id in there]


def put(log: Log, shard: ShardKey, segment: Segment, promotables: list[Timer | DeadLetter]) -> PutResult:
    return log.put(shard, segment, make.packed(segment), promotables=promotables)


def buried(cursors: Cursors, key: CursorKey, *buried_records: Record) -> list[DeadLetter]:
    """Dead letters, each with its record."""
    current = cursors.get(key, consistent=True)
    change = cursor_write.replacement(current or Cursor(), transitions.seek(current or Cursor(), 1))
    assert isinstance(cursors.write(key, change, buried_records, exists=current is not None), Cursor)
    return [make.letter(key, record) for record in buried_records]


@pytest.mark.parametrize("count", [1, 99])
def test_timers_go_into_the_log_and_out_of_their_place_at_once(
    log: Log, timers: Timers, shard: ShardKey, count: int
) -> None:
    due = filed(timers, count)
    segment = make.segment(0, count)
    assert put(log, shard, segment, [*due]) == Stored()
    assert log.read(shard, 0, 9) == [segment]
    assert left(timers, due) == []


def test_movers_at_the_same_time_send_once(stage: Stage, timers: Timers, shard: ShardKey) -> None:
    due = filed(timers, 3)
    together = threading.Barrier(4)

    def mover() -> PutResult:
        log, result = stage.another().log, None
        together.wait(10)
        while not isinstance(result, Stored | AlreadyMoved):
            result = put(log, shard, make.segment(log.tail(shard).offset + 1, 3), [*due])
        return result

    with ThreadPoolExecutor(4) as pool:
        results = [future.result(60) for future in [pool.submit(mover) for _ in range(4)]]
    assert sorted(map(str, results)) == [*[str(AlreadyMoved((0, 1, 2)))] * 3, str(Stored())]
    assert stage.adapters.log.tail(shard) == Tail(2)
    assert left(timers, due) == []


def test_one_that_is_gone_keeps_the_others_where_they_are(log: Log, timers: Timers, shard: ShardKey) -> None:
    due = filed(timers, 4)
    timers.drop([due[1], due[3]])
    assert put(log, shard, make.segment(0, 4), [*due]) == AlreadyMoved((1, 3))
    assert log.tail(shard) == Tail(-1)
    assert left(timers, due) == [due[0], due[2]]


def test_an_offset_lost_to_another_outweighs_what_is_gone(log: Log, timers: Timers, shard: ShardKey) -> None:
    due, by = filed(timers, 1), make.segment(0, 1)
    assert put(log, shard, by, []) == Stored()
    assert put(log, shard, make.segment(0, 2), [make.timer(), *due]) == OffsetTaken(by)
    assert left(timers, due) == due


def test_a_known_dedup_id_outweighs_what_is_gone_and_an_offset_lost_both(
    log: Log, timers: Timers, shard: ShardKey
) -> None:
    first, topic_uid, due = make.segment(0, 1), make.uid("t"), filed(timers, 1)
    entry = make.dedup(first, topic_uid=topic_uid)
    assert log.put(shard, first, make.packed(first), [entry], due) == Stored()
    assert left(timers, due) == []
    for at, expected in ((1, DedupHit((entry,))), (0, OffsetTaken(first))):
        again = make.segment(at, 1)
        known_entry = make.dedup(again, topic_uid=topic_uid)
        assert log.put(shard, again, make.packed(again), [known_entry], due) == expected
    other = make.segment(1, 1)
    unused = make.dedup(other, dedup_id="d2", topic_uid=topic_uid)
    assert log.put(shard, other, make.packed(other), [unused], due) == AlreadyMoved((0,))
    assert log.put(shard, other, make.packed(other), [unused]) == Stored(), "d2 was not remembered"


def test_i15_a_redriven_letter_is_gone_and_its_record_begins_a_new_life(
    stage: Stage, shard: ShardKey
) -> None:
    key, a = make.cursor_key(consumer_uid="c1"), stage.adapters
    record = make.dead_record(7, attempts=5, last_error="503", consumer_uid="c1", expires_s=START_MS // 1000)
    (letter,) = buried(a.cursors, key, record)
    later = make.segment(0, 1, accepted_ms=START_MS + 5_000)
    assert put(a.log, shard, later, [letter]) == Stored()
    assert a.records.dead_letter(key, 7) is None
    assert a.records.count_dead(key.shard.topic_uid, key.group_uid).number == 0
    at_ms = START_MS + 5_000
    assert a.records.get(key, 7) == Record(
        shard=0,
        offset=7,
        status=Status.RETRYING,
        attempts=5,
        at_ms=at_ms,
        consumer_uid="c1",
        last_error="503",
        next_ms=at_ms,
        attempts_before_redrive=5,
    )


def test_a_change_stores_the_timer_it_brings_and_an_end_drops_it(stage: Stage) -> None:
    desk = Desk.at(stage)
    transaction = prepare(desk)
    later = replace(transaction, check_ms=transaction.check_ms + 1)
    port = stage.adapters.transactions
    assert port.change(transaction, later, [check_timer(later)])
    port.end_checks(transaction)
    assert timers_of(desk, transaction.id) == [later.check_ms]
    port.end_checks(later)
    assert timers_of(desk, transaction.id) == []


def test_it_is_read_as_it_was_written(stage: Stage) -> None:
    desk = Desk.at(stage)
    full = Transaction(
        id="0123456789abcdefghjkmnpq",
        topic=desk.topic.name,
        topic_uid=desk.topic.uid,
        prepared_ms=stage.clock.now_ms(),
        check_ms=1,
        check_after_ms=2,
        keep_s=3,
        draft=make.draft("x", keys=("k",), id="i"),
        state=TransactionState.UNDECIDED,
        check_url=URL,
        shard=0,
        offset=0,
        delay_ms=4,
        due_ms=stage.clock.now_ms() + DAY_MS,
        checks=5,
        last_answer="HTTP 500",
        answer_by_ms=stage.clock.now_ms() + 15_000,
        decided_ms=stage.clock.now_ms(),
        committed_by="token",
    )
    port = stage.adapters.transactions
    for transaction in (full, replace(prepare(desk), id=f"{full.id}2")):
        port.prepare(transaction)
        assert port.get(transaction.id) == transaction
    assert [each.id for each in port.scan(desk.topic, TransactionState.UNDECIDED)] == [full.id]
    stage.adapters.timers.drop([check_timer(full)])


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_a_committed_one_keeps_by_whom_whichever_way_its_message_went(stage: Stage, delay_ms: int) -> None:
    desk = Desk.at(stage)
    due_ms = stage.clock.now_ms() + delay_ms if delay_ms else None
    transaction = prepare(desk, make.draft(due_ms=due_ms), by="ann")
    desk.deps.transactor.decide(transaction, TransactionState.COMMITTED, by="ben")
    committed = reread(desk, transaction)
    assert (committed.state, committed.committed_by) == (TransactionState.COMMITTED, "ben")
    timers = stage.adapters.timers
    timers.drop([t for f in range(FRAGMENTS) for t in timers.first_due(f, 10**15 - 2, 9).timers])


def kinds(desk: Desk, ids: Iterable[str]) -> set[TimerKind]:
    timers = desk.stage.adapters.timers
    return {
        t.kind
        for f in range(FRAGMENTS)
        for t in timers.first_due(f, 10**15 - 2, 10_000).timers
        if t.id in set(ids)
    }


def test_many_are_committed_each_where_it_says(stage: Stage) -> None:
    """Places are the draft's own, also where several of a segment are transactions."""
    desk = Desk.at(stage)
    transactions = [prepare(desk, make.draft(n)) for n in range(5)]
    moves = [(t, t.draft) for t in transactions if t.draft]
    places = desk.deps.producer.move(desk.topic, moves)
    assert [p.offset for p in places if p] == [0, 1, 2, 3, 4]
    assert [reread(desk, t).offset for t in transactions] == [0, 1, 2, 3, 4]
    assert desk.deps.producer.move(desk.topic, moves) == [None] * 5
    group = desk.group()
    assert offsets(desk.receive(group)) == [0, 1, 2, 3, 4]
