"""Two groups over the same messages: what a shadow did otherwise."""

from __future__ import annotations

import argparse
import json
import tracemalloc
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.common import job
from glue_jobs.common.arguments import DONE
from glue_jobs.common.bucket import FolderBucket
from glue_jobs.reporting import options, shadow, tables
from glue_jobs.reporting.comparison import SIDES, Comparison
from tests.glue.jobs import read_summary

from .archives import delivery, fill, message
from .journals import Place

NAMES = ("same", "fixed", "broken", "slower", "open")


def run(place: Place, *arguments: str) -> int:
    options_of_place = [
        "--bucket",
        place.name,
        "--folder",
        str(place.folder),
        "--topic",
        "orders",
        "--group",
        "g",
    ]
    argv = [*options_of_place, "--shadow", "shade", "--shadow-group", "next", *arguments]
    code = job.run_guarded(
        "compare", lambda: shadow.run(place.start, place.bucket, options.of_compare(None, argv))
    )
    place.pull()
    return code


def again(number: int, of: str, replay: str, minutes: float) -> dict[str, Any]:
    headers = {"headrace-replay": replay, "headrace-replay-of": of}
    return message(number, "shade", minutes=minutes, id=f"{of}-{replay}", headers=headers)


@pytest.fixture
def filled_place(place: Place) -> Place:
    """Five messages, each replayed twice; the second time counts. The shadow and both groups had an earlier life."""
    first = {name: message(n, id=name) for n, name in enumerate((*NAMES, "not replayed"))}
    first_replays = [again(n, name, "r1", 60) for n, name in enumerate(NAMES)]
    second_replays = {name: again(100 + n, name, "r2", 90) for n, name in enumerate(NAMES)}
    attempts = [delivery(first[name], duration_ms=10) for name in ("same", "broken", "slower")]
    attempts += [
        delivery(first["fixed"], seconds=n, attempt=n, outcome=end) for n, end in ((1, "RETRY"), (2, "DEAD"))
    ]
    attempts += [delivery(each, "next", outcome="DEAD") for each in first_replays]
    attempts += [delivery(second_replays[name], "next", duration_ms=40) for name in ("same", "fixed")]
    attempts += [
        delivery(second_replays["broken"], "next", outcome="DEAD", detail="HTTP 489", duration_ms=40)
    ]
    attempts += [
        delivery(second_replays["slower"], "next", seconds=n, attempt=n, duration_ms=40) for n in (1, 2)
    ]
    old = again(200, "not replayed", "r0", 30) | {"topic_uid": "shade-0"}
    attempts += [delivery(old, "next"), delivery(first["same"], group_uid="g-0", outcome="DEAD", seconds=-1)]
    attempts += [
        delivery(each, "next", group_uid="next-0", seconds=-2)
        for each in (*first_replays, *second_replays.values())
    ]
    fill(
        place, messages=[*first.values(), old, *first_replays, *second_replays.values()], deliveries=attempts
    )
    return place


def test_each_message_of_one_replay_is_compared_and_all_are_summed_up(
    filled_place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(filled_place) == DONE
    *text, last = capsys.readouterr().out.splitlines()
    assert text[-1].split() == ["shade", "next", "5", "40", "40"]
    summary = json.loads(last)
    expected_sums = {"messages": 5, "differ": 3, "attempts": 5, "shadow_attempts": 5}
    assert summary.items() >= {**expected_sums, "duration_p50_ms": 10, "shadow_duration_p50_ms": 40}.items()
    assert summary["outcomes"] == {
        "SUCCESS -> SUCCESS": 2, "DEAD -> SUCCESS": 1, "OPEN -> OPEN": 1, "SUCCESS -> DEAD": 1,
    }  # fmt: skip
    [table] = filled_place.folder.glob("reports/shadows/orders/g/shade/*.csv")
    rows = duckdb.execute(
        f"select id, outcome, shadow_outcome, attempts, shadow_attempts from '{table}'"
    ).fetchall()
    assert rows == [
        ("broken", "SUCCESS", "DEAD", 1, 1),
        ("fixed", "DEAD", "SUCCESS", 2, 1),
        ("slower", "SUCCESS", "SUCCESS", 1, 2),
        ("open", None, None, 0, 0),
        ("same", "SUCCESS", "SUCCESS", 1, 1),
    ]
    assert run(filled_place, "--replay", "r1") == DONE
    assert read_summary(capsys)["outcomes"]["SUCCESS -> DEAD"] == 3


def test_what_cannot_be_compared_is_said() -> None:
    names = {"topic": "orders", "group": "g", "shadow": "shade", "shadow_group": "next", "replay": None}
    row = {"attempts": 1, "shadow_attempts": 1, "differs": False, "outcome": None, "shadow_outcome": None}
    row |= {"duration_ms": None, "shadow_duration_ms": None}
    shadow.refuse_nothing(comparison_of([row]), argparse.Namespace(**names))
    for rows, replay, error in (
        ([], None, "no message of orders that was replayed into shade: replay"),
        ([], "r3", "no message of orders that was replayed into shade by r3: replay"),
        ([{**row, "attempts": 0}], None, "group g of orders has tried none of the 1 messages"),
        ([{**row, "shadow_attempts": 0}], None, "group next of shade has tried none of the 1 messages"),
    ):
        with pytest.raises(shadow.NothingToCompare, match=error):
            shadow.refuse_nothing(comparison_of(rows), argparse.Namespace(**names | {"replay": replay}))


def comparison_of(rows: list[dict[str, Any]]) -> Comparison:
    comparison = Comparison()
    for row in rows:
        comparison.add(row)
    return comparison


outcomes = st.sampled_from([None, "SUCCESS", "DEAD"])
durations = st.none() | st.integers(0, 3) | st.integers(0, 10**9)


@given(st.lists(st.tuples(outcomes, outcomes, st.integers(0, 3), durations, durations), max_size=50))
def test_the_sums_are_those_of_all_rows(endings: list[tuple[Any, ...]]) -> None:
    names = ("outcome", "shadow_outcome", "attempts", "duration_ms", "shadow_duration_ms")
    rows = [dict(zip(names, end, strict=True)) for end in endings]
    rows = [{**row, "id": n, "shadow_attempts": 1, "differs": n % 2 == 0} for n, row in enumerate(rows)]
    comparison = comparison_of(rows)
    assert comparison.messages == len(rows)
    assert [row["id"] for row in comparison.listed] == [*range(0, len(rows), 2)][:20]
    assert comparison.differ == (len(rows) + 1) // 2
    assert sum(pair["messages"] for pair in comparison.outcomes()) == len(rows)
    for side in SIDES:
        durations = sorted(row[f"{side}duration_ms"] for row in rows if row[f"{side}duration_ms"] is not None)
        for rank in (50, 99):
            expected_duration = durations[(len(durations) - 1) * rank // 100] if durations else None
            assert comparison.sums()[f"{side}duration_p{rank}_ms"] == expected_duration
        assert comparison.sums()[f"{side}attempts"] == sum(row[f"{side}attempts"] for row in rows)


def test_the_rows_of_a_large_table_are_met_some_at_a_time(tmp_path: Path) -> None:
    bucket = FolderBucket(tmp_path, "headrace")
    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"n": range(200_000)}), tmp_path / "t/part.parquet")
    tracemalloc.start()
    try:
        assert sum(row["n"] for row in tables._stored_rows(bucket, "t", tmp_path)) == 200_000 * 199_999 // 2
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
