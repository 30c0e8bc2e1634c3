"""Timers on DynamoDB (layout: table `timers`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from ..domain.append import DedupEntry
from ..domain.errors import newer_format
from ..domain.limits import MAX_LOOK_BYTES
from ..domain.message import DeadReason, Draft
from ..domain.segment import ShardKey
from ..domain.timer import (
    ANY,
    ANY_EDITION,
    UNREADABLE,
    FirstTimers,
    Moved,
    Timer,
    TimerKind,
    kind_by_id,
    retry_of,
)
from ..domain.times import CLOCKS_DIFFER_MS
from . import codec
from .attributes import DAMAGE, Item, int_of, known_int, number, packed, payload_of, text
from .clients import sent_once
from .dedup import dedup_put, used_entries
from .dynamo import Dynamo
from .failures import Cancelled, ConditionFailed
from .layout import FORMAT, forward_key, is_newer, lease_key, shard_of, timer_key

_BEHIND_ALL = "~"  # and before the lease
_ASIDE = "aside"  # the partition of what movers cannot read
_BROUGHT_BACK = 25  # rows, by one run
_RESEND_MS = 60_000  # for how long the SDK may send a request again, and how far clocks may differ
_KEEP_DAYS = 30  # where a damaged row does not tell it
_EVERY_MS = 60_000  # likewise
_NEXT = "!"  # sorts before all that ids hold


class Timers:
    """What is due later, by fragment and due time: one write unit for a small timer, one query for due timers."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._table = dynamo.tables.timers

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
        return self._transact(
            timer_delete(self._table, old),
            {"Put": {"TableName": self._table, "Item": item}},
            {"Put": {"TableName": self._table, "Item": _forward(replace(new, edits=old.edits + 1), keep_s)}},
        )

    def cancel(self, timer: Timer, keep_s: int) -> bool:
        """Delete the timer, if it is unchanged. A row shows it as cancelled, with the draft given here, until
        `keep_s`. False: it is gone or was changed."""
        tombstone = {**_content(timer), **_forward(timer, keep_s), "j": text("CANCELLED")}
        return self._transact(
            timer_delete(self._table, timer), {"Put": {"TableName": self._table, "Item": tombstone}}
        )

    def find_moved(self, timer_id: str) -> Moved | None:
        """The new time of a timer that was changed to another time or cancelled, read consistently; None if it was
        not."""
        key = forward_key(timer_id)
        answer = self._dynamo.call("get_item", TableName=self._table, Key=key, ConsistentRead=True)
        item = answer.get("Item")
        if not item:
            return None
        due_ms = int_of(item, "u")
        cancelled_timer = _timer_of(item, due_ms, timer_id) if "j" in item else None
        return Moved(due_ms, cancelled_timer, int_of(item, "e"))

    def _transact(self, *actions: dict[str, Any]) -> bool:
        try:
            self._dynamo.call("transact_write_items", TransactItems=list(actions))
        except Cancelled:
            return False
        return True

    def first_due(self, fragment: int, until_ms: int, limit: int, behind: str = "") -> FirstTimers:
        """The first timers of a fragment that are due by `until_ms`, after the sort key `behind`, in order of time;
        at most `limit`, and not many more than MAX_LOOK_BYTES. Read consistently."""
        first = f"{behind}{_NEXT}" if behind else "0"
        rows = self._between(fragment, first, f"{until_ms + 1:015d}", limit + 1)
        return first_of(map(_timer, rows), limit)

    def behind(self, fragment: int, sort_key: str, limit: int, *, consistent: bool = True) -> list[Timer]:
        """The first timers of a fragment that come after a sort key, in order of time."""
        items = self._between(fragment, f"{sort_key}{_NEXT}", _BEHIND_ALL, limit, consistent=consistent)
        return [_timer(item) for item in items]

    def count_delayed(self, fragment: int, most: int) -> tuple[dict[str, int], bool]:
        """Count the delayed messages by topic (its uid) among the first `most` timers of a fragment, or as many as
        one read returns; and whether those are all timers. It may be a moment old."""
        answer = self._dynamo.call(
            "query",
            TableName=self._table,
            KeyConditionExpression="f = :f AND t < :end",
            ProjectionExpression="k, s",
            ExpressionAttributeValues={":f": text(str(fragment)), ":end": text(_BEHIND_ALL)},
            Limit=most,
        )
        homes = (_home(item) for item in answer["Items"] if item.get("k") == text(TimerKind.DELIVER))
        return Counter(home.topic_uid for home in homes if home), "LastEvaluatedKey" not in answer

    def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
        """When the fragment's next timer is due. A read that is not consistent may miss the newest."""
        first = self._between(fragment, "0", _BEHIND_ALL, 1, consistent=consistent)
        return next((due_ms_of(item) for item in first), None)

    def find(self, due_ms: int, timer_id: str) -> Timer | None:
        """One timer, read consistently."""
        key = timer_key(due_ms, timer_id)
        answer = self._dynamo.call("get_item", TableName=self._table, Key=key, ConsistentRead=True)
        timer = _timer(answer["Item"]) if "Item" in answer else None
        if timer and timer.kind is TimerKind.NEWER:
            raise newer_format()
        return timer

    def drop(self, timers: Sequence[Timer]) -> None:
        """Remove timers. Harmless where they are gone. A WAKE that was stored again since it was read stays: the
        process that stored it may not have seen what the first one woke."""
        wakes = [timer for timer in timers if timer.kind is TimerKind.WAKE and timer.stored_ms]
        for wake in wakes:
            with suppress(ConditionFailed):
                self._dynamo.call(
                    "delete_item",
                    TableName=self._table,
                    Key=timer_key(wake.due_ms, wake.id),
                    ConditionExpression="a = :a",
                    ExpressionAttributeValues={":a": number(wake.stored_ms)},
                )
        others = [timer for timer in timers if timer not in wakes]
        different = {(timer.due_ms, timer.id): timer_key(timer.due_ms, timer.id) for timer in others}
        self._dynamo.delete(self._table, list(different.values()))

    def set_aside(self, timer: Timer) -> None:
        """Move an UNREADABLE row, unchanged, to a partition that no mover reads. Harmless if it is gone."""
        key = {"f": text(str(timer.fragment)), "t": text(timer.sort_key)}
        answer = self._dynamo.call("get_item", TableName=self._table, Key=key, ConsistentRead=True)
        if "Item" in answer:
            self._take(answer["Item"], _aside_key(answer["Item"]))

    def bring_back(self) -> int:
        """Make timers again of some rows that were set aside and can be read now. Returns how many. Costs half a
        read unit if there are none."""
        items = self._dynamo.query(
            TableName=self._table,
            KeyConditionExpression="f = :f AND t BETWEEN :first AND :end",
            ExpressionAttributeValues={
                ":f": text(_ASIDE),
                ":first": text("0"),
                ":end": text(f"{_version(FORMAT)}{_BEHIND_ALL}"),
            },
            Limit=_BROUGHT_BACK,
        )
        rows = list(islice(items, _BROUGHT_BACK))
        for row in rows:
            _, fragment, mark = row["t"]["S"].split("#", 2)
            self._take(row, {"f": text(fragment), "t": text(mark)})
        return len(rows)

    def _take(self, item: Item, key: Item) -> None:
        """Move a row to another key, if it is unchanged."""
        names = {name: item[name] for name in ("f", "t")}
        condition = {"ConditionExpression": "attribute_exists(f) AND attribute_not_exists(e)"}
        if "e" in item:
            condition = {"ConditionExpression": "e = :e", "ExpressionAttributeValues": {":e": item["e"]}}  # type: ignore[dict-item]
        self._transact(
            {"Put": {"TableName": self._table, "Item": {**item, **key}}},
            {"Delete": {"TableName": self._table, "Key": names, **condition}},
        )

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
                ExpressionAttributeValues={
                    ":o": text(owner),
                    ":u": number(until_ms),
                    ":now": number(now_ms),
                    ":far": number(until_ms + CLOCKS_DIFFER_MS),
                    ":v": {"N": FORMAT},
                },
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ConditionFailed as error:
            return known_int(error.item or {}, "u", until_ms)
        return None

    def release_lease(self, fragment: int, owner: str) -> None:
        """Give the lease back, if it is still this owner's."""
        try:
            self._dynamo.call(
                "delete_item",
                TableName=self._table,
                Key=lease_key(fragment),
                ConditionExpression="o = :o",
                ExpressionAttributeValues={":o": text(owner)},
            )
        except ConditionFailed:
            return

    def _between(
        self, fragment: int, first: str, end: str, limit: int, *, consistent: bool = True
    ) -> Iterator[Item]:
        """The first rows with sort keys from `first` to `end`, without the lease's row."""
        if first > end:  # DynamoDB refuses to look there
            return iter(())
        items = self._dynamo.query(
            TableName=self._table,
            KeyConditionExpression="f = :f AND t BETWEEN :first AND :end",
            ExpressionAttributeValues={":f": text(str(fragment)), ":first": text(first), ":end": text(end)},
            Limit=limit,
            ConsistentRead=consistent,
        )
        return islice(items, limit)


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
    if timer.edits == ANY_EDITION:
        return {"ConditionExpression": "attribute_exists(f)"}
    if not timer.edits:
        return {"ConditionExpression": "attribute_exists(f) AND attribute_not_exists(e)"}
    return {"ConditionExpression": "e = :e", "ExpressionAttributeValues": {":e": number(timer.edits)}}


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


def _aside_key(item: Item) -> Item:
    """What a later release reads lies under its format, for that release to find; the rest behind all formats."""
    version = _version(item["v"]["N"]) if is_newer(item) else "damaged"
    return {"f": text(_ASIDE), "t": text(f"{version}#{item['f']['S']}#{item['t']['S']}")}


def _version(number: str) -> str:
    return number.zfill(6)


def due_ms_of(item: Item) -> int:
    """When the timer in this row is due: its key says so."""
    return int(item["t"]["S"].partition("#")[0])


def _timer(item: Item) -> Timer:
    due_ms, _, timer_id = item["t"]["S"].partition("#")
    timer = _timer_of(item, int(due_ms), timer_id)
    return replace(timer, found_in=int(item["f"]["S"])) if timer.kind in UNREADABLE else timer


def _timer_of(item: Item, due_ms: int, timer_id: str) -> Timer:
    """The timer in a row. A damaged row gives a timer with as much as can be read, so that a dead letter shows it to
    the group."""
    nowhere = ShardKey("", "", ANY)
    if is_newer(item):
        return Timer(due_ms=due_ms, id=timer_id, kind=TimerKind.NEWER, shard=nowhere)
    shard = _home(item)
    if shard is None:
        return Timer(due_ms=due_ms, id=timer_id, kind=TimerKind.DAMAGED, shard=nowhere)
    kind = _kind(item, timer_id, shard)
    return Timer(
        due_ms=due_ms,
        id=timer_id,
        kind=kind,
        shard=shard,
        draft=_draft(item, kind, timer_id),
        keep_days=known_int(item, "d", _KEEP_DAYS if kind is TimerKind.RETRY else 0),
        group_uid=str(item.get("g", {}).get("S", "")),
        consumer_uid=str(item.get("c", {}).get("S", "")),
        stored_ms=known_int(item, "a"),
        edits=known_int(item, "e", ANY_EDITION if "e" in item else 0),
        every_ms=known_int(item, "y", _EVERY_MS if kind is TimerKind.CHECK else 0),
    )


def _home(item: Item) -> ShardKey | None:
    """The shard that a row names; None where it does not."""
    try:
        return shard_of(item["s"]["S"])
    except DAMAGE:
        return None


def _kind(item: Item, timer_id: str, shard: ShardKey) -> TimerKind:
    try:
        return TimerKind(item["k"]["S"])
    except DAMAGE:
        return kind_by_id(timer_id, shard.shard)


def _draft(item: Item, kind: TimerKind, timer_id: str) -> Draft | None:
    if kind not in (TimerKind.DELIVER, TimerKind.RETRY):
        return None
    payload = payload_of(item)
    draft = codec.read(payload, 1)[0]
    if draft.dead_reason != DeadReason.UNDECODABLE:
        return draft
    if kind is TimerKind.DELIVER:
        return replace(draft, id=timer_id)
    origin = retry_of(timer_id)
    return replace(draft, origin=replace(origin, whole=True)) if origin else draft
