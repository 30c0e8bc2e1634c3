"""store.Records: dead letters hold their whole message, and change under their version only."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor, start_at
from chalicelib.domain.cursor_write import WriteRefused
from chalicelib.domain.message import Draft
from chalicelib.domain.record import DeadLetter, FailureFilter, Record
from chalicelib.domain.topic import CursorKey, Group, Topic, cursor_key
from chalicelib.services.consume.settle import Nack
from chalicelib.store.cursors import Cursors
from chalicelib.store.records import Records
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.desk import Desk
from tests.support.stages import Stage
from tests.support.troubled import Counted


@pytest.fixture
def cursors(stage: Stage) -> Cursors:
    return stage.adapters.cursors


@pytest.fixture
def records(stage: Stage) -> Records:
    return stage.adapters.records


@pytest.fixture
def topic() -> Topic:
    return make.topic()


@pytest.fixture
def group(topic: Topic) -> Group:
    return make.group(topic)


def key_of(topic: Topic, group: Group, shard: int = 0, consumer_uid: str = "") -> CursorKey:
    return CursorKey(topic.shard_key(shard), group.uid, consumer_uid)


def bury(cursors: Cursors, key: CursorKey, *buried_records: Record) -> list[DeadLetter]:
    """Store the records with some change of the cursor."""
    current = cursors.get(key, consistent=True)
    after = transitions.seek(current or Cursor(), 1)
    change = cursor_write.replacement(current or Cursor(), after)
    assert cursors.write(key, change, buried_records, exists=current is not None) == after
    return [make.letter(key, record) for record in buried_records if record.message]


bodies = st.one_of(
    st.builds(make.draft, st.text(max_size=400), tag=st.none() | st.text(max_size=9)),
    st.builds(Draft, st.binary(max_size=300), st.just(False), st.just("image/png")),
    st.builds(Draft, st.just(b""), blob=st.just("bodies/x"), blob_bytes=st.integers(1, 2**32)),
    st.builds(make.draft, st.text(max_size=400), origin=st.builds(make.origin, whole=st.just(True))),
)


@settings(max_examples=30)
@given(draft=bodies, attempts=st.integers(0, 1000), error=st.none() | st.text(max_size=20))
def test_a_letter_holds_its_message_whole(
    cursors: Cursors, records: Records, draft: Draft, attempts: int, error: str | None
) -> None:
    key = make.cursor_key()
    record = make.dead_record(3, draft, attempts=attempts, last_error=error, reason="EXPIRED")
    (letter,) = bury(cursors, key, record)
    assert records.dead_letter(key, 3) == letter
    assert records.get(key, 3) == replace(record, message=None)


def test_a_letter_of_the_largest_message_the_log_holds_is_kept(cursors: Cursors, records: Records) -> None:
    key, body = make.cursor_key(), bytes(range(256)) * 800
    (letter,) = bury(cursors, key, make.dead_record(3, Draft(body, False, "image/png")))
    assert records.dead_letter(key, 3) == letter


def test_a_burial_from_a_retry_lane_lies_at_the_message_s_own_place(
    cursors: Cursors, records: Records
) -> None:
    lane, home = make.cursor_key(), make.cursor_key()
    record = make.dead_record(40, of=home, attempts_before_redrive=2, attempts=5, shard=home.shard.shard)
    bury(cursors, lane, record)
    assert records.get(home, 40) == replace(record, of=None, message=None)
    assert records.dead_letter(home, 40) == make.letter(home, record)
    assert records.get(lane, 40) is None
    assert records.dead_letter(lane, 40) is None


def test_a_burial_whose_message_is_gone_is_only_counted(
    cursors: Cursors, records: Records, topic: Topic, group: Group
) -> None:
    key = key_of(topic, group)
    (letter,) = bury(cursors, key, make.dead_record(1), make.record(2))
    assert records.count_dead(topic.uid, group.uid).number == 2
    assert [listed_letter for _, listed_letter in records.dead(topic, group, None, 9)] == [letter]
    assert records.dead_letter(key, 2) is None
    bury(cursors, key, make.record(1))
    assert records.dead_letter(key, 1) == letter, "and takes no letter away"


def test_letters_are_listed_by_place_page_after_page(
    cursors: Cursors, records: Records, topic: Topic, group: Group
) -> None:
    bury(cursors, key_of(topic, make.group(topic)), make.dead_record(1))
    bury(cursors, key_of(make.topic(uid=topic.uid + "x"), group), make.dead_record(1))
    expected = []
    for shard, consumer_uid in ((0, ""), (1, "c1"), (1, "c10"), (2, "c-1"), (10, "")):
        buried_records = [
            make.dead_record(offset, shard=shard, consumer_uid=consumer_uid) for offset in (3, 20, 100, 2**40)
        ]
        expected += bury(cursors, key_of(topic, group, shard, consumer_uid), *buried_records)
    expected.sort(key=lambda letter: (letter.key.shard.shard, letter.offset, letter.key.consumer_uid))
    letters: list[DeadLetter] = []
    mark = None
    while page := records.dead(topic, group, mark, 3):
        assert len(page) == 3 or len(letters) + len(page) == 20
        mark = page[-1][0]
        letters += [letter for _, letter in page]
    assert letters == expected
    assert records.count_dead(topic.uid, group.uid).number == 20


def test_large_letters_are_listed_up_to_the_limit(
    cursors: Cursors, records: Records, topic: Topic, group: Group
) -> None:
    """A page of a query holds 1 MB: a short answer would look like the end."""
    chance = random.Random(5)
    drafts = [Draft(chance.randbytes(150_000), False, "image/png") for _ in range(12)]
    letters = [
        bury(cursors, key_of(topic, group), make.dead_record(n, draft))[0] for n, draft in enumerate(drafts)
    ]
    assert [letter for _, letter in records.dead(topic, group, None, 11)] == letters[:11]
    assert len(records.dead(topic, group, None, 99)) == records.count_dead(topic.uid, group.uid).number == 12


def test_an_edit_stores_the_letter_under_the_next_version(cursors: Cursors, records: Records) -> None:
    key = make.cursor_key()
    (letter,) = bury(cursors, key, make.dead_record(1))
    edited_letter = replace(letter, edited=True, message=replace(letter.message, draft=make.draft("better")))
    assert records.edit(edited_letter) is True
    assert records.dead_letter(key, 1) == replace(edited_letter, version=1)
    assert records.edit(replace(edited_letter, reason="late")) is False
    assert records.dead_letter(key, 1) == replace(edited_letter, version=1)
    assert records.edit(replace(edited_letter, version=1)) is True
    assert records.dead_letter(key, 1) == replace(edited_letter, version=2)


def test_a_discarded_letter_is_gone_and_its_record_stays_dead(cursors: Cursors, records: Records) -> None:
    key = make.cursor_key()
    record = make.dead_record(1)
    (letter,) = bury(cursors, key, record)
    assert records.discard(replace(letter, version=1)) is False
    assert records.dead_letter(key, 1) == letter
    assert records.discard(letter) is True
    assert records.discard(letter) is False
    assert records.dead_letter(key, 1) is None
    assert records.count_dead(key.shard.topic_uid, key.group_uid).number == 0
    assert records.get(key, 1) == replace(record, message=None)


def test_records_and_letters_that_stand_side_by_side_are_read_together(stage: Stage) -> None:
    a, key = stage.adapters, make.cursor_key()
    other = replace(key, consumer_uid="c1")
    buried_records = [make.dead_record(n) for n in (3, 5, 6, 9)]
    bury(a.cursors, key, *buried_records)
    bury(a.cursors, other, replace(make.dead_record(4), consumer_uid="c1"))
    bury(a.cursors, other, replace(make.dead_record(6), consumer_uid="c1"))
    for first, last, offsets in ((3, 6, [3, 5, 6]), (4, 4, []), (6, 6, [6]), (0, 99, [3, 5, 6, 9])):
        records = a.records.between(key.group_uid, key.shard, first, last)
        letters = a.records.letters_between(key, first, last)
        assert [each for each in records if not each.consumer_uid] == [a.records.get(key, n) for n in offsets]
        assert letters == {n: a.records.dead_letter(key, n) for n in offsets}
    all_records = a.records.between(key.group_uid, key.shard, 0, 99)
    assert [each.offset for each in all_records if each.consumer_uid == "c1"] == [4, 6]


def test_the_letters_of_a_message_are_read_one_after_another(stage: Stage) -> None:
    a, key = stage.adapters, make.cursor_key()
    consumers = [replace(key, consumer_uid=uid) for uid in ("c1", "c2", "c3")]
    for each in reversed(consumers):
        bury(
            a.cursors, each, *(replace(make.dead_record(n), consumer_uid=each.consumer_uid) for n in (6, 60))
        )
    bury(a.cursors, key, make.dead_record(5), replace(make.dead_record(7), message=None))
    for key_of_group, offset, most, places in (
        (key, 5, 9, [(key, 5)]),
        (key, 6, 9, [(each, 6) for each in consumers]),
        (key, 6, 2, [(each, 6) for each in consumers[:2]]),
        (key, 7, 9, []),
        (replace(key, group_uid="another"), 6, 9, []),
    ):
        letters = list(a.records.letters_at(key_of_group.group_uid, key.shard, offset, most))
        assert letters == [a.records.dead_letter(of, at) for of, at in places]
        assert list(a.records.letters_at(key_of_group.group_uid, key.shard, offset))[:most] == letters


def test_letters_are_chosen_by_their_ids_with_a_read_for_all_that_stand_side_by_side(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    results = desk.produce(*make.drafts(40))
    desk.nack(group, desk.receive(group, 30), Nack(dead_letter=True))
    records = Counted(stage.adapters.records)
    deps = Deps(replace(stage.adapters, **cast(Any, {"records": records})))
    ids = [each.id for each in (*results[20:30], *results[:10], results[5], results[35], results[15])]
    letters = deps.letter_lookup.letters_of(desk.topic, group, [*ids, "nobody", "e" * 12 + "-0-1"])
    assert [each.message.id for each in letters] == [*ids[:20], results[15].id]
    assert records.calls == {"letters_between": 4}
    assert deps.dead_letters.redrive(desk.topic, group, letters) == 21


def test_a_record_of_what_is_over_goes_at_its_time_and_the_letter_stays(stage: Stage) -> None:
    a, key, now_s = stage.adapters, make.cursor_key(), START_MS // 1000
    over = [make.record(n, "SUCCESS", expires_s=now_s + n) for n in (1, 2)]
    retry_record = make.record(3, "RETRYING", next_ms=START_MS)
    (letter,) = bury(a.cursors, key, *over, retry_record, make.dead_record(4))
    assert a.records.get(key, 1) == over[0]
    stage.clock.advance(1_000)
    stage.drop_expired()
    assert [a.records.get(key, n) for n in (1, 2, 3)] == [None, over[1], retry_record]
    assert a.records.dead_letter(key, 4) == letter


def test_records_and_timers_are_written_with_the_cursor_or_not_at_all(stage: Stage) -> None:
    a, key = stage.adapters, make.cursor_key()
    timers = [make.timer(fragment=n) for n in range(2)]

    def there() -> list[object]:
        return [t for f in range(2) for t in a.timers.first_due(f, 10**14, 1_000).timers if t in timers]

    after = start_at(1)
    change = cursor_write.replacement(Cursor(), after)
    assert isinstance(a.cursors.write(key, change, [make.record(1)], timers), WriteRefused)
    assert (there(), a.records.get(key, 1), a.cursors.get(key)) == ([], None, None)
    assert a.cursors.write(key, change, [], timers[:1], exists=False) == after
    assert there() == timers[:1]
    again = cursor_write.replacement(after, transitions.seek(after, 5))
    assert a.cursors.write(key, again, [make.record(1, "RETRYING")], timers) == transitions.seek(after, 5)
    assert there() == timers
    assert a.records.get(key, 1) == make.record(1, "RETRYING")
    a.timers.drop(timers)


@pytest.mark.parametrize("most", [2, 4, 5])
def test_failures_behind_deliveries_that_succeeded_late_are_not_denied(stage: Stage, most: int) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    key = cursor_key(desk.topic, group, 0)
    records = [make.record(n, "RETRYING" if n == 3 else "SUCCESS", attempts=2) for n in range(4)]
    change = cursor_write.replacement(Cursor(), start_at(4))
    stage.adapters.cursors.write(key, change, records, exists=False)
    failures, read_to = stage.adapters.records.first_unfinished(desk.topic.uid, group.uid, most)
    assert ([each.offset for each in failures], read_to) == (
        [3] if most >= 4 else [],
        None if most > 4 else (0, most - 1),
    )


def test_the_dead_letters_of_a_deleted_group_go_with_it_and_no_others(stage: Stage) -> None:
    """However many they are: some are deleted at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chalicelib.store.records._DELETED_AT_ONCE", 9)
        delete_one_of_two_groups(stage)


def delete_one_of_two_groups(stage: Stage) -> None:
    desk = Desk.at(stage)
    kept_group, gone_group = desk.group("kept"), desk.group("gone")
    desk.produce(*make.drafts(30))
    for group in (kept_group, gone_group):
        deliveries = desk.receive(group, 30)
        desk.nack(group, deliveries[:28], Nack(dead_letter=True))
        desk.nack(group, deliveries[28:], Nack(delay_ms=60_000))
    records = stage.adapters.records
    desk.deps.admin.delete_group(desk.topic, gone_group)
    assert records.count_dead(desk.topic.uid, gone_group.uid).number == 0
    assert records.unfinished(desk.topic.uid, gone_group.uid) == []
    assert records.count_dead(desk.topic.uid, kept_group.uid).number == 28
    again = desk.group("gone")
    assert desk.deps.letter_lookup.page(desk.topic, again, FailureFilter(), None, 100) == ([], None)
    desk.deps.admin.delete_topic(desk.topic)
    assert records.count_dead(desk.topic.uid, kept_group.uid).number == 0
