"""Transactions: prepared where nobody sees them, decided once, checked back."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.errors import Conflict, HeadraceError, NotFound, TooLarge
from chalicelib.domain.limits import FRAGMENTS, MAX_CHECKS
from chalicelib.domain.message import Draft, Message
from chalicelib.domain.timer import TimerKind, fragment_of
from chalicelib.domain.transaction import CheckAnswer, Transaction, TransactionState, check_timer
from chalicelib.services.produce.check_back import Check
from chalicelib.services.produce.delayed import Waiting
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.layout import state_home
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import DAY_MS, SECOND_MS
from tests.support.desk import Desk, offsets
from tests.support.push import PushDesk
from tests.support.stages import Stage

URL = "https://bank.example.com/check"
ASKED = Checks(URL, 60)
COMMIT, ROLLBACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK


def prepare(desk: Desk, draft: Draft | None = None, checks: Checks = ASKED, **how: Any) -> Transaction:
    return desk.deps.transactor.prepare(desk.topic, draft or make.draft({"paid": 1}), checks, **how)[0]


def decide(deps: Deps, transaction: Transaction, wanted: TransactionState) -> Transaction | str:
    """The transaction afterwards, or the code of the refusal."""
    try:
        return deps.transactor.decide(transaction, wanted)
    except HeadraceError as error:
        return error.code


def held(desk: Desk, transaction: Transaction) -> Transaction:
    return desk.deps.transactor.find(transaction.id)


def timers_of(desk: Desk, *ids: str) -> list[int]:
    """When the timers with these ids are due."""
    timers = desk.stage.adapters.timers
    found = (t for f in range(FRAGMENTS) for t in timers.look(f, 10**15 - 2, 10_000).timers)
    return sorted(t.due_ms for t in found if t.id in ids)


# What nobody sees


@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_i11_a_prepared_message_is_seen_by_nobody_before_its_commit(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode=mode)
    consumer = desk.consumer(group, "c") if mode == "broadcast" else None
    transaction = prepare(desk, make.draft("x", keys=("k",)))
    assert transaction.state is TransactionState.PREPARED
    assert desk.rows() == []
    assert desk.receive(group, consumer=consumer) == []
    assert desk.deps.lookup.stats([desk.topic])[0].accepted == 0
    found = desk.deps.lookup.find(desk.topic, transaction.message_id)
    assert isinstance(found, Transaction)
    assert found == transaction
    with pytest.raises(NotFound):
        desk.deps.lookup.message(desk.topic, transaction.message_id)
    after = decide(desk.deps, transaction, COMMIT)
    assert isinstance(after, Transaction)
    (got,) = desk.receive(group, consumer=consumer)
    assert (got.message.id, got.message.draft.keys) == (transaction.message_id, ("k",))
    assert (got.message.shard, got.message.offset) == (after.shard, after.offset)
    assert desk.ack(group, [got]) == [None]
    found = desk.deps.lookup.find(desk.topic, transaction.message_id)
    assert isinstance(found, Message)
    assert found.draft.body == b'"x"'


def test_i11_a_rolled_back_message_is_seen_by_nobody_ever(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    transaction = prepare(desk, make.draft("x"))
    decide(desk.deps, transaction, ROLLBACK)
    stage.clock.advance(3_600 * SECOND_MS)
    assert desk.receive(group) == []
    assert desk.rows() == []
    found = desk.deps.lookup.find(desk.topic, transaction.message_id)
    assert isinstance(found, Transaction)
    assert (found.state, found.message.draft.body) == (TransactionState.ROLLED_BACK, b'"x"')


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
    decided = decide(desk.deps, transaction, first)
    assert isinstance(decided, Transaction)
    assert decided.state is first
    again = [decide(stage.process(), transaction, first) for _ in range(3)]
    assert [replace(a, version=0) for a in again if isinstance(a, Transaction)] == [
        replace(decided, version=0, draft=again[0].draft if isinstance(again[0], Transaction) else None)
    ] * 3
    assert decide(stage.process(), transaction, other) == "TRANSACTION_DECIDED"
    assert len(desk.rows()) == (first is COMMIT)
    assert timers_of(desk, transaction.id) == []


@pytest.mark.parametrize("delay", [0, 30])
def test_i12_of_racing_deciders_one_sort_wins(stage: Stage, delay: int) -> None:
    desk = Desk.at(stage, shards=2)
    others = [stage.process() for _ in range(4)]
    for _ in range(5):
        due_ms = stage.clock.now_ms() + delay * SECOND_MS if delay else None
        transaction = prepare(desk, make.draft("x", due_ms=due_ms), floats=bool(delay))
        before = sum(len(desk.rows(shard)) for shard in range(2))
        with ThreadPoolExecutor(8) as pool:
            wanted = [COMMIT, ROLLBACK] * 8
            ends = list(
                pool.map(lambda n: decide(others[n % 4], transaction, wanted[n]), range(16))  # noqa: B023
            )
        final = held(desk, transaction)
        for end, asked in zip(ends, wanted, strict=True):
            if asked is final.state:
                assert isinstance(end, Transaction)
                assert (end.shard, end.offset, end.due_ms) == (final.shard, final.offset, final.due_ms)
            else:
                assert end == "TRANSACTION_DECIDED"
        after = sum(len(desk.rows(shard)) for shard in range(2))
        committed = final.state is COMMIT
        assert after - before == (committed and not delay)
        assert len(timers_of(desk, transaction.message_id)) == (committed and bool(delay))


def test_an_unknown_id_is_refused_whatever_it_is(stage: Stage) -> None:
    desk = Desk.at(stage)
    for id in ("", "x", "0" * 24, "0" * 5_000, "é" * 24):
        with pytest.raises(NotFound, match="TRANSACTION_NOT_FOUND"):
            desk.deps.transactor.find(id)


def test_a_message_that_the_topic_does_not_take_is_refused_at_once(stage: Stage) -> None:
    desk = Desk.at(stage, max_body_bytes=10)
    with pytest.raises(TooLarge):
        prepare(desk, make.draft("x" * 20))
    with pytest.raises(HeadraceError, match="NO_SUCH_SHARD"):
        prepare(desk, make.draft("x", shard=7))


def test_it_goes_to_its_shard_and_keeps_its_order_key(stage: Stage) -> None:
    desk = Desk.at(stage, shards=8)
    (keyed,) = desk.produce(make.draft("x", ordering_key="customer-7"))
    for draft, shard in (
        (make.draft("y", ordering_key="customer-7"), keyed.shard),
        (make.draft("z", shard=5), 5),
    ):
        done = decide(desk.deps, prepare(desk, draft), COMMIT)
        assert isinstance(done, Transaction)
        assert done.shard == shard


def test_a_large_body_comes_out_whole(stage: Stage) -> None:
    desk = Desk.at(stage, max_body_bytes=1_000_000)
    transaction = prepare(desk, make.draft("x" * 300_000))
    decide(desk.deps, transaction, COMMIT)
    message = desk.deps.lookup.message(desk.topic, transaction.message_id)
    assert message.draft.size == 300_002


def test_a_deleted_topics_transaction_cannot_be_committed_but_rolled_back(stage: Stage) -> None:
    desk = Desk.at(stage)
    transaction = prepare(desk)
    desk.deps.admin.delete_topic(desk.topic)
    assert decide(desk.deps, transaction, COMMIT) == "TOPIC_NOT_FOUND"
    again, _ = desk.deps.admin.put_topic(desk.topic.name, {"shards": 1})
    assert again.uid != desk.topic.uid
    assert decide(desk.deps, transaction, COMMIT) == "TOPIC_NOT_FOUND"
    assert isinstance(decide(desk.deps, transaction, ROLLBACK), Transaction)


# Time and dedup ids


def test_i9_a_delay_counts_from_the_commit(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    now_ms = stage.clock.now_ms()
    draft = make.draft("x", due_ms=now_ms + 30_000, expires_ms=now_ms + 40_000)
    transaction = prepare(desk, draft, floats=True)
    stage.clock.advance(20 * SECOND_MS)
    done = decide(desk.deps, transaction, COMMIT)
    assert isinstance(done, Transaction)
    assert (done.due_ms, done.offset) == (now_ms + 50_000, None)
    found = desk.deps.lookup.find(desk.topic, transaction.message_id)
    assert isinstance(found, Waiting)
    assert found.timer.draft is not None
    assert found.timer.draft.expires_ms == now_ms + 60_000
    stage.clock.advance(30 * SECOND_MS - 1)
    assert desk.receive(group) == []
    stage.clock.advance(1)
    (got,) = desk.receive(group)
    assert got.message.id == transaction.message_id
    assert desk.deps.lookup.message(desk.topic, transaction.message_id).offset == 0


def test_i9_a_time_that_the_producer_named_holds_and_one_that_is_past_means_now(stage: Stage) -> None:
    desk = Desk.at(stage)
    now_ms = stage.clock.now_ms()
    early, late = (prepare(desk, make.draft("x", due_ms=now_ms + ms)) for ms in (10_000, 90_000))
    stage.clock.advance(20 * SECOND_MS)
    done = decide(desk.deps, early, COMMIT)
    assert isinstance(done, Transaction)
    assert (done.due_ms, done.offset) == (None, 0)
    done = decide(desk.deps, late, COMMIT)
    assert isinstance(done, Transaction)
    assert (done.due_ms, done.offset) == (now_ms + 90_000, None)


def test_what_is_committed_for_later_can_be_changed_and_cancelled_by_its_id(stage: Stage) -> None:
    desk = Desk.at(stage)
    transaction = prepare(desk, make.draft("x", due_ms=stage.clock.now_ms() + 30_000), floats=True)
    decide(desk.deps, transaction, COMMIT)
    delayed = desk.deps.delayed

    def waiting() -> Waiting:
        found = desk.deps.lookup.find(desk.topic, transaction.message_id)
        assert isinstance(found, Waiting)
        return found

    delayed.amend(desk.topic, waiting(), {"due_ms": stage.clock.now_ms() + DAY_MS, "body": b'"y"'})
    assert waiting().timer.due_ms == stage.clock.now_ms() + DAY_MS
    delayed.cancel(desk.topic, waiting())
    assert waiting().cancelled


def test_i3_fifty_racing_twins_are_one_transaction(stage: Stage) -> None:
    desk = Desk.at(stage)
    others = [stage.process() for _ in range(4)]
    draft = make.draft("order", dedup_id="order-1")

    def twin(n: int) -> tuple[Transaction, bool]:
        return others[n % 4].transactor.prepare(desk.topic, draft, ASKED)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(twin, range(50)))
    assert len({transaction.id for transaction, _ in made}) == 1
    assert [created for _, created in made].count(True) == 1
    decide(desk.deps, made[0][0], COMMIT)
    again, created = desk.deps.transactor.prepare(desk.topic, draft, ASKED)
    assert (again.state, again.offset, created) == (TransactionState.COMMITTED, 0, False)
    with pytest.raises(Conflict, match="DEDUP_MISMATCH"):
        prepare(desk, make.draft("other", dedup_id="order-1"))
    (plain,) = desk.deps.producer.produce(desk.topic, [draft])
    assert isinstance(plain, Conflict), "to produce is another thing than to prepare"
    assert len(desk.rows()) == 1


def test_i3_a_decided_transaction_is_remembered_as_long_as_its_dedup_id(stage: Stage) -> None:
    desk = Desk.at(stage, retention_days=1, dedup_window_seconds=3 * 86_400)
    draft = make.draft("order", dedup_id="order-1")
    transaction = prepare(desk, draft)
    decide(desk.deps, transaction, ROLLBACK)
    stage.clock.advance(2 * DAY_MS)
    stage.drop_expired()
    assert prepare(desk, draft).id == transaction.id
    stage.clock.advance(2 * DAY_MS)
    stage.drop_expired()
    with pytest.raises(NotFound):
        held(desk, transaction)


def test_an_undecided_one_is_never_forgotten(stage: Stage) -> None:
    desk = Desk.at(stage, retention_days=1)
    transaction = prepare(desk)
    stage.clock.advance(400 * DAY_MS)
    stage.drop_expired()
    assert isinstance(decide(desk.deps, transaction, COMMIT), Transaction)


# Lists


def test_the_next_format_is_listed_by_its_own_release_only() -> None:
    """The index does not tell formats apart, so its partitions do."""
    assert state_home("uid", "PREPARED", "1") == "uid#PREPARED" == state_home("uid", "PREPARED")
    assert state_home("uid", "PREPARED", "2") == "uid#PREPARED#2"


def test_lists_by_state_page_by_page(stage: Stage) -> None:
    desk, other = Desk.at(stage), Desk.at(stage)
    prepare(other)
    made = []
    for _ in range(7):
        stage.clock.advance(1)
        made.append(prepare(desk))
    decide(desk.deps, made[2], COMMIT)
    decide(desk.deps, made[4], ROLLBACK)

    def listed(state: TransactionState, limit: int = 200) -> list[str]:
        found: list[Transaction] = []
        while page := desk.deps.transactor.listed(
            desk.topic, state, found[-1].mark if found else None, limit
        ):
            assert len(page) <= limit
            found += page
        return [transaction.id for transaction in found]

    assert listed(TransactionState.PREPARED, 2) == [made[n].id for n in (0, 1, 3, 5, 6)]
    assert listed(TransactionState.COMMITTED) == [made[2].id]
    assert listed(TransactionState.ROLLED_BACK) == [made[4].id]
    assert listed(TransactionState.UNDECIDED) == []
    (shown,) = desk.deps.transactor.listed(desk.topic, TransactionState.COMMITTED, None, 9)
    assert shown == replace(held(desk, made[2]), keys_until_s=0)


# Check-backs


def asked(desk: PushDesk, transaction: Transaction) -> list[int]:
    """How many seconds after its preparation each check came."""
    return [
        (at_ms - transaction.prepared_ms) // 1000
        for at_ms, id in desk.subscribers.asked
        if id == transaction.id
    ]


def later(desk: PushDesk, transaction: Transaction, seconds: int, step: int = 10) -> None:
    """Time passes; the movers run every `step` seconds, and what they start."""
    end_ms = desk.stage.clock.now_ms() + seconds * SECOND_MS
    while desk.stage.clock.now_ms() < end_ms:
        desk.stage.clock.advance(min(step * SECOND_MS, end_ms - desk.stage.clock.now_ms()))
        desk.deps.mover.tick([fragment_of(transaction.id)])
        desk.run()


def test_i13_fifteen_checks_one_a_minute_then_the_undecided_list(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    later(desk, transaction, 59)
    assert asked(desk, transaction) == []
    later(desk, transaction, 1)
    later(desk, transaction, 20 * 60, step=30)
    assert asked(desk, transaction) == [60 * n for n in range(1, MAX_CHECKS + 1)]
    after = held(desk, transaction)
    assert (after.state, after.checks, after.last_answer) == (
        TransactionState.UNDECIDED,
        MAX_CHECKS,
        "unknown",
    )
    (shown,) = desk.deps.transactor.listed(desk.topic, TransactionState.UNDECIDED, None, 9)
    assert (shown.id, shown.checks) == (transaction.id, MAX_CHECKS)
    assert timers_of(desk, transaction.id) == []
    assert desk.rows() == []
    done = decide(desk.deps, transaction, COMMIT)
    assert isinstance(done, Transaction)
    assert len(desk.rows()) == 1


def test_without_a_check_url_it_is_undecided_after_as_long_and_nobody_is_asked(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk, checks=Checks(None, 10))
    later(desk, transaction, 149)
    assert held(desk, transaction).state is TransactionState.PREPARED
    later(desk, transaction, 1)
    assert (held(desk, transaction).state, held(desk, transaction).checks) == (TransactionState.UNDECIDED, 0)
    assert asked(desk, transaction) == []
    assert timers_of(desk, transaction.id) == []


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_i13_the_producers_answer_decides_and_ends_the_checks(
    stage: Stage, decision: TransactionState
) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscribers.producer = lambda t: CheckAnswer(decision if t.checks == 2 else None, "HTTP 500")
    transaction = prepare(desk)
    later(desk, transaction, 600)
    assert asked(desk, transaction) == [60, 120, 180]
    after = held(desk, transaction)
    assert (after.state, after.checks) == (decision, 3)
    assert timers_of(desk, transaction.id) == []
    assert len(desk.receive(group)) == (decision is COMMIT)


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_i13_nobody_is_asked_after_a_decision(stage: Stage, decision: TransactionState) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    later(desk, transaction, 70)
    decide(desk.deps, transaction, decision)
    assert timers_of(desk, transaction.id) == []
    later(desk, transaction, 300)
    assert asked(desk, transaction) == [60]


def test_i13_an_answer_that_comes_too_late_changes_nothing(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)

    def answer(of: Transaction) -> CheckAnswer:
        assert isinstance(decide(stage.process(), of, ROLLBACK), Transaction)
        return CheckAnswer(COMMIT, "commit")

    desk.subscribers.producer = answer
    later(desk, transaction, 200)
    assert asked(desk, transaction) == [60]
    assert held(desk, transaction).state is TransactionState.ROLLED_BACK
    assert desk.rows() == []


def test_i13_a_check_handed_over_many_times_is_one_call(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    stage.clock.advance(61 * SECOND_MS)
    check = Check(transaction.id, transaction.prepared_ms + 120_000)
    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(lambda _: desk.deps.checker.check([check], lambda: 60.0), range(16)))
    assert sum(end["unknown"] for end in ends) == 1
    assert len(desk.subscribers.asked) == 1
    assert held(desk, transaction).checks == 1


def test_i13_a_check_that_was_lost_is_made_by_the_next_timer_and_does_not_count(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    stage.clock.advance(60 * SECOND_MS)
    desk.deps.mover.tick([fragment_of(transaction.id)])
    handed_over = [
        check for function, event in desk.inbox.asked if function == "check" for check in event["checks"]
    ]
    assert [transaction.id, transaction.prepared_ms + 120_000] in handed_over
    desk.inbox.asked.clear()
    later(desk, transaction, 60)
    assert asked(desk, transaction) == [120]
    assert held(desk, transaction).checks == 1


def test_i13_movers_that_come_late_make_up_for_nothing(stage: Stage) -> None:
    """After an hour's outage a producer is not asked many times at once."""
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    stage.clock.advance(3_610 * SECOND_MS)
    later(desk, transaction, 130)
    assert asked(desk, transaction) == [3_620, 3_660, 3_720]
    assert held(desk, transaction).checks == 3


def test_a_mover_that_dies_half_way_leaves_one_timer_in_the_end(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    first = check_timer(transaction)
    later(desk, transaction, 60)
    stage.adapters.timers.file([first])  # as if it had died before it dropped it
    later(desk, transaction, 60)
    assert asked(desk, transaction) == [60, 120]
    assert timers_of(desk, transaction.id) == [transaction.prepared_ms + 180_000]


def test_a_timer_left_behind_a_decision_goes_with_its_next_check(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    decide(desk.deps, transaction, COMMIT)
    stage.adapters.timers.file([check_timer(transaction)])
    later(desk, transaction, 61)
    assert timers_of(desk, transaction.id) == []
    assert asked(desk, transaction) == []


def test_i19_no_check_is_begun_that_could_not_end_in_time(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    check = Check(transaction.id, transaction.prepared_ms + 120_000)
    assert desk.deps.checker.check([check], lambda: 5.0) == {"postponed": 1}
    assert asked(desk, transaction) == []
    assert held(desk, transaction) == transaction


def test_a_deleted_topics_transactions_are_rolled_back_by_their_checks(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    desk.deps.admin.delete_topic(desk.topic)
    later(desk, transaction, 130)
    assert asked(desk, transaction) == []
    assert held(desk, transaction).state is TransactionState.ROLLED_BACK
    assert timers_of(desk, transaction.id) == []


def test_i12_a_decider_and_a_checker_race_to_one_end(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    desk.subscribers.producer = lambda _: CheckAnswer(COMMIT, "commit")
    made = [prepare(desk) for _ in range(12)]
    next_ms = made[0].prepared_ms + 120_000

    def work(n: int) -> object:
        if n % 2:
            return decide(stage.process(), made[n // 2], ROLLBACK)
        return desk.deps.checker.check([Check(made[n // 2].id, next_ms)], lambda: 60.0)

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(work, range(24)))
    committed = 0
    for n, transaction in enumerate(made):
        after = held(desk, transaction)
        committed += after.state is COMMIT
        told = ends[2 * n + 1]
        assert told == "TRANSACTION_DECIDED" if after.state is COMMIT else isinstance(told, Transaction)
        assert after.checks <= 1
    assert sum(row.count for row in desk.rows()) == committed


# The port


def test_a_change_of_what_was_changed_meanwhile_is_refused_with_all_it_brings(stage: Stage) -> None:
    desk = Desk.at(stage)
    transaction = prepare(desk)
    port = stage.adapters.transactions
    assert port.change(transaction, replace(transaction, checks=1))
    timer = make.timer(fragment=1)
    assert not port.change(transaction, replace(transaction, checks=2), [timer], [check_timer(transaction)])
    assert held(desk, transaction).checks == 1
    assert stage.adapters.timers.find(timer.due_ms, timer.id) is None
    assert timers_of(desk, transaction.id) == [transaction.check_ms]


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
        decided_ms=stage.clock.now_ms(),
    )
    port = stage.adapters.transactions
    for told in (full, replace(prepare(desk), id=full.id)):
        port.prepare(told)
        assert port.get(full.id) == told
    stage.adapters.timers.drop([check_timer(full)])


def kinds(desk: Desk, ids: Iterable[str]) -> set[TimerKind]:
    timers = desk.stage.adapters.timers
    return {
        t.kind
        for f in range(FRAGMENTS)
        for t in timers.look(f, 10**15 - 2, 10_000).timers
        if t.id in set(ids)
    }


def test_many_are_committed_each_where_it_says(stage: Stage) -> None:
    """Places are the draft's own, also where several of a segment are transactions."""
    desk = Desk.at(stage)
    made = [prepare(desk, make.draft(n)) for n in range(5)]
    moves = [(t, t.draft) for t in made if t.draft]
    places = desk.deps.producer.move(desk.topic, moves)
    assert [p.offset for p in places if p] == [0, 1, 2, 3, 4]
    assert [held(desk, t).offset for t in made] == [0, 1, 2, 3, 4]
    assert desk.deps.producer.move(desk.topic, moves) == [None] * 5
    assert kinds(desk, [t.id for t in made]) == set()
    group = desk.group()
    assert offsets(desk.receive(group)) == [0, 1, 2, 3, 4]
