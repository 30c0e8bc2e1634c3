"""Marks, the progress of scheduled jobs and readings of meters on DynamoDB (layout: table `rounds`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from ..domain import strict_json
from ..domain.attention import Attention, Kind
from ..domain.mark import Bookmark, EachMinute, Mark
from ..domain.meter import GroupReading, Level, Reading
from ..domain.timer import Timer
from ..domain.times import DAY_SECONDS
from . import codec
from .attributes import Item, attributes, int_of, known_int, known_text, number, rows, text, values
from .dynamo import TableAccess, write_of
from .layout import FORMAT
from .timers import timer_put

TimerOf = Callable[[Attention, bool], Timer | None]  # of a state, and whether it is over
_MARKS, _WATCHED = "mark", "watched"
_MOVING = "~"  # before the name; none begins so
_TROUBLED = "!"  # before what a rank lacks to nine, and the name: the worst come first
_BEHIND_TROUBLED = '"'
_ATTENTION, _BEHIND_ATTENTION = "#", "$"  # before the key of a state that needs a person
_KEEP_SECONDS = 7 * DAY_SECONDS  # longer than the sweep is ever switched off


class Marks(TableAccess, table="rounds"):
    """The topics that jobs look at each minute, by name: marked ones, and those that are watched. One write unit for a
    mark; half a read unit for a short or empty list."""

    def mark(self, mark: Mark) -> None:
        """Store a mark. Harmless to repeat."""
        expires_s = mark.at_ms // 1000 + _KEEP_SECONDS
        self._put(_MARKS, f"{mark.at_ms:015d}#{mark.topic}", {"x": number(expires_s)})

    def since(self, from_ms: int) -> Iterator[Mark]:
        """Marks of this time and later (also of times to come), the earliest first; it may be a moment old."""
        items = self._dynamo.query(**rows(self._table, "r = :r AND k >= :k", r=_MARKS, k=f"{from_ms:015d}"))
        for item in items:
            at_ms, _, topic = item["k"]["S"].partition("#")
            yield Mark(topic, int(at_ms))

    def watch(self, topic: str, edition: int) -> None:
        """Have a topic watched, whose settings have this edition."""
        self._put(_WATCHED, topic, {"e": number(edition)})

    def unwatch(self, topic: str) -> None:
        """Take a topic off the list of watched ones. Harmless if it is not there."""
        self._drop(topic)

    def note_moving(self, topic: str) -> None:
        """Have a topic's meters read, for something came into it. Harmless to repeat."""
        self._put(_WATCHED, _MOVING + topic, {})

    def note_at_rest(self, topic: str) -> None:
        """End the reading of a topic's meters. Harmless to repeat."""
        self._drop(_MOVING + topic)

    def note_trouble(self, topic: str, rank: int, before: int = 0) -> None:
        """Note how bad the worst thing is that is wrong with a topic, from 1 to 9 (0: nothing is), and what was noted
        `before`."""
        if rank:
            self._put(_WATCHED, _place(rank, topic), {})
        if before and before != rank:
            self._drop(_place(before, topic))

    def worst(self, most: int) -> dict[str, int]:
        """The topics that are worst off, the worst first; it may be a moment old."""
        items = self._page(_TROUBLED, _BEHIND_TROUBLED, most)
        return _ranks(item["k"]["S"] for item in items)

    def note_changes(
        self, old: Iterable[Attention], new: Iterable[Attention], timer_of: TimerOf = lambda *_: None
    ) -> None:
        """Note the states that need a person, and take those off the list that need none any more: a write for each
        difference, with its timer (of a state, and whether it is over), which is stored once. Harmless to repeat."""
        before, now = ({state.key: state for state in states} for states in (old, new))
        for key in now.keys() - before.keys():
            rest = {"s": number(now[key].since_ms), "a": number(now[key].noted_ms)}
            if timer := timer_of(now[key], False):
                item, condition = _row(_WATCHED, _ATTENTION + key, rest), "attribute_not_exists(r)"
                self._with_timer("Put", timer, Item=item, ConditionExpression=condition)
            else:
                self._put(_WATCHED, _ATTENTION + key, rest)
        for key in before.keys() - now.keys():
            if timer := timer_of(before[key], True):
                row = {"r": text(_WATCHED), "k": text(_ATTENTION + key)}
                self._with_timer("Delete", timer, Key=row, ConditionExpression="attribute_exists(r)")
            else:
                self._drop(_ATTENTION + key)

    def _with_timer(self, action: str, timer: Timer, **request: Any) -> None:
        """Change a row, if its condition is met, and store a timer in one transaction."""
        change = {action: {"TableName": self._table, **request}}
        self._dynamo.transact([change, timer_put(self._dynamo.tables, timer)])

    def attention(self, after: str | None, limit: int) -> list[Attention]:
        """The states that need a person, by key: those behind one; the list may be a moment old."""
        first = _ATTENTION + (f"{after} " if after else "")
        return [_state(item) for item in self._page(first, _BEHIND_ATTENTION, limit)]

    def each_minute(self) -> EachMinute:
        """All topics that some job looks at each minute, in one read; it may be a moment old."""
        items = list(self._dynamo.query(**rows(self._table, "r = :r", r=_WATCHED)))
        versions = {item["k"]["S"]: known_int(item, "e") for item in items}
        others = (_MOVING, _TROUBLED, _ATTENTION)
        watched_versions = {key: version for key, version in versions.items() if key[0] not in others}
        moving_topics = {key.removeprefix(_MOVING) for key in versions if key.startswith(_MOVING)}
        troubled_topics = _ranks(key for key in versions if key.startswith(_TROUBLED))
        states = [_state(item) for item in items if item["k"]["S"].startswith(_ATTENTION)]
        return EachMinute(watched_versions, moving_topics, troubled_topics, states)

    def _put(self, home: str, key: str, rest: Item) -> None:
        self._dynamo.put(self._table, [_row(home, key, rest)])

    def _drop(self, key: str) -> None:
        self._dynamo.delete(self._table, [{"r": text(_WATCHED), "k": text(key)}])

    def _page(self, first: str, last: str, most: int) -> list[Item]:
        """The first of the watched list's rows between two keys."""
        request = rows(self._table, "r = :r AND k BETWEEN :a AND :b", r=_WATCHED, a=first, b=last)
        return self._dynamo.page(**request, Limit=most)


def _row(home: str, key: str, rest: Item) -> Item:
    return {"r": text(home), "k": text(key), **rest, "v": {"N": FORMAT}}


def _place(rank: int, topic: str) -> str:
    return f"{_TROUBLED}{9 - rank}{topic}"


def _ranks(keys: Iterable[str]) -> dict[str, int]:
    """The rank of each topic's trouble, by name. If two processes noted a topic, the worse rank counts."""
    ranks: dict[str, int] = {}
    for key in keys:
        ranks.setdefault(key[2:], 9 - int(key[1]))
    return ranks


def _state(item: Item) -> Attention:
    topic, kind, group, consumer = item["k"]["S"][1:].split("#")
    since_ms, noted_ms = known_int(item, "s"), known_int(item, "a")
    return Attention(Kind(kind), since_ms, topic, group, consumer, noted_ms)


_HOME = "place"


class Rounds(TableAccess, table="rounds"):
    """The bookmarks of scheduled jobs: a run goes on where the last one stopped, in any process. A read costs a read
    unit, a write a write unit. A row that cannot be read counts as absent: the job starts over and replaces it."""

    def bookmark(self, job: str) -> Bookmark:
        """The job's bookmark, read consistently; one of version 0 if the job never ran."""
        item = self._dynamo.get(self._table, _key(job)) or {}
        is_open = bool(item.get("o", {}).get("BOOL"))
        return Bookmark(known_text(item, "a"), known_int(item, "p"), is_open, known_int(item, "e"))

    def keep(self, job: str, bookmark: Bookmark) -> Bookmark | None:
        """Store a bookmark, if the stored one has the same version. Returns it as stored; None: a race was lost."""
        new = replace(bookmark, version=bookmark.version + 1)
        row = attributes(p=new.passed_ms, e=new.version, a=new.after, v=int(FORMAT))
        item = {**_key(job), **row, "o": {"BOOL": new.is_open}}
        condition = "e = :e" if bookmark.version else "NOT attribute_type(e, :e)"
        known = values(e=bookmark.version or "N")
        write = write_of(self._table, item=item, condition=condition, known=known)
        return new if self._dynamo.write_if("put_item", **write) else None


def _key(job: str) -> Item:
    return {"r": text(_HOME), "k": text(job)}


# Of a row, with the backlogs by shard: 170 rows, a week's or a day's, are eleven read units then.
_MOST_BYTES = 512


class Readings(TableAccess, table="rounds"):
    """Readings of topics' meters, for charts only; they may be a moment old. A write unit for a reading; half a read
    unit for 4 KB of readings, some 10 to 40 of them."""

    def keep(self, topic_uid: str, level: Level, reading: Reading) -> None:
        """Store a reading, in the place of one of the same hour (ten minutes, minute)."""
        self._dynamo.put(self._table, [_item(topic_uid, level, reading)])

    def latest(self, topic_uid: str, level: Level, most: int) -> list[Reading]:
        """The last readings of a level, in order of time, without those that cannot be read."""
        request = rows(self._table, "r = :r", r=_home(topic_uid, level))
        items = self._dynamo.page(**request, ScanIndexForward=False, Limit=most)
        readings = self._dynamo.readable(reversed(items), partial(codec.decoded, "rounds", decode=_reading))
        return list(readings)


def _home(topic_uid: str, level: Level) -> str:
    return f"meter#{topic_uid}#{level.name}"


def _item(topic_uid: str, level: Level, reading: Reading) -> Item:
    start_ms = reading.at_ms // level.every_ms * level.every_ms
    groups = {name: [each.settled, each.backlog, each.retried] for name, each in reading.groups.items()}
    item = {
        **attributes(r=_home(topic_uid, level), k=f"{start_ms:015d}", a=reading.at_ms, n=reading.accepted),
        **attributes(g=msgspec.json.encode(groups).decode(), x=(reading.at_ms + level.keep_ms) // 1000),
        "v": {"N": FORMAT},
    }
    if by_shard := _by_shard(reading.groups, _MOST_BYTES - _bytes(item)):
        item["b"] = text(by_shard)
    return item


def _reading(item: Item) -> Reading:
    groups = strict_json.decoded(item["g"]["S"], dict[str, tuple[int, int, int]])
    parts = strict_json.decoded(item["b"]["S"], list[tuple[int, ...]]) if "b" in item else [()] * len(groups)
    pairs = zip(groups.items(), parts, strict=True)
    readings = {name: GroupReading(*numbers, by_shard) for (name, numbers), by_shard in pairs}
    return Reading(int_of(item, "a"), int_of(item, "n"), readings)


def _by_shard(groups: Mapping[str, GroupReading], room: int) -> str | None:
    """The backlogs by shard as they are stored: those that are behind, the most of them first, while there is room."""
    parts = dict.fromkeys(groups, b"[]")
    room -= sum(len(part) + 1 for part in parts.values()) + 2
    for name, each in sorted(groups.items(), key=lambda entry: -entry[1].backlog):
        part = msgspec.json.encode(each.by_shard)
        if each.backlog and len(part) <= room:
            parts[name] = part
            room -= len(part)
    is_any_behind = any(part != b"[]" for part in parts.values())
    return f"[{b','.join(parts.values()).decode()}]" if is_any_behind else None


def _bytes(item: Item) -> int:
    """The size of a row in bytes, about as DynamoDB counts it."""
    return sum(len(name) + len(str(value).encode()) for name, each in item.items() for value in each.values())
