"""Timers on DynamoDB (layout: table `timers`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from ..domain.append import DedupEntry
from ..domain.limits import MAX_LOOK_BYTES
from ..domain.record import DeadLetter, Record
from ..domain.timer import FirstTimers, Moved, Timer, TimerKind, due_ms_of
from ..domain.times import CLOCKS_DIFFER_MS
from ..domain.topic import CursorKey
from . import codec
from .attributes import Item, int_of, known_int, number, number_of, packed, payload_of, text, text_of, values
from .clients import sent_once
from .dedup import dedup_put, used_entries
from .dynamo import Cancelled, ConditionFailed, Dynamo
from .layout import FORMAT, forward_key, lease_key, shard_of, timer_key
from .records import letter_move, record_writes

_BEHIND_ALL = "~"  # and before the lease
_RESEND_MS = 60_000  # for how long the SDK may send a request again, and how far clocks may differ
_NEXT = "!"  # sorts before all that ids hold


class Timers:
    """What is due later, by fragment and due time: one write unit for a small timer, one query for due timers."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._table = dynamo.tables.timers

    def send_later(self, moves: Sequence[tuple[DeadLetter, Timer]], at_ms: int) -> Sequence[int]:
        """Replace dead letters by timers of their next attempts, in one transaction of three actions each. Returns the
        places of those that are gone or were changed; if there are any, nothing is written."""
        records = self._dynamo.tables.records
        actions = (
            [*letter_move(records, letter, at_ms, timer.due_ms), timer_put(self._table, timer)]
            for letter, timer in moves
        )
        try:
            self._dynamo.call("transact_write_items", TransactItems=list(chain.from_iterable(actions)))
        except Cancelled as error:
            return sorted({place // 3 for place, item in enumerate(error.items) if item is not None})
        return ()

    def store(self, timers: Sequence[Timer], dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        """Store timers. Harmless to repeat. With dedup ids all goes in one transaction of at most 100 rows. Returns
        the entries of ids that were used before; then nothing is stored."""
        different = {(timer.due_ms, timer.id): _item(timer) for timer in timers}
        if not dedup:
            with sent_once() if any(map(_is_near, timers)) else nullcontext():
                self._dynamo.put(self._table, list(different.values()))
            return ()
        puts = [{"Put": {"TableName": self._table, "Item": item}} for item in different.values()]
        ids = [dedup_put(self._dynamo.tables.dedup, entry) for entry in dedup]
        try:
            self._dynamo.call("transact_write_items", TransactItems=[*ids, *puts])
        except Cancelled as error:
            return used_entries(dedup, error.items)
        return ()

    def amend(self, old: Timer, new: Timer, keep_s: int) -> bool:
        """Replace `old` by `new`, if `old` is unchanged. If the time differs, a row leads from the old time to the
        new one until `keep_s`. False: the timer is gone or was changed."""
        item = _item(replace(new, edits=old.edits + 1))
        if new.due_ms == old.due_ms:
            return self._dynamo.replace(self._table, item, _if_unchanged(old))
        forward = _forward(replace(new, edits=old.edits + 1), keep_s)
        puts = [{"Put": {"TableName": self._table, "Item": each}} for each in (item, forward)]
        return self._dynamo.transact([timer_delete(self._table, old), *puts])

    def cancel(self, timer: Timer, keep_s: int) -> bool:
        """Delete the timer, if it is unchanged. A row shows it as cancelled, with the draft given here, until
        `keep_s`. False: it is gone or was changed."""
        tombstone = {**_content(timer), **_forward(timer, keep_s), "j": text("CANCELLED")}
        put = {"Put": {"TableName": self._table, "Item": tombstone}}
        return self._dynamo.transact([timer_delete(self._table, timer), put])

    def exchange(self, old: Timer, new: Timer | None, key: CursorKey, records: Sequence[Record]) -> bool:
        """In one transaction store records of a delivery and replace its retry timer, if that is unchanged, by `new`
        (None: delete it). False: the timer is gone or was changed."""
        if new is None:
            timer_writes = [timer_delete(self._table, old)]
        else:
            put = timer_put(self._table, replace(new, edits=old.edits + 1))
            is_same_row = new.sort_key == old.sort_key
            same_put = {"Put": {**put["Put"], **_if_unchanged(old)}}
            timer_writes = [same_put] if is_same_row else [timer_delete(self._table, old), put]
        return self._dynamo.transact(
            [*timer_writes, *record_writes(self._dynamo.tables.records, key, records)]
        )

    def take(self, retries: Sequence[tuple[int, str]], key: CursorKey, records: Sequence[Record]) -> bool:
        """In one transaction delete retry timers (their due times and ids), if all are there, and store records of
        their deliveries."""
        if_there = {"TableName": self._table, "ConditionExpression": "attribute_exists(f)"}
        deletions = [{"Delete": {"Key": timer_key(due_ms, id), **if_there}} for due_ms, id in retries]
        return self._dynamo.transact([*deletions, *record_writes(self._dynamo.tables.records, key, records)])

    def find_moved(self, timer_id: str) -> Moved | None:
        """The new time of a timer that was changed to another time or cancelled, read consistently; None if it was
        not."""
        item = self._dynamo.get(self._table, forward_key(timer_id))
        return codec.decoded("timers", item, _moved) if item else None

    def first_due(self, fragment: int, until_ms: int, limit: int, behind: str = "") -> FirstTimers:
        """The first timers of a fragment that are due by `until_ms`, after the sort key `behind`, in order of time;
        at most `limit`, and not many more than MAX_LOOK_BYTES. Read consistently; here and below, timers that cannot
        be read are skipped."""
        first = f"{behind}{_NEXT}" if behind else "0"
        return first_of(self._between(fragment, first, f"{until_ms + 1:015d}", limit + 1), limit)

    def behind(self, fragment: int, sort_key: str, limit: int, *, consistent: bool = True) -> list[Timer]:
        """The first timers of a fragment that come after a sort key, in order of time."""
        return list(self._between(fragment, f"{sort_key}{_NEXT}", _BEHIND_ALL, limit, consistent=consistent))

    def count_delayed(self, fragment: int, most: int) -> tuple[dict[str, int], bool]:
        """Count the delayed messages by topic (its uid) among the first `most` timers of a fragment, or as many as
        one read returns; and whether those are all timers. It may be a moment old."""
        answer = self._dynamo.call(
            "query",
            TableName=self._table,
            KeyConditionExpression="f = :f AND t < :end",
            ProjectionExpression="f, t, k, s",
            ExpressionAttributeValues=values(f=str(fragment), end=_BEHIND_ALL),
            Limit=most,
        )
        items = (item for item in answer["Items"] if item.get("k") == text(TimerKind.DELIVER))
        uids = self._dynamo.readable(items, lambda item: codec.decoded("timers", item, _topic_uid))
        return Counter(uids), "LastEvaluatedKey" not in answer

    def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
        """When the fragment's next timer is due. A read that is not consistent may miss the newest."""
        first = self._between(fragment, "0", _BEHIND_ALL, 1, consistent=consistent)
        return next((timer.due_ms for timer in first), None)

    def find(self, due_ms: int, timer_id: str) -> Timer | None:
        """One timer, read consistently."""
        item = self._dynamo.get(self._table, timer_key(due_ms, timer_id))
        return timer_of(item) if item else None

    def drop(self, timers: Sequence[Timer]) -> None:
        """Remove timers. Harmless where they are gone. A WAKE that was stored again since it was read stays: the
        process that stored it may not have seen what the first one woke."""
        wakes = [timer for timer in timers if timer.kind is TimerKind.WAKE and timer.stored_ms]
        for wake in wakes:
            self._delete_if(timer_key(wake.due_ms, wake.id), "a = :a", a=wake.stored_ms)
        others = [timer for timer in timers if timer not in wakes]
        different = {(timer.due_ms, timer.id): timer_key(timer.due_ms, timer.id) for timer in others}
        self._dynamo.delete(self._table, list(different.values()))

    def acquire_lease(self, fragment: int, owner: str, now_ms: int, until_ms: int) -> int | None:
        """Take or renew the lease of a fragment, until `until_ms`. Returns None if it is this owner's now, or else the
        time when another owner's lease ends. One so far ahead that its owner's clock was wrong is none."""
        try:
            self._dynamo.call(
                "update_item",
                TableName=self._table,
                Key=lease_key(fragment),
                UpdateExpression="SET o = :o, u = :u, v = :v",
                ConditionExpression="attribute_not_exists(o) OR o = :o OR u <= :now OR u > :far",
                ExpressionAttributeValues=values(
                    o=owner, u=until_ms, now=now_ms, far=until_ms + CLOCKS_DIFFER_MS, v=int(FORMAT)
                ),
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as error:
            return known_int(error.item or {}, "u", until_ms)
        return None

    def release_lease(self, fragment: int, owner: str) -> None:
        """Give the lease back, if it is still this owner's."""
        self._delete_if(lease_key(fragment), "o = :o", o=owner)

    def _delete_if(self, key: Item, condition: str, **named: str | int) -> None:
        """Delete a row if it meets the condition."""
        self._dynamo.write_if(
            "delete_item",
            TableName=self._table,
            Key=key,
            ConditionExpression=condition,
            ExpressionAttributeValues=values(**named),
        )

    def _between(
        self, fragment: int, first: str, end: str, limit: int, *, consistent: bool = True
    ) -> Iterator[Timer]:
        """The first timers with sort keys from `first` to `end`, without the lease's row."""
        if first > end:  # DynamoDB refuses to look there
            return iter(())
        items = self._dynamo.query(
            TableName=self._table,
            KeyConditionExpression="f = :f AND t BETWEEN :first AND :end",
            ExpressionAttributeValues=values(f=str(fragment), first=first, end=end),
            Limit=limit,
            ConsistentRead=consistent,
        )
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


def timer_put(table: str, timer: Timer) -> dict[str, Any]:
    """The transaction's action that files a timer."""
    return {"Put": {"TableName": table, "Item": _item(timer)}}


def timer_delete(table: str, timer: Timer) -> dict[str, Any]:
    """The transaction's action that deletes a timer, if it is unchanged."""
    return {"Delete": {"TableName": table, "Key": timer_key(timer.due_ms, timer.id), **_if_unchanged(timer)}}


def _if_unchanged(timer: Timer) -> dict[str, Any]:
    if not timer.edits:
        return {"ConditionExpression": "attribute_exists(f) AND attribute_not_exists(e)"}
    return {"ConditionExpression": "e = :e", "ExpressionAttributeValues": values(e=timer.edits)}


def _forward(timer: Timer, keep_s: int) -> Item:
    return {
        **forward_key(timer.id),
        "u": number(timer.due_ms),
        "e": number(timer.edits),
        "x": number(keep_s),
        "v": {"N": FORMAT},
    }


def _item(timer: Timer) -> Item:
    return {**timer_key(timer.due_ms, timer.id), **_content(timer), "v": {"N": FORMAT}}


def _content(timer: Timer) -> Item:
    item: Item = {"k": text(timer.kind), "s": text(str(timer.shard))}
    texts = {"g": timer.group_uid, "c": timer.consumer_uid}
    item.update({name: text(value) for name, value in texts.items() if value})
    numbers = {"d": timer.keep_days, "a": timer.stored_ms, "e": timer.edits, "y": timer.every_ms}
    item.update({name: number(value) for name, value in numbers.items() if value})
    if timer.draft:
        item["m"] = packed(codec.pack([timer.draft]).payload)
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
    draft = codec.unpack(payload)[0] if payload else None
    if draft is None and kind in (TimerKind.DELIVER, TimerKind.RETRY):
        raise ValueError("it has lost its message")
    return Timer(
        due_ms=due_ms,
        id=timer_id,
        kind=kind,
        shard=shard_of(item["s"]["S"]),
        draft=draft,
        keep_days=number_of(item, "d"),
        group_uid=text_of(item, "g") or "",
        consumer_uid=text_of(item, "c") or "",
        stored_ms=int_of(item, "a"),
        edits=int_of(item, "e"),
        every_ms=int_of(item, "y"),
    )


def _topic_uid(item: Item) -> str:
    return shard_of(item["s"]["S"]).topic_uid
