"""Timers on DynamoDB (layout: table `timers`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from ..domain.append import DedupEntry, Successor
from ..domain.limits import MAX_LOOK_BYTES
from ..domain.message import Draft
from ..domain.record import DeadLetter, Record
from ..domain.timer import FirstTimers, Moved, Timer, TimerKind, due_ms_of
from ..domain.topic import CursorKey
from . import codec
from .attributes import Fields, Item, attributes, int_of, number_of, packed, payload_of, rows, text, values
from .clients import sent_once
from .dedup import dedup_put, store_with
from .dynamo import Action, Cancelled, TableAccess, write_of
from .layout import FORMAT, Tables, forward_key, fragment_of, shard_of, timer_key
from .records import letter_move, record_writes

_BEHIND_ALL = "~"
_RESEND_MS = 60_000  # for how long the SDK may send a request again, and how far clocks may differ
_NEXT = "!"  # sorts before all that ids hold
_FIELDS = Fields("group_uid:g consumer_uid:c", "stored_ms:a edits:e every_ms:y", sparse="gcaey")


class Timers(TableAccess, table="timers"):
    """What is due later, by fragment and due time: one write unit for a small timer, one query for due timers."""

    def fragments(self) -> range:
        """All that may have timers."""
        return range(max(self._tables.fragments))

    def fragment_of(self, text: str) -> int:
        """The fragment of new timers of this id, or in this unit of order."""
        return fragment_of(text, self._tables.fragments[0])

    def fragments_of(self, timer_id: str) -> list[int]:
        """The fragments that may have a timer of this id: that of new ones is the first."""
        return self._tables.fragments_of(timer_id)

    def send_later(self, moves: Sequence[tuple[DeadLetter, Timer]], at_ms: int) -> Sequence[int]:
        """Replace dead letters by timers of their next attempts, in one transaction of three actions each. Returns the
        places of those that are gone or were changed; if there are any, nothing is written."""
        records = self._dynamo.tables.records
        actions: list[Action] = []
        for letter, timer in moves:
            actions += [*letter_move(records, letter, at_ms, timer.due_ms), timer_put(self._tables, timer)]
        try:
            self._dynamo.call("transact_write_items", TransactItems=actions)
        except Cancelled as error:
            return sorted({place // 3 for place, item in enumerate(error.items) if item is not None})
        return ()

    def store(self, timers: Sequence[Timer], dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        """Store timers. Harmless to repeat. With dedup ids all goes in one transaction of at most 100 rows. Returns
        the entries of ids that were used before; then nothing is stored."""
        different = {(timer.due_ms, timer.id): _item(self._tables, timer) for timer in timers}
        if not dedup:
            with sent_once() if any(map(_is_near, timers)) else nullcontext():
                self._dynamo.put(self._table, list(different.values()))
            return ()
        puts = [{"Put": {"TableName": self._table, "Item": item}} for item in different.values()]
        return store_with(self._dynamo, dedup, puts)

    def amend(self, old: Timer, new: Timer, keep_s: int, entry: DedupEntry | None = None) -> bool:
        """Replace `old` by `new`, if `old` is unchanged. If the time differs, a row leads from the old time to the
        new one until `keep_s`, and the `entry` of its job is stored again. False: the timer is gone or was changed."""
        new = replace(new, edits=old.edits + 1, fragment=old.fragment)
        item = _item(self._tables, new)
        if new.due_ms == old.due_ms:
            return self._dynamo.replace(self._table, item, _if_unchanged(old))
        items = (item, _forward(self._tables, new, keep_s))
        puts = [{"Put": {"TableName": self._table, "Item": each}} for each in items]
        puts += [dedup_put(self._tables.dedup, entry)] if entry else []
        return self._dynamo.transact([timer_delete(self._tables, old), *puts])

    def cancel(self, timer: Timer, keep_s: int, successor: Successor | None = None) -> bool:
        """Delete the timer, if it is unchanged, and store its successor. A row shows it as cancelled, with the draft
        given here, until `keep_s`. False: it is gone or was changed, or another has its dedup id."""
        tombstone = {**_content(timer), **_forward(self._tables, timer, keep_s), "j": text("CANCELLED")}
        put, tables = {"Put": {"TableName": self._table, "Item": tombstone}}, self._tables
        return self._dynamo.transact([timer_delete(tables, timer), put, *successor_puts(tables, successor)])

    def restore(self, timer: Timer) -> None:
        """Store a timer that was lost, if it is not there."""
        put = timer_put(self._tables, timer)["Put"]
        self._dynamo.write_if("put_item", **put, ConditionExpression="attribute_not_exists(f)")

    def succeed(self, old: Timer, *new: Timer) -> bool:
        """Replace a timer by one of another time, and others. False: it is gone or was changed."""
        puts = (timer_put(self._tables, each) for each in new)
        return self._dynamo.transact([timer_delete(self._tables, old), *puts])

    def exchange(
        self, old: Timer, new: Timer | None, key: CursorKey, records: Sequence[Record], more: Sequence[Timer]
    ) -> bool:
        """In one transaction store records of a delivery, and `more` timers, and replace its retry timer, if that is
        unchanged, by `new` (None: delete it). False: the timer is gone or was changed."""
        if new is None:
            writes = [timer_delete(self._tables, old)]
        else:
            put = timer_put(self._tables, replace(new, edits=old.edits + 1, fragment=old.fragment))
            is_same_row = new.sort_key == old.sort_key
            same_put = {"Put": {**put["Put"], **_if_unchanged(old)}}
            writes = [same_put] if is_same_row else [timer_delete(self._tables, old), put]
        puts = [timer_put(self._tables, each) for each in more]
        return self._dynamo.transact([*writes, *puts, *record_writes(self._tables.records, key, records)])

    def take(self, retries: Sequence[tuple[int, str]], key: CursorKey, records: Sequence[Record]) -> bool:
        """In one transaction delete retry timers (their due times and ids), if all are there, and store records of
        their deliveries."""
        if_there = {"TableName": self._table, "ConditionExpression": "attribute_exists(f)"}
        keys = [timer_key(self._fragment_with(due_ms, id), due_ms, id) for due_ms, id in retries]
        deletions = [{"Delete": {"Key": key, **if_there}} for key in keys]
        return self._dynamo.transact([*deletions, *record_writes(self._dynamo.tables.records, key, records)])

    def find_moved(self, timer_id: str) -> Moved | None:
        """The new time of a timer that was changed to another time or cancelled, read consistently; None if it was
        not."""
        keys = (forward_key(fragment, timer_id) for fragment in self.fragments_of(timer_id))
        items = (self._dynamo.get(self._table, key) for key in keys)
        return next((codec.decoded("timers", item, _moved) for item in items if item), None)

    def first_due(
        self, fragment: int, until_ms: int, limit: int, behind: str = "", *, consistent: bool = True
    ) -> FirstTimers:
        """The first timers of a fragment that are due by `until_ms`, after the sort key `behind`, in order of time;
        at most `limit`, and not many more than MAX_LOOK_BYTES. A read that is not consistent may miss the newest; here
        and below, timers that cannot be read are skipped."""
        first = f"{behind}{_NEXT}" if behind else "0"
        end = f"{until_ms + 1:015d}"
        return first_of(self._between(fragment, first, end, limit + 1, consistent=consistent), limit)

    def behind(self, fragment: int, sort_key: str, limit: int, *, consistent: bool = True) -> list[Timer]:
        """The first timers of a fragment that come after a sort key, in order of time."""
        return list(self._between(fragment, f"{sort_key}{_NEXT}", _BEHIND_ALL, limit, consistent=consistent))

    def count_by_topic(self, fragment: int, most: int) -> tuple[dict[tuple[str, str], int], bool]:
        """Count the timers by topic (its uid) and kind among the first `most` of a fragment, or as many as one read
        returns; and whether those are all timers. It may be a moment old."""
        request = rows(self._table, "f = :f AND t < :end", f=str(fragment), end=_BEHIND_ALL)
        answer = self._dynamo.call("query", ProjectionExpression="f, t, k, s", Limit=most, **request)
        decode = partial(codec.decoded, "timers", decode=_topic_and_kind)
        return Counter(self._dynamo.readable(answer["Items"], decode)), "LastEvaluatedKey" not in answer

    def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
        """When the fragment's next timer is due. A read that is not consistent may miss the newest."""
        first = self._between(fragment, "0", _BEHIND_ALL, 1, consistent=consistent)
        return next((timer.due_ms for timer in first), None)

    def find(self, due_ms: int, timer_id: str) -> Timer | None:
        """One timer, read consistently."""
        keys = (timer_key(fragment, due_ms, timer_id) for fragment in self.fragments_of(timer_id))
        items = (self._dynamo.get(self._table, key) for key in keys)
        return next((timer_of(item) for item in items if item), None)

    def drop(self, timers: Sequence[Timer]) -> None:
        """Remove timers. Harmless where they are gone. A WAKE that was stored again since it was read stays: the
        process that stored it may not have seen what the first one woke."""
        wakes = [timer for timer in timers if timer.kind is TimerKind.WAKE and timer.stored_ms]
        for wake in wakes:
            key, known = key_of(self._tables, wake), values(a=wake.stored_ms)
            write = write_of(self._table, key=key, condition="a = :a", known=known)
            self._dynamo.write_if("delete_item", **write)
        others = [timer for timer in timers if timer not in wakes]
        different = {(timer.due_ms, timer.id): key_of(self._tables, timer) for timer in others}
        self._dynamo.delete(self._table, list(different.values()))

    def _fragment_with(self, due_ms: int, timer_id: str) -> int:
        """The fragment that has this timer; if it is gone, that of new ones."""
        first, *others = self.fragments_of(timer_id)
        timer = self.find(due_ms, timer_id) if others else None
        return first if timer is None or timer.fragment is None else timer.fragment

    def _between(self, fragment: int, first: str, end: str, limit: int, consistent: bool) -> Iterator[Timer]:
        """The first timers with sort keys from `first` to `end`."""
        if first > end:  # DynamoDB refuses to look there
            return iter(())
        where = "f = :f AND t BETWEEN :first AND :end"
        request = rows(self._table, where, f=str(fragment), first=first, end=end)
        items = self._dynamo.query(**request, Limit=limit, ConsistentRead=consistent)
        return islice(self._dynamo.readable(items, timer_of), limit)


def _is_near(timer: Timer) -> bool:
    """May a mover take this new timer, and put its message into the log, before the SDK has stored it again?"""
    return timer.kind is TimerKind.DELIVER and timer.due_ms < timer.stored_ms + _RESEND_MS


def first_of(timers: Iterator[Timer], limit: int) -> FirstTimers:
    """The first of these timers, as many as fit one look; later ones are not read."""
    first_timers: list[Timer] = []
    weight = 0
    for timer in timers:
        if len(first_timers) == limit or (first_timers and weight > MAX_LOOK_BYTES):
            return FirstTimers(first_timers, first_timers[-1].sort_key)
        first_timers.append(timer)
        weight += timer.weight
    return FirstTimers(first_timers)


def key_of(tables: Tables, timer: Timer) -> Item:
    """The key of a timer: in the fragment from which it was read, else in that of new timers."""
    return timer_key(_fragment(tables, timer), timer.due_ms, timer.id)


def _fragment(tables: Tables, timer: Timer) -> int:
    return fragment_of(timer.id, tables.fragments[0]) if timer.fragment is None else timer.fragment


def timer_put(tables: Tables, timer: Timer) -> dict[str, Any]:
    """The transaction's action that files a timer."""
    return {"Put": {"TableName": tables.timers, "Item": _item(tables, timer)}}


def successor_puts(tables: Tables, successor: Successor | None) -> list[dict[str, Any]]:
    """The transaction's actions that store a message which takes the place of another's."""
    if successor is None:
        return []
    timer, entry = successor
    return [timer_put(tables, timer), dedup_put(tables.dedup, entry)]


def timer_delete(tables: Tables, timer: Timer) -> dict[str, Any]:
    """The transaction's action that deletes a timer, if it is unchanged."""
    return {"Delete": {"TableName": tables.timers, "Key": key_of(tables, timer), **_if_unchanged(timer)}}


def timer_shortening(tables: Tables, timer: Timer, rest: Sequence[Draft]) -> dict[str, Any]:
    """The transaction's action that leaves a timer these drafts only, if it is unchanged."""
    shorter = replace(timer, draft=rest[0], more=tuple(rest[1:]), edits=timer.edits + 1)
    return {"Put": {**timer_put(tables, shorter)["Put"], **_if_unchanged(timer)}}


def _if_unchanged(timer: Timer) -> dict[str, Any]:
    if not timer.edits:
        return {"ConditionExpression": "attribute_exists(f) AND attribute_not_exists(e)"}
    return {"ConditionExpression": "e = :e", "ExpressionAttributeValues": values(e=timer.edits)}


def _forward(tables: Tables, timer: Timer, keep_s: int) -> Item:
    """The row that says where a timer is now, for who knows its first time."""
    row = attributes(u=timer.due_ms, e=timer.edits, x=keep_s, v=int(FORMAT))
    return {**forward_key(_fragment(tables, timer), timer.id), **row}


def _item(tables: Tables, timer: Timer) -> Item:
    return {**key_of(tables, timer), **_content(timer), "v": {"N": FORMAT}}


def _content(timer: Timer) -> Item:
    own = attributes(k=timer.kind, s=str(timer.shard), d=timer.keep_days or None)
    item = {**own, **_FIELDS.packed(timer)}
    if timer.draft:
        item["m"] = packed(codec.pack(timer.drafts, whole=True).payload)
    return item


def timer_of(item: Item) -> Timer:
    """The timer of a row. Raises Unreadable."""
    return codec.decoded("timers", item, _timer)


def _timer(item: Item) -> Timer:
    sort_key = item["t"]["S"]
    return _content_of(item, due_ms_of(sort_key), sort_key.partition("#")[2])


def _moved(item: Item) -> Moved:
    due_ms, timer_id = int_of(item, "u"), item["t"]["S"].removeprefix(_BEHIND_ALL)
    cancelled_timer = _content_of(item, due_ms, timer_id) if "j" in item else None
    return Moved(due_ms, cancelled_timer, int_of(item, "e"))


def _content_of(item: Item, due_ms: int, timer_id: str) -> Timer:
    payload = payload_of(item)
    kind = TimerKind(item["k"]["S"])
    draft, *more = codec.unpack(payload) if payload else (None,)
    if draft is None and kind not in (TimerKind.WAKE, TimerKind.CHECK):
        raise ValueError("it has lost its message")
    others = {"fragment": int(item["f"]["S"]), "more": tuple(filter(None, more)), **_FIELDS.unpacked(item)}
    shard, keep_days = shard_of(item["s"]["S"]), number_of(item, "d")
    return Timer(due_ms, timer_id, kind, shard, draft, keep_days, **others)


def _topic_and_kind(item: Item) -> tuple[str, str]:
    return shard_of(item["s"]["S"]).topic_uid, item["k"]["S"]
