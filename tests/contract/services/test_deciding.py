"""The effects of a decision, and the groups it wakes: each by itself."""

from __future__ import annotations

import pytest

from chalicelib.domain.timer import Timer
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.core.counters import ACCEPTED
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.layout import FRAGMENTS
from tests.support import factories as make
from tests.support.push import PushDesk
from tests.support.stages import Stage, embedded_stage

COMMIT, ROLLBACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK


@pytest.fixture
def desk() -> PushDesk:
    stage: Stage = embedded_stage()
    return PushDesk.at(stage)


def timers(desk: PushDesk) -> list[Timer]:
    rows = desk.stage.adapters.timers
    return [t for fragment in range(FRAGMENTS) for t in rows.first_due(fragment, 10**14, 99).timers]


def woken(desk: PushDesk) -> list[str]:
    functions = [function for function, _ in desk.inbox.asked]
    desk.inbox.asked.clear()
    return functions


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_only_what_was_committed_is_accepted_and_nobody_is_asked_any_more(
    desk: PushDesk, decision: TransactionState, later: bool
) -> None:
    due_ms = desk.stage.clock.now_ms() + 60 * SECOND_MS if later else None
    transaction, _ = desk.deps.transactor.prepare(desk.topic, make.draft("x", due_ms=due_ms), Checks())
    assert [timer.kind for timer in timers(desk)] == ["check"]
    desk.deps.counters.take()
    woken(desk)
    after = desk.deps.transactor.decide(transaction, decision, by="ann")
    assert desk.deps.counters.take().get(ACCEPTED, 0) == (decision is COMMIT)
    assert [timer.kind for timer in timers(desk)] == (["deliver"] if later and decision is COMMIT else [])
    assert woken(desk) == (["mover"] if later and decision is COMMIT else [])
    if decision is ROLLBACK and after.draft:
        assert [(act.what, act.by) for act in after.draft.acts] == [("CANCELLED", "ann")]


@pytest.mark.parametrize(("after_seconds", "functions"), [(59, ["mover"]), (60, [])])
def test_a_mover_is_woken_for_a_check_that_the_schedule_could_miss(
    desk: PushDesk, after_seconds: int, functions: list[str]
) -> None:
    checks = Checks("https://bank.example.com/check", after_seconds)
    woken(desk)
    desk.deps.transactor.prepare(desk.topic, make.draft("x"), checks)
    assert woken(desk) == functions
    assert [timer.due_ms - desk.stage.clock.now_ms() for timer in timers(desk)] == [after_seconds * 1000]


def test_a_dedup_id_is_remembered_from_when_its_message_is_due(desk: PushDesk) -> None:
    due_ms = desk.stage.clock.now_ms() + 2 * DAY_MS
    draft = make.draft("x", due_ms=due_ms, dedup_id="d")
    first, is_new = desk.deps.transactor.prepare(desk.topic, draft, Checks())
    assert is_new
    desk.stage.clock.at_ms = due_ms + (desk.topic.dedup_window_seconds - 1) * SECOND_MS
    again, is_new = desk.deps.transactor.prepare(desk.topic, draft, Checks())
    assert (again.id, is_new) == (first.id, False)
    desk.stage.clock.advance(SECOND_MS)
    assert desk.deps.transactor.prepare(desk.topic, draft, Checks())[1]
