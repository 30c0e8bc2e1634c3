"""Invalid rows of DynamoDB are named and skipped, and no good row with them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the archive's jobs need PySpark: make test")

from chalicelib.domain.segment import ShardKey
from chalicelib.store import codec
from chalicelib.store.log import _item
from chalicelib.store.traces import _item as _trace_item
from chalicelib.store.traces import parts
from glue_jobs.archiving import backfill
from glue_jobs.archiving.scan import shard_key
from glue_jobs.common.manifest import TooNew
from tests.glue.journals import NOON_MS
from tests.support import factories as make
from tests.support.journaled import DELIVERIES

BATCH = 4
SHARD = ShardKey("orders", "u1", 0)
HOME = shard_key("orders", "u1", 0)
TRACES = "g1/u1/0"

content = ["[{", "[]", "[[]]", "[1]", '[{"b":1}]', '[{"q":"true"}]', "[" * 9_999, '[[0,9e9,1,"x",0,""]]']
attributes = st.one_of(
    st.fixed_dictionaries({"N": st.integers(-(10**18), 10**18).map(str)}),
    st.fixed_dictionaries({"S": st.one_of(st.text(max_size=9), st.sampled_from(content))}),
    st.fixed_dictionaries({"B": st.binary(max_size=9)}),
    st.fixed_dictionaries({"NULL": st.just(True)}),
    st.none(),  # the attribute is not there
)


def log_rows() -> list[dict[str, Any]]:
    segments = [make.segment(n * BATCH, BATCH, accepted_ms=NOON_MS) for n in range(3)]
    return [_item(SHARD, each, codec.pack(each.drafts)) for each in segments]


def trace_rows() -> list[dict[str, Any]]:
    rows = (replace(DELIVERIES[0], id=f"t{n}", started_ms=NOON_MS) for n in range(3))
    return [_trace_item(part) for row in rows for part in parts(row)][:3]


def of_log(items: Iterable[Any]) -> list[backfill.Line]:
    return list(backfill.lines_of(HOME, [items], NOON_MS))


def of_traces(items: Iterable[Any]) -> list[backfill.Line]:
    return [line for *_, lines in backfill.attempts_of(TRACES, items, 0, 2 * NOON_MS) for line in lines]


@pytest.mark.parametrize(("rows", "read_lines"), [(log_rows, of_log), (trace_rows, of_traces)])
@given(data=st.data())
def test_a_damaged_row_is_named_and_every_other_row_is_there(
    rows: Callable[[], list[Any]],
    read_lines: Callable[[Iterable[Any]], list[backfill.Line]],
    data: st.DataObject,
) -> None:
    first, damaged_row, last = rows()
    sound = read_lines([first]), read_lines([last])
    assert all(day for lines in sound for day, *_ in lines)
    damaged_row = copy.deepcopy(damaged_row)
    name = data.draw(st.sampled_from(sorted({*damaged_row} - {"s", "k", "o"})))
    if value := data.draw(attributes):
        damaged_row[name] = value
    else:
        del damaged_row[name]
    try:
        lines = read_lines([first, damaged_row, last])
    except TooNew:
        assert int(damaged_row["v"]["N"]) > 1
        return
    assert lines[: len(sound[0])] == sound[0]
    assert lines[-len(sound[1]) :] == sound[1]
    for day, _, line in lines:
        assert not day or date(2100, 1, 1) > date.fromisoformat(day) >= date(1970, 1, 1)
        assert json.loads(line) if day else name != "x" and line.startswith((HOME, TRACES))


def offsets_of(lines: Iterable[backfill.Line]) -> list[int]:
    return [json.loads(line)["offset"] for *_, line in lines]


def test_one_row_of_a_later_time_ends_no_look_and_a_page_of_them_does() -> None:
    first, second, third = log_rows()
    later = {**second, "a": {"N": str(NOON_MS + 1)}}
    assert offsets_of(backfill.lines_of(HOME, [[first, later], [third]], NOON_MS)) == [
        0,
        1,
        2,
        3,
        8,
        9,
        10,
        11,
    ]
    assert offsets_of(backfill.lines_of(HOME, [[first], [later], [third]], NOON_MS)) == [0, 1, 2, 3]


def test_pages_of_which_a_filter_left_nothing_end_no_look() -> None:
    first, _, third = log_rows()
    pages: list[list[Any]] = [[], [first], [], [third]]
    for until_ms in (None, NOON_MS):
        assert offsets_of(backfill.lines_of(HOME, pages, until_ms)) == [0, 1, 2, 3, 8, 9, 10, 11]


class Table:
    """A client of DynamoDB with these rows of a shard, by offset."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = list(items)

    def query(self, **request: Any) -> dict[str, Any]:
        values = request["ExpressionAttributeValues"]
        first, last = (int(values[name]["N"]) for name in (":first", ":last"))
        items = [item for item in self._items if first <= int(item["o"]["N"]) <= last]
        if not request.get("ScanIndexForward", True):
            items.reverse()
        return {"Items": items[: request.get("Limit")]}


@pytest.mark.parametrize(("gap", "firsts"), [((2, 5), [0, 4]), ((3, 3), [0]), ((4, 4), [4]), ((8, 99), [8])])
def test_a_gap_that_begins_within_a_row_is_filled_from_that_row_on(
    gap: tuple[int, int], firsts: list[int]
) -> None:
    pages = backfill._rows(Table(log_rows()), "log", HOME, *gap)
    assert [int(item["o"]["N"]) for page in pages for item in page] == firsts
