"""Delivery records and dead letters on DynamoDB (layout: table `records`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from ..domain.errors import unavailable
from ..domain.limits import MAX_OFFSET
from ..domain.message import Message
from ..domain.ranges import Ranges, normalise
from ..domain.record import DeadLetter, Record, Unfinished, letter_of
from ..domain.segment import ShardKey
from ..domain.status import Status
from ..domain.times import GoOn, always
from ..domain.topic import CursorKey, Group, Topic
from ..domain.transaction import Counted
from . import codec
from .attributes import Fields, Item, attributes, packed, payload_of, rows, text_of, values
from .dynamo import Action, ConditionFailed, TableAccess, write_of
from .layout import FORMAT, record_key, record_prefix

_UNDER = "g = :g AND begins_with(k, :k)"
_BETWEEN = "g = :g AND k BETWEEN :first AND :last"
_DELETED_AT_ONCE = 500
_NUMBERS = "attempts:n at_ms:a next_ms:d attempts_before_redrive:p expires_s:x"
_RECORD = Fields("reason:q last_error:h", _NUMBERS, sparse="p")
_LETTER = Fields("reason:q last_error:h", "attempts:n at_ms:a version:e")
_ROWS_LOOKED_AT = 500  # records of one page of waiting deliveries: most may have succeeded since


class Records(TableAccess, table="records"):
    """Delivery records and dead letters, by group."""

    def get(self, key: CursorKey, offset: int) -> Record | None:
        """The record of one delivery, read consistently."""
        # The cursor says that it is settled: to miss its record would be to call it a success.
        item = self._dynamo.get(self._table, record_key(key, offset))
        return _record(item) if item else None

    def between(self, group_uid: str, shard: ShardKey, first: int, last: int) -> list[Record]:
        """The group's records of a shard's messages from `first` to `last`, in a broadcast those of all consumers, read
        consistently in one query."""
        return [_record(item) for item in self._range(group_uid, shard, first, last, ConsistentRead=True)]

    def of_shard(
        self, group_uid: str, shard: ShardKey, first: int = 0, most: int | None = None
    ) -> Iterator[Record]:
        """The group's records of a shard from an offset on, in a broadcast those of all consumers, read as they are
        needed. With `most`: so many at most, at a bounded cost. They may be a moment old; unreadable ones are
        skipped."""
        items = self._range(group_uid, shard, first, MAX_OFFSET, **_limit(most))
        return self._dynamo.readable(islice(items, most), _record)

    def restore(self, key: CursorKey, record: Record, old: Record | None) -> bool:
        """Store a record (a DEAD one with its dead letter) that a restored table lacks, in the place of `old` (None:
        of none). False: another one is there."""
        put, *beside = record_writes(self._table, key, [record])
        put["Put"]["ConditionExpression"] = "a = :a" if old else "attribute_not_exists(g)"
        if old:
            put["Put"]["ExpressionAttributeValues"] = values(a=old.at_ms)
        return self._dynamo.transact([put, *beside])

    def unfinished(self, topic_uid: str, group_uid: str) -> list[Unfinished]:
        """The group's deliveries that have failed and not succeeded since, or were skipped by a purge. It may be a
        moment old."""
        return [_unfinished(item) for item in self._dynamo.query(**self._of_unfinished(topic_uid, group_uid))]

    def first_unfinished(
        self, topic_uid: str, group_uid: str, most: int
    ) -> tuple[list[Unfinished], tuple[int, int] | None]:
        """Those among the group's first `most` records, at a bounded cost, and the shard and offset of the last record
        that was read (None: these are all): many may be of deliveries that succeeded late."""
        answer = self._dynamo.call("query", Limit=most, **self._of_unfinished(topic_uid, group_uid))
        items = (item for item in answer["Items"] if text_of(item, "j") != Status.SKIPPED)
        last = answer.get("LastEvaluatedKey")
        return [_unfinished(item) for item in items], _place(last)[:2] if last else None

    def apart(self, topic_uid: str, group_uid: str) -> Iterator[Record]:
        """The group's deliveries that left their shards' cursors and are RETRYING: each has a retry timer, or an entry
        in the retry lane. Read consistently."""
        request = rows(self._table, _UNDER, g=group_uid, k=f"{topic_uid}/", r=Status.RETRYING)
        only = "j = :r AND attribute_exists(d)"
        items = self._dynamo.query(**request, FilterExpression=only, ConsistentRead=True)
        return self._dynamo.readable(items, _record)

    def _of_unfinished(self, topic_uid: str, group_uid: str) -> dict[str, Any]:
        states = {"d": Status.DEAD, "r": Status.RETRYING, "s": Status.SKIPPED}
        request = rows(self._table, _UNDER, g=group_uid, k=f"{topic_uid}/", **states)
        return {**request, "FilterExpression": "j IN (:d, :r, :s)", "ProjectionExpression": "k, j, d"}

    def count_dead(
        self, topic_uid: str, group_uid: str, at_once: int | None = None, may_go_on: GoOn = always
    ) -> Counted:
        """How many dead letters the group has. With `at_once`: read so many at once, as long as `may_go_on()`."""
        request = rows(self._table, _UNDER, g=f"{group_uid}#dead", k=f"{topic_uid}/")
        return self._dynamo.count(None, may_go_on, **request, **_limit(at_once))

    def dead(self, topic: Topic, group: Group, after: str | None, limit: int) -> list[tuple[str, DeadLetter]]:
        """Dead letters by offset, each with its position in the list, without those that cannot be read. May be fewer
        than `limit` only at the end."""
        request = rows(self._table, _BETWEEN, g=f"{group.uid}#dead", **_behind(topic, after))
        items = self._dynamo.query(**request, Limit=limit, ConsistentRead=True)

        def placed(item: Item) -> tuple[str, DeadLetter]:
            shard, _, uid = _place(item)
            return item["k"]["S"], _letter(CursorKey(topic.shard_key(shard), group.uid, uid), item)

        whole = (item for item in items if "m" in item)
        return list(islice(self._dynamo.readable(whole, placed), limit))

    def dead_letter(self, key: CursorKey, offset: int) -> DeadLetter | None:
        """One dead letter, read consistently."""
        item = self._dynamo.get(self._table, record_key(key, offset, dead=True))
        return _letter(key, item) if item and "m" in item else None

    def has_letter(self, key: CursorKey, offset: int) -> bool:
        """Is there a dead letter, if only one that is counted? Read consistently."""
        return self._dynamo.get(self._table, record_key(key, offset, dead=True)) is not None

    def letters_between(self, key: CursorKey, first: int, last: int) -> dict[int, DeadLetter]:
        """One cursor's dead letters from `first` to `last`, by offset, read consistently in one query."""
        items = self._range(f"{key.group_uid}#dead", key.shard, first, last, ConsistentRead=True)
        own = (item for item in items if _place(item)[2] == key.consumer_uid)
        letters = (_letter(key, item) for item in own if "m" in item)
        return {letter.offset: letter for letter in letters}

    def letters_at(
        self, group_uid: str, shard: ShardKey, offset: int, most: int | None = None
    ) -> Iterator[DeadLetter]:
        """The group's dead letters of one message, in a broadcast by consumer, read consistently in one query. With
        `most`: those among the first so many, each read when it is asked for, with a query of its own."""
        items = self._at(f"{group_uid}#dead", shard, offset, **_limit(1 if most else None))
        for item in islice(items, most):
            if "m" in item:
                yield _letter(CursorKey(shard, group_uid, _place(item)[2]), item)

    def _range(self, partition: str, shard: ShardKey, first: int, last: int, **how: Any) -> Iterator[Item]:
        """The rows of the offsets from `first` to `last`, of all consumers."""
        end = f"{record_prefix(shard, last)}/~"  # behind all consumers of the last offset
        request = rows(self._table, _BETWEEN, g=partition, first=record_prefix(shard, first), last=end)
        return self._dynamo.query(**request, **how)

    def is_owed(self, group_uid: str, shard: ShardKey, offset: int) -> bool:
        """Will the group, or one of its consumers, be sent this message again, or does it have a dead letter of it?
        Read consistently."""
        while True:
            records = list(self._at(group_uid, shard, offset))
            if any(text_of(record, "j") == Status.RETRYING for record in records):
                return True
            if any("m" in letter for letter in self._at(f"{group_uid}#dead", shard, offset)):
                return True
            # if they changed, a dead letter may have left between the two reads
            if list(self._at(group_uid, shard, offset)) == records:
                return False

    def _at(self, partition: str, shard: ShardKey, offset: int, **how: Any) -> Iterator[Item]:
        """The rows of one offset, of all consumers."""
        request = rows(self._table, _UNDER, g=partition, k=record_prefix(shard, offset))
        return self._dynamo.query(**request, ConsistentRead=True, **how)

    def edit(self, letter: DeadLetter) -> bool:
        """Store the dead letter's next version, if its version is unchanged. False: it is gone or was changed."""
        item = _letter_item(replace(letter, version=letter.version + 1))
        return self._dynamo.replace(self._table, item, _if_unchanged(letter))

    def discard(self, letter: DeadLetter) -> bool:
        """Delete a dead letter of just this version; its record stays DEAD. False: it is gone or was changed."""
        try:
            key = record_key(letter.key, letter.offset, dead=True)
            how = {**_if_unchanged(letter), "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
            self._dynamo.call("delete_item", TableName=self._table, Key=key, **how)
        except ConditionFailed as error:
            if error.item or not error.retried:
                return False
            record = self.get(letter.key, letter.offset)
            if record is None or (record.status, record.at_ms) != (Status.DEAD, letter.at_ms):
                raise unavailable() from error  # others may have redriven it, which changes its record
        return True

    def note_purge(self, key: CursorKey, purged_ranges: Ranges, expires_s: int) -> None:
        """Note which offsets a purge dropped from a cursor."""
        ranges = ",".join(f"{low}-{high}" for low, high in purged_ranges)
        note = attributes(g=f"{key.group_uid}#purged", o=ranges, x=expires_s, v=int(FORMAT))
        self._dynamo.put(self._table, [{**record_key(key, purged_ranges[-1][1]), **note}])

    def purged(self, key: CursorKey) -> Ranges:
        """Which offsets purges dropped from a cursor since it was last sought elsewhere. It may be a moment old."""
        return normalise(
            (int(low), int(high))
            for item in self._purges(key)
            for low, _, high in (part.partition("-") for part in item["o"]["S"].split(","))
        )

    def forget_purges(self, key: CursorKey) -> None:
        """Delete the notes of a cursor that was sought elsewhere."""
        if keys := [{"g": item["g"], "k": item["k"]} for item in self._purges(key)]:
            self._dynamo.delete(self._table, keys)

    def _purges(self, key: CursorKey) -> list[Item]:
        prefix = record_prefix(key.shard, 0).rpartition("/")[0]
        items = self._dynamo.query(**rows(self._table, _UNDER, g=f"{key.group_uid}#purged", k=f"{prefix}/"))
        return [item for item in items if _place(item)[2] == key.consumer_uid]

    def waiting(
        self, topic: Topic, group: Group, now_ms: int, after: str | None
    ) -> tuple[list[tuple[str, Record]], str | None]:
        """The records of deliveries whose next attempt is due after now, each with its position, among the next rows
        of the group; and where to go on (None: the end)."""
        bounds = _behind(topic, after)
        request = rows(self._table, _BETWEEN, g=group.uid, r=Status.RETRYING, now=now_ms, **bounds)
        how = {"FilterExpression": "j = :r AND d > :now", "Limit": _ROWS_LOOKED_AT}
        answer = self._dynamo.call("query", **request, **how)
        placed = self._dynamo.readable(answer["Items"], lambda item: (item["k"]["S"], _record(item)))
        return list(placed), text_of(answer.get("LastEvaluatedKey", {}), "k")

    def forget(self, group_uid: str) -> None:
        """Delete all records and dead letters of a deleted group. Costs a write unit for each KB."""
        for partition in (group_uid, f"{group_uid}#dead", f"{group_uid}#purged"):
            request = rows(self._table, "g = :g", g=partition)
            items = self._dynamo.query(**request, ProjectionExpression="g, k")
            while keys := list(islice(items, _DELETED_AT_ONCE)):
                self._dynamo.delete(self._table, keys)


def record_writes(table: str, key: CursorKey, records: Sequence[Record]) -> list[dict[str, Any]]:
    """The transaction's actions that store these records, and the dead letters among them."""
    actions: list[dict[str, Any]] = []
    for record in records:
        delivery_key = record.of or key
        item = {**record_key(delivery_key, record.offset), **_item(record)}
        actions.append({"Put": {"TableName": table, "Item": item}})
        if record.status == Status.DEAD:
            actions.append(_bury(table, delivery_key, record))
    return actions


def _bury(table: str, key: CursorKey, record: Record) -> dict[str, Any]:
    """Store the dead letter; if its message is gone, only count it, and keep an earlier dead letter."""
    if letter := letter_of(key, record):
        return {"Put": {"TableName": table, "Item": _letter_item(letter)}}
    letter_key, known = record_key(key, record.offset, dead=True), values(v=int(FORMAT))
    return {"Update": write_of(table, key=letter_key, update="SET v = :v", known=known)}


def letter_move(table: str, letter: DeadLetter, at_ms: int, due_ms: int | None = None) -> list[Action]:
    """The transaction's actions that delete a dead letter, if it has this version, and set its record to RETRYING, next
    at `due_ms` (None: now)."""
    letter_key, key = (record_key(letter.key, letter.offset, dead=is_dead) for is_dead in (True, False))
    next_ms = at_ms if due_ms is None else due_ms
    known = values(j=Status.RETRYING, n=letter.attempts, a=at_ms, d=next_ms, v=int(FORMAT))
    update = "SET j = :j, n = :n, p = :n, a = :a, d = :d, v = :v REMOVE q, x"
    delete = {"TableName": table, "Key": letter_key, **_if_unchanged(letter)}
    return [{"Delete": delete}, {"Update": write_of(table, key=key, update=update, known=known)}]


def _if_unchanged(letter: DeadLetter) -> dict[str, Any]:
    """The condition that this dead letter has the same version and time of burial."""
    known = values(e=letter.version, a=letter.at_ms)
    return {"ConditionExpression": "e = :e AND a = :a", "ExpressionAttributeValues": known}


def _item(record: Record) -> Item:
    answer = codec.encode_answer(record.answer)
    return {**_RECORD.packed(record), **attributes(j=record.status, r=answer, v=int(FORMAT))}


def _letter_item(letter: DeadLetter) -> Item:
    message, answer = letter.message, codec.encode_answer(letter.answer)
    return {
        **record_key(letter.key, letter.offset, dead=True),
        **_LETTER.packed(letter),
        **attributes(i=message.id, c=message.accepted_ms, r=answer, v=int(FORMAT)),
        "m": packed(codec.pack([message.draft]).payload),
        **({"w": {"BOOL": True}} if letter.edited else {}),
    }


def _record(item: Item) -> Record:
    return codec.decoded("records", item, _whole_record)


def _whole_record(item: Item) -> Record:
    shard, offset, uid = _place(item)
    status, fields = Status(item["j"]["S"]), _RECORD.unpacked(item)
    fields["answer"] = codec.answer_of(text_of(item, "r"))
    return Record(shard=shard, offset=offset, status=status, consumer_uid=uid, **fields)


def _unfinished(item: Item) -> Unfinished:
    shard, offset, uid = _place(item)
    status = Status(item["j"]["S"])  # one of those that the query filters by
    return Unfinished(shard=shard, offset=offset, status=status, consumer_uid=uid, timed="d" in item)


def _letter(key: CursorKey, item: Item) -> DeadLetter:
    return codec.decoded("records", item, partial(_whole_letter, key))


def _whole_letter(key: CursorKey, item: Item) -> DeadLetter:
    shard, offset, _ = _place(item)
    (draft,) = codec.unpack(payload_of(item) or "")
    message = Message(str(item["i"]["S"]), shard, offset, int(item["c"]["N"]), draft)
    others = {"reason": "", **_LETTER.unpacked(item), "answer": codec.answer_of(text_of(item, "r"))}
    return DeadLetter(key, offset, message, edited="w" in item, **others)


def _limit(most: int | None) -> dict[str, Any]:
    return {"Limit": most} if most else {}


def _behind(topic: Topic, after: str | None) -> dict[str, str]:
    """The sort keys between which the topic's rows behind a position lie."""
    # "!" sorts before all that positions hold
    return {"first": f"{after}!" if after else f"{topic.uid}/", "last": f"{topic.uid}/~"}


def _place(item: Item) -> tuple[int, int, str]:
    """Shard, offset and consumer uid."""
    _, shard, offset, *consumer = item["k"]["S"].split("/")
    return int(shard), int(offset), consumer[0] if consumer else ""
