"""Lines of the journal that nobody should have written: Arrow leaves them to Spark, or has every sound line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the archive's jobs need requirements-spark.txt")

from glue_jobs.archiving.engine import SPARK, Unusual
from glue_jobs.archiving.on_arrow import lines, rows, spill
from glue_jobs.common.arguments import INCOMPLETE
from glue_jobs.common.bucket import Entry
from glue_jobs.common.manifest import TooNew
from tests.glue.journals import DAY, Line, Place, delivery, message

SOUND = (0, 1, 3)
WHOLE_LINES = [b"{}", b"{}{}", b"null", b" null", b"{}null", b"[]", b"1", b"", b"[" * 3_000, b'{"v":NaN}']
leaf_values = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6)
values = (
    leaf_values
    | st.lists(leaf_values, max_size=2)
    | st.dictionaries(st.text(max_size=3), leaf_values, max_size=2)
)


def encoded(line: Line) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode()


@st.composite
def damaged(draw: st.DrawFn, line: Line) -> bytes:
    """A line with a wrong value, without a field, or with other bytes; or another line in its place."""
    name = draw(st.sampled_from([*line, "void", "body_base64", "body_blob"]))
    without = {key: value for key, value in line.items() if key != name}
    raw = encoded(line)
    at = draw(st.integers(0, len(raw)))
    spliced_line = raw[:at] + draw(st.binary(max_size=6)) + raw[at + draw(st.integers(0, 12)) :]
    return draw(
        st.sampled_from([encoded({**line, name: draw(values)}), encoded(without), spliced_line, *WHOLE_LINES])
    )


def archived_rows(table: str, raw: list[bytes]) -> list[dict[str, Any]]:
    """The rows of an object of the journal, as the engine makes them. Raises Unusual, TooNew."""
    content = gzip.compress(b"\n".join(raw))
    table_rows: list[dict[str, Any]] = []
    journal_lines = lines.read(table, DAY, [Entry("a", len(content))], lambda _: content)
    for key, part in spill.partition(journal_lines, rows.PLACES[table]):
        place = rows.place_of(table, key)
        if table == "messages":
            table_rows += rows.messages(
                part, place, lambda names: [name.encode() for name in names]
            ).rows.to_pylist()
        else:
            table_rows += rows.deliveries(part, place, rows.ids([])).to_pylist()
    return table_rows


@pytest.mark.parametrize("line", WHOLE_LINES, ids=lambda raw: repr(raw[:9]))
@pytest.mark.parametrize("first", [True, False])
def test_a_line_that_is_no_object_of_json_is_left_to_spark(line: bytes, first: bool) -> None:
    sound = encoded(message(0))
    with pytest.raises(Unusual):
        archived_rows("messages", [line, sound] if first else [sound, line, sound])


@pytest.mark.parametrize(("table", "make_line"), [("messages", message), ("deliveries", delivery)])
@given(data=st.data())
def test_no_sound_line_is_lost_or_doubled(
    table: str, make_line: Callable[[int], Line], data: st.DataObject
) -> None:
    raw = [encoded(make_line(n)) for n in SOUND]
    raw.insert(data.draw(st.integers(0, len(SOUND))), data.draw(damaged(make_line(2))))
    try:
        made_rows = archived_rows(table, raw)
    except (Unusual, TooNew):
        return
    places = [(row["topic"], row["topic_uid"], row["shard"], row["offset"]) for row in made_rows]
    assert {("orders", "u1", 0, offset) for offset in SOUND} <= {*places}
    if table == "messages":
        assert len({*places}) == len(places)


WRONG = [2**63 - 1, -(2**63), 2**70, -1, 1.5, "x", "", [], {}, True, None]


@pytest.mark.soak
@pytest.mark.parametrize("made_by", [SPARK])
def test_spark_archives_every_sound_line_beside_damaged_ones(place: Place) -> None:
    for make_line, name in ((message, "messages"), (delivery, "deliveries")):
        path = place.journal(name, [make_line(0)])
        wrong = [
            {**make_line(2), key: value}
            for key in make_line(2)
            if key not in ("v", "topic")
            for value in WRONG
        ]
        raw = [
            encoded(make_line(0)),
            encoded(make_line(1)),
            *WHOLE_LINES,
            *map(encoded, wrong),
            encoded(make_line(3)),
        ]
        path.write_bytes(gzip.compress(b"\n".join(raw)))
    assert place.archive() == INCOMPLETE
    for table in ("messages", "deliveries"):
        of = "topic_uid = 'u1' and shard = 0 and \"offset\" in (0, 1, 3)"
        time_condition = "" if table == "messages" else " and started_at is not null"
        rows = place.query(f'"offset" from % where {of}{time_condition} order by 1', table)
        assert [offset for (offset,) in rows] == list(SOUND)
