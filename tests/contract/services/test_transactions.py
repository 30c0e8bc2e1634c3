"""Transactions: prepared messages are invisible to consumers, and a decision is made once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from chalicelib.domain.errors import Conflict, NotFound, unavailable
from chalicelib.domain.message import Message
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.domain.transaction import Transaction, TransactionState
from chalicelib.services.inspect import waiting
from chalicelib.services.inspect.lookup import AnyMessage
from chalicelib.services.produce.delayed import DelayedMessage
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage
from tests.support.transacting import ASKED, COMMIT, ROLLBACK, decide, prepare, reread, timers_of


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_i11_a_prepared_message_is_seen_by_nobody_before_its_commit(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode=mode)
    consumer = desk.consumer(group, "c") if mode == "broadcast" else None
    transaction = prepare(desk, make.draft("x", keys=("k",)))
    assert transaction.state is TransactionState.PREPARED
    assert desk.rows() == []
    assert desk.receive(group, consumer=consumer) == []
    assert desk.deps.surveyor.exact_topic(desk.topic).accepted == 0
    message = desk.deps.lookup.find(desk.topic, transaction.message_id)
    assert isinstance(message, Transaction)
    assert message == transaction
    with pytest.raises(NotFound):
        desk.deps.lookup.message(desk.topic, transaction.message_id)
    after = decide(desk.deps, transaction, COMMIT)
    assert isinstance(after, Transaction)
    (claimed_message,) = desk.receive(group, consumer=consumer)
    assert (claimed_message.message.id, claimed_message.message.draft.keys) == (
        transaction.message_id,
        ("k",),
    )
    assert (claimed_message.message.shard, claimed_message.message.offset) == (after.shard, after.offset)
    assert desk.ack(group, [claimed_message]) == [None]
    message = desk.deps.lookup.find(desk.topic, transaction.message_id)
    assert isinstance(message, Message)
    assert message.draft.body == b'"x"'


def test_i11_a_rolled_back_message_is_seen_by_nobody_ever(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    transaction = prepare(desk, make.draft("x"))
    decide(desk.deps, transaction, ROLLBACK)
    stage.clock.advance(3_600 * SECOND_MS)
    assert desk.receive(group) == []
    assert desk.rows() == []
    message = desk.deps.lookup.find(desk.topic, transaction.message_id)
    assert isinstance(message, Transaction)
    assert (message.state, message.message.draft.body) == (TransactionState.ROLLED_BACK, b'"x"')


@pytest.mark.parametrize("delay_ms", [0, SECOND_MS])
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_trace_does_without_the_row_of_its_transaction(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, delay_ms: int, is_gone: bool
) -> None:
    """Nor does an unreadable one hide what else is known."""
    desk = Desk.at(stage)
    began_ms = stage.clock.now_ms()
    draft = make.draft("x", due_ms=began_ms + delay_ms if delay_ms else None)
    transaction = prepare(desk, draft, by="ann", delay_from_commit=True)
    stage.clock.advance(SECOND_MS)
    desk.deps.transactor.decide(transaction, COMMIT, by="ben")
    stage.clock.advance(delay_ms)
    desk.deps.mover.run_once()
    message = desk.deps.lookup.message(desk.topic, transaction.message_id)

    def get(transaction_id: str) -> None:
        assert transaction_id == transaction.id
        if not is_gone:
            raise unavailable("It cannot be read.")

    monkeypatch.setattr(desk.deps.adapters.transactions, "get", get)
    path = [(e.event, e.at_ms - began_ms, e.by) for e in desk.deps.tracer.path(desk.topic, message)]
    delayed = [("prepared", 0, "ann"), ("delayed", 0, "ann"), ("due", 2 * SECOND_MS, None)]
    assert path == (delayed if delay_ms else [("prepared", 0, "ann"), ("accepted", SECOND_MS, None)])


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_what_is_decided_while_the_list_is_read_is_not_in_it(
    stage: Stage, decision: TransactionState
) -> None:
    desk = Desk.at(stage)
    decided, other = prepare(desk), prepare(desk)
    adapters = desk.deps.adapters
    page = waiting.reader(adapters.timers)("")
    decide(desk.deps, decided, decision)
    listed, _ = waiting.prepared_in_order(lambda _: page, adapters.transactions, desk.topic, 9, None)
    assert [each.id for each in listed] == [other.id]


def test_another_topic_does_not_find_it(stage: Stage) -> None:
    desk, other = Desk.at(stage), Desk.at(stage)
    transaction = prepare(desk)
    with pytest.raises(NotFound):
        other.deps.lookup.find(other.topic, transaction.message_id)
    decide(desk.deps, transaction, COMMIT)
    with pytest.raises(NotFound):
        other.deps.lookup.find(other.topic, transaction.message_id)


# Decisions


@pytest.mark.parametrize(("first", "other"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
def test_i12_the_first_decision_is_final(
    stage: Stage, first: TransactionState, other: TransactionState
) -> None:
    desk = Desk.at(stage)
    transaction = prepare(desk)
    decision = decide(desk.deps, transaction, first)
    assert isinstance(decision, Transaction)
    assert decision.state is first
    again = [decide(stage.process(), transaction, first) for _ in range(3)]
    assert [replace(a, version=0) for a in again if isinstance(a, Transaction)] == [
        replace(decision, version=0, draft=again[0].draft if isinstance(again[0], Transaction) else None)
    ] * 3
    assert decide(stage.process(), transaction, other) == "TRANSACTION_DECIDED"
    assert len(desk.rows()) == (first is COMMIT)
    assert timers_of(desk, transaction.id) == []


def test_it_goes_to_its_shard_and_keeps_its_order_key(stage: Stage) -> None:
    desk = Desk.at(stage, shards=8)
    (keyed_result,) = desk.produce(make.draft("x", ordering_key="customer-7"))
    for draft, shard in (
        (make.draft("y", ordering_key="customer-7"), keyed_result.shard),
        (make.draft("z", shard=5), 5),
    ):
        decision = decide(desk.deps, prepare(desk, draft), COMMIT)
        assert isinstance(decision, Transaction)
        assert decision.shard == shard


# Time and dedup ids


def test_i9_a_delay_counts_from_the_commit(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    now_ms = stage.clock.now_ms()
    draft = make.draft("x", due_ms=now_ms + 30_000, expires_ms=now_ms + 40_000)
    transaction = prepare(desk, draft, delay_from_commit=True)
    stage.clock.advance(20 * SECOND_MS)
    decision = decide(desk.deps, transaction, COMMIT)
    assert isinstance(decision, Transaction)
    assert (decision.due_ms, decision.offset) == (now_ms + 50_000, None)
    message = desk.deps.lookup.find(desk.topic, transaction.message_id)
    assert isinstance(message, DelayedMessage)
    assert message.timer.draft is not None
    assert message.timer.draft.expires_ms == now_ms + 60_000
    stage.clock.advance(30 * SECOND_MS - 1)
    assert desk.receive(group) == []
    stage.clock.advance(1)
    (claimed_message,) = desk.receive(group)
    assert claimed_message.message.id == transaction.message_id
    assert desk.deps.lookup.message(desk.topic, transaction.message_id).offset == 0


def test_i9_a_time_that_the_producer_named_holds_and_one_that_is_past_means_now(stage: Stage) -> None:
    desk = Desk.at(stage)
    now_ms = stage.clock.now_ms()
    early, later_one = (prepare(desk, make.draft("x", due_ms=now_ms + ms)) for ms in (10_000, 90_000))
    stage.clock.advance(20 * SECOND_MS)
    decision = decide(desk.deps, early, COMMIT)
    assert isinstance(decision, Transaction)
    assert (decision.due_ms, decision.offset) == (None, 0)
    decision = decide(desk.deps, later_one, COMMIT)
    assert isinstance(decision, Transaction)
    assert (decision.due_ms, decision.offset) == (now_ms + 90_000, None)


def test_what_was_postponed_after_its_commit_is_found_though_its_transaction_is_forgotten(
    stage: Stage,
) -> None:
    desk = Desk.at(stage, retention_days=1)
    transaction = prepare(desk, make.draft("x", due_ms=stage.clock.now_ms() + 30_000))
    decide(desk.deps, transaction, COMMIT)

    def found() -> AnyMessage:
        return desk.deps.lookup.find(desk.topic, transaction.message_id)

    waiting = found()
    assert isinstance(waiting, DelayedMessage)
    desk.deps.delayed.amend(desk.topic, waiting, {"due_ms": stage.clock.now_ms() + 9 * DAY_MS})
    stage.clock.advance(3 * DAY_MS)
    stage.drop_expired()
    with pytest.raises(NotFound):
        reread(desk, transaction)
    assert isinstance(found(), DelayedMessage)
    other = Desk.at(stage)
    with pytest.raises(NotFound):
        other.deps.lookup.find(other.topic, transaction.message_id)
    stage.clock.advance(6 * DAY_MS)
    assert len(desk.receive(desk.group())) == 1
    assert isinstance(found(), Message)


def test_i3_fifty_racing_twins_are_one_transaction(stage: Stage) -> None:
    desk = Desk.at(stage)
    others = [stage.process() for _ in range(4)]
    draft = make.draft("order", dedup_id="order-1")

    def twin(n: int) -> tuple[Transaction, bool]:
        return others[n % 4].transactor.prepare(desk.topic, draft, ASKED)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(twin, range(50)))
    assert len({transaction.id for transaction, _ in answers}) == 1
    assert [is_new for _, is_new in answers].count(True) == 1
    decide(desk.deps, answers[0][0], COMMIT)
    again, is_new = desk.deps.transactor.prepare(desk.topic, draft, ASKED)
    assert (again.state, again.offset, is_new) == (TransactionState.COMMITTED, 0, False)
    with pytest.raises(Conflict, match="DEDUP_MISMATCH"):
        prepare(desk, make.draft("other", dedup_id="order-1"))
    (plain,) = desk.deps.producer.produce(desk.topic, [draft])
    assert isinstance(plain, Conflict), "to produce is another thing than to prepare"
    assert len(desk.rows()) == 1


def test_an_undecided_one_is_never_forgotten(stage: Stage) -> None:
    desk = Desk.at(stage, retention_days=1)
    transaction = prepare(desk)
    stage.clock.advance(400 * DAY_MS)
    stage.drop_expired()
    assert isinstance(decide(desk.deps, transaction, COMMIT), Transaction)


# Lists
