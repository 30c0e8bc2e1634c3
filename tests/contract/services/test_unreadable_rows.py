"""A row that cannot be read is an error that names the row. Lists skip it, jobs go on with others, and messages
become dead letters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.domain.errors import Conflict, Unreadable
from chalicelib.domain.message import DeadReason
from chalicelib.domain.record import DeadLetter, FailureFilter
from chalicelib.domain.times import DAY_MS, MINUTE_MS, SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.functions import route
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import task_of
from chalicelib.services.inspect.lookup import Filters
from chalicelib.services.inspect.waiting import prepared_in_order, reader
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.attributes import Item
from chalicelib.store.layout import FRAGMENTS
from tests.support import factories as make
from tests.support.damage import Change, Damage, change_control, change_cursor, change_row, having, without
from tests.support.desk import Desk
from tests.support.push import PushDesk
from tests.support.stages import Stage

NEWER = having("v", {"N": "9"})
BROKEN: dict[str, Change] = {"newer": NEWER, "damaged": lambda item: {}}


@pytest.fixture
def stage(empty_stage: Stage) -> Stage:
    return empty_stage


def fresh(desk: Desk) -> Desk:
    """Another process, which has read nothing yet."""
    return Desk(desk.stage, desk.stage.process(), desk.topic)


@pytest.mark.parametrize("damage", [NEWER, without("n"), having("n", {"N": "0"}), without("r"), without("a")])
def test_a_row_of_the_log_is_named_and_waits(stage: Stage, damage: Change) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft("one"))
    desk.produce(make.draft("two"))
    rows = Damage(stage)
    shard = str(desk.topic.shard_key(0))
    rows.change("log", next(row for row in rows.rows("log") if row["o"] == {"N": "0"}), damage)
    with pytest.raises(Unreadable) as caught:
        fresh(desk).receive(group)
    assert (caught.value.table, caught.value.key) == ("log", f"{shard} 0")
    messages = fresh(desk).deps.lookup.newest_first(desk.topic, Filters(), 9, None)[0]
    assert [message.offset for message in messages] == [1], "a list skips it"
    rows.heal()
    assert fresh(desk).drain(group) == [0, 1]


@pytest.mark.parametrize("damage", BROKEN)
def test_a_cursor_is_named_and_stops_its_own_shard(stage: Stage, damage: str) -> None:
    desk = Desk.at(stage, shards=3)
    group = desk.group()
    for shard in range(3):
        desk.produce(make.draft(shard=shard), make.draft(shard=shard))
    first = [delivery for shard in range(3) for delivery in desk.receive(group, 1)]
    assert desk.ack(group, first) == [None] * 3
    key = cursor_key(desk.topic, group, first[0].message.shard)
    change_cursor(stage, key, BROKEN[damage])
    others = fresh(desk)
    assert {d.message.shard for d in others.receive(group)} == {*range(3)} - {key.shard.shard}
    for call in (
        lambda: others.receive(group),
        lambda: others.deps.positions.seek(desk.topic, key, "earliest"),
        lambda: others.deps.surveyor.exact_group(desk.topic, group),
    ):
        with pytest.raises(Unreadable, match=f"{group.uid} {key.shard}"):
            call()


def test_lists_skip_what_cannot_be_read(stage: Stage) -> None:
    desk, other = Desk.at(stage), Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft("one", keys=("k",)), make.draft("two", keys=("k",)))
    desk.nack(group, desk.receive(group), Nack(dead_letter=True))
    due_ms = stage.clock.now_ms() + DAY_MS
    delayed_ids = [each.id for each in desk.produce(*(make.draft(n, due_ms=due_ms) for n in range(2)))]
    checks = Checks()
    halves = [desk.deps.transactor.prepare(desk.topic, make.draft(n), checks) for n in range(2)]
    rows = Damage(stage)

    def one_of(table: str, holds: Callable[[Item], bool]) -> None:
        rows.change(table, next(row for row in rows.rows(table) if holds(row)), NEWER)

    one_of("records", lambda row: str(row["g"]).count("#dead") == 1)
    one_of("timers", lambda row: delayed_ids[0] in str(row["t"]))
    one_of("transactions", lambda row: halves[0][0].id in str(row))
    one_of("control", lambda row: row["sk"] == {"S": other.topic.name})
    deps = fresh(desk).deps
    adapters = deps.adapters
    assert len(deps.letter_lookup.page(desk.topic, group, FailureFilter(), None, 9)[0]) == 1
    waiting = [
        t.id for f in range(FRAGMENTS) for t in adapters.timers.behind(f, "0", 9) if t.id in delayed_ids
    ]
    assert waiting == delayed_ids[1:]
    assert [topic.name for topic in adapters.control.topics(None, 9)] == [desk.topic.name]
    prepared, _ = prepared_in_order(reader(adapters.timers), adapters.transactions, desk.topic, 9, None)
    assert [each.id for each in prepared] == [halves[1][0].id]
    with pytest.raises(Unreadable, match=other.topic.name):
        deps.catalog.topic(other.topic.name)


def two_topics(stage: Stage, **settings: object) -> tuple[PushDesk, PushDesk]:
    """Two topics, each with a message and a group that is called; a group's row of the first cannot be read."""
    desks = PushDesk.at(stage, **settings), PushDesk.at(stage, **settings)
    for desk in desks:
        desk.subscriber(desk.group(), "worker")
        desk.produce(make.draft("one"))
        desk.restart()
    bad, _ = desks
    change_control(stage, f"topic#{bad.topic.uid}", "group#billing", NEWER)
    return desks


def woken(desk: PushDesk) -> set[str]:
    return {task_of(event).topic for function, event in desk.inbox.asked if function == "deliver"}


def test_a_batch_of_the_stream_goes_on(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = two_topics(stage)
    records = [
        {
            "eventName": "INSERT",
            "dynamodb": {"SequenceNumber": "1", "Keys": {"s": {"S": str(t.shard_key(0))}, "o": {"N": "0"}}},
        }
        for t in (bad.topic, good.topic)
    ]
    assert route({"Records": records}, good.deps)["batchItemFailures"] == []
    assert woken(good) == {good.topic.name}
    [line] = [vars(record) for record in caplog.records if record.message == "unreadable"]
    assert (line["table"], line["key"]) == ("control", f"topic#{bad.topic.uid} group#billing")


def test_the_mover_goes_on(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    due_ms = stage.clock.now_ms() + SECOND_MS
    ids = [each.id for each in desk.produce(*(make.draft(n, due_ms=due_ms) for n in range(5)))]
    rows = Damage(stage)
    rows.change("timers", next(row for row in rows.rows("timers") if ids[2] in row["t"]["S"]), without("m"))
    stage.clock.advance(SECOND_MS)
    assert [d.message.id for d in desk.receive(group)] == [*ids[:2], *ids[3:]]
    assert ids[2] in next(vars(r)["key"] for r in caplog.records if r.message == "unreadable")
    assert desk.deps.mover.run_once().finished, "it needs no other run"
    rows.heal()
    assert [d.message.id for d in desk.receive(group)] == [ids[2]]


@pytest.mark.parametrize("job", ["sweeper", "assigner", "watch", "expirer", "checkpointer"])
def test_a_scheduled_job_goes_on(stage: Stage, job: str) -> None:
    bad, good = two_topics(stage, alarm_backlog=5, retention_days=1)
    if job in ("expirer", "checkpointer"):
        stage.clock.advance(DAY_MS + MINUTE_MS)
    report = getattr(good.deps, job).run_once()
    [trouble] = report.stretch.troubles
    assert trouble.topic == bad.topic.name
    assert f"topic#{bad.topic.uid} group#billing" in trouble.detail
    assert report.stretch.topics == 2
    if job == "sweeper":
        assert woken(good) == {good.topic.name}
    if job == "watch":
        assert [backlog.topic for backlog in report.backlogs] == [good.topic.name]
    if job == "expirer":
        assert report.buried == 1


def test_a_job_goes_on_with_the_other_shards(stage: Stage) -> None:
    desk = Desk.at(stage, shards=2, retention_days=1)
    group = desk.group()
    desk.produce(make.draft(shard=0), make.draft(shard=1))
    assert len(desk.receive(group)) == 2
    change_cursor(stage, cursor_key(desk.topic, group, 0), without("x"))
    stage.clock.advance(DAY_MS + MINUTE_MS)
    report = fresh(desk).deps.expirer.run_once()
    assert (report.buried, [trouble.topic for trouble in report.stretch.troubles]) == (1, [desk.topic.name])


DAMAGES: dict[str, Change] = {
    "not compressed": having("m", {"B": b"\x00\xff damaged"}),
    "not JSON": having("m", {"S": '[{"b":1},{"b":'}),
    "no list": having("m", {"S": '{"b":1}'}),
    "empty": having("m", {"S": ""}),
    "no messages": without("m"),
    "one message too few": having("m", {"S": '[{"b":1}]'}),
    "one without a body": having("m", {"S": '[{"b":1},{"p":2}]'}),
    "one with an expiry of words": having("m", {"S": '[{"b":1},{"b":2,"e":"never"}]'}),
}


def damaged(stage: Stage, damage: Change = DAMAGES["not JSON"], **about: object) -> Desk:
    """A topic with three rows of two messages each. The second row, with offsets 2 and 3, cannot be read."""
    desk = Desk.at(stage, **about)
    for number in range(3):
        desk.produce(make.draft(f"first {number}"), make.draft(f"second {number}"))
    change_row(stage, desk.topic.shard_key(0), 2, damage)
    return Desk(stage, stage.process(), desk.topic)


def letters(desk: Desk, group: Group) -> list[DeadLetter]:
    return desk.deps.letter_lookup.page(desk.topic, group, FailureFilter(), None, 100)[0]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_the_messages_of_the_row_become_dead_letters_and_the_others_are_delivered(
    stage: Stage, mode: str, damage: str
) -> None:
    desk = damaged(stage, DAMAGES[damage], mode=mode)
    groups = [desk.group("all"), desk.group("some", tags=("paid",))]
    assert desk.drain(groups[0]) == [0, 1, 4, 5]
    assert desk.drain(groups[1]) == [], "a filter hides no unreadable message"
    for group in groups:
        assert [(x.offset, x.reason) for x in letters(desk, group)] == [
            (2, DeadReason.UNDECODABLE),
            (3, DeadReason.UNDECODABLE),
        ]
    assert desk.deps.counters.take()["Undecodable"] == 4
    places = [place["offset"] for event, place in desk.deps.counters.events() if event == "undecodable"]
    assert places == [2, 3, 2, 3]
    shown = desk.deps.lookup.newest_first(desk.topic, Filters(), 9, None)[0]
    assert [message.offset for message in shown] == [5, 4, 3, 2, 1, 0]


def test_a_dead_letter_is_redriven_once_it_has_a_body(stage: Stage) -> None:
    desk = damaged(stage)
    group = desk.group()
    desk.drain(group)
    letter = letters(desk, group)[0]
    dead_letters, topic = desk.deps.dead_letters, desk.topic
    with pytest.raises(Conflict, match="UNDECODABLE"):
        dead_letters.retry_now(topic, group, letter.message.id)
    assert dead_letters.redrive(topic, group, [letter]) == 0
    edited_letter = dead_letters.edit(topic, group, letter, b'"new"')
    assert dead_letters.redrive(topic, group, [edited_letter]) == 1
    stage.clock.advance(1_000)
    [delivery] = desk.receive(group)
    assert (delivery.message.offset, delivery.message.draft.body) == (2, b'"new"')
    assert desk.ack(group, [delivery]) == [None]
