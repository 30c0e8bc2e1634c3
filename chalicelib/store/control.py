"""Topics, groups, consumers, assignments, tokens on DynamoDB (layout: table `control`; models: store/control_rows)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from pynamodb.expressions.condition import Condition

from ..domain import ids
from ..domain.assignment import Assignment, Staffed
from ..domain.notice import Events
from ..domain.replay import Replay
from ..domain.signing import KeyRing
from ..domain.timer import Schedule, Timer
from ..domain.topic import Consumer, Group, Token, Topic
from ..modes import POLICIES
from . import control_rows as rows
from .attributes import Item, text
from .control_rows import Key, Row
from .dynamo import TableAccess
from .timers import timer_delete, timer_put

T = TypeVar("T")
V = TypeVar("V", Topic, Group)
# What has a life under its name, and perhaps another after it, with a uid of its own.
_Living = Topic | Group | Consumer | Schedule
_KEY_RING = Key("stage", "signing-key")
_EVENTS = Key("events", "events")
_TOPICS = 100  # read at once


class Control(TableAccess, table="control"):
    """Topics, groups, consumers, tokens and the like. Reads are consistent unless a method says otherwise: they are
    few, for the services cache them. Writes are seldom, and always conditional: after a deletion, what is created under
    the same name has another uid and is another thing. A row that cannot be read raises Unreadable; only the lists with
    a `limit` skip it."""

    def topic(self, name: str, *, consistent: bool = True) -> Topic | None:
        """The topic of this name; None if there is none. A read that is not consistent costs half and may be a moment
        old."""
        return self._get(rows.TopicRow, Key("topics", name), consistent=consistent)

    def topics(self, after: str | None, limit: int, *, consistent: bool = True) -> list[Topic]:
        """Topics by name. A read that is not consistent costs half and may miss the newest."""
        return self._page(rows.TopicRow, "topics", after, limit, consistent=consistent)

    def topics_behind(self, after: str | None) -> Iterator[Topic]:
        """All topics by name, from behind one on, read page by page as they are needed."""
        while topics := self.topics(after, _TOPICS):
            yield from topics
            if len(topics) < _TOPICS:
                return
            after = topics[-1].name

    def put_topic(self, topic: Topic, old: Topic | None) -> bool:
        """Store if the topic still is `old` (None: absent). False: it is not."""
        return self._save(rows.TopicRow.of(Key("topics", topic.name), topic, _version(old)), old)

    def retire_topic(self, topic: Topic) -> bool:
        """Take the topic out of the list; a note of its deletion stays until `delete_topic`. False: it has
        changed since it was read."""
        mark = Key("retired", f"{topic.name}#{topic.uid}")
        return self._retire(rows.TopicRow, Key("topics", topic.name), mark, topic)

    def retired_topics(self, name: str) -> list[Topic]:
        """Topics that had the name and are not quite deleted."""
        return self._below(rows.TopicRow, "retired", f"{name}#")

    def delete_topic(self, topic: Topic, rows_until_s: int) -> None:
        """Remove all rows below this topic, then the topic itself and the note of its deletion. The archive still
        has to know its shards until the last row of its log has expired."""
        for item in list(self._query(_home(topic))):
            self._delete(Key(_home(topic), item["sk"]["S"]))
        current = self.topic(topic.name)
        if current and current.uid == topic.uid:
            self._delete(Key("topics", topic.name))
        past = rows.TopicRow.of(Key("deleted", f"{topic.name}#{topic.uid}"), topic, topic.version).serialize()
        self._dynamo.put(self._table, [{**past, "x": {"N": str(rows_until_s)}}])
        self._delete(Key("retired", f"{topic.name}#{topic.uid}"))

    def group(self, topic: Topic, name: str) -> Group | None:
        """The topic's group of this name; None if there is none."""
        return self._get(rows.GroupRow, _group_key(topic, name))

    def groups(self, topic: Topic) -> list[Group]:
        """All groups of a topic, by name."""
        return self._below(rows.GroupRow, _home(topic), "group#")

    def put_group(self, topic: Topic, group: Group, old: Group | None) -> bool:
        """Store if the group still is `old` (None: absent). False: it is not."""
        return self._save(rows.GroupRow.of(_group_key(topic, group.name), group, _version(old)), old)

    def retire_group(self, topic: Topic, group: Group) -> bool:
        """As `retire_topic`: its consumers stay until `delete_group`."""
        return self._retire(rows.GroupRow, _group_key(topic, group.name), _retired_key(topic, group), group)

    def retired_groups(self, topic: Topic, name: str | None = None) -> list[Group]:
        """Groups that had the name (None: any) and are not quite deleted."""
        return self._below(rows.GroupRow, _home(topic), f"retired#{name}#" if name else "retired#")

    def delete_group(self, topic: Topic, group: Group) -> None:
        """Remove this group with its consumers, its assignment and the note of its deletion."""
        for prefix in (f"consumer#{group.uid}#", f"left#{group.uid}#"):
            for item in list(self._query(_home(topic), Row.sk.startswith(prefix))):
                self._delete(Key(_home(topic), item["sk"]["S"]))
        self._delete(_assignment_key(topic, group))
        current = self.group(topic, group.name)
        if current and current.uid == group.uid:
            self._delete(_group_key(topic, group.name))
        self._delete(_retired_key(topic, group))

    def consumer(self, topic: Topic, group: Group, name: str) -> Consumer | None:
        """The group's consumer of this name, if there is one."""
        return self._get(rows.ConsumerRow, _consumer_key(topic, group, name))

    def consumers(self, topic: Topic, group: Group) -> list[Consumer]:
        """All consumers of a group, by name."""
        return self._below(rows.ConsumerRow, _home(topic), f"consumer#{group.uid}#")

    def all_consumers(self, topic: Topic) -> list[Consumer]:
        """All consumers of the topic's groups, and of those that are being deleted."""
        return self._below(rows.ConsumerRow, _home(topic), "consumer#")

    def cursor_owners(self, topic: Topic, group: Group) -> list[str]:
        """The owners of the group's cursors: "" for the group or, in a broadcast, each consumer's uid."""
        if not POLICIES[group.mode].per_consumer:
            return [""]
        return [consumer.uid for consumer in self.consumers(topic, group)]

    def put_consumer(self, topic: Topic, group: Group, consumer: Consumer, old: Consumer | None) -> bool:
        """Store if the consumer still is `old` (None: absent). False: it is not."""
        row = rows.ConsumerRow.of(_consumer_key(topic, group, consumer.name), consumer, _version(old))
        return self._save(row, old)

    def delete_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Remove a consumer's row. Harmless if there is none, or another consumer's of this name."""
        key = _consumer_key(topic, group, consumer.name)
        self._call_if_unchanged("delete_item", _of_life({"Key": _item_key(key)}, consumer))

    def retire_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Note that a consumer's removal was begun; the note stays until `forget_consumer`."""
        bare = replace(consumer, secrets=())
        self._put(rows.ConsumerRow.of(_retired_consumer_key(topic, group, consumer), bare, consumer.version))

    def retired_consumers(self, topic: Topic, group: Group, name: str | None = None) -> list[Consumer]:
        """Consumers that had the name (None: any) and are not quite removed; one whose row is still there may be
        among them."""
        prefix = f"left#{group.uid}#{f'{name}#' if name else ''}"
        return self._below(rows.ConsumerRow, _home(topic), prefix)

    def forget_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Remove the note of `retire_consumer`."""
        self._delete(_retired_consumer_key(topic, group, consumer))

    def assignment(self, topic: Topic, group: Group) -> Assignment | None:
        """The group's assignment of shards, read consistently; None before the first one."""
        return self._get(rows.AssignmentRow, _assignment_key(topic, group))

    def put_assignment(self, topic: Topic, group: Group, new: Assignment) -> bool:
        """Store if what is stored has the epoch before (1: nothing is stored). False: it has not."""
        return self._save(rows.AssignmentRow.of(_assignment_key(topic, group), new, new.epoch - 1 or None))

    def staffed_groups(self, topic: Topic) -> list[Staffed]:
        """The topic's groups that have consumers or callbacks, by name. One read, not consistent: it may miss the
        newest."""
        items = {item["sk"]["S"]: item for item in self._query(_home(topic), consistent=False)}
        groups = map(rows.GroupRow.decoded, _under(items, "group#"))
        groups_with_staff = (_staffed_group(topic, group, items) for group in groups)
        return [each for each in groups_with_staff if each]

    def token(self, token_id: str) -> Token | None:
        """The token with this id (not its secret); None if there is none."""
        return self._get(rows.TokenRow, Key("tokens", token_id))

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        """Up to `limit` tokens in the order of their ids: those after an id (None: from the first)."""
        return self._page(rows.TokenRow, "tokens", after, limit)

    def put_token(self, token: Token, old: Token | None) -> bool:
        """Store if the token still is `old` (None: absent). False: it is not."""
        return self._save(rows.TokenRow.of(Key("tokens", token.id), token, _version(old)))

    def delete_token(self, token_id: str) -> bool:
        """Remove a token. False: there was none."""
        there = self._item(Key("tokens", token_id)) is not None
        self._delete(Key("tokens", token_id))
        self._delete(Key("used", token_id))
        return there

    def note_use(self, token_id: str, at_ms: int) -> None:
        """Store that a token was used at this time."""
        self._put(rows.UseRow.of(Key("used", token_id), rows.Use(token_id, at_ms)))

    def uses(self, first: str, last: str) -> Mapping[str, int]:
        """When tokens were used last, ms, as far as it was noted: of those with ids from `first` to `last`."""
        items = self._query("used", rows.UseRow.sk.between(first, last), consistent=False)
        return {use.id: use.at_ms for use in self._dynamo.readable(items, rows.UseRow.decoded)}

    def replay(self, replay_id: str) -> Replay | None:
        """The replay with this id; None if there is none."""
        return self._get(rows.ReplayRow, _replay_key(replay_id))

    def replays(self, topic: str, before: str | None, limit: int) -> list[Replay]:
        """Replays of a topic's messages, the newest first: those before an id."""
        home = f"replays#{ids.replay_home(topic)}"
        return self._page(rows.ReplayRow, home, before, limit, back=True)

    def put_replay(self, replay: Replay, old: Replay | None) -> bool:
        """Store if the replay still is `old` (None: absent). False: it is not."""
        return self._save(rows.ReplayRow.of(_replay_key(replay.id), replay, _version(old)))

    def schedule(self, name: str) -> Schedule | None:
        """The schedule of this name; None if there is none."""
        return self._get(rows.ScheduleRow, _schedule_key(name))

    def schedules(self, after: str | None, limit: int) -> list[Schedule]:
        """Schedules by name: those behind one. It may miss the newest."""
        return self._page(rows.ScheduleRow, "schedules", after, limit, consistent=False)

    def schedules_between(self, first: str, last: str) -> dict[str, Schedule]:
        """The schedules whose names lie there, by name; those that cannot be read are left out."""
        items = self._query("schedules", rows.ScheduleRow.sk.between(first, last))
        return {row.name: row for row in self._dynamo.readable(items, rows.ScheduleRow.decoded)}

    def put_schedule(self, new: Schedule, old: Schedule | None, timer: Timer | None, then: Timer) -> bool:
        """Store, with its next timer, if the schedule still is `old` (None: absent) and has this timer. False: not."""
        row = rows.ScheduleRow.of(_schedule_key(new.name), new, _version(old))
        put = _of_life(row.get_save_kwargs_from_instance(), old)
        return self._with_timer({"Put": put}, timer, timer_put(self._dynamo.tables, then))

    def delete_schedule(self, old: Schedule, timer: Timer | None) -> bool:
        """Remove a schedule with its timer, if they still are as they were read. False: they are not."""
        row = rows.ScheduleRow.of(_schedule_key(old.name), old, old.version)
        return self._with_timer({"Delete": _of_life(row.get_delete_kwargs_from_instance(), old)}, timer)

    def _with_timer(self, change: dict[str, Any], timer: Timer | None, *more: dict[str, Any]) -> bool:
        (request,) = change.values()
        request["TableName"] = self._table
        deletion = [timer_delete(self._tables, timer)] if timer else []
        return self._dynamo.transact([change, *deletion, *more])

    def events(self, *, consistent: bool = True) -> Events | None:
        """Where operational events go; None: nowhere."""
        return self._get(rows.EventsRow, _EVENTS, consistent=consistent)

    def put_events(self, events: Events | None) -> None:
        """Have events go elsewhere, or nowhere."""
        if events is None:
            self._delete(_EVENTS)
        else:
            self._put(rows.EventsRow.of(_EVENTS, events, events.version))

    def key_ring(self) -> KeyRing | None:
        """The stage's signing keys; None before they are first needed."""
        return self._get(rows.KeyRingRow, _KEY_RING)

    def put_key_ring(self, ring: KeyRing, old: KeyRing | None) -> bool:
        """Store if the signing keys still are `old` (None: absent). False: they are not."""
        return self._save(rows.KeyRingRow.of(_KEY_RING, ring, _version(old)))

    def _get(self, model: type[Row[T]], key: Key, *, consistent: bool = True) -> T | None:
        item = self._item(key, consistent=consistent)
        return model.decoded(item) if item else None

    def _item(self, key: Key, *, consistent: bool = True) -> Item | None:
        return self._dynamo.get(self._table, _item_key(key), consistent=consistent)

    def _below(self, model: type[Row[T]], pk: str, prefix: str) -> list[T]:
        """All under a prefix."""
        return [model.decoded(item) for item in self._query(pk, model.sk.startswith(prefix))]

    def _page(
        self, model: type[Row[T]], pk: str, after: str | None, limit: int, *, back: bool = False, **how: Any
    ) -> list[T]:
        """Up to `limit` items of a list, behind a key; unreadable rows are skipped."""
        where = None if after is None else model.sk < after if back else model.sk > after
        items = self._query(pk, where, Limit=limit, ScanIndexForward=not back, **how)
        return list(islice(self._dynamo.readable(items, model.decoded), limit))

    def _query(
        self, pk: str, where: Condition | None = None, *, consistent: bool = True, **how: Any
    ) -> Iterator[Item]:
        keys = Row.pk == pk
        names: dict[str, str] = {}
        values: dict[str, Any] = {}
        return self._dynamo.query(
            TableName=self._table,
            KeyConditionExpression=(keys if where is None else keys & where).serialize(names, values),
            ExpressionAttributeNames={placeholder: name for name, placeholder in names.items()},
            ExpressionAttributeValues=values,
            ConsistentRead=consistent,
            **how,
        )

    def _save(self, row: Row[Any], old: _Living | None = None) -> bool:
        """Store a row in the place of the version that it names; if `old` is given, of this life. False: another one is
        there, or none."""
        request = row.get_save_kwargs_from_instance()
        return self._call_if_unchanged("put_item", _of_life(request, old))

    def _put(self, row: Row[Any]) -> None:
        """Store a row, replacing an existing one."""
        self._dynamo.put(self._table, [row.serialize()])

    def _retire(self, model: type[Row[V]], key: Key, mark: Key, old: V) -> bool:
        """Delete a row that is as it was read; before that, mark that this was begun."""
        self._put(model.of(mark, old, old.version))
        request = model.of(key, old, old.version).get_delete_kwargs_from_instance()
        return self._call_if_unchanged("delete_item", _of_life(request, old))

    def _call_if_unchanged(self, operation: str, request: Mapping[str, Any]) -> bool:
        return self._dynamo.write_if(operation, **{**request, "TableName": self._table})

    def _delete(self, key: Key) -> None:
        self._dynamo.delete(self._table, [_item_key(key)])


def _of_life(request: Mapping[str, Any], old: _Living | None) -> dict[str, Any]:
    """The request, if the row is of this life: what is deleted and made again begins with the same version."""
    if old is None:
        return dict(request)
    condition = "uid = :uid"
    if "ConditionExpression" in request:
        condition = f"{request['ConditionExpression']} AND {condition}"
    values = {**request.get("ExpressionAttributeValues", {}), ":uid": text(old.uid)}
    return {**request, "ConditionExpression": condition, "ExpressionAttributeValues": values}


def _version(old: Topic | Group | Consumer | Token | Replay | KeyRing | Schedule | None) -> int | None:
    return old.version if old else None


def _item_key(key: Key) -> Item:
    return {"pk": text(key.pk), "sk": text(key.sk)}


def _home(topic: Topic) -> str:
    return f"topic#{topic.uid}"


def _group_key(topic: Topic, name: str) -> Key:
    return Key(_home(topic), f"group#{name}")


def _retired_key(topic: Topic, group: Group) -> Key:
    return Key(_home(topic), f"retired#{group.name}#{group.uid}")


def _consumer_key(topic: Topic, group: Group, name: str) -> Key:
    return Key(_home(topic), f"consumer#{group.uid}#{name}")


def _retired_consumer_key(topic: Topic, group: Group, consumer: Consumer) -> Key:
    return Key(_home(topic), f"left#{group.uid}#{consumer.name}#{consumer.uid}")


def _assignment_key(topic: Topic, group: Group) -> Key:
    return Key(_home(topic), f"assignment#{group.uid}")


def _replay_key(replay_id: str) -> Key:
    return Key(f"replays#{ids.home_of(replay_id)}", replay_id)


def _schedule_key(name: str) -> Key:
    return Key("schedules", name)


def _staffed_group(topic: Topic, group: Group, items: Mapping[str, Item]) -> Staffed | None:
    """A group among the topic's rows; None if it has neither consumers nor callbacks."""
    consumers = tuple(map(rows.ConsumerRow.decoded, _under(items, f"consumer#{group.uid}#")))
    row = items.get(_assignment_key(topic, group).sk)
    has_staff = consumers or group.callbacks
    return Staffed(group, consumers, rows.AssignmentRow.decoded(row) if row else None) if has_staff else None


def _under(items: Mapping[str, Item], prefix: str) -> list[Item]:
    """The rows under a prefix among those that are at hand, in their order."""
    return [item for sk, item in items.items() if sk.startswith(prefix)]
