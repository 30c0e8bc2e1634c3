"""Producers of undecided transactions are asked for their decision, once a minute and at most fifteen times."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chalicelib import functions
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.limits import MAX_CHECKS
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.domain.transaction import CheckAnswer, Transaction, TransactionState, check_timer
from chalicelib.services.produce.check_back import Check
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.layout import fragment_of
from chalicelib.store.transactions import Transactions
from chalicelib.wiring import Deps
from tests.support.push import PushDesk
from tests.support.stages import Stage
from tests.support.transacting import COMMIT, ROLLBACK, URL, decide, prepare, reread, timers_of
from tests.support.troubled import Troubled

MINUTE = SimpleNamespace(get_remaining_time_in_millis=lambda: 60_000)


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
        desk.deps.mover.run_once(fragments=[fragment_of(transaction.id)])
        desk.run()


def first_of(transaction: Transaction) -> Check:
    """Its first check."""
    return Check(transaction.id, transaction.check_ms + transaction.check_after_ms)


def troubled_by(desk: PushDesk, refuses: Callable[..., bool], *, after: bool = False) -> Deps:
    """A process whose table of transactions refuses some calls, or (`after`) loses their answers."""
    troubled = cast(Transactions, Troubled(desk.deps.adapters.transactions, refuses, after=after))
    return Deps(replace(desk.deps.adapters, transactions=troubled))


def test_i13_fifteen_checks_one_a_minute_then_the_undecided_list(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    later(desk, transaction, 59)
    assert asked(desk, transaction) == []
    later(desk, transaction, 1)
    later(desk, transaction, 20 * 60, step=30)
    assert asked(desk, transaction) == [60 * n for n in range(1, MAX_CHECKS + 1)]
    after = reread(desk, transaction)
    assert (after.state, after.checks, after.last_answer) == (
        TransactionState.UNDECIDED,
        MAX_CHECKS,
        "unknown",
    )
    (listed_transaction,) = desk.deps.adapters.transactions.of_state(
        desk.topic, TransactionState.UNDECIDED, None, 9
    )
    assert (listed_transaction.id, listed_transaction.checks) == (transaction.id, MAX_CHECKS)
    assert timers_of(desk, transaction.id) == []
    assert desk.rows() == []
    decision = decide(desk.deps, transaction, COMMIT)
    assert isinstance(decision, Transaction)
    assert len(desk.rows()) == 1


def test_without_a_check_url_it_is_undecided_after_as_long_and_nobody_is_asked(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk, checks=Checks(None, 10))
    later(desk, transaction, 149)
    assert reread(desk, transaction).state is TransactionState.PREPARED
    later(desk, transaction, 1)
    assert (reread(desk, transaction).state, reread(desk, transaction).checks) == (
        TransactionState.UNDECIDED,
        0,
    )
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
    after = reread(desk, transaction)
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
    assert reread(desk, transaction).state is TransactionState.ROLLED_BACK
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
    assert reread(desk, transaction).checks == 1


@pytest.mark.parametrize(
    ("after_seconds", "late_ms", "most_seconds"),
    [
        (2, 0, 1.8),
        (2, 500, 1.35),
        (2, 1_900, 0.9),
        (2, -9_000, 1.8),
        (1, 0, 0.9),
        (11, 0, 9.9),
        (12, 0, 10),
        (60, 0, 10),
    ],
)
def test_a_check_ends_before_the_next_one_begins_unless_it_began_late(
    stage: Stage, after_seconds: int, late_ms: int, most_seconds: float
) -> None:
    """The next one has to know that this one was made: its number says how many were."""
    desk = PushDesk.at(stage)
    transaction = prepare(desk, checks=Checks("https://bank.example.com/check", after_seconds))
    due_ms = transaction.prepared_ms + after_seconds * SECOND_MS
    stage.clock.advance(due_ms + late_ms - stage.clock.now_ms())
    desk.deps.checker.check([Check(transaction.id, due_ms + after_seconds * SECOND_MS)], lambda: 60.0)
    assert desk.subscribers.patience_seconds == [pytest.approx(most_seconds)]


@pytest.mark.parametrize("refused", ["get", "change"])
def test_i13_a_check_for_which_the_store_does_not_answer_is_made_by_lambdas_next_attempt(
    stage: Stage, refused: str
) -> None:
    """The next timer may be a day away. Those that were asked are not asked again."""
    desk = PushDesk.at(stage)
    transactions = [prepare(desk, checks=Checks("https://bank.example.com/check", 86_400)) for _ in range(3)]
    away = transactions[1].id
    answers = iter([True])

    def refuses(name: str, *call: Any) -> bool:
        return name == refused and (call[0] == away or call[0] == transactions[1]) and next(answers, False)

    deps = troubled_by(desk, refuses)
    stage.clock.advance(DAY_MS)
    event = {"checks": [[each.id, each.prepared_ms + 2 * DAY_MS] for each in transactions]}
    with pytest.raises(Unavailable):
        functions.check(event, MINUTE, deps)
    assert {id for _, id in desk.subscribers.asked} == {transactions[0].id, transactions[2].id}
    assert functions.check(event, MINUTE, deps) == {"repeated": 2, "unknown": 1}
    assert [reread(desk, each).checks for each in transactions] == [1, 1, 1]


@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "answer lost"])
@pytest.mark.parametrize("refused", ["get", "change"])
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK, None])
def test_i13_what_a_producer_said_outlasts_a_throttled_store(
    stage: Stage, decision: TransactionState | None, refused: str, is_done: bool
) -> None:
    """The next check would come with the next timer, which may be a day away."""
    desk = PushDesk.at(stage)
    desk.subscribers.producer = lambda _: CheckAnswer(decision, "said")
    transaction = prepare(desk, checks=Checks("https://bank.example.com/check", 86_400))
    answers = iter([True] * 3)

    def refuses(name: str, *_: Any) -> bool:
        return name == refused and bool(desk.subscribers.asked) and next(answers, False)

    deps = troubled_by(desk, refuses, after=is_done)
    stage.clock.advance(DAY_MS)
    assert deps.checker.check([first_of(transaction)], lambda: 60.0) == {decision or "unknown": 1}
    after = reread(desk, transaction)
    assert (after.state, after.checks, after.last_answer) == (decision or transaction.state, 1, "said")
    assert len(desk.subscribers.asked) == 1


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK, None])
@pytest.mark.parametrize("lost", ["that it began", "its answer"])
def test_i13_a_check_that_the_store_lost_is_made_again_by_lambdas_next_attempt(
    stage: Stage, lost: str, decision: TransactionState | None
) -> None:
    """The next timer may be a day away."""
    desk = PushDesk.at(stage)
    desk.subscribers.producer = lambda _: CheckAnswer(decision, "said")
    transaction = prepare(desk, checks=Checks(URL, 86_400))
    is_answered = lost == "its answer"

    def refuses(name: str, *_: Any) -> bool:
        return name == "change" if not is_answered else bool(desk.subscribers.asked)

    stage.clock.advance(DAY_MS)
    event = {"checks": [[transaction.id, first_of(transaction).next_ms]]}
    with pytest.raises(Unavailable):
        functions.check(event, MINUTE, troubled_by(desk, refuses, after=not is_answered))
    assert len(desk.subscribers.asked) == is_answered
    stage.clock.advance(60 * SECOND_MS)
    assert functions.check(event, MINUTE, desk.deps) == {decision or "unknown": 1}
    after = reread(desk, transaction)
    assert (after.state, after.checks, after.last_answer) == (decision or transaction.state, 1, "said")


@pytest.mark.parametrize("is_lost", [False, True], ids=["answered late", "answer lost"])
def test_i13_a_call_is_counted_once_although_the_next_check_began_meanwhile(
    stage: Stage, is_lost: bool
) -> None:
    """By clocks that differ, it begins before the answer to the one before is stored."""
    desk = PushDesk.at(stage)
    transaction = prepare(desk, checks=Checks(URL, 600))
    first = first_of(transaction)
    second = Check(first.transaction_id, first.next_ms + 600_000)

    losses = iter([is_lost])

    def loses(name: str, *_: Any) -> bool:
        is_answered = len(desk.subscribers.asked) == 1
        is_lost_now = is_answered and name == "change" and next(losses, False)
        if is_answered and name == "get" and reread(desk, transaction).checks == is_lost:
            assert desk.deps.checker.check([second], lambda: 60.0) == {"unknown": 1}
        return is_lost_now

    deps = troubled_by(desk, loses, after=True)
    stage.clock.advance(600 * SECOND_MS)
    assert deps.checker.check([first], lambda: 60.0) == {"unknown": 1}
    assert reread(desk, transaction).checks == len(desk.subscribers.asked) == 2


@pytest.mark.parametrize(("after_seconds", "most_ms"), [(86_400, 25_000), (4, 4_000)])
def test_i19_what_the_store_does_not_take_is_given_up_in_time(
    stage: Stage, after_seconds: int, most_ms: int
) -> None:
    """The function's, and that of the next check, which asks again."""
    desk = PushDesk.at(stage)
    transaction = prepare(desk, checks=Checks("https://bank.example.com/check", after_seconds))
    deps = troubled_by(desk, lambda name, *_: name == "get" and bool(desk.subscribers.asked))
    stage.clock.advance(after_seconds * SECOND_MS)
    start_ms = stage.clock.now_ms()
    outcomes = deps.checker.check(
        [first_of(transaction)], lambda: 30 - (stage.clock.now_ms() - start_ms) / 1000
    )
    assert outcomes == {"unavailable": 1}
    assert most_ms / 2 < stage.clock.now_ms() - start_ms <= most_ms


def test_i13_a_check_that_could_not_end_in_time_is_made_by_lambdas_next_attempt(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk, checks=Checks("https://bank.example.com/check", 86_400))
    stage.clock.advance(DAY_MS)
    event = {"checks": [[transaction.id, first_of(transaction).next_ms]]}
    with pytest.raises(Unavailable):
        functions.check(event, SimpleNamespace(get_remaining_time_in_millis=lambda: 5_000), desk.deps)
    assert functions.check(event, MINUTE, desk.deps) == {"unknown": 1}


def test_a_producer_that_is_asked_is_one_check_of_the_metric(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transactions = [prepare(desk) for _ in range(3)]
    checks = [first_of(each) for each in transactions]
    stage.clock.advance(60 * SECOND_MS)
    answers = iter([True])
    deps = troubled_by(desk, lambda name, *_: name == "get" and next(answers, False))
    deps.counters.take()
    assert deps.checker.check(checks, lambda: 60.0) == {"unknown": 2, "unavailable": 1}
    assert deps.counters.take() == {"Checks": 2}
    assert deps.checker.check(checks, lambda: 60.0) == {"unknown": 1, "repeated": 2}
    assert deps.counters.take() == {"Checks": 1}


def test_i13_movers_that_come_late_make_up_for_nothing(stage: Stage) -> None:
    """After an hour's outage a producer is not asked many times at once."""
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    stage.clock.advance(3_610 * SECOND_MS)
    later(desk, transaction, 130)
    assert asked(desk, transaction) == [3_620, 3_660, 3_720]
    assert reread(desk, transaction).checks == 3


def test_a_timer_left_behind_a_decision_goes_with_its_next_check(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    decide(desk.deps, transaction, COMMIT)
    stage.adapters.timers.store([check_timer(transaction)])
    later(desk, transaction, 61)
    assert timers_of(desk, transaction.id) == []
    assert asked(desk, transaction) == []


def test_a_deleted_topics_transactions_are_rolled_back_by_their_checks(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    transaction = prepare(desk)
    desk.deps.admin.delete_topic(desk.topic)
    later(desk, transaction, 130)
    assert asked(desk, transaction) == []
    assert reread(desk, transaction).state is TransactionState.ROLLED_BACK
    assert timers_of(desk, transaction.id) == []


def test_i12_a_decider_and_a_checker_race_to_one_end(stage: Stage) -> None:
    desk = PushDesk.at(stage)
    desk.subscribers.producer = lambda _: CheckAnswer(COMMIT, "commit")
    transactions = [prepare(desk) for _ in range(12)]
    next_ms = transactions[0].prepared_ms + 120_000

    def work(n: int) -> object:
        if n % 2:
            return decide(stage.process(), transactions[n // 2], ROLLBACK)
        return desk.deps.checker.check([Check(transactions[n // 2].id, next_ms)], lambda: 60.0)

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(work, range(24)))
    count = 0
    for n, transaction in enumerate(transactions):
        after = reread(desk, transaction)
        count += after.state is COMMIT
        answer = ends[2 * n + 1]
        assert answer == "TRANSACTION_DECIDED" if after.state is COMMIT else isinstance(answer, Transaction)
        assert after.checks <= 1
    assert sum(row.count for row in desk.rows()) == count
