"""With an archive, a row of the log goes only after the proof that the archive has it."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError

from chalicelib import functions
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.times import DAY_MS
from chalicelib.scheduler.expirer import PROOF, RetentionGuard
from chalicelib.store.blobs import S3Blobs
from chalicelib.store.log import Log
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage
from tests.support.troubled import Troubled


def prove(
    stage: Stage, shard: ShardKey, *ranges: tuple[int, int], lost_ranges: tuple[tuple[int, int], ...] = ()
) -> None:
    proof = {"v": 1, "ranges": {str(shard): ranges}, "lost": {str(shard): lost_ranges}}
    stage.adapters.blobs.put(PROOF, json.dumps(proof).encode())


def archiving(stage: Stage, retention_days: float = 1, **settings: int) -> tuple[Desk, Deps, ShardKey]:
    desk = Desk.at(stage, retention_days=retention_days, **settings)
    return desk, Deps(replace(stage.another(), archive=True)), desk.topic.shard_key(0)


def offsets(stage: Stage, shard: ShardKey) -> list[int]:
    return [row.first for row in stage.adapters.log.read(shard, 0, 100)]


@pytest.mark.parametrize("days", [1 / 24, 1])
def test_what_is_not_proved_stays_and_is_told(empty_stage: Stage, days: float) -> None:
    desk, deps, shard = archiving(empty_stage, days)
    for n in range(4):
        desk.produce(make.draft(n))
    prove(empty_stage, shard, (0, 1))
    empty_stage.clock.advance(DAY_MS + 1000)
    assert deps.expirer.run_once().kept == 2
    empty_stage.clock.advance(DAY_MS)
    empty_stage.drop_expired()
    assert offsets(empty_stage, shard) == [2, 3]
    assert deps.expirer.run_once().kept == 2
    prove(empty_stage, shard, (0, 3))
    assert deps.expirer.run_once().kept == 0
    empty_stage.clock.advance(2 * DAY_MS)
    empty_stage.drop_expired()
    assert offsets(empty_stage, shard) == []


@pytest.mark.parametrize("raw", [b'{"ranges":', b'{"ranges": []}', b'{"ranges": {"s": [["0", 1]]}}', b"\xff"])
def test_a_proof_that_cannot_be_read_proves_nothing_and_stops_nothing(empty_stage: Stage, raw: bytes) -> None:
    desk, deps, _ = archiving(empty_stage)
    desk.group()
    desk.produce(make.draft(1))
    empty_stage.adapters.blobs.put(PROOF, raw)
    empty_stage.clock.advance(DAY_MS + 1000)
    report = deps.expirer.run_once()
    assert (report.kept, report.buried) == (1, 1)
    assert deps.body_sweeper.run_once().finished


def test_a_gap_in_the_proof_keeps_what_is_behind_it_unless_it_is_lost(empty_stage: Stage) -> None:
    desk, deps, shard = archiving(empty_stage)
    for n in range(4):
        desk.produce(make.draft(n))
    empty_stage.clock.advance(DAY_MS + 1000)
    prove(empty_stage, shard, (0, 0), (2, 3), lost_ranges=((1, 1),))
    assert deps.expirer.run_once().kept == 0
    prove(empty_stage, shard, (0, 0), (2, 3))
    assert deps.expirer.run_once().kept == 3


def test_a_proof_that_does_not_begin_at_the_first_row_proves_nothing(empty_stage: Stage) -> None:
    desk, deps, shard = archiving(empty_stage)
    for n in range(3):
        desk.produce(make.draft(n))
    empty_stage.clock.advance(DAY_MS + 1000)
    prove(empty_stage, shard, (1, 2))
    assert deps.expirer.run_once().kept == 3


def test_what_was_written_under_a_shorter_retention_is_kept_behind_what_lives_longer(
    empty_stage: Stage,
) -> None:
    desk, deps, shard = archiving(empty_stage, retention_days=30)
    for _ in range(100):  # as many as a look shows
        desk.produce(make.draft("long"))
    shorter = Desk(empty_stage, desk.deps, replace(desk.topic, retention_days=1))
    shorter.produce(make.draft("short"))
    empty_stage.clock.advance(DAY_MS + 1000)
    assert deps.expirer.run_once().kept == 1
    empty_stage.clock.advance(DAY_MS)
    empty_stage.drop_expired()
    assert empty_stage.adapters.log.read(shard, 100, 1)


@pytest.mark.parametrize("shards", [1, 4])
def test_i18_runs_that_have_no_time_for_all_rows_of_a_topic_come_by_every_one(
    empty_stage: Stage, shards: int
) -> None:
    desk, deps, _ = archiving(empty_stage, shards=shards)
    for n in range(520):
        desk.produce(make.draft(n, shard=n % shards))
    empty_stage.clock.advance(DAY_MS + 1000)
    kept = runs = 0
    while kept < 520:
        kept += deps.expirer.run_once(partial(next, iter([True] * (4 + shards)), False)).kept
        runs += 1
        assert runs <= 20, "as often as it is started again"
    empty_stage.clock.advance(DAY_MS)
    empty_stage.drop_expired()
    assert sum(len(desk.rows(shard)) for shard in range(shards)) == 520


def test_without_an_archive_rows_go_unasked(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    desk.produce(make.draft(1))
    empty_stage.clock.advance(2 * DAY_MS)
    assert desk.deps.expirer.run_once().kept == 0
    empty_stage.drop_expired()
    assert offsets(empty_stage, desk.topic.shard_key(0)) == []


def test_the_rows_of_one_topic_are_looked_at_for_a_minute_and_what_was_left_is_told(
    empty_stage: Stage,
) -> None:
    desk, deps, _ = archiving(empty_stage)
    desk.produce(make.draft())
    empty_stage.clock.advance(DAY_MS + 1000)

    def takes_a_minute() -> bool:
        empty_stage.clock.advance(60_001)
        return True

    guard = RetentionGuard(empty_stage.adapters.log, empty_stage.adapters.blobs, empty_stage.clock)
    assert guard.keep(desk.topic, {}, takes_a_minute, 1, []) == (0, False)
    answers = iter([True, False])  # before the topic, and before its rows
    report = deps.expirer.run_once(lambda: next(answers, True))
    assert (report.kept, report.stretch.finished) == (0, False)
    assert deps.expirer.run_once().stretch.finished


class Away:
    """A client of S3 that gives this answer to every call."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __getattr__(self, operation: str) -> Any:
        def refuse(**request: Any) -> Any:
            raise ClientError({"Error": {"Code": self._code}}, operation)

        return refuse


@pytest.mark.parametrize("code", ["SlowDown", "InternalError", "AccessDenied", "NoSuchBucket"])
@pytest.mark.parametrize("archive", [True, False])
def test_what_is_owed_is_buried_though_the_bucket_does_not_answer(
    empty_stage: Stage, archive: bool, code: str
) -> None:
    desk = Desk.at(empty_stage, retention_days=1)
    group = desk.group()
    desk.produce(make.draft(1))
    empty_stage.clock.advance(DAY_MS + 1000)
    blobs = S3Blobs(Away(code), "bucket")
    deps = Deps(replace(empty_stage.another(), archive=archive, blobs=blobs))
    minutes = SimpleNamespace(get_remaining_time_in_millis=lambda: 600_000)
    report = functions.expire({}, minutes, deps)
    assert (report["buried"], report["troubles"]) == (1, 1 + 2 * archive)
    assert len(empty_stage.adapters.records.dead(desk.topic, group, None, 10)) == 1


def test_i1_what_is_owed_is_buried_though_a_shard_cannot_be_kept(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, retention_days=1, shards=2)
    group = desk.group()
    desk.produce(*(make.draft(n, shard=n) for n in range(2)))
    empty_stage.clock.advance(DAY_MS + 1000)
    away = str(desk.topic.shard_key(0))
    adapters = empty_stage.another()
    log = cast(Log, Troubled(adapters.log, lambda name, *call: name == "read" and str(call[0]) == away))
    report = Deps(replace(adapters, archive=True, log=log)).expirer.run_once()
    letters = [letter.message.shard for _, letter in adapters.records.dead(desk.topic, group, None, 10)]
    assert (letters, len(report.stretch.troubles)) == ([1], 1)
