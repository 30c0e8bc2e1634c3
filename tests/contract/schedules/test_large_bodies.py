"""A large body stays as long as it may be needed, and is then deleted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.segment import Written
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import Group
from chalicelib.scheduler.bodies import BodyReport
from chalicelib.scheduler.expirer import PROOF
from chalicelib.services.consume.settle import Nack
from chalicelib.services.journal import Journal
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import Stage

LARGE = "x" * (BLOB_THRESHOLD_BYTES + 1)
GIVE_UP = Nack(dead_letter=True)


def at(stage: Stage, **settings: Any) -> Desk:
    return Desk.at(stage, retention_days=1, **settings)


def bodies(desk: Desk) -> list[str]:
    return desk.stage.adapters.blobs.names(f"bodies/{desk.topic.name}/", "", 100)


def journal(desk: Desk) -> None:
    """What the streams would bring to the function `journal`."""
    rows: list[Any] = [Written(desk.topic.shard_key(0), row) for row in desk.rows()]
    Journal(desk.stage.adapters.blobs).store(rows, "batch")


def days_pass(desk: Desk, *days: int, archive: bool = False) -> BodyReport:
    """So many at a time, with all that comes by then; what the sweeper did in all."""
    total = BodyReport()
    for step in days:
        desk.stage.clock.advance(step * DAY_MS)
        deps = Deps(replace(desk.stage.another(), archive=archive))
        deps.expirer.run_once()
        desk.stage.drop_expired()
        report = deps.body_sweeper.run_once()
        assert not report.troubles
        assert report.finished
        total.deleted += report.deleted
        total.postponed += report.postponed
    return total


def buried(desk: Desk, group: Group) -> None:
    assert desk.nack(group, desk.receive(group), GIVE_UP) == [None]


def test_it_goes_a_few_days_after_its_row(empty_stage: Stage) -> None:
    desk = at(empty_stage)
    group = desk.group()
    desk.produce(make.draft(LARGE), make.draft("small"))
    journal(desk)
    assert desk.drain(group) == [0, 1]
    assert days_pass(desk, 2, 1) == BodyReport()
    assert len(bodies(desk)) == 1
    assert days_pass(desk, 2) == BodyReport(deleted=1)
    assert bodies(desk) == []
    assert days_pass(desk, 5) == BodyReport(), "its note went with it"


def test_it_stays_with_its_row_where_that_outlives_its_time(empty_stage: Stage) -> None:
    """Until the archive has it, or where TTL is late."""
    desk = at(empty_stage)
    desk.produce(make.draft(LARGE))
    journal(desk)
    assert days_pass(desk, *[1] * 7, archive=True).deleted == 0
    assert len(bodies(desk)) == 1
    key = str(desk.topic.shard_key(0))
    empty_stage.adapters.blobs.put(
        PROOF, json.dumps({"v": 1, "ranges": {key: [[0, 0]]}, "lost": {}}).encode()
    )
    assert days_pass(desk, 4, 4, archive=True).deleted == 1


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_a_dead_letter_keeps_it_until_it_is_done_with(empty_stage: Stage, mode: str) -> None:
    desk = at(empty_stage, mode=mode)
    group = desk.group()
    consumer = desk.consumer(group, "one") if mode == "broadcast" else None
    desk.produce(make.draft(LARGE))
    journal(desk)
    assert desk.nack(group, desk.receive(group, consumer=consumer), GIVE_UP) == [None]
    assert days_pass(desk, 6, 10, 10) == BodyReport(postponed=3)
    (letter,) = (letter for _, letter in empty_stage.adapters.records.dead(desk.topic, group, None, 9))
    assert desk.deps.dead_letters.redrive(desk.topic, group, [letter]) == 1
    days_pass(desk, 1)
    (again,) = desk.receive(group, consumer=consumer)
    assert len(again.message.draft.body) == BLOB_THRESHOLD_BYTES + 3
    assert desk.ack(group, [again]) == [None]
    assert days_pass(desk, 10).deleted == 1
    assert bodies(desk) == []


def test_a_letter_that_was_deleted_and_a_group_that_was_keep_it_no_more(empty_stage: Stage) -> None:
    desk = at(empty_stage)
    first, second = desk.group("first"), desk.group("second")
    desk.produce(make.draft(LARGE))
    journal(desk)
    buried(desk, first)
    buried(desk, second)
    days_pass(desk, 6)
    ((_, letter),) = empty_stage.adapters.records.dead(desk.topic, first, None, 9)
    desk.deps.dead_letters.discard(desk.topic, first, letter)
    assert days_pass(desk, 20).deleted == 0, "the other group has one"
    desk.deps.admin.delete_group(desk.topic, second)
    assert days_pass(desk, 10).deleted == 1


def test_what_waits_for_its_next_attempt_keeps_it(empty_stage: Stage) -> None:
    desk = at(empty_stage, retry=Retry(9, (20 * 86_400,), jitter=0.0))
    group = desk.group()
    desk.produce(make.draft(LARGE))
    journal(desk)
    buried(desk, group)
    ((_, letter),) = empty_stage.adapters.records.dead(desk.topic, group, None, 9)
    desk.deps.dead_letters.redrive(desk.topic, group, [letter])
    assert desk.nack(group, desk.receive(group), Nack(delay_ms=20 * DAY_MS)) == [None]
    assert days_pass(desk, 19).deleted == 0
    days_pass(desk, 2)
    assert desk.drain(group) == [0]


def test_it_goes_with_its_topic(empty_stage: Stage) -> None:
    desk = at(empty_stage)
    group = desk.group()
    desk.produce(make.draft(LARGE))
    journal(desk)
    buried(desk, group)
    desk.deps.admin.delete_topic(desk.topic)
    assert days_pass(desk, 6).deleted == 1
    assert bodies(desk) == []


def test_what_somebody_else_put_there_stays_and_a_bad_one_stops_no_other(empty_stage: Stage) -> None:
    desk = at(empty_stage)
    blobs = empty_stage.adapters.blobs
    desk.produce(make.draft(LARGE))
    journal(desk)
    blobs.put("expiring/2001-01-01/README", b"")
    empty_stage.clock.advance(6 * DAY_MS)
    empty_stage.drop_expired()
    assert empty_stage.process().body_sweeper.run_once(lambda: False).finished is False
    assert empty_stage.process().body_sweeper.run_once().deleted == 1
    assert blobs.get("expiring/2001-01-01/README") == b""
