"""The reader of a damaged row raises its documented error and no other, so that reading goes on with the next row."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.domain.assignment import Assignment
from chalicelib.domain.cursor import Cursor, Lease
from chalicelib.domain.errors import Unreadable
from chalicelib.domain.meter import MINUTES, GroupReading, Reading
from chalicelib.domain.pull_share import Part, Round
from chalicelib.domain.replay import Replay
from chalicelib.domain.signing import KeyRing, Secret
from chalicelib.domain.spans import Span
from chalicelib.domain.timer import TimerKind
from chalicelib.domain.transaction import Transaction
from chalicelib.store import codec, control_rows, cursors, log, marks, records, timers, traces, transactions
from chalicelib.store.attributes import Item
from chalicelib.store.layout import META_OFFSET, Tables, record_key, segment_key
from tests.support import factories as make
from tests.support.clock import START_MS

SHARD = make.shard(2)
KEY = make.cursor_key(SHARD)
TOPIC = make.topic()
GROUP = make.group(TOPIC)
REPLAY = Replay("r1", "orders", "orders", START_MS, 0, 9, 5, tag="t", where="body.n > 1")


class Stored(NamedTuple):
    """A row, the attributes that are its key in the table, and how it is read."""

    item: Item
    key: str
    read: Callable[[Item], object]


def control(model: type[control_rows.Row[Any]], entity: object) -> Stored:
    """A row of the table `control`."""
    return Stored(model.of(control_rows.Key("home", "place"), entity, 1).serialize(), "pk sk", model.decoded)


def log_rows() -> Iterator[tuple[str, Stored]]:
    lane = make.segment(8, [make.draft(n, origin=make.origin(n)) for n in range(2)])
    for name, segment in (("row", make.segment(8, 3)), ("lane's row", lane)):
        item = log._item(SHARD, segment, codec.pack(segment.drafts))
        yield f"log: {name}", Stored(item, "s o", log.segment_of)
        yield f"log: {name} as a tail", Stored(item, "s o", log.tail_of)
    meta_row = segment_key(SHARD, META_OFFSET) | {"t": {"N": "7"}, "c": {"N": "9"}}
    yield "log: meta row", Stored(meta_row, "s o", log.tail_of)


def cursor_rows() -> Iterator[tuple[str, Stored]]:
    cursor = Cursor(
        epoch=7,
        floor=3,
        next=40,
        leases={"1.a": Lease("1.a", (Span(5, 2), Span(7, 1, 4), Span(20, 3)), START_MS, "me")},
        waiting=(Span(9, 2, 2, "key", START_MS), Span(12, 1, 3)),
        amended=((50, 52), (60, 61)),
        round=Round(3, START_MS, 4, {0: Part(5, START_MS + 7, 10), 2: Part(0, START_MS, 1)}),
    )
    item = {"c": {"S": "group"}, "s": {"S": str(SHARD)}, **cursors._item(cursor)}
    yield "cursor", Stored(item, "c s", cursors.cursor_of)


def timer_rows() -> Iterator[tuple[str, Stored]]:
    for kind in TimerKind:
        timer = make.timer(START_MS, id="t1", kind=kind, shard=SHARD, keep_days=7, every_ms=9, edits=2)
        yield f"timer: {kind}", Stored(timers._item(Tables("p"), timer), "f t", timers.timer_of)


def record_rows() -> Iterator[tuple[str, Stored]]:
    for record in (make.record(5, "RETRYING", next_ms=START_MS), make.dead_record(5, last_error="HTTP 500")):
        item = {**record_key(KEY, 5), **records._item(record)}
        yield f"record: {record.status}", Stored(item, "g k", records._record)
    letter = make.letter(KEY, make.dead_record(5, shard=2), edited=True, version=3)
    yield "letter", Stored(records._letter_item(letter), "g k", lambda item: records._letter(KEY, item))


def other_rows() -> Iterator[tuple[str, Stored]]:
    transaction = Transaction(
        "t1", "orders", "u1", START_MS, START_MS, 60_000, 77, make.draft(1), shard=0, offset=0, due_ms=0
    )
    item = transactions._item(replace(transaction, committed_by="token"))
    yield "transaction", Stored(item, "t", transactions._transaction)
    item = traces._item(replace(make.trace(KEY, make.entries([5, 7]), rank=1), group="mail"))
    yield "trace", Stored(item, "k o", traces.row_of)
    item = marks._item("u1", MINUTES, Reading(START_MS, 9, {"g": GroupReading(1, 2, 3, (1, 1))}))
    read_reading = partial(codec.decoded, "rounds", decode=marks._reading)
    yield "reading", Stored(item, "r k", read_reading)


def control_data() -> Iterator[tuple[str, Stored]]:
    secret = Secret(until_ms=7, ciphertext="c2VhbGVk", fingerprint="f1")
    consumer = replace(make.consumer(GROUP), secrets=(secret, Secret("00ff")), version=1)
    yield "topic", control(control_rows.TopicRow, TOPIC)
    yield "group", control(control_rows.GroupRow, replace(GROUP, tags=("paid",)))
    yield "consumer", control(control_rows.ConsumerRow, consumer)
    yield "assignment", control(control_rows.AssignmentRow, Assignment(1, "mod", ("c1",), ("c1",)))
    yield "token", control(control_rows.TokenRow, make.token())
    yield "use", control(control_rows.UseRow, control_rows.Use("tok1", START_MS))
    yield "replay", control(control_rows.ReplayRow, REPLAY)
    yield "key ring", control(control_rows.KeyRingRow, KeyRing((secret, Secret("00ff")), 1))


ROWS = dict([*log_rows(), *cursor_rows(), *timer_rows(), *record_rows(), *other_rows(), *control_data()])

texts = st.sampled_from(
    ("", "?", "*4;1;me", ";;", ",", "#", "/", "[]", "{}", "[[]]", "null", "~", "~a", "-1", "9" * 40)
)
values = st.sampled_from(
    (
        {"NULL": True},
        {"BOOL": True},
        {"N": "-1"},
        {"N": "0.5"},
        {"N": "9.9E+125"},
        {"B": b""},
        {"B": b"\x78\x9c?"},
        {"L": []},
        {"M": {}},
        {"L": [{"NULL": True}]},
        {"M": {"": {"N": "1"}}},
        {"SS": ["a"]},
    )
) | st.builds(lambda text: {"S": text}, texts)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each attribute, those within lists and maps, too."""
    kinds: dict[str, Any] = value if isinstance(value, dict) else {}
    for kind in {"M", "L"} & kinds.keys():
        inner_values = kinds[kind].items() if kind == "M" else enumerate(kinds[kind])
        for name, inner in inner_values:
            yield (*path, kind, name)
            yield from places(inner, (*path, kind, name))


@pytest.mark.parametrize("name", ROWS)
@given(data=st.data())
def test_whatever_becomes_of_a_row_its_reader_raises_what_it_says(name: str, data: st.DataObject) -> None:
    row = ROWS[name]
    item = copy.deepcopy(row.item)
    for _ in range(data.draw(st.integers(1, 2))):
        paths = [path for path in places({"M": item}) if path[1] not in row.key.split()]
        *way, last = data.draw(st.sampled_from(paths))
        holder: Any = {"M": item}
        for step in way:
            holder = holder[step]
        old = holder[last]
        how = data.draw(st.sampled_from(("gone", "other", "text")))
        if how == "gone":
            del holder[last]
        elif how == "text" and "S" in old:
            at = data.draw(st.integers(0, len(old["S"])))
            length = data.draw(st.integers(0, 3))
            holder[last] = {"S": old["S"][:at] + data.draw(texts) + old["S"][at + length :]}
        else:
            holder[last] = copy.deepcopy(data.draw(values))
    read(row, item)


@pytest.mark.parametrize(
    "damage",
    [
        {"l": {"M": {"1.a": {"S": "0+3000000;1;me"}}}},
        {"l": {"M": {"1.a": {"S": "30%_;1;me"}, "1.b": {"S": "35%_;1;me"}}}},
        {"w": {"M": {"9": {"S": "+32"}}}},
        {"x": {"N": "22"}},
    ],
    ids=["a lease", "a mask", "what waits", "next"],
)
def test_a_cursor_that_holds_what_was_never_claimed_is_damaged(damage: Item) -> None:
    """To list the offsets of such a lease may take all memory, and the process's other work with it."""
    with pytest.raises(Unreadable):
        cursors.cursor_of({**ROWS["cursor"].item, **damage})


def read(row: Stored, item: Item) -> None:
    """Read a damaged row. Its reader raises Unreadable, and nothing else."""
    with suppress(Unreadable):
        row.read(item)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_nothing_has_happened_to_is_read(name: str) -> None:
    assert ROWS[name].read(ROWS[name].item) is not None
