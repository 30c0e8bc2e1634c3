"""What a day proves, what it lacks, and what is lost: the arithmetic of the proof, without an engine."""

from __future__ import annotations

from typing import Any

import pytest

from glue_jobs.archiving.completeness import Proof, begin, gaps
from glue_jobs.common.manifest import Manifest, Shard
from glue_jobs.common.ranges import Ranges

KEY = "shop:t1/0"
NOTHING = Proof({}, {})


def day(*ranges: tuple[int, int], missing: Ranges = (), start: int = 0) -> Manifest:
    shard = Shard("shop", "t1", 0, start, ranges, missing=missing)
    unused: dict[str, Any] = {"until_hour": 24, "input": "", "tables": {}}
    return Manifest(day="2026-11-22", shards=(shard,), **unused)


def test_a_day_adds_to_what_is_proved_and_takes_nothing_away() -> None:
    proof = NOTHING.with_day(day((0, 4)), was_asked=True).with_day(day((5, 9), (12, 14)), was_asked=True)
    assert proof.ranges == {KEY: ((0, 9), (12, 14))}


@pytest.mark.parametrize(("was_asked", "lost_ranges"), [(True, ((5, 6),)), (False, ())])
def test_what_is_missing_is_lost_only_where_the_table_was_asked(was_asked: bool, lost_ranges: Ranges) -> None:
    proof = NOTHING.with_day(day((0, 4), (7, 9), missing=((5, 6),)), was_asked)
    assert proof.lost == {KEY: lost_ranges}
    assert proof.ranges == {KEY: ((0, 4), (7, 9))}


def test_what_was_lost_stays_lost_until_a_day_has_it() -> None:
    proof = NOTHING.with_day(day((0, 4), missing=((5, 6),)), was_asked=True)
    assert proof.with_day(day((8, 9)), was_asked=True).lost == {KEY: ((5, 6),)}
    next_proof = proof.with_day(day((6, 6)), was_asked=True)
    assert (next_proof.lost, next_proof.ranges) == ({KEY: ((5, 5),)}, {KEY: ((0, 4), (6, 6))})


def test_a_day_begins_behind_what_is_proved_and_never_behind_its_own_first() -> None:
    proof = Proof({KEY: ((0, 4), (6, 9))}, {})
    assert begin(KEY, ((20, 25),), proof, None) == 10
    assert begin(KEY, ((8, 25),), proof, None) == 8
    assert begin(KEY, ((3, 9),), NOTHING, None) == 0
    assert begin(KEY, ((20, 25),), proof, day((15, 18), start=15)) == 15
    other_day = Manifest(day="2026-11-22", until_hour=24, input="", tables={}, shards=())
    assert begin(KEY, ((20, 25),), proof, other_day) == 10


def test_a_day_lacks_what_is_between_its_rows_and_behind_where_it_begins() -> None:
    ranges = {KEY: ((12, 14), (18, 19))}
    assert gaps(ranges, {KEY: 10}, NOTHING, None) == {KEY: ((10, 11), (15, 17))}
    proof = Proof({KEY: ((0, 10), (16, 16))}, {})
    assert gaps(ranges, {KEY: 10}, proof, None) == {KEY: ((11, 11), (15, 15), (17, 17))}
    assert gaps({KEY: ((10, 19),)}, {KEY: 10}, NOTHING, None) == {}


def test_a_day_lacks_what_it_had_at_an_earlier_run() -> None:
    before = day((10, 14), (18, 30), start=10)
    assert gaps({KEY: ((10, 19),)}, {KEY: 10}, NOTHING, before) == {KEY: ((20, 30),)}
    assert gaps({}, {}, NOTHING, before) == {KEY: ((10, 14), (18, 30))}
