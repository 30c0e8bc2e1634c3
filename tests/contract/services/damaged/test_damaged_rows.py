"""A row of the log that cannot be read costs what it held, and nothing else: its neighbours are delivered."""

from __future__ import annotations

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from chalicelib.domain.errors import Conflict
from chalicelib.domain.message import DeadReason
from chalicelib.domain.topic import cursor_key
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.inspect.filters import Filters
from chalicelib.services.inspect.letter_lookup import DeadLetterFilter
from chalicelib.store.attributes import Item
from tests.contract.services.damaged.scenes import (
    DAMAGES,
    DEAD_LETTER,
    LONG,
    anew,
    letters,
    look_everywhere,
    stored,
)
from tests.support import factories as make
from tests.support.damage import NEWER, Change, change_letter, change_record, change_row, having, without
from tests.support.desk import Desk, offsets
from tests.support.stages import Stage, embedded_stage


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("mode", ["queue", "serial", "broadcast"])
def test_a_damaged_row_becomes_dead_letters_and_its_neighbours_are_delivered(
    stage: Stage, mode: str, damage: str
) -> None:
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
    offsets = reader.drain(group, consumer=consumer)
    assert Counter(offsets) >= Counter(o for o in healthy if not consumer or o > first)
    assert len(offsets) == len(set(offsets))
    letter_at = {letter.offset: letter for letter in letters(reader, group)}
    assert {letter.reason for letter in letter_at.values()} <= {DeadReason.UNDECODABLE}
    assert first in letter_at
    assert {*letter_at} | {*offsets} >= {first, first + 1}
    assert not {*letter_at} & {*offsets}
    counts = reader.deps.counters.take()
    assert counts["Undecodable"] == len(letter_at)
    assert {place["offset"] for event, place in reader.deps.counters.events() if event == "undecodable"} == {
        *letter_at
    }
    look_everywhere(reader, group)
    assert not reader.receive(group, consumer=consumer), "what cannot be read is not redriven"


def test_of_a_row_with_one_message_that_cannot_be_read_the_others_are_delivered(stage: Stage) -> None:
    desk = stored(stage, "one", "two", "three")
    group = desk.group()
    text = '[{"b":"one"},{"b":"two","e":"never"},{"b":"three"}]'
    change_row(stage, desk.topic.shard_key(0), 3, having("m", {"S": text}))
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
    dead_letters, topic = reader.deps.dead_letters, desk.topic
    with pytest.raises(Conflict, match="UNDECODABLE"):
        dead_letters.retry_now(topic, group, letter.message.id)
    assert dead_letters.redrive(topic, group, [letter]) == 0
    mended_letter = dead_letters.edit(topic, group, letter, b'"mended"')
    assert dead_letters.redrive(topic, group, [mended_letter]) == 1
    stage.clock.advance(1_000)
    [delivery] = reader.receive(group)
    assert (delivery.message.offset, delivery.message.draft.body) == (2, b'"mended"')
    assert reader.ack(group, [delivery]) == [None]


def test_i20_a_retry_of_a_broadcast_takes_the_letters_that_can_be_read_and_refuses_only_where_there_are_none(
    stage: Stage,
) -> None:
    desk = stored(stage, mode="broadcast")
    group = desk.group()
    consumers = [desk.consumer(group, name) for name in ("a", "b")]
    desk.produce(make.draft("x"))
    change_row(stage, desk.topic.shard_key(0), 6, having("m", {"S": "?"}))
    reader = anew(desk)
    dead_letters, topic = reader.deps.dead_letters, desk.topic
    assert reader.receive(group, consumer=consumers[0]) == []
    [letter] = letters(reader, group)
    with pytest.raises(Conflict, match="cannot be read"):
        dead_letters.retry_now(topic, group, letter.message.id)
    dead_letters.edit(topic, group, letter, b'"mended"')
    assert reader.receive(group, consumer=consumers[1]) == [], "its letter comes after the edit"
    dead_letters.retry_now(topic, group, letter.message.id)
    bodies = [[m.message.draft.body for m in reader.receive(group, consumer=each)] for each in consumers]
    assert bodies == [[b'"mended"'], []]
    with pytest.raises(Conflict, match="cannot be read"):
        dead_letters.retry_now(topic, group, letter.message.id)


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
    assert anew(desk).deps.lookup.message(desk.topic, bad.id).draft.dead_reason == DeadReason.UNDECODABLE


def test_what_a_later_release_wrote_waits_for_it_and_nothing_is_lost(stage: Stage) -> None:
    desk = Desk.at(stage, shards=2)
    group = desk.group()
    for number in range(3):
        desk.produce(make.draft(f"a{number}", shard=0), make.draft(f"b{number}", shard=1))
    key = desk.topic.shard_key(0)
    change_row(stage, key, 1, NEWER)
    old = anew(desk)
    places: list[tuple[int, int]] = []
    while deliveries := old.receive(group, 100):
        places += [(d.message.shard, d.message.offset) for d in deliveries]
        old.ack(group, deliveries)
    assert sorted(places) == [(0, 0), (1, 0), (1, 1), (1, 2)]
    assert old.deps.counters.take()["NewerFormat"]
    look_everywhere(old, group)
    row = desk.rows()[1]
    id = f"{row.request_id}-0-1"
    with pytest.raises(Conflict, match="NEWER_FORMAT"):
        old.deps.lookup.message(desk.topic, id)
    assert {m.offset for m in old.deps.lookup.newest_first(desk.topic, Filters(shard=0), 9, None)[0]} == {
        0,
        2,
    }
    assert letters(old, group) == []
    assert (
        old.deps.claimer.expire(Claimant(topic=desk.topic, group=group, lease_seconds=30), 0, lambda: True)
        == 0
    ), "not even at its end"
    change_row(stage, key, 1, having("v", {"N": "1"}))
    assert offsets(anew(desk).receive(group, 100)) == [1, 2]


def test_what_a_later_release_gave_back_is_left_to_it(stage: Stage) -> None:
    desk = stored(stage)
    group = desk.group()
    reader = anew(desk)
    messages = reader.receive(group, 100)
    change_row(stage, desk.topic.shard_key(0), 2, NEWER)
    old = anew(desk)
    assert old.nack(group, messages[2:3], DEAD_LETTER) == ["UNAVAILABLE"]
    stage.clock.advance(31_000)
    again = old.receive(group, 100)
    assert offsets(again) == [0, 1, 4, 5]
    assert old.ack(group, again) == [None] * 4
    assert [(span.start, span.count) for span in desk.cursor(group).waiting] == [(2, 2)], "they are owed"
    change_row(stage, desk.topic.shard_key(0), 2, having("v", {"N": "1"}))
    assert anew(desk).drain(group) == [2, 3]


def test_what_is_left_to_a_later_release_takes_no_place_of_others(stage: Stage) -> None:
    desk = Desk.at(stage, shards=1)
    group = desk.group()
    for n in range(5):
        desk.produce(make.draft(n))
    desk.nack(group, anew(desk).receive(group, 3))
    change_row(stage, desk.topic.shard_key(0), 0, NEWER)
    old = anew(desk)
    assert [offsets(old.receive(group, 1)) for _ in range(5)] == [[1], [2], [3], [4], []]


@pytest.mark.parametrize("damage", [DAMAGES["not JSON"], without("i"), without("n"), having("q", {"N": "1"})])
def test_a_damaged_letter_is_listed_among_the_others(stage: Stage, damage: Change) -> None:
    desk = stored(stage)
    group = desk.group()
    messages = desk.receive(group, 3)
    desk.nack(group, messages, DEAD_LETTER)
    key = cursor_key(desk.topic, group, 0)
    change_letter(stage, key, 1, damage)
    dead_letters = letters(desk, group)
    assert [letter.offset for letter in dead_letters] == [0, 1, 2]
    assert desk.deps.dead_letters.redrive_matching(desk.topic, group, DeadLetterFilter(), 100)[0] >= 2
    change_record(stage, key, 1, without("j"))
    record = stage.adapters.records.get(key, 1)
    assert record
    assert record.status == "DEAD"
    look_everywhere(desk, group)


def test_a_letter_of_a_later_release_is_not_passed_over_by_who_asks_for_all(stage: Stage) -> None:
    """Or a deletion would leave it, and say that it is gone."""
    desk = Desk.at(stage, shards=1)
    group = desk.group(mode="broadcast")
    old, new = desk.consumer(group, "old"), desk.consumer(group, "new")
    (result,) = desk.produce(make.draft("x"))
    for consumer in (old, new):
        desk.nack(group, desk.receive(group, 1, consumer), DEAD_LETTER)
    change_letter(stage, cursor_key(desk.topic, group, 0, new.uid), 0, NEWER)
    with pytest.raises(Conflict) as error:
        desk.deps.letter_lookup.find(desk.topic, group, result.id)
    assert error.value.code == "NEWER_FORMAT"


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
    place, length, bytes_put = (
        draw(st.integers(0, 400)),
        draw(st.integers(0, 20)),
        draw(st.binary(max_size=5)),
    )

    def cut(item: Item) -> Item:
        [(kind, payload)] = item["m"].items()
        raw = payload if isinstance(payload, bytes) else payload.encode()
        at = place % (len(raw) + 1)
        raw = raw[:at] + bytes_put + raw[at + length :]
        return {**item, "m": {"B": raw} if kind == "B" else {"S": raw.decode(errors="replace")}}

    return draw(st.sampled_from((cut, without("m"))) | values.map(lambda value: having("m", value)))


@settings(max_examples=75, deadline=None)
@given(damages(), st.sampled_from(("queue", "serial")), st.sampled_from(("short", LONG)))
@example(having("v", {"S": "x"}), "queue", "short")
@example(having("r", {"S": "@|%"}), "queue", "short")
def test_whatever_becomes_of_a_row_its_neighbours_are_delivered_once(
    damage: Change, mode: str, body: str
) -> None:
    desk = stored(embedded_stage(), body, "a", mode=mode)
    group = desk.group()
    change_row(desk.stage, desk.topic.shard_key(0), 2, damage)
    reader = anew(desk)
    newer = desk.rows()[1].is_of_later_release
    offsets = reader.drain(group)
    assert len(offsets) == len(set(offsets))
    assert {*offsets} - {2, 3} == ({0, 1} if newer else {0, 1, 4, 5})
    buried_offsets = {letter.offset for letter in letters(reader, group)}
    assert not buried_offsets & {*offsets}
    assert newer or 2 in buried_offsets | {*offsets}
    look_everywhere(reader, group)
