"""Cursors on DynamoDB (layout: table `cursors`): a change of the algebra as one conditional update."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from ..domain.cursor import CLOSED, Cursor, Lease, unsettled
from ..domain.cursor_transitions import amend
from ..domain.cursor_write import Change, RefusalReason, WriteRefused, was_stored
from ..domain.errors import Unavailable, unavailable
from ..domain.limits import MAX_IN_FLIGHT
from ..domain.pull_share import Part, Round
from ..domain.ranges import Ranges
from ..domain.record import Record
from ..domain.spans import Span
from ..domain.timer import Timer
from ..domain.topic import CursorKey
from . import codec
from .attributes import Item, number, rows, text, text_of, values
from .dynamo import Cancelled, ConditionFailed, TableAccess, write_of
from .layout import FORMAT, cursor_item_key, cursor_owner
from .records import record_writes
from .timers import timer_put

_SCALARS = {"e": "epoch", "f": "floor", "x": "next", "b": "begin", "g": "segment_at", "k": "skipped"}
_MOST_ENTRIES = 120  # an update expression holds 4 KB; a larger change replaces the item
_MASK = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"  # six bits each, the lowest first
_SPAN = re.compile(r"(\d*)(?:\+(\d+))?(?:%([\w-]+))?(?:\*(\d+))?(?:~([^@,]*))?(?:@(\d+))?\Z")


class Cursors(TableAccess, table="cursors"):
    """One small item per group and shard, changed by conditional writes only: one write unit per change, no read where
    the caller knows the last state."""

    def get(self, key: CursorKey, *, consistent: bool = False) -> Cursor | None:
        """The cursor; None where nothing was ever claimed (it then stands at offset 0)."""
        item = self._dynamo.get(self._table, cursor_item_key(key), consistent=consistent)
        return cursor_of(item) if item else None

    def of_owner(self, group_uid: str, uid: str = "", *, consistent: bool = False) -> dict[str, Cursor]:
        """All cursors of a group (in a broadcast: of a consumer), by the log's partition key. One query. Each cursor
        has all writes from before the query began, but they are not of one moment; unless `consistent`, they may be
        a moment old."""
        request = rows(self._table, "c = :c", c=cursor_owner(group_uid, uid))
        items = self._dynamo.query(**request, ConsistentRead=consistent)
        return {item["s"]["S"]: cursor_of(item) for item in items}

    def create(self, key: CursorKey, cursor: Cursor) -> Cursor:
        """Store a first cursor unless there is one. Returns the stored one."""
        try:
            self._dynamo.call("put_item", **self._put(key, cursor, "attribute_not_exists(e)", {}))
        except ConditionFailed as error:
            if not error.item:
                raise unavailable() from error
            return cursor_of(error.item)
        return cursor

    def write(
        self,
        key: CursorKey,
        change: Change,
        records: Sequence[Record] = (),
        timers: Sequence[Timer] = (),
        *,
        exists: bool = True,
    ) -> Cursor | WriteRefused:
        """Apply a change if its conditions hold, together with delivery records and timers; the cursor afterwards.

        A record lies at `record.of` where that is given (`key` is then a retry lane's), else at `key`.
        """
        operation, request = self._request(key, change, exists)
        tables = self._tables
        beside = [*record_writes(tables.records, key, records), *(timer_put(tables, each) for each in timers)]
        try:
            if beside:
                request.pop("ReturnValues", None)
                action = {"Update" if operation == "update_item" else "Put": request}
                self._dynamo.call("transact_write_items", TransactItems=[action, *beside])
                with contextlib.suppress(Unavailable):  # it is stored, even if the row has changed since
                    return self.get(key, consistent=True) or Cursor()
                return change.after
            answer = self._dynamo.call(operation, **request)
        except ConditionFailed as error:
            return _outcome(change, error.item, error.retried)
        except Cancelled as error:
            return _outcome(change, error.items[0], error.retried)
        return cursor_of(answer["Attributes"]) if operation == "update_item" else change.after

    def close(self, keys: Iterable[CursorKey], until_s: int) -> None:
        """Replace cursors, existing or not, by CLOSED: every write that is based on an earlier reading is refused,
        and no new cursor can be created. The rows are deleted some time after `until_s`."""
        item = {**_item(CLOSED), "z": number(until_s)}
        self._dynamo.put(self._table, [{**cursor_item_key(key), **item} for key in keys])

    def _request(self, key: CursorKey, change: Change, exists: bool) -> tuple[str, dict[str, Any]]:
        if not exists:
            return "put_item", self._put(key, change.after, "attribute_not_exists(e)", {})
        if change.whole:
            return "put_item", self._put(key, change.after, "e = :e", values(e=change.known_epoch))
        if change.entries > _MOST_ENTRIES:
            # Every other change alters the epoch or a lease: where both stand, the whole cursor stands.
            known = {**values(e=change.known_epoch), ":l": _leases(change.before)}
            return "put_item", self._put(key, change.after, "e = :e AND l = :l", known)
        request = write_of(self._table, key=cursor_item_key(key), shows_old=True)
        return "update_item", {**request, "ReturnValues": "ALL_NEW", **_expressions(change)}

    def _put(self, key: CursorKey, cursor: Cursor, condition: str, known: Item) -> dict[str, Any]:
        item = {**cursor_item_key(key), **_item(cursor)}
        return write_of(self._table, item=item, condition=condition, known=known, shows_old=True)


def cursor_amend(table: str, key: CursorKey, cursor: Cursor | None, offset: int) -> dict[str, Any]:
    """The action of a transaction that notes an amended offset. It fails where the cursor has claimed it, has other
    notes than `cursor`, or (None) was not expected to be there; claims elsewhere do not disturb it."""
    after = amend(cursor or Cursor(), offset)
    assert after is not None
    write = partial(write_of, table, shows_old=True)
    if cursor is None:
        item = {**cursor_item_key(key), **_item(after)}
        return {"Put": write(item=item, condition="attribute_not_exists(e)")}
    condition = "a = :a" if cursor.amended else "attribute_not_exists(a)"
    known = {"a": _ranges_text(cursor.amended)} if cursor.amended else {}
    update, condition = "SET e = e + :one, a = :n", f"(x <= :o OR b > :o) AND {condition}"
    all_known = values(o=offset, one=1, n=_ranges_text(after.amended), **known)
    return {"Update": write(key=cursor_item_key(key), update=update, condition=condition, known=all_known)}


def _outcome(change: Change, item: Item | None, retried: bool) -> Cursor | WriteRefused:
    """What a failed condition means. After a repetition by the SDK, it may be that our first try succeeded."""
    current = cursor_of(item) if item else None
    ours = was_stored(change, current) if retried and current is not None else False
    if ours and current is not None:
        return current
    return WriteRefused(RefusalReason.UNKNOWN if ours is None else RefusalReason.LOST, current)


def _expressions(change: Change) -> dict[str, Any]:
    """The update expression, its conditions, names and values."""
    names: dict[str, str] = {}
    values: Item = {}
    sets: list[str] = []
    removals: list[str] = []
    checks: list[str] = []

    def entry(map_name: str, key: str) -> str:
        names[f"#{map_name}{len(names)}"] = key
        return f"{map_name}.#{map_name}{len(names) - 1}"

    def value(v: dict[str, Any]) -> str:
        values[f":{len(values)}"] = v
        return f":{len(values) - 1}"

    if change.scalars is not None:
        checks.append(f"e = {value(number(change.known_epoch))}")
        sets += [f"{a} = {value(number(getattr(change.scalars, f)))}" for a, f in _SCALARS.items()]
    if change.most_waiting is not None:
        checks.append(f"size(w) <= {value(number(change.most_waiting))}")
    paths = {token: entry("l", token) for token in {**change.expected_leases, **change.set_leases}}
    checks += [f"{paths[t]} = {value(text(lease_text(old)))}" for t, old in change.expected_leases.items()]
    sets += [f"{paths[t]} = {value(text(lease_text(new)))}" for t, new in change.set_leases.items()]
    removals += [paths[t] for t in change.removed_leases]
    for start, span in change.set_waiting.items():
        sets.append(f"{entry('w', str(start))} = {value(text(span_text(span, start=False)))}")
    removals += [entry("w", str(k)) for k in change.removed_waiting]
    if change.scalars is not None and change.scalars.round not in (None, change.before.round):
        sets.append(f"r = {value(text(_round_text(change.scalars.round)))}")
    if change.scalars is not None and change.scalars.in_lane != change.before.in_lane:
        sets.append(f"n = {value(number(change.scalars.in_lane))}")
    update = f"SET {', '.join(sets)}" if sets else ""
    if removals:
        update += f" REMOVE {', '.join(removals)}"
    return {
        "UpdateExpression": update.strip(),
        "ConditionExpression": " AND ".join(checks),
        "ExpressionAttributeValues": values,
        **({"ExpressionAttributeNames": names} if names else {}),
    }


def span_text(span: Span, *, start: bool = True) -> str:
    """`[start][+count or %mask][*attempt][~unit][@due]`, defaults left out (see layout)."""
    return "".join(
        (
            str(span.start) if start else "",
            f"+{span.count}" if span.count != 1 and not span.mask else "",
            f"%{_mask_text(span.mask)}" if span.mask else "",
            f"*{span.attempt}" if span.attempt != 1 else "",
            f"~{span.unit}" if span.unit else "",
            f"@{span.due_ms}" if span.due_ms else "",
        )
    )


def parse_span(text: str, start: int | None = None) -> Span:
    """The span that `span_text` wrote. ValueError for anything else."""
    match = _SPAN.match(text)
    if not match:
        raise ValueError(f"not a span: {text!r}")
    first, count, bits, attempt, unit, due_ms = match.groups()
    mask = sum(_MASK.index(digit) << 6 * at for at, digit in enumerate(bits or ""))
    begin, size = int(first) if start is None else start, mask.bit_count() or int(count or 1)
    return Span(begin, size, int(attempt or 1), unit or "", int(due_ms or 0), mask)


def _mask_text(mask: int) -> str:
    return "".join(_MASK[mask >> at & 63] for at in range(0, mask.bit_length(), 6))


def lease_text(lease: Lease) -> str:
    """`spans;deadline;owner` (see layout); a span that begins where the one before ends leaves out its start."""
    ends = (-1, *(span.end for span in lease.spans))
    spans = (span_text(s, start=s.start != end) for s, end in zip(lease.spans, ends, strict=False))
    return f"{','.join(spans)};{lease.deadline_ms};{lease.owner}"


def parse_lease(token: str, text: str) -> Lease:
    """The lease that `lease_text` wrote."""
    spans_text, deadline, owner = text.split(";", 2)
    spans: list[Span] = []
    for part in spans_text.split(","):
        spans.append(parse_span(part, None if part[:1].isdigit() else spans[-1].end))
    return Lease(token, tuple(spans), int(deadline), owner)


def cursor_of(item: Item) -> Cursor:
    """The cursor an item holds. Raises Unreadable: without it, a group would begin again at the log's start."""
    return codec.decoded("cursors", item, _cursor)


def _cursor(item: Item) -> Cursor:
    waiting_spans = (parse_span(v["S"], int(k)) for k, v in item["w"]["M"].items())
    cursor = Cursor(
        leases={t: parse_lease(t, v["S"]) for t, v in item["l"]["M"].items()},
        waiting=tuple(sorted(waiting_spans, key=lambda s: s.start)),
        amended=_parse_ranges(text_of(item, "a")),
        round=_parse_round(text_of(item, "r")),
        in_lane=int(item["n"]["N"]) if "n" in item else 0,
        **{field: int(item[name]["N"]) for name, field in _SCALARS.items()},
    )
    # They would be granted again, and to list those of a damaged count may take all memory.
    if any(span.end > cursor.next for span in unsettled(cursor)):
        raise ValueError("it holds offsets that were never claimed")
    if any(sum(span.count for span in lease.spans) > MAX_IN_FLIGHT for lease in cursor.leases.values()):
        raise ValueError("no claim grants so many")
    return cursor


def _ranges_text(ranges: Ranges) -> str:
    return ",".join(span_text(Span(start, end - start)) for start, end in ranges)


def _parse_ranges(text: str | None) -> Ranges:
    spans = [parse_span(part) for part in text.split(",")] if text else []
    return tuple((span.start, span.end) for span in spans)


def _round_text(round: Round) -> str:
    parts = (f"{rank}.{p.taken}.{p.last_ms - round.began_ms}.{p.asked}" for rank, p in round.parts.items())
    return f"{round.epoch};{round.began_ms};{round.left};{','.join(parts)}"


def _parse_round(text: str | None) -> Round | None:
    if text is None:
        return None
    epoch, began_text, left_text, part_texts = text.split(";")
    rows = [[int(number) for number in part.split(".")] for part in part_texts.split(",") if part]
    began_ms = int(began_text)
    parts = {rank: Part(count, began_ms + last, demand) for rank, count, last, demand in rows}
    return Round(int(epoch), began_ms, int(left_text), parts)


def _leases(cursor: Cursor) -> dict[str, Any]:
    return {"M": {t: {"S": lease_text(lease)} for t, lease in cursor.leases.items()}}


def _item(cursor: Cursor) -> Item:
    scalars = {name: number(getattr(cursor, field)) for name, field in _SCALARS.items()}
    return {
        **scalars,
        "l": _leases(cursor),
        "w": {"M": {str(s.start): {"S": span_text(s, start=False)} for s in cursor.waiting}},
        **({"a": text(_ranges_text(cursor.amended))} if cursor.amended else {}),
        **({"r": text(_round_text(cursor.round))} if cursor.round else {}),
        **({"n": number(cursor.in_lane)} if cursor.in_lane else {}),
        "v": {"N": FORMAT},
    }
