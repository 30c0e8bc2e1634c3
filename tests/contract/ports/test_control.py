"""store.Control: optimistic versions, lists by page, and neighbours that never mix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest

from chalicelib.domain import ids
from chalicelib.domain.assignment import Assignment, Staffed
from chalicelib.domain.ladder import Retry
from chalicelib.domain.notice import TYPES, Events
from chalicelib.domain.replay import Replay, ReplayState
from chalicelib.domain.signing import KeyRing, Secret
from chalicelib.domain.topic import FormerHash, Group, Topic
from chalicelib.store import control_rows
from chalicelib.store.control import Control
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage


@pytest.fixture
def control(stage: Stage) -> Control:
    return stage.adapters.control


@pytest.fixture
def topic(control: Control) -> Topic:
    new_topic = make.topic(make.uid("orders-"))
    assert control.put_topic(new_topic, None)
    return replace(new_topic, version=1)


@pytest.fixture
def group(control: Control, topic: Topic) -> Group:
    new_group = make.group(topic)
    assert control.put_group(topic, new_group, None)
    return replace(new_group, version=1)


def test_a_topic_is_read_as_it_was_written_with_its_version(control: Control) -> None:
    topic = make.topic(
        make.uid("t."), mode="serial", shards=1, retry=Retry(3, (1, 2, 3), 0.5), rate_limit=7, alarm_backlog=9
    )
    assert control.topic(topic.name) is None
    assert control.put_topic(topic, None) is True
    assert control.topic(topic.name) == replace(topic, version=1)


def test_a_group_and_a_consumer_are_read_as_they_were_written(control: Control, topic: Topic) -> None:
    new_group = make.group(topic, tags=("a", "b"), retry=Retry(2, "notify"), begin="@5", paused_until_ms=9)
    worker = make.consumer(new_group, kind="pull")
    assert control.put_group(topic, new_group, None) is True
    assert control.put_consumer(topic, new_group, worker, None) is True
    assert control.group(topic, new_group.name) == replace(new_group, version=1)
    assert control.consumers(topic, new_group) == [replace(worker, version=1)]


def test_a_change_of_what_is_gone_is_refused(control: Control, topic: Topic) -> None:
    control.delete_topic(topic, 0)
    assert control.put_topic(replace(topic, shards=9), topic) is False
    assert control.topic(topic.name) is None
    control.delete_topic(topic, 0)


def test_topics_are_listed_by_name_page_after_page(empty_stage: Stage) -> None:
    control = empty_stage.adapters.control
    names = ["B", "a", "a.b", "a-b", "ab", "b1", "b10", "b2"]
    for name in names:
        control.put_topic(make.topic(name), None)
    assert [t.name for t in control.topics(None, 100)] == sorted(names)
    listed_names: list[str] = []
    while page := control.topics(listed_names[-1] if listed_names else None, 3):
        assert len(page) <= 3
        listed_names += [t.name for t in page]
    assert listed_names == sorted(names)
    assert control.topics("zzz", 3) == []


def test_groups_that_are_prefixes_of_one_another_do_not_share_consumers(
    control: Control, topic: Topic
) -> None:
    base = make.uid("g")
    groups = [make.group(topic, "mail", uid=base), make.group(topic, "mail2", uid=base + "2")]
    for each in groups:
        control.put_group(topic, each, None)
        for name in ("w2", "w1"):
            control.put_consumer(topic, each, make.consumer(each, f"{each.name}-{name}"), None)
    for each in groups:
        assert [c.name for c in control.consumers(topic, each)] == [f"{each.name}-w1", f"{each.name}-w2"]
    control.delete_group(topic, groups[0])
    assert control.group(topic, "mail") is None
    assert control.consumers(topic, groups[0]) == []
    assert len(control.consumers(topic, groups[1])) == 2


def test_a_consumer_is_written_conditionally_and_removed_alone(
    control: Control, topic: Topic, group: Group
) -> None:
    first, second = make.consumer(group, "w1"), make.consumer(group, "w2")
    for each in (first, second):
        assert control.put_consumer(topic, group, each, None) is True
    current = replace(first, version=1)
    assert control.put_consumer(topic, group, first, None) is False
    assert control.put_consumer(topic, group, replace(current, seen_ms=9), current) is True
    assert control.put_consumer(topic, group, replace(current, seen_ms=10), current) is False
    control.delete_consumer(topic, group, second)
    control.delete_consumer(topic, group, second)
    assert control.consumers(topic, group) == [replace(current, seen_ms=9, version=2)]


def test_a_consumer_that_left_is_remembered_without_its_secrets(
    control: Control, topic: Topic, group: Group
) -> None:
    base = make.uid("c")
    consumers = [
        make.consumer(group, name, uid=base + uid, secrets=(Secret("ab"),), version=3)
        for name, uid in (("w", "0"), ("w", "1"), ("w1", "2"))
    ]
    other = make.group(topic, "other", uid=group.uid + "x")
    for each in consumers:
        control.retire_consumer(topic, group, each)
    control.retire_consumer(topic, other, consumers[0])
    bare = [replace(each, secrets=()) for each in consumers]
    assert control.retired_consumers(topic, group) == bare
    assert control.retired_consumers(topic, group, "w") == bare[:2]
    assert control.consumers(topic, group) == []
    control.forget_consumer(topic, group, consumers[0])
    assert control.retired_consumers(topic, group) == bare[1:]
    control.delete_group(topic, group)
    assert control.retired_consumers(topic, group) == []
    assert control.retired_consumers(topic, other) == bare[:1]


def test_what_is_being_deleted_is_marked_until_it_is_gone(
    control: Control, topic: Topic, group: Group
) -> None:
    """Also where the name has been given to another one meanwhile."""
    assert control.retire_group(topic, group)
    assert not control.retire_group(topic, group)
    again = replace(group, uid=make.uid("g"))
    assert control.put_group(topic, again, None)
    assert control.retire_group(topic, again)
    both = sorted([group, again], key=lambda each: each.uid)
    assert control.retired_groups(topic) == control.retired_groups(topic, group.name) == both
    assert control.retired_groups(topic, group.name[:-1]) == []
    control.delete_group(topic, again)
    assert control.retired_groups(topic) == [group]
    assert control.retire_topic(topic)
    assert control.topic(topic.name) is None
    assert control.retired_topics(topic.name) == [topic]
    assert control.put_topic(replace(topic, uid=make.uid("t")), None)
    control.delete_topic(topic, 0)
    assert not control.retired_topics(topic.name)
    assert not control.retired_groups(topic)
    assert control.topic(topic.name), "the new one"


def test_an_assignment_is_written_only_over_the_one_before(
    control: Control, topic: Topic, group: Group
) -> None:
    first = Assignment(1, "mod", ("u1",), ("u1", "u1"), 7)
    second = replace(first, epoch=2, members=("u1", "u2"), owners=("u1", "u2"))
    assert control.assignment(topic, group) is None
    assert control.put_assignment(topic, group, second) is False
    assert control.put_assignment(topic, group, first) is True
    assert control.put_assignment(topic, group, first) is False
    assert control.assignment(topic, group) == first
    assert control.put_assignment(topic, group, replace(second, epoch=3)) is False
    assert control.put_assignment(topic, group, second) is True
    assert control.assignment(topic, group) == second
    control.delete_group(topic, group)
    assert control.assignment(topic, group) is None


def test_groups_with_consumers_are_found_with_all_that_is_theirs(control: Control, topic: Topic) -> None:
    base = make.uid("g")
    longer, without, plain = (
        make.group(topic, n, uid=base + u) for n, u in (("b", "2"), ("c", "3"), ("a", ""))
    )
    for each in (longer, without, plain):
        control.put_group(topic, each, None)
    workers = [make.consumer(plain, "w1"), make.consumer(plain, "w2"), make.consumer(longer, "w3")]
    for worker, of in zip(workers, (plain, plain, longer), strict=True):
        control.put_consumer(topic, of, worker, None)
    assignment = Assignment(1, "mod", (workers[2].uid,), (workers[2].uid,))
    control.put_assignment(topic, longer, assignment)
    members = [replace(worker, version=1) for worker in workers]
    assert control.staffed_groups(topic) == [
        Staffed(replace(plain, version=1), (members[0], members[1]), None),
        Staffed(replace(longer, version=1), (members[2],), assignment),
    ]
    assert control.staffed_groups(make.topic(make.uid("other-"))) == []


def test_tokens_are_kept_listed_and_deleted_once(empty_stage: Stage) -> None:
    control = empty_stage.adapters.control
    tokens = [
        make.token(f"t{n}", scopes=("produce", "admin"), topics=("a*",), expires_ms=n) for n in (3, 1, 2)
    ]
    for each in tokens:
        assert control.put_token(each, None)
    first = replace(tokens[0], version=1, groups=("a", "b*"), former=(FormerHash("ab", 7),))
    assert control.put_token(first, first)
    assert not control.put_token(first, first)
    assert control.token("t3") == replace(first, version=2)
    assert control.token("t") is None
    assert [t.id for t in control.tokens(None, 2)] == ["t1", "t2"]
    assert [t.id for t in control.tokens("t2", 2)] == ["t3"]
    assert [control.delete_token("t1"), control.delete_token("t1")] == [True, False]
    assert control.token("t1") is None


def test_a_change_of_a_token_does_not_bring_it_back(control: Control) -> None:
    token = make.token(make.uid("t"))
    assert control.put_token(token, None)
    control.delete_token(token.id)
    assert not control.put_token(token, replace(token, version=1))
    assert control.token(token.id) is None


def test_the_last_use_of_tokens_is_noted_beside_them(empty_stage: Stage) -> None:
    control = empty_stage.adapters.control
    for token_id, at_ms in (("t1", 1), ("t3", 3), ("t2", 2), ("t1", 9)):
        control.note_use(token_id, at_ms)
    assert control.uses("t1", "t2") == {"t1": 9, "t2": 2}
    control.put_token(make.token("t1"), None)
    control.delete_token("t1")
    assert control.uses("t0", "t9") == {"t2": 2, "t3": 3}


def test_the_first_signing_key_stays_until_it_is_replaced_as_it_was_read(
    make_stage: Callable[[], Stage],
) -> None:
    control = make_stage().adapters.control
    assert control.key_ring() is None
    first, second = KeyRing((Secret("01"),)), KeyRing((Secret("02"), Secret("01", 7)))
    assert control.put_key_ring(first, None)
    assert not control.put_key_ring(second, None)
    stored_ring = control.key_ring()
    assert stored_ring == replace(first, version=1)
    assert control.put_key_ring(second, stored_ring)
    assert not control.put_key_ring(first, stored_ring)
    assert control.key_ring() == replace(second, version=2)


NOUNS: dict[type[control_rows.Row[Any]], Any] = {
    control_rows.TopicRow: make.topic(),
    control_rows.GroupRow: make.group(make.topic(), tags=("a",), retry=Retry(2, (1, 2))),
    control_rows.ConsumerRow: make.consumer(
        make.group(make.topic()), secrets=(Secret("ab"), Secret("cd", 5))
    ),
    control_rows.AssignmentRow: Assignment(1, "mod", ("u1",), ("u1", "u1"), 7),
    control_rows.TokenRow: make.token("t1"),
    control_rows.UseRow: control_rows.Use("t1", 7),
    control_rows.ReplayRow: Replay("r", "flights", "flights", 1, 2, 3, 100),
    control_rows.ScheduleRow: make.schedule("s", cron="@daily", app="a"),
    control_rows.EventsRow: Events("alerts", "u1", TYPES),
    control_rows.KeyRingRow: KeyRing((Secret("00ff"),)),
}
PLACE = control_rows.Key("p", "s")


@pytest.mark.parametrize("model", control_rows.Row.__subclasses__())
def test_each_field_of_a_noun_is_an_attribute_of_its_own(model: type[control_rows.Row[Any]]) -> None:
    names = {field.name for field in fields(model.entity)} - {"epoch"}
    assert names <= set(model.get_attributes())
    item = model.of(PLACE, NOUNS[model], 1).serialize()
    assert model.decoded(item) == model.decoded({**item, "unknown": {"S": "of a later release"}})


@pytest.mark.parametrize("model", control_rows.Row.__subclasses__())
def test_a_row_without_what_has_a_default_is_read_with_todays(model: type[control_rows.Row[Any]]) -> None:
    required_names = {field.name for field in fields(model.entity) if field.default is MISSING}
    noun = model.entity(**{name: getattr(NOUNS[model], name) for name in required_names})
    item = model.of(PLACE, noun, 1).serialize()
    names = required_names | {"pk", "sk", "v", "version"}
    assert model.decoded({name: value for name, value in item.items() if name in names}) == model.decoded(
        item
    )


def test_a_consumer_keeps_its_secrets_and_its_state(control: Control, topic: Topic, group: Group) -> None:
    consumer = make.consumer(
        group,
        kind="url",
        state="DISABLED",
        target="https://example.com/in",
        secrets=(Secret("00ff", 5), Secret("ab")),
        why="410",
        failing_ms=1,
        open_until_ms=2,
        times_opened=3,
    )
    assert control.put_consumer(topic, group, consumer, None)
    assert control.consumers(topic, group) == [replace(consumer, version=1)]


def test_a_replay_is_read_as_it_was_written_and_changed_only_from_what_it_is(control: Control) -> None:
    replay = Replay(
        make.uid("r"), "flights", "flights", 1, 2, 3, 100, where="a = 1", group="g", group_uid="u"
    )
    assert control.replay(replay.id) is None
    assert control.put_replay(replay, None) is True
    assert control.put_replay(replay, None) is False
    first = replace(replay, version=1)
    assert control.replay(replay.id) == first
    end = replace(first, state=ReplayState.DONE, matched=5, sent=5)
    assert control.put_replay(end, first) is True
    assert control.put_replay(replace(first, state=ReplayState.FAILED), first) is False
    assert control.replay(replay.id) == replace(end, version=2)


def test_a_topics_replays_are_listed_the_newest_first_page_after_page(control: Control) -> None:
    topic, other = make.uid("flights-"), make.uid("others-")
    replays = [
        Replay(ids.replay_id(topic, START_MS + n, "r"), topic, "x", START_MS + n, 2, 3, 1) for n in range(5)
    ]
    for each in (replays[3], replays[0], replays[4], replays[1], replays[2]):
        assert control.put_replay(each, None)
    assert control.put_replay(Replay(ids.replay_id(other, START_MS, "r"), other, topic, 1, 2, 3, 1), None)
    assert control.replays(topic, None, 10) == [replace(each, version=1) for each in reversed(replays)]
    ids_seen: list[str] = []
    while page := control.replays(topic, ids_seen[-1] if ids_seen else None, 2):
        assert len(page) <= 2
        ids_seen += [each.id for each in page]
    assert ids_seen == [each.id for each in reversed(replays)]
    assert [each.into for each in control.replays(other, None, 10)] == [topic]
