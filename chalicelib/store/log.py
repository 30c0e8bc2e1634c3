"""The sharded log on DynamoDB (layout: table `log`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from ..domain import append, ids
from ..domain.cursor import Cursor
from ..domain.errors import unavailable
from ..domain.limits import MAX_LOOK_BYTES
from ..domain.message import Draft
from ..domain.segment import Allocation, Rows, Segment, ShardKey, Tail
from ..domain.timer import Fired, Part, Timer
from ..domain.topic import CursorKey
from ..domain.transaction import Transaction, committed
from . import codec
from .attributes import Fields, Item, attributes, int_of, kib_of, packed, payload_of, rows, text_of, values
from .cursors import cursor_amend
from .dedup import dedup_entry, dedup_put, used_entries
from .dynamo import Action, Cancelled, ConditionFailed, TableAccess, write_of
from .layout import FORMAT, META_OFFSET, dedup_key, segment_key
from .records import letter_move
from .timers import successor_puts, timer_delete, timer_put, timer_shortening
from .transactions import transaction_write

TOMBSTONE = "tombstone"
_MOST_MESSAGES = 50_000  # more find no room in a row
_HEAD = Fields("by:p", "first:o count:n accepted_ms:a edition:e planned_s:y")
_UP_TO = "s = :s AND o BETWEEN :a AND :o"


class Log(TableAccess, table="log"):
    """The sharded log: one conditional put per append, one query per read. Offsets are dense; `amend` alone changes a
    row."""

    def pack(self, drafts: Sequence[Draft], *, whole: bool = False) -> append.Pack:
        """Encode the first of the drafts, as many as fit one segment; with `whole`, all, of any size."""
        return codec.pack(drafts, whole=whole)

    def tail(self, shard: ShardKey) -> Tail:
        """The shard's last offset, read consistently, and never below its checkpoint. Two round trips."""
        items = self._dynamo.page(ConsistentRead=True, **self._request(shard, "s = :s", 1, forward=False))
        if not items:
            return Tail(-1)
        tail = tail_of(items[0])
        if int_of(items[0], "o") == META_OFFSET:
            return tail
        # TTL removes rows in no order. An older row may be the last one left; then the shard's meta row knows a higher
        # tail.
        meta_row = self._dynamo.get(self._table, segment_key(shard, META_OFFSET), consistent=False) or {}
        allocation = Allocation.RESERVED if "c" in meta_row else tail.allocation
        noted = codec.decoded("log", meta_row, lambda row: int_of(row, "t", -1))
        return Tail(max(tail.offset, noted), allocation, tail.accepted_ms)

    def put(
        self,
        shard: ShardKey,
        segment: Segment,
        pack: append.Pack,
        dedup: Sequence[append.DedupEntry] = (),
        promotables: Sequence[append.Promotable] = (),
    ) -> append.PutResult:
        """Append a segment: store it at its first offset, if no row is there. A row that an earlier try of the same
        request wrote counts as stored.

        `dedup`: entries that are stored in the same transaction. If one of their ids was used before, nothing is
        written (DedupHit).

        `promotables`: what becomes messages of this segment and is removed in the same transaction: a timer, which is
        deleted; a schedule's timer, in whose place the next one is stored; a dead letter, whose record then says
        RETRYING; a transaction, which is then COMMITTED with the offset of its draft (the n-th of `promotables` is the
        n-th message of the segment) and loses its CHECK timer. If one of them is gone or has another version, nothing
        is written (AlreadyMoved).

        A transaction of DynamoDB holds 100 actions: the segment, each dedup id and each timer are one, the others
        are two.
        """
        request = self._put(shard, segment, pack)
        beside = [dedup_put(self._dynamo.tables.dedup, entry) for entry in dedup]
        move_actions = [self._move(each, shard, segment, n) for n, each in enumerate(promotables)]
        indexes = [index for index, actions in enumerate(move_actions) for _ in actions]
        try:
            if dedup or promotables:
                actions = [{"Put": request}, *beside, *chain.from_iterable(move_actions)]
                self._dynamo.call("transact_write_items", TransactItems=actions)
            else:
                self._dynamo.call("put_item", **request)
        except ConditionFailed as error:
            return _stored_or_taken(segment, error.item)
        except Cancelled as error:
            return _result_of_refusal(segment, dedup, indexes, error.items)
        return append.Stored()

    def _put(self, shard: ShardKey, segment: Segment, pack: append.Pack | None) -> dict[str, Any]:
        """The request that stores a segment, if no row is at its first offset."""
        item = _item(shard, segment, pack)
        return write_of(self._table, item=item, condition="attribute_not_exists(o)", shows_old=True)

    def _move(self, promotable: append.Promotable, shard: ShardKey, segment: Segment, n: int) -> list[Action]:
        """The actions that delete the source of the n-th moved message."""
        tables = self._dynamo.tables
        if isinstance(promotable, Timer):
            return [timer_delete(tables, promotable)]
        if isinstance(promotable, Fired):
            then = promotable.after(ids.message_id(segment.request_id, shard.shard, segment.first + n))
            puts = (timer_put(tables, each) for each in (then, *promotable.events))
            return [timer_delete(tables, promotable.timer), *puts]
        if isinstance(promotable, Part):
            return [timer_shortening(tables, promotable.timer, promotable.rest)]
        if isinstance(promotable, Transaction):
            location = {"shard": shard.shard, "offset": segment.first + n}
            new = committed(promotable, segment.accepted_ms, **location)
            return [transaction_write(tables, promotable, new)]
        return letter_move(tables.records, promotable, segment.accepted_ms)

    def dedup_entry(self, uid: str, dedup_id: str, *, consistent: bool = True) -> append.DedupEntry | None:
        """The entry of a dedup id in the topic of this uid; None if it was never used. Its window may be over."""
        key, table = dedup_key(uid, dedup_id), self._dynamo.tables.dedup
        item = self._dynamo.get(table, key, consistent=consistent)
        return dedup_entry(uid, dedup_id, item) if item else None

    def reserve(self, shard: ShardKey, count: int) -> int | None:
        """Take `count` offsets from the counter of a RESERVED shard; the first. None: no counter is set yet."""
        key, condition = segment_key(shard, META_OFFSET), "attribute_exists(c)"
        write = write_of(self._table, key=key, update="ADD c :n", condition=condition, known=values(n=count))
        try:
            answer = self._dynamo.call("update_item", **write, ReturnValues="UPDATED_NEW")
        except ConditionFailed:
            return None
        return int_of(answer["Attributes"], "c") - count

    def begin_reserving(self, shard: ShardKey, next_offset: int) -> None:
        """Set the counter of a shard that has just turned RESERVED, unless it is set."""
        update, condition = "SET c = :c, w = :w, v = :v", "attribute_not_exists(c)"
        named = values(c=next_offset, w=Allocation.RESERVED, v=int(FORMAT))
        self._update_if(shard, META_OFFSET, update, condition, named)

    def put_tombstone(self, shard: ShardKey, offset: int, accepted_ms: int, expires_s: int) -> Segment:
        """Close a reserved offset that was never written. Returns the row that is there afterwards: the tombstone,
        or the segment that was written meanwhile."""
        tombstone = Segment(offset, 1, TOMBSTONE, accepted_ms, expires_s, (), Allocation.RESERVED)
        try:
            self._dynamo.call("put_item", **self._put(shard, tombstone, None))
        except ConditionFailed as error:
            return segment_of(error.item) if error.item else tombstone
        return tombstone

    def read(self, shard: ShardKey, first: int, rows: int, *, consistent: bool = False) -> Rows:
        """At most `rows` segments that begin at or after `first`, in order. A read that is not consistent may
        miss the newest."""
        request = self._request(shard, "s = :s AND o >= :o", rows, forward=True, o=max(first, 0))
        answer = self._dynamo.call("query", ConsistentRead=consistent, **request)
        items: list[Item] = answer["Items"]
        segments = _that_fit(map(segment_of, items))
        is_whole = len(segments) == len(items)
        return Rows(segments, is_end=is_whole and "LastEvaluatedKey" not in answer)

    def read_back(self, shard: ShardKey, last: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        """At most `rows` segments that begin at or before `last`, newest first. None: there are no more. An answer ends
        at a megabyte, or where its bodies fill MAX_LOOK_BYTES, so fewer do not show that."""
        if last < 0:
            return []
        request = self._request(shard, _UP_TO, rows, forward=False, a=0, o=last)
        items = self._dynamo.page(ConsistentRead=consistent, **request)
        return _that_fit(map(segment_of, items))

    def list_back(self, shard: ShardKey, last: int, rows: int) -> list[Segment]:
        """As `read_back`, for lists: rows that cannot be read are skipped."""
        if last < 0:
            return []
        items = self._dynamo.query(**self._request(shard, _UP_TO, rows, forward=False, a=0, o=last))
        return _that_fit(islice(self._dynamo.readable(items, segment_of), rows))

    def amend(
        self,
        shard: ShardKey,
        old: Segment,
        pack: append.Pack,
        offset: int,
        cursors: Mapping[CursorKey, Cursor | None],
        successor: append.Successor | None = None,
    ) -> bool:
        """Replace the row `old` by its next edition with the contents of `pack`, note in each of the cursors (None: it
        does not exist yet and begins at 0) that the message at `offset` was changed, and store its successor. All in
        one transaction.

        False, and nothing is written, if the row is gone or has another edition, if a cursor has claimed the offset, or
        is not as given, or if another message has the successor's dedup id. At most MAX_AMENDED_CURSORS cursors.
        """
        tables = self._dynamo.tables
        notes = [cursor_amend(tables.cursors, key, cursor, offset) for key, cursor in cursors.items()]
        actions = [self._rewrite(shard, old, pack), *notes, *successor_puts(tables, successor)]
        try:
            self._dynamo.call("transact_write_items", TransactItems=actions)
        except Cancelled as error:
            if error.retried:
                raise unavailable() from error
            return False
        return True

    def _rewrite(self, shard: ShardKey, old: Segment, pack: append.Pack) -> dict[str, Any]:
        edition = "e = :e" if old.edition else "attribute_not_exists(e)"
        known = values(n=old.edition + 1, r=old.request_id, **({"e": old.edition} if old.edition else {}))
        known |= {":m": packed(pack.payload)}
        key, update, condition = segment_key(shard, old.first), "SET m = :m, e = :n", f"r = :r AND {edition}"
        return {"Update": write_of(self._table, key=key, update=update, condition=condition, known=known)}

    def keep(self, shard: ShardKey, first: int, until_s: int) -> bool:
        """Extend the row's expiry to `until_s` at least. False: the row is gone, or expires later anyway."""
        update = "SET y = if_not_exists(y, x), x = :x"
        return self._update_if(shard, first, update, "x < :x", values(x=until_s))

    def checkpoint(self, shard: ShardKey, tail: Tail) -> None:
        """Store the tail in a row that never expires."""
        update, condition = "SET t = :t, v = :v", "attribute_not_exists(t) OR t < :t"
        self._update_if(shard, META_OFFSET, update, condition, values(t=tail.offset, v=int(FORMAT)))

    def raise_counter(self, shard: ShardKey, next_offset: int) -> None:
        """Reserve no offset below this one from now on. Where offsets are not reserved, nothing changes."""
        self._update_if(shard, META_OFFSET, "SET c = :c", "c < :c", values(c=next_offset))

    def _update_if(self, shard: ShardKey, first: int, update: str, condition: str, named: Item) -> bool:
        """Update a row on a condition. False: it is not met."""
        key = segment_key(shard, first)
        write = write_of(self._table, key=key, update=update, condition=condition, known=named)
        return self._dynamo.write_if("update_item", **write)

    def _request(
        self, shard: ShardKey, where: str, most: int, *, forward: bool, **bounds: int
    ) -> dict[str, Any]:
        request = rows(self._table, where, s=str(shard), **bounds)
        return {**request, "Limit": most, "ScanIndexForward": forward}


def _item(shard: ShardKey, segment: Segment, pack: append.Pack | None) -> Item:
    item = {
        **segment_key(shard, segment.first),
        **attributes(n=segment.count, r=segment.request_id, a=segment.accepted_ms, x=segment.expires_s),
        "v": {"N": FORMAT},
    }
    if segment.allocation is Allocation.RESERVED:
        item |= attributes(w=segment.allocation)
    if pack:
        item["m"] = packed(pack.payload)
    for by in filter(None, (segment.by, segment.by.partition(" ")[0])):
        if kib_of(item | attributes(p=by)) == kib_of(item):
            return item | attributes(p=by)
    return item


def _that_fit(rows: Iterable[Segment]) -> list[Segment]:
    """The first segments, until their bodies fill a look: a page of rows may hold a hundred times its size once it is
    decompressed."""
    segments: list[Segment] = []
    body_bytes = 0
    for row in rows:
        segments.append(row)
        body_bytes += sum(len(draft.body) for draft in row.drafts)
        if body_bytes > MAX_LOOK_BYTES:
            break
    return segments


def segment_of(item: Item) -> Segment:
    """The segment a row holds; messages that cannot be read are UNDECODABLE. Raises Unreadable if the row itself cannot
    be read, or the entries of a retry lane: only they name the messages."""
    return codec.decoded("log", item, _segment)


def _segment(item: Item) -> Segment:
    head, payload = _head(item), payload_of(item)
    if payload is None and head["request_id"] == TOMBSTONE:
        return Segment(**head)
    segment = Segment(**head, drafts=codec.messages(payload, head["count"]))
    if segment.is_undecodable and "~" in item["s"]["S"]:
        raise ValueError("the entries of a retry lane")
    return segment


def _head(item: Item) -> dict[str, Any]:
    """The fields of a row beside its messages."""
    count, accepted_ms = int(item["n"]["N"]), int(item["a"]["N"])
    if not 1 <= count <= _MOST_MESSAGES:
        raise ValueError("no row covers so many offsets")
    if accepted_ms < 0:
        raise ValueError("no row is of before 1970")
    return {
        **_HEAD.unpacked(item),
        "request_id": item["r"]["S"],
        "expires_s": int(item["x"]["N"]),
        "allocation": Allocation(text_of(item, "w") or Allocation.OPTIMISTIC),
    }


def tail_of(item: Item) -> Tail:
    """A shard's tail, by its highest row. Raises Unreadable."""
    return codec.decoded("log", item, _tail)


def _tail(item: Item) -> Tail:
    if int_of(item, "o") == META_OFFSET:
        allocation = Allocation.RESERVED if "c" in item else Allocation.OPTIMISTIC
        return Tail(max(int_of(item, "t", -1), int_of(item, "c") - 1), allocation)
    head = _head(item)
    return Tail(head["first"] + head["count"] - 1, head["allocation"], head["accepted_ms"])


def _stored_or_taken(segment: Segment, item: Item | None) -> append.PutResult:
    if not item:
        raise unavailable()
    by = segment_of(item)
    return append.Stored() if by.request_id == segment.request_id else append.OffsetTaken(by)


def _result_of_refusal(
    segment: Segment, dedup: Sequence[append.DedupEntry], indexes: Sequence[int], items: Sequence[Item | None]
) -> append.PutResult:
    """The outcome of a cancelled transaction, by the items that failed its conditions."""
    first, used_items, missing_items = items[0], items[1 : 1 + len(dedup)], items[1 + len(dedup) :]
    if not first:
        if duplicates := used_entries(dedup, used_items):
            return append.DedupHit(duplicates)
        if missing_places := {n for n, item in zip(indexes, missing_items, strict=True) if item is not None}:
            return append.AlreadyMoved(tuple(sorted(missing_places)))
    return _stored_or_taken(segment, first)
