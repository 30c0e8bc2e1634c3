"""store.Transactions: what is stored, refused and read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.timer import TimerKind
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.transaction import Transaction, TransactionState, check_timer
from tests.support import factories as make
from tests.support.desk import Desk, offsets
from tests.support.stages import Stage
from tests.support.transacting import URL, prepare, reread, timers_of


def test_a_change_of_what_was_changed_meanwhile_is_refused_with_all_it_brings(stage: Stage) -> None:
    desk = Desk.at(stage)
    transaction = prepare(desk)
    port = stage.adapters.transactions
    assert port.change(transaction, replace(transaction, checks=1))
    timer = make.timer(fragment=1)
    assert not port.change(transaction, replace(transaction, checks=2), [timer], [check_timer(transaction)])
    assert reread(desk, transaction).checks == 1
    assert stage.adapters.timers.find(timer.due_ms, timer.id) is None
    assert timers_of(desk, transaction.id) == [transaction.check_ms]


def test_a_change_stores_and_drops_the_timers_it_brings(stage: Stage) -> None:
    desk = Desk.at(stage)
    transaction = prepare(desk)
    later = replace(transaction, check_ms=transaction.check_ms + 1)
    port = stage.adapters.transactions
    assert port.change(transaction, later, [check_timer(later)], [check_timer(transaction)])
    assert timers_of(desk, transaction.id) == [later.check_ms]
    assert port.change(replace(later, version=1), later, drop=[check_timer(later)])
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
    for transaction in (full, replace(prepare(desk), id=full.id)):
        port.prepare(transaction)
        assert port.get(full.id) == transaction
    stage.adapters.timers.drop([check_timer(full)])


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_a_committed_one_keeps_by_whom_whichever_way_its_message_went(stage: Stage, delay_ms: int) -> None:
    desk = Desk.at(stage)
    due_ms = stage.clock.now_ms() + delay_ms if delay_ms else None
    transaction = prepare(desk, make.draft(due_ms=due_ms), by="ann")
    desk.deps.transactor.decide(transaction, TransactionState.COMMITTED, by="ben")
    committed = reread(desk, transaction)
    assert (committed.state, committed.committed_by) == (TransactionState.COMMITTED, "ben")
    listed = stage.adapters.transactions.of_state(desk.topic, TransactionState.COMMITTED, None, 9)
    assert [(each.id, each.committed_by) for each in listed] == [(transaction.id, "")], "lists have it not"
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
    assert kinds(desk, [t.id for t in transactions]) == set()
    group = desk.group()
    assert offsets(desk.receive(group)) == [0, 1, 2, 3, 4]
