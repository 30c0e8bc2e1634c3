"""A row that cannot be read costs what it held, and nothing else: neighbours go on, and somebody is told."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from chalicelib.domain.cursor_size import has_room_to_wait
from chalicelib.domain.cursor_transitions import rebuilt_lane
from chalicelib.domain.errors import Conflict, Unavailable
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.message import DeadReason
from chalicelib.domain.record import DeadLetter
from chalicelib.domain.spans import Span
from chalicelib.domain.topic import Group, cursor_key, lane_of
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.consume.claim import Claimant
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.lookup import Filters
from chalicelib.services.manage.dead_letters import Wanted
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.layout import Item
from chalicelib.store.memory import MemoryLog
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.damage import (
    NEWER,
    Change,
    change_control,
    change_cursor,
    change_letter,
    change_record,
    change_row,
    change_transaction,
    having,
    without,
)
from tests.support.desk import Desk, attempts, offsets
from tests.support.stages import Stage, memory_stage

LONG = "x" * 300  # compressed
DEAD_LETTER = Nack(dead_letter=True)
DAMAGES: dict[str, Change] = {
    "not compressed": having("m", {"B": b"\x00\xff damaged"}),
    "not JSON": having("m", {"S": '[{"b":1},{"b":'}),
    "no list": having("m", {"S": '{"b":1}'}),
    "no text": having("m", {"N": "7"}),
    "empty": having("m", {"S": ""}),
    "no messages": without("m"),
    "no count": without("n"),
    "a count of none": having("n", {"N": "0"}),
    "a count of too many": having("n", {"N": "7"}),
    "a count beyond reason": having("n", {"N": "99999999999"}),
    "no request id": without("r"),
    "no time": without("a"),
    "a time of words": having("a", {"S": "yesterday"}),
    "no expiry": without("x"),
    "no known way": having("w", {"S": "?"}),
    "no body": having("m", {"S": '[{"p":1},{"p":2}]'}),
    "no base64": having("m", {"S": '[{"x":"?","j":false},{"x":"?","j":false}]'}),
    "no origin": having("m", {"S": '[{"b":1,"i":[1,2]},{"b":1,"i":[{}]}]'}),
}


@pytest.fixture(scope="module")
def own(make_stage: Callable[[], Stage]) -> Stage:
    """A stage for this file alone: schedules see every topic of a stage."""
    return make_stage()


@pytest.fixture
def stage(own: Stage) -> Stage:
    own.clock.at_ms = START_MS
    return own


def stored(stage: Stage, *bodies: str, **about: object) -> Desk:
    """A topic with three rows of two messages each."""
    desk = Desk.at(stage, **about)
    for number in range(3):
        desk.produce(*(make.draft(f"{body} {number}") for body in bodies or ("first", LONG)))
    return desk


def anew(desk: Desk) -> Desk:
    """Another process, which has read nothing yet."""
    return Desk(desk.stage, desk.stage.process(), desk.topic)


def letters(desk: Desk, group: Group) -> list[DeadLetter]:
    return desk.deps.redriver.page(desk.topic, group, Wanted(), None, 100)[0]


def look_everywhere(desk: Desk, group: Group) -> None:
    """Whatever reads, reads."""
    deps, topic = desk.deps, desk.topic
    for filters in (Filters(), Filters(group=group, status="DEAD"), Filters(from_ms=1)):
        for message in deps.lookup.newest_first(topic, filters, 100, None)[0]:
            deps.lookup.statuses.deliveries(topic, message)
            deps.tracer.path(topic, message)
    deps.lookup.stats([topic])
    deps.redriver.redrive_some(topic, group, Wanted(), 100)
    for where in ("earliest", "latest", 1, f"@{desk.stage.clock.now_ms()}"):
        deps.positions.find(topic, topic.shard_key(0), where)
    for job in (deps.sweeper, deps.expirer, deps.checkpointer, deps.watch):
        job.run_once(lambda: True)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_a_damaged_row_becomes_dead_letters_and_its_neighbours_are_delivered(
    stage: Stage, mode: str, damage: str
) -> None:
    if mode != "queue" and not isinstance(stage.adapters.log, MemoryLog):
        pytest.skip("what a mode makes of a row has nothing to do with its store")
    desk = stored(stage, mode=mode)
    group = desk.group()
    consumer = desk.consumer(group, "c") if mode == "broadcast" else None
    if consumer:
        desk.produce(make.draft("for the broadcast"), make.draft("too"))
    first = 6 if consumer else 2
    if consumer:
        desk.produce(make.draft("the last"), make.draft("one"))
    change_row(stage, desk.topic.shard_key(0), first, DAMAGES[damage])
    reader = anew(desk)
    end = 10 if consumer else 6
    healthy = {*range(end)} - {first, first + 1}
    seen = reader.drain(group, consumer=consumer)
    assert Counter(seen) >= Counter(o for o in healthy if not consumer or o > first)
    assert len(seen) == len(set(seen))
    buried = {letter.offset: letter for letter in letters(reader, group)}
    assert {letter.reason for letter in buried.values()} <= {DeadReason.UNDECODABLE}
    assert first in buried
    assert {*buried} | {*seen} >= {first, first + 1}
    assert not {*buried} & {*seen}
    counts = reader.deps.counters.take()
    assert counts["Undecodable"] == len(buried)
    assert {place["offset"] for event, place in reader.deps.counters.events() if event == "undecodable"} == {
        *buried
    }
    look_everywhere(reader, group)
    assert not reader.receive(group, consumer=consumer), "what cannot be read is not redriven"


def test_of_a_row_with_one_message_that_cannot_be_read_the_others_are_delivered(stage: Stage) -> None:
    desk = stored(stage, "one", "two", "three")
    group = desk.group()
    broken = '[{"b":"one"},{"b":"two","e":"never"},{"b":"three"}]'
    change_row(stage, desk.topic.shard_key(0), 3, having("m", {"S": broken}))
    reader = anew(desk)
    assert reader.drain(group) == [0, 1, 2, 3, 5, 6, 7, 8]
    [letter] = letters(reader, group)
    assert (letter.offset, letter.message.draft.body) == (4, b'{"b":"two","e":"never"}')


def test_every_group_gets_its_letter_whatever_it_filters(stage: Stage) -> None:
    desk = stored(stage)
    groups = [desk.group("all"), desk.group("some", tags=("paid",))]
    change_row(stage, desk.topic.shard_key(0), 2, DAMAGES["not JSON"])
    for group in groups:
        anew(desk).drain(group)
        assert [letter.offset for letter in letters(desk, group)] == [2, 3]


def test_a_large_row_leaves_as_much_as_a_letter_can_hold(stage: Stage) -> None:
    desk = stored(stage)
    group = desk.group()
    change_row(stage, desk.topic.shard_key(0), 2, having("m", {"B": bytes(390_000)}))
    anew(desk).drain(group)
    first, second = letters(desk, group)
    assert len(first.message.draft.body) == 200_000
    assert second.message.draft.body == b""


def test_a_letter_of_what_cannot_be_read_is_redriven_once_it_has_a_body(stage: Stage) -> None:
    desk = stored(stage)
    group = desk.group()
    change_row(stage, desk.topic.shard_key(0), 2, DAMAGES["not JSON"])
    reader = anew(desk)
    reader.drain(group)
    letter = letters(reader, group)[0]
    redriver, topic = reader.deps.redriver, desk.topic
    with pytest.raises(Conflict, match="UNDECODABLE"):
        redriver.try_now(topic, group, letter.message.id)
    assert redriver.redrive(topic, group, [letter]) == 0
    edited = redriver.edit(topic, group, letter, b'"mended"')
    assert redriver.redrive(topic, group, [edited]) == 1
    stage.clock.advance(1_000)
    [delivery] = reader.receive(group)
    assert (delivery.message.offset, delivery.message.draft.body) == (2, b'"mended"')
    assert reader.ack(group, [delivery]) == [None]


def test_what_cannot_be_read_cannot_be_edited_in_the_log_but_its_neighbours_can(stage: Stage) -> None:
    desk = stored(stage, "one", "two")
    desk.group()
    change_row(stage, desk.topic.shard_key(0), 2, having("m", {"S": '[{"b":"one"},{"b":"two","e":"never"}]'}))
    reader = anew(desk)
    good, bad = (
        m for m in reader.deps.lookup.newest_first(desk.topic, Filters(), 9, None)[0] if m.offset in (2, 3)
    )
    if good.offset == 3:
        good, bad = bad, good
    with pytest.raises(Conflict, match="UNDECODABLE"):
        reader.deps.amender.amend(desk.topic, bad, {"body": b"1"})
    assert reader.deps.amender.amend(desk.topic, good, {"body": b"1"}).draft.body == b"1"
    assert anew(desk).deps.lookup.message(desk.topic, bad.id).draft.dead == DeadReason.UNDECODABLE


def test_what_a_later_release_wrote_waits_for_it_and_nothing_is_lost(stage: Stage) -> None:
    desk = Desk.at(stage, shards=2)
    group = desk.group()
    for number in range(3):
        desk.produce(make.draft(f"a{number}", shard=0), make.draft(f"b{number}", shard=1))
    key = desk.topic.shard_key(0)
    change_row(stage, key, 1, NEWER)
    old = anew(desk)
    seen: list[tuple[int, int]] = []
    while deliveries := old.receive(group, 100):
        seen += [(d.message.shard, d.message.offset) for d in deliveries]
        old.ack(group, deliveries)
    assert sorted(seen) == [(0, 0), (1, 0), (1, 1), (1, 2)]
    assert old.deps.counters.take()["NewerFormat"]
    look_everywhere(old, group)
    hidden = desk.rows()[1]
    id = f"{hidden.request_id}-0-1"
    with pytest.raises(Conflict, match="NEWER_FORMAT"):
        old.deps.lookup.message(desk.topic, id)
    assert {m.offset for m in old.deps.lookup.newest_first(desk.topic, Filters(shard=0), 9, None)[0]} == {
        0,
        2,
    }
    assert letters(old, group) == []
    assert old.deps.claimer.bury(Claimant(desk.topic, group, 30), 0, lambda: True) == 0, "not even at its end"
    change_row(stage, key, 1, having("v", {"N": "1"}))
    assert offsets(anew(desk).receive(group, 100)) == [1, 2]


def test_what_a_later_release_gave_back_is_left_to_it(stage: Stage) -> None:
    desk = stored(stage)
    group = desk.group()
    reader = anew(desk)
    leased = reader.receive(group, 100)
    change_row(stage, desk.topic.shard_key(0), 2, NEWER)
    old = anew(desk)
    assert old.nack(group, leased[2:3], DEAD_LETTER) == ["UNAVAILABLE"]
    stage.clock.advance(31_000)
    again = old.receive(group, 100)
    assert offsets(again) == [0, 1, 4, 5]
    assert old.ack(group, again) == [None] * 4
    assert [(span.start, span.count) for span in desk.cursor(group).waiting] == [(2, 2)], "they are owed"
    change_row(stage, desk.topic.shard_key(0), 2, having("v", {"N": "1"}))
    assert anew(desk).drain(group) == [2, 3]


@pytest.mark.engine
@pytest.mark.parametrize("damage", [DAMAGES["not JSON"], without("i"), without("n"), having("q", {"N": "1"})])
def test_a_damaged_letter_is_listed_among_the_others(stage: Stage, damage: Change) -> None:
    on_dynamodb(stage)
    desk = stored(stage)
    group = desk.group()
    got = desk.receive(group, 3)
    desk.nack(group, got, DEAD_LETTER)
    key = cursor_key(desk.topic, group, 0)
    change_letter(stage, key, 1, damage)
    found = letters(desk, group)
    assert [letter.offset for letter in found] == [0, 1, 2]
    assert desk.deps.redriver.redrive_some(desk.topic, group, Wanted(), 100) >= 2
    change_record(stage, key, 1, without("j"))
    record = stage.adapters.records.get(key, 1)
    assert record
    assert record.status == "DEAD"
    look_everywhere(desk, group)


def on_dynamodb(stage: Stage) -> None:
    if isinstance(stage.adapters.log, MemoryLog):
        pytest.skip("in memory these are no rows")


@pytest.mark.engine
@pytest.mark.parametrize("damage", [NEWER, without("x"), without("l"), having("f", {"S": "?"})], ids=range(4))
def test_a_cursor_that_cannot_be_read_stops_its_shard_only(stage: Stage, damage: Change) -> None:
    on_dynamodb(stage)
    desk = Desk.at(stage, shards=2)
    group = desk.group()
    desk.produce(*(make.draft(n, shard=n % 2) for n in range(2)))
    desk.drain(group)
    desk.produce(*(make.draft(n, shard=n % 2) for n in range(4)))
    change_cursor(stage, cursor_key(desk.topic, group, 0), damage)
    reader = anew(desk)
    seen: list[tuple[int, int]] = []
    with contextlib.suppress(Unavailable):
        while deliveries := reader.receive(group, 10):
            seen += [(d.message.shard, d.message.offset) for d in deliveries]
            reader.ack(group, deliveries)
    assert seen == [(1, 1), (1, 2)], "nothing begins again"
    with pytest.raises(Unavailable, match="cannot be read"):
        stage.adapters.cursors.get(cursor_key(desk.topic, group, 0))
    reader.deps.sweeper.run_once(lambda: True)


@pytest.mark.engine
@pytest.mark.parametrize(
    "damage",
    [without("x"), without("e"), having("e", {"S": "?"}), having("l", {"M": {"t": {"S": "?"}}})],
    ids=range(4),
)
def test_a_seek_puts_a_damaged_cursor_right_and_nobody_goes_on_as_before(
    stage: Stage, damage: Change
) -> None:
    on_dynamodb(stage)
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(6))
    assert desk.ack(group, desk.receive(group, 2)) == [None, None]
    held = desk.receive(group, 2)
    behind = anew(desk)
    behind.deps.states.last(cursor_key(desk.topic, group, 0))
    change_cursor(stage, cursor_key(desk.topic, group, 0), damage)
    reader = anew(desk)
    with pytest.raises(Unavailable, match="A seek of the group mends it"):
        reader.receive(group)
    assert reader.seek(group, 2).next == 2
    assert [event for event, _ in reader.deps.counters.events()] == ["cursor rebuilt"]
    assert desk.ack(group, held) == ["RECEIPT_STALE"] * 2
    again = behind.receive(group)
    assert offsets(again) == [2, 3, 4, 5]
    assert attempts(again) == dict.fromkeys(range(2, 6), 1)
    assert reader.receive(group) == []
    assert reader.ack(group, again) == [None] * 4
    assert reader.drain(group) == []


@pytest.mark.engine
def test_a_rebuilt_cursor_gives_what_was_edited_before_as_it_is_now(stage: Stage) -> None:
    on_dynamodb(stage)
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(2))
    behind = anew(desk)
    reader, shard = behind.deps.reader, desk.topic.shard_key(0)
    assert len(reader.fresh(shard, 0, 0, 2, reader.trust(group))) == 2, "it has a copy"
    message = desk.deps.lookup.message(desk.topic, placed[1].id)
    desk.deps.amender.amend(desk.topic, message, {"body": b'"edited"'})
    change_cursor(stage, cursor_key(desk.topic, group, 0), lambda item: without("a")(without("x")(item)))
    anew(desk).seek(group, "earliest")
    assert [d.message.draft.body for d in behind.receive(group)][1] == b'"edited"'


@pytest.mark.engine
def test_a_damaged_cursor_of_a_retry_lane_is_made_anew_of_what_is_retrying(stage: Stage) -> None:
    on_dynamodb(stage)
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    desk.produce(*make.drafts(6))
    desk.nack(group, desk.receive(group), Nack(delay_ms=1_000))
    stage.clock.advance(1_000)
    again = desk.receive(group, 100)
    assert desk.ack(group, again[:1]) == [None], "this one is done"
    assert desk.nack(group, again[1:3], Nack(delay_ms=60_000)) == [None] * 2, "these wait for their timers"
    lane = cursor_key(desk.topic, group, None)
    change_cursor(stage, lane, without("x"))
    reader = anew(desk)
    with pytest.raises(Unavailable, match="A seek of the group mends it"):
        reader.receive(group)
    reader.deps.positions.mend_lane(desk.topic, group)
    assert [event for event, _ in reader.deps.counters.events()] == ["cursor rebuilt"]
    reader.deps.positions.mend_lane(desk.topic, group)
    got = reader.receive(group, 100)
    _, *put_off = (d.message.offset for d in again[:3])
    assert attempts(got) == dict.fromkeys((d.message.offset for d in again[3:]), 2)
    assert desk.ack(group, again[3:]) == ["RECEIPT_STALE"] * 3
    assert reader.ack(group, got) == [None] * 3
    stage.clock.advance(60_000)
    assert attempts(reader.receive(group)) == dict.fromkeys(put_off, 3)


def test_a_lane_with_more_entries_than_a_cursor_holds_goes_on_with_what_lies_behind() -> None:
    entries = [Span(offset * 1_000, attempt=1 + offset % 7) for offset in range(2_000)]
    cursor = rebuilt_lane(entries, 2_000_000, START_MS)
    assert has_room_to_wait(cursor)
    assert 0 < len(cursor.waiting) < 2_000
    assert cursor.next == entries[len(cursor.waiting)].start
    assert rebuilt_lane([], 7, START_MS).next == 7


@pytest.mark.engine
def test_a_cursor_of_a_later_release_is_left_to_it_also_by_a_seek(stage: Stage) -> None:
    on_dynamodb(stage)
    desk = stored(stage)
    group = desk.group()
    desk.drain(group)
    change_cursor(stage, cursor_key(desk.topic, group, 0), NEWER)
    with pytest.raises(Unavailable, match="later release"):
        anew(desk).seek(group, "earliest")


@pytest.mark.engine
@pytest.mark.parametrize("damage", [NEWER, without("q"), having("m", {"S": "?"})], ids=range(3))
def test_a_transaction_that_cannot_be_read_is_refused_and_the_others_are_listed(
    stage: Stage, damage: Change
) -> None:
    on_dynamodb(stage)
    desk = Desk.at(stage)
    transactor, checks = desk.deps.transactor, Checks("https://example.com", 60)
    made = [transactor.prepare(desk.topic, make.draft(n), checks)[0] for n in range(3)]
    change_transaction(stage, made[1].id, damage)
    with pytest.raises(Unavailable, match="cannot be read"):
        transactor.find(made[1].id)
    listed = {
        transaction.id for transaction in transactor.listed(desk.topic, TransactionState.PREPARED, None, 10)
    }
    assert {made[0].id, made[2].id} <= listed
    assert transactor.decide(made[2], TransactionState.COMMITTED).state is TransactionState.COMMITTED


@pytest.mark.engine
@pytest.mark.parametrize(
    "damage",
    [having("v", {"N": "3"}), having("shards", {"S": "?"}), without("uid"), having("doc", {"S": "{"})],
)
def test_a_topic_that_cannot_be_read_is_left_out_of_the_list_of_all(stage: Stage, damage: Change) -> None:
    on_dynamodb(stage)
    desks = sorted((Desk.at(stage) for _ in range(3)), key=lambda desk: desk.topic.name)
    broken = desks[1].topic.name
    change_control(stage, "topics", broken, damage)
    control = stage.adapters.control
    before = [topic.name for topic in control.topics(None, 1000)]
    assert broken not in before
    assert {desks[0].topic.name, desks[2].topic.name} <= {*before}
    paged: list[str] = []
    while page := control.topics(paged[-1] if paged else None, 1):
        paged += [topic.name for topic in page]
    assert paged == before, "a page is short at the end only"
    with pytest.raises(Unavailable, match="cannot be read"):
        control.topic(broken)
    for job in (desks[0].deps.sweeper, desks[0].deps.expirer, desks[0].deps.checkpointer):
        job.run_once(lambda: True)


def in_lane(stage: Stage, *, edited: bool) -> tuple[Desk, Group]:
    """A desk whose two messages have failed once and are in the retry lane: as references or, edited, whole."""
    desk = Desk.at(stage, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    desk.produce(make.draft("first"), make.draft(LONG))
    desk.nack(group, desk.receive(group), DEAD_LETTER if edited else Nack(delay_ms=1_000))
    redriver = desk.deps.redriver
    if edited:
        edits = [redriver.edit(desk.topic, group, letter, b'"mended"') for letter in letters(desk, group)]
        assert redriver.redrive(desk.topic, group, edits) == 2
    stage.clock.advance(1_000)
    desk.deps.mover.tick(range(FRAGMENTS))
    return desk, group


@pytest.mark.many_calls
@pytest.mark.parametrize("damage", DAMAGES)
def test_i15_a_damaged_entry_of_a_retry_lane_is_tried_where_its_message_stands(
    stage: Stage, damage: str
) -> None:
    desk, group = in_lane(stage, edited=False)
    change_row(stage, lane_of(desk.topic, group).shard_key(0), 0, DAMAGES[damage])
    reader = anew(desk)
    again = reader.receive(group)
    assert attempts(again) == {0: 2, 1: 2}
    assert {d.message.draft.body for d in again} == {b'"first"', f'"{LONG}"'.encode()}
    assert reader.ack(group, again) == [None, None]
    states = reader.deps.lookup.group_status(desk.topic, group).account
    assert (states.success, states.retrying, states.dead) == (2, 0, 0)


@pytest.mark.many_calls
@pytest.mark.parametrize("damage", DAMAGES)
def test_i15_a_damaged_entry_that_held_the_content_is_a_dead_letter_of_its_message(
    stage: Stage, damage: str
) -> None:
    desk, group = in_lane(stage, edited=True)
    ids = [message.id for message in desk.deps.lookup.newest_first(desk.topic, Filters(), 9, None)[0]]
    change_row(stage, lane_of(desk.topic, group).shard_key(0), 0, DAMAGES[damage])
    reader = anew(desk)
    seen = reader.drain(group)
    buried = letters(reader, group)
    assert {*seen} | {letter.offset for letter in buried} == {0, 1}
    assert {letter.reason for letter in buried} <= {DeadReason.UNDECODABLE}
    assert {letter.message.id for letter in buried} <= {*ids}
    states = reader.deps.lookup.group_status(desk.topic, group).account
    assert (states.success, states.retrying, states.dead) == (len(seen), 0, len(buried))
    for letter in buried:
        message = reader.deps.lookup.message(desk.topic, letter.message.id)
        assert reader.deps.lookup.statuses.deliveries(desk.topic, message)[group.name].status == "DEAD"
        assert reader.deps.fates.of(desk.topic, message)[group.name].adds_up


names = st.sampled_from("nmraxwev")
values = st.one_of(
    st.builds(lambda raw: {"B": raw}, st.binary(max_size=50)),
    st.builds(lambda raw: {"S": raw}, st.text(max_size=50)),
    st.builds(lambda n: {"N": str(n)}, st.integers(-5, 2**40)),
    st.just({"NULL": True}),
    st.just({"BOOL": False}),
    st.just({"L": []}),
)


@st.composite
def damages(draw: st.DrawFn) -> Change:
    """An attribute replaced or gone, or bytes of the messages flipped, cut out, put in."""
    name = draw(names)
    if name != "m":
        value = draw(st.none() | values)
        return without(name) if value is None else having(name, value)
    place, length, put = draw(st.integers(0, 400)), draw(st.integers(0, 20)), draw(st.binary(max_size=5))

    def cut(item: Item) -> Item:
        [(kind, payload)] = item["m"].items()
        raw = payload if isinstance(payload, bytes) else payload.encode()
        at = place % (len(raw) + 1)
        raw = raw[:at] + put + raw[at + length :]
        return {**item, "m": {"B": raw} if kind == "B" else {"S": raw.decode(errors="replace")}}

    return draw(st.sampled_from((cut, without("m"))) | values.map(lambda value: having("m", value)))


@settings(max_examples=150, deadline=None)
@given(damages(), st.sampled_from(("queue", "serial")), st.sampled_from(("short", LONG)))
@example(having("v", {"N": "x"}), "queue", "short")
def test_whatever_becomes_of_a_row_its_neighbours_are_delivered_once(
    damage: Change, mode: str, body: str
) -> None:
    desk = stored(memory_stage(), body, "a", mode=mode)
    group = desk.group()
    change_row(desk.stage, desk.topic.shard_key(0), 2, damage)
    reader = anew(desk)
    newer = desk.rows()[1].newer
    seen = reader.drain(group)
    assert len(seen) == len(set(seen))
    assert {*seen} - {2, 3} == ({0, 1} if newer else {0, 1, 4, 5})
    buried = {letter.offset for letter in letters(reader, group)}
    assert not buried & {*seen}
    assert newer or 2 in buried | {*seen}
    look_everywhere(reader, group)
