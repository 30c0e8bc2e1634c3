"""Rows of a store in memory that are not as they were written: what reads them gets what the row's own format makes of
the damage, as on DynamoDB. A row that is written anew is whole again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from chalicelib.adapters import Adapters
from chalicelib.domain.assignment import Staffed
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.cursor_write import Change as CursorChange
from chalicelib.domain.cursor_write import WriteRefused
from chalicelib.domain.errors import newer_format, unavailable
from chalicelib.domain.record import DeadLetter, Record, Unfinished
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.status import Status
from chalicelib.domain.timer import Timer
from chalicelib.domain.topic import Consumer, CursorKey, Group, Topic
from chalicelib.domain.unreadable import NoteUnreadable, PassOver, ignore_unreadable, leave_out
from chalicelib.store import control as control_store
from chalicelib.store import cursors as cursor_store
from chalicelib.store import records as record_store
from chalicelib.store.attributes import Item, known_int
from chalicelib.store.control_rows import AssignmentRow, ConsumerRow, GroupRow, Key, Row, TopicRow
from chalicelib.store.layout import cursor_item_key, is_newer, record_key

Change = Callable[[Item], Item]
Place = tuple[str, str]
T = TypeVar("T")


@dataclass
class Scars:
    """The damaged rows of a table, by place, each with what stood there when it was damaged."""

    of: dict[Place, tuple[object, Change]] = field(default_factory=dict)

    def add(self, place: Place, row: object, change: Change) -> None:
        assert row is not None, "there is no such row"
        _, before = self.of.get(place, (None, lambda item: item))
        self.of[place] = row, lambda item: change(before(item))

    def heal(self) -> None:
        """Somebody has put all rows right."""
        self.of.clear()

    def on(self, place: Place, row: object) -> Change | None:
        """What befell the row; None: it is whole."""
        noun, change = self.of.get(place, (None, None))
        return change if noun is row else None


class Scarred:
    """A port of the memory store that may have damaged rows."""

    def __init__(self, port: Any) -> None:
        self._port = port
        self.scars = Scars()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)


class ScarredControl(Scarred):
    """store.Control."""

    def damage(self, pk: str, sk: str, change: Change) -> None:
        """Change a stored topic, group, consumer or assignment."""
        self.scars.add((pk, sk), dict(self._rows())[pk, sk], change)

    def _rows(self) -> Iterable[tuple[Place, object]]:
        port = self._port
        for topic in port.topics(None, 1 << 30):
            yield ("topics", topic.name), topic
            for group in port.groups(topic):
                yield _place(control_store._group_key(topic, group.name)), group
                yield _place(control_store._assignment_key(topic, group)), port.assignment(topic, group)
                for each in port.consumers(topic, group):
                    yield _place(control_store._consumer_key(topic, group, each.name)), each

    def topic(self, name: str, *, consistent: bool = True) -> Topic | None:
        return self._decoded(TopicRow, Key("topics", name), self._port.topic(name))

    def topics(
        self, after: str | None, limit: int, *, consistent: bool = True, pass_over: PassOver = leave_out
    ) -> list[Topic]:
        topics: list[Topic] = []
        for topic in self._port.topics(after, 1 << 30):
            if len(topics) == limit:
                break
            key = Key("topics", topic.name)
            topics += self._readable(TopicRow, [(key, topic)], pass_over)
        return topics

    def group(self, topic: Topic, name: str) -> Group | None:
        return self._decoded(GroupRow, control_store._group_key(topic, name), self._port.group(topic, name))

    def groups(self, topic: Topic, pass_over: PassOver | None = None) -> list[Group]:
        rows = [(control_store._group_key(topic, g.name), g) for g in self._port.groups(topic)]
        return self._readable(GroupRow, rows, pass_over)

    def consumer(self, topic: Topic, group: Group, name: str) -> Consumer | None:
        key = control_store._consumer_key(topic, group, name)
        return self._decoded(ConsumerRow, key, self._port.consumer(topic, group, name))

    def consumers(self, topic: Topic, group: Group, pass_over: PassOver | None = None) -> list[Consumer]:
        rows = [
            (control_store._consumer_key(topic, group, c.name), c) for c in self._port.consumers(topic, group)
        ]
        return self._readable(ConsumerRow, rows, pass_over)

    def assignment(self, topic: Topic, group: Group) -> Any:
        key = control_store._assignment_key(topic, group)
        return self._decoded(AssignmentRow, key, self._port.assignment(topic, group))

    def staffed_groups(self, topic: Topic, pass_over: PassOver | None = None) -> list[Staffed]:
        staffed_groups = []
        for group in self.groups(topic, pass_over):
            consumers = self.consumers(topic, group, pass_over)
            key, assignment = control_store._assignment_key(topic, group), self._port.assignment(topic, group)
            rows = self._readable(AssignmentRow, [(key, assignment)] if assignment else [], pass_over)
            if consumers and (rows or not assignment):
                is_whole = len(consumers) == len(self._port.consumers(topic, group))
                staffed_groups.append(Staffed(group, tuple(consumers), rows[0] if rows else None, is_whole))
        return staffed_groups

    def _readable(
        self, model: type[Row[T]], rows: Sequence[tuple[Key, T]], pass_over: PassOver | None
    ) -> list[T]:
        items = ((key, noun, self.scars.on(_place(key), noun)) for key, noun in rows)
        whole = (
            noun
            if change is None
            else control_store.readable(model, _item(model, key, noun, change), pass_over)
            for key, noun, change in items
        )
        return [noun for noun in whole if noun is not None]

    def _decoded(self, model: type[Row[T]], key: Key, row: T | None) -> T | None:
        change = self.scars.on(_place(key), row)
        if row is None or change is None:
            return row
        return model.decoded(_item(model, key, row, change))


def _place(key: Key) -> Place:
    return key.pk, key.sk


def _item(model: type[Row[T]], key: Key, noun: Any, change: Change) -> Item:
    version = noun.epoch if model is AssignmentRow else noun.version
    item: Item = model.of(key, noun, version).serialize()
    return {**change(item), "pk": item["pk"], "sk": item["sk"]}


class ScarredCursors(Scarred):
    """store.Cursors. Here damage stays until somebody makes the cursor anew."""

    def damage(self, key: CursorKey, change: Change) -> None:
        """Change a stored cursor."""
        assert self._port.get(key) is not None, "there is no such cursor"
        self.scars.add(_cursor_place(key), self.scars, change)

    def get(self, key: CursorKey, *, consistent: bool = False) -> Cursor | None:
        item = self._damaged_item(key)
        return cursor_store.cursor_of(item) if item else self._port.get(key)

    def of_owner(
        self,
        group_uid: str,
        consumer_uid: str = "",
        *,
        consistent: bool = False,
        note_unreadable: NoteUnreadable = ignore_unreadable,
    ) -> dict[str, Cursor]:
        cursors: dict[str, Cursor] = self._port.of_owner(group_uid, consumer_uid)
        keys = {str(key.shard): key for key in self._port._items}
        for shard in cursors:
            if item := self._damaged_item(
                replace(keys[shard], group_uid=group_uid, consumer_uid=consumer_uid)
            ):
                cursors[shard] = cursor_store._or_first(item, note_unreadable)
        return cursors

    def create(self, key: CursorKey, cursor: Cursor) -> Cursor:
        item = self._damaged_item(key)
        return cursor_store.cursor_of(item) if item else self._port.create(key, cursor)

    def write(
        self,
        key: CursorKey,
        change: CursorChange,
        records: Sequence[Record] = (),
        timers: Sequence[Timer] = (),
        *,
        exists: bool = True,
    ) -> Cursor | WriteRefused:
        """No condition holds for a damaged cursor."""
        if item := self._damaged_item(key):
            return cursor_store.cursor_of(item)
        answer: Cursor | WriteRefused = self._port.write(key, change, records, timers, exists=exists)
        return answer

    def rebuild(self, key: CursorKey, cursor: Cursor) -> Cursor:
        item = self._damaged_item(key)
        if item and is_newer(item):
            raise newer_format()
        if not item or cursor_store._readable(item):
            raise unavailable("The cursor can be read by now; try again.")
        after = replace(cursor, epoch=max(cursor.epoch, known_int(item, "e") + 1))
        self._port._items[key] = after
        del self.scars.of[_cursor_place(key)]
        return after

    def close(self, keys: Iterable[CursorKey], until_s: int) -> None:
        cursor_keys = list(keys)
        self._port.close(cursor_keys, until_s)
        for key in cursor_keys:
            self.scars.of.pop(_cursor_place(key), None)

    def _damaged_item(self, key: CursorKey) -> Item | None:
        """The item as it is, if it is damaged."""
        change = self.scars.on(_cursor_place(key), self.scars)
        cursor: Cursor | None = self._port._items.get(key)
        if change is None or cursor is None:
            return None
        return change({**cursor_item_key(key), **cursor_store._item(cursor)})


def _cursor_place(key: CursorKey) -> Place:
    item = cursor_item_key(key)
    return item["c"]["S"], item["s"]["S"]


class ScarredRecords(Scarred):
    """store.Records."""

    def damage(self, key: CursorKey, offset: int, change: Change) -> None:
        """Change a stored record."""
        place = _record_place(key, offset)
        self.scars.add(place, self._port._tables.records[place], change)

    def damage_letter(self, key: CursorKey, offset: int, change: Change) -> None:
        """Change a stored dead letter."""
        place = _record_place(key, offset, is_dead=True)
        self.scars.add(place, self._port._tables.letters[place], change)

    def get(self, key: CursorKey, offset: int) -> Record | None:
        return self._record(key, offset, self._port.get(key, offset))

    def between(self, group_uid: str, shard: ShardKey, first: int, last: int) -> list[Record]:
        records = (
            self.get(CursorKey(shard, group_uid, record.consumer_uid), record.offset)
            for record in self._port.between(group_uid, shard, first, last)
        )
        return [record for record in records if record]

    def _record(self, key: CursorKey, offset: int, record: Record | None) -> Record | None:
        item = self._item_of(key, offset, record)
        return record_store._record(item) if item else record

    def _item_of(self, key: CursorKey, offset: int, record: Record | None) -> Item | None:
        place = _record_place(key, offset)
        change = self.scars.on(place, record)
        if record is None or change is None:
            return None
        return change({**record_key(key, offset), **record_store._item(record)})

    def unfinished(self, topic_uid: str, group_uid: str) -> list[Unfinished]:
        rows = self._port.unfinished(topic_uid, group_uid)
        return [row for row in rows if not self._is_lost(topic_uid, group_uid, row)]

    def first_unfinished(self, topic_uid: str, group_uid: str, most: int) -> tuple[list[Unfinished], bool]:
        rows, are_all = self._port.first_unfinished(topic_uid, group_uid, most)
        return [row for row in rows if not self._is_lost(topic_uid, group_uid, row)], are_all

    def _is_lost(self, topic_uid: str, group_uid: str, row: Unfinished) -> bool:
        """Does the damage take the record out of what is asked for by its status?"""
        for place in self.scars.of:
            record = self._port._tables.records.get(place)
            change = self.scars.on(place, record)
            if change and place[0] == group_uid and place[1].startswith(f"{topic_uid}/"):
                same = (record.shard, record.offset, record.consumer_uid)
                status = change(record_store._item(record)).get("j", {}).get("S")
                if same == (row.shard, row.offset, row.consumer_uid):
                    return status not in (Status.DEAD, Status.RETRYING)
        return False

    def dead(self, topic: Topic, group: Group, after: str | None, limit: int) -> list[tuple[str, DeadLetter]]:
        letters = self._port.dead(topic, group, after, 1 << 30)
        dead_letters = ((k, self._letter(letter)) for k, letter in letters)
        return [(k, letter) for k, letter in dead_letters if letter][:limit]

    def dead_letter(self, key: CursorKey, offset: int) -> DeadLetter | None:
        letter = self._port.dead_letter(key, offset)
        if letter and (item := self._damaged_item(letter)):
            if is_newer(item):
                raise newer_format()
            return record_store._letter(key, item) if "m" in item else None
        return letter  # type: ignore[no-any-return]

    def letters_between(self, key: CursorKey, first: int, last: int) -> dict[int, DeadLetter]:
        letters = self._port.letters_between(key, first, last)
        readable = {offset: self._letter(letter) for offset, letter in letters.items()}
        return {offset: letter for offset, letter in readable.items() if letter}

    def letters_at(self, group_uid: str, shard: ShardKey, offset: int, most: int) -> Iterator[DeadLetter]:
        letters = self._port.letters_at(group_uid, shard, offset, most)
        return (each for each in map(self._letter, letters) if each)

    def all_letters_at(self, group_uid: str, shard: ShardKey, offset: int) -> list[DeadLetter]:
        letters = self._port.all_letters_at(group_uid, shard, offset)
        return [each for letter in letters if (each := self.dead_letter(letter.key, letter.offset))]

    def _letter(self, letter: DeadLetter) -> DeadLetter | None:
        item = self._damaged_item(letter)
        if item is None:
            return letter
        return record_store._letter(letter.key, item) if "m" in item and not is_newer(item) else None

    def _damaged_item(self, letter: DeadLetter) -> Item | None:
        place = _record_place(letter.key, letter.offset, is_dead=True)
        change = self.scars.on(place, self._port._tables.letters.get(place))
        return change(record_store._letter_item(letter)) if change else None


def _record_place(key: CursorKey, offset: int, *, is_dead: bool = False) -> Place:
    row = record_key(key, offset, dead=is_dead)
    return row["g"]["S"], row["k"]["S"]


def scarred(adapters: Adapters) -> Adapters:
    """The same store, whose rows may be damaged."""
    ports: dict[str, Any] = {
        "control": ScarredControl(adapters.control),
        "cursors": ScarredCursors(adapters.cursors),
        "records": ScarredRecords(adapters.records),
    }
    return replace(adapters, **ports)
