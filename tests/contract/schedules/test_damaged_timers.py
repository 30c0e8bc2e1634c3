"""A timer's row that cannot be read, or not yet, costs what it held: the others go in time, and somebody is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from chalicelib.adapters import Nobody
from chalicelib.domain.errors import Conflict
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.message import DeadReason
from chalicelib.domain.timer import Timer, TimerKind
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.transaction import TransactionState
from chalicelib.scheduler.mover_run import MoveReport
from chalicelib.services.consume.settle import Nack
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from chalicelib.store import timers as store
from chalicelib.store.attributes import Item
from chalicelib.store.layout import timer_key
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.damage import NEWER, Change, _change, having, without
from tests.support.desk import Desk
from tests.support.stages import Stage, dynamo_stage, embedded_stage

DAMAGES: dict[str, Change] = {
    "no known kind": having("k", {"S": "sweepstake"}),
    "a kind of numbers": having("k", {"N": "7"}),
    "no kind": without("k"),
    "not compressed": having("m", {"B": b"\x00\xff damaged"}),
    "no JSON": having("m", {"S": '[{"b":'}),
    "nothing": without("m"),
    "two messages": having("m", {"S": '[{"b":1},{"b":2}]'}),
}
NOWHERE: dict[str, Change] = {
    "no shard": without("s"),
    "a shard of words": having("s", {"S": "orders"}),
    "a shard of numbers": having("s", {"N": "1"}),
}
ANYWAY: dict[str, Change] = {
    "no days": without("d"),
    "days of words": having("d", {"S": "seven"}),
    "no filing": having("a", {"S": "yesterday"}),
    "an edition of words": having("e", {"S": "first"}),
}


@pytest.fixture(scope="module")
def own(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return dynamo_stage(f"hr-{uuid4().hex[:8]}", tmp_path_factory.mktemp("data"))


@pytest.fixture
def stage(own: Stage) -> Stage:
    """A stage of its own: what is in its fragments is ours."""
    own.clear()
    own.clock.at_ms = START_MS
    return own


def change_timer(stage: Stage, due_ms: int, timer_id: str, change: Change) -> None:
    """Change a stored timer behind every process's back."""
    timers: Any = stage.adapters.timers
    _change(timers._dynamo, timers._table, timer_key(due_ms, timer_id), change)


def later(desk: Desk, count: int, **settings: Any) -> tuple[list[str], int]:
    due_ms = desk.stage.clock.now_ms() + SECOND_MS
    return [
        p.id for p in desk.produce(*(make.draft(n, due_ms=due_ms, **settings) for n in range(count)))
    ], due_ms


def move(desk: Desk) -> MoveReport:
    desk.stage.clock.advance(SECOND_MS)
    return desk.deps.mover.tick(range(FRAGMENTS))


def row_aside(stage: Stage) -> list[Item]:
    timers: Any = stage.adapters.timers
    return list(
        timers._dynamo.query(
            TableName=timers._table,
            KeyConditionExpression="f = :f",
            ExpressionAttributeValues={":f": {"S": "aside"}},
        )
    )


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_message_becomes_a_dead_letter_of_every_group(stage: Stage, damage: Change) -> None:
    desk = Desk.at(stage, shards=1)
    groups = [desk.group("billing"), desk.group("mail")]
    ids, due_ms = later(desk, 12)
    change_timer(stage, due_ms, ids[4], damage)
    assert move(desk).refused == 0
    is_readable = damage in (DAMAGES["no known kind"], DAMAGES["a kind of numbers"], DAMAGES["no kind"])
    for group in groups:
        messages = desk.receive(group, 100)
        letters = [letter for _, letter in desk.deps.adapters.records.dead(desk.topic, group, None, 100)]
        bad = [] if is_readable else [ids[4]]  # its id tells what it is for
        assert [d.message.id for d in messages] == [id for id in ids if id not in bad]
        assert [(letter.message.id, letter.reason) for letter in letters] == [
            (id, DeadReason.UNDECODABLE) for id in bad
        ]


def test_a_damaged_message_cannot_be_edited_but_hurried_and_cancelled(stage: Stage) -> None:
    """An edit would be answered, and its body never delivered."""
    desk = Desk.at(stage)
    (id, other), due_ms = later(desk, 2)
    for each in (id, other):
        change_timer(stage, due_ms, each, DAMAGES["no JSON"])

    def waiting(id: str) -> DelayedMessage:
        message = desk.deps.lookup.find(desk.topic, id)
        assert isinstance(message, DelayedMessage)
        return message

    with pytest.raises(Conflict, match="UNDECODABLE"):
        desk.deps.delayed.amend(desk.topic, waiting(id), {"body": b'"whole"'})
    assert waiting(id).timer.edits == 0
    desk.deps.delayed.amend(desk.topic, waiting(id), {"due_ms": stage.clock.now_ms()})
    desk.deps.delayed.cancel(desk.topic, waiting(other))
    group = desk.group()
    assert desk.receive(group) == []
    ((_, letter),) = stage.adapters.records.dead(desk.topic, group, None, 9)
    assert (letter.message.id, letter.reason) == (id, DeadReason.UNDECODABLE)


@pytest.mark.parametrize("damage", ANYWAY.values(), ids=ANYWAY)
def test_what_it_does_not_need_to_know_holds_up_no_message(stage: Stage, damage: Change) -> None:
    desk = Desk.at(stage, shards=1)
    group = desk.group()
    ids, due_ms = later(desk, 3)
    change_timer(stage, due_ms, ids[1], damage)
    move(desk)
    assert [d.message.id for d in desk.receive(group, 100)] == ids


@pytest.mark.parametrize("damage", NOWHERE.values(), ids=NOWHERE)
def test_what_says_no_place_is_set_aside_and_told(stage: Stage, damage: Change) -> None:
    desk = Desk.at(stage, shards=1)
    group = desk.group()
    ids, due_ms = later(desk, 5)
    change_timer(stage, due_ms, ids[2], damage)
    assert move(desk).set_aside == 1
    assert [d.message.id for d in desk.receive(group, 100)] == [*ids[:2], *ids[3:]]
    assert desk.deps.counters.take()["Undecodable"] == 1
    ((event, fields),) = desk.deps.counters.events()
    assert (event, fields["timer"]) == ("timer set aside", f"{due_ms:015d}#{ids[2]}")
    (row,) = row_aside(stage)
    assert row["t"]["S"].startswith("damaged#")
    assert row["m"]
    assert desk.deps.mover.run_once().as_dict()["ticks"] == 0, "it is out of the way"


def test_a_damaged_retry_is_a_dead_letter_of_its_message(stage: Stage) -> None:
    desk = Desk.at(stage, shards=1)
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    desk.nack(group, desk.receive(group), Nack(delay_ms=5 * SECOND_MS))
    (timer,) = [t for f in range(FRAGMENTS) for t in stage.adapters.timers.first_due(f, 10**14, 9).timers]
    change_timer(stage, timer.due_ms, timer.id, having("m", {"S": "?"}))
    stage.clock.advance(5 * SECOND_MS)
    assert desk.receive(group) == []
    ((_, letter),) = desk.deps.adapters.records.dead(desk.topic, group, None, 9)
    assert (letter.message.id, letter.offset, letter.reason) == (
        result.id,
        result.offset,
        DeadReason.UNDECODABLE,
    )


def test_a_damaged_check_asks_nevertheless(stage: Stage) -> None:
    desk = Desk.at(stage, shards=1)
    transaction, _ = desk.deps.transactor.prepare(desk.topic, make.draft("x"), Checks(after_seconds=5))
    for damage in (without("k"), having("y", {"S": "often"})):
        change_timer(stage, transaction.check_ms, transaction.id, damage)
    stage.clock.at_ms = transaction.check_ms
    assert desk.deps.mover.tick(range(FRAGMENTS)).checked == 1
    desk.deps.transactor.decide(transaction, TransactionState.ROLLED_BACK)


def test_what_a_later_release_wrote_waits_for_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk.at(stage, shards=1)
    group = desk.group()
    ids, due_ms = later(desk, 300)  # more than one look holds
    newer = ids[:260]
    for id in newer:
        change_timer(stage, due_ms, id, NEWER)
    with pytest.raises(Conflict, match="NEWER_FORMAT"):
        desk.deps.lookup.find(desk.topic, ids[0])
    assert desk.deps.lookup.find(desk.topic, ids[299])
    assert move(desk).moved == 40
    move(desk)
    assert len(row_aside(stage)) == 260
    assert [d.message.id for d in desk.receive(group, 1_000)] == ids[260:]
    assert desk.deps.mover.run_once().ticks == 0, "nothing spins"
    monkeypatch.setattr(store, "FORMAT", "2")
    monkeypatch.setattr(store, "is_newer", lambda item: False)
    while stage.process().mover.run_once().moved:
        pass
    assert sorted(d.message.id for d in desk.receive(group, 1_000)) == sorted(newer)
    assert row_aside(stage) == []


def test_a_list_of_what_waits_leaves_out_what_only_a_later_release_reads(stage: Stage) -> None:
    desk = Desk.at(stage, shards=1)
    ids, due_ms = later(desk, 3)
    change_timer(stage, due_ms, ids[1], NEWER)
    timers = [t for f in range(FRAGMENTS) for t in stage.adapters.timers.behind(f, f"{due_ms:015d}#", 9)]
    assert {t.kind for t in timers if t.id == ids[1]} == {TimerKind.NEWER}


@pytest.mark.parametrize("damage", [NEWER, NOWHERE["no shard"]], ids=["newer", "damaged"])
def test_what_lies_in_a_fragment_that_is_not_its_ids_is_set_aside_from_there(
    stage: Stage, damage: Change
) -> None:
    desk = Desk.at(stage, shards=1)
    _, due_ms = later(desk, 1)
    (timer,) = [t for f in range(FRAGMENTS) for t in stage.adapters.timers.first_due(f, due_ms, 9).timers]
    elsewhere = str((timer.fragment + 1) % FRAGMENTS)
    timers: Any = stage.adapters.timers
    row = {**store._item(timer), "f": {"S": elsewhere}}
    timers._dynamo.call("put_item", TableName=timers._table, Item=damage(row))
    timers.drop([timer])
    assert move(desk).set_aside == 1
    (row,) = row_aside(stage)
    assert row["t"]["S"].split("#")[1] == elsewhere
    assert desk.deps.mover.run_once().as_dict()["ticks"] == 0, "it is out of the way"


def test_a_mover_that_outlived_its_release_leaves_the_fragment_to_a_fresh_one() -> None:
    stage = embedded_stage()
    fragments: list[Any] = []

    class Invoker(Nobody):
        def invoke(self, function: str, event: Any) -> None:
            fragments.append(event["detail"]["fragments"])

    deps = Deps(replace(stage.another(), invoker=Invoker()))
    now_ms = stage.clock.now_ms()
    newer = Timer(now_ms + 30 * SECOND_MS, "newer", TimerKind.NEWER, make.shard())
    stage.adapters.timers.store([newer])
    report = deps.mover.run_once()
    assert (report.set_aside, fragments) == (0, [[newer.fragment]])
    assert deps.mover.run_once(fragments=fragments[0]).set_aside == 1, (
        "there is no later release: it was rolled back"
    )
    assert stage.adapters.timers.next_ms(newer.fragment) is None
