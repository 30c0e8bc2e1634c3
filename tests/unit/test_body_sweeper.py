"""What becomes of a large body on its day: exactly on it, as long as it is needed, and never unnoted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from chalicelib import functions
from chalicelib.adapters import Adapters
from chalicelib.domain.blob_expiry import FOLDER, BlobExpiry, day_of, parse
from chalicelib.domain.errors import unavailable
from chalicelib.scheduler.bodies import BodySweeper
from chalicelib.scheduler.expirer import PROOF, RetentionGuard
from chalicelib.wiring import Deps
from local.store import MemoryBlobs
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.push import Inbox
from tests.support.stages import embedded_stage
from tests.support.troubled import SlowMinute

NOW_S = START_MS // 1000
TODAY, TOMORROW = (day_of(NOW_S + days * 86_400) for days in range(2))
TOPIC = make.topic()


@pytest.fixture
def ports() -> Adapters:
    ports = embedded_stage().adapters
    ports.control.put_topic(TOPIC, None)
    return ports


def noted(ports: Adapters, offset: int, day: str = TODAY) -> BlobExpiry:
    """A body that is noted under a day."""
    body = BlobExpiry(day, TOPIC.shard_key(0), offset, f"b{offset}")
    ports.blobs.put(body.body, b"x")
    ports.blobs.put(body.name, b"")
    return body


def sweeper(ports: Adapters, guard: RetentionGuard | None = None) -> BodySweeper:
    return BodySweeper(
        log=ports.log,
        records=ports.records,
        control=ports.control,
        blobs=ports.blobs,
        clock=ports.clock,
        retention_guard=guard,
    )


def days(ports: Adapters) -> list[str]:
    """The days under which something is noted."""
    return [body.day for name in ports.blobs.names(FOLDER, "", 100) if (body := parse(name))]


def stored(ports: Adapters, count: int, expires_s: int) -> None:
    """A row of so many messages from offset 0 on."""
    row = replace(make.segment(0, count), expires_s=expires_s)
    ports.log.put(TOPIC.shard_key(0), row, make.packed(row))


def test_what_the_archive_lacks_stays(ports: Adapters) -> None:
    archived_body, other_body = noted(ports, 4), noted(ports, 5)
    proof = {"ranges": {str(TOPIC.shard_key(0)): [[0, 4]]}}
    ports.blobs.put(PROOF, json.dumps(proof).encode())
    sweeper(ports, RetentionGuard(ports.log, ports.blobs, ports.clock)).run_once()
    assert [ports.blobs.get(body.body) for body in (archived_body, other_body)] == [None, b"x"]


def test_a_row_that_outlives_its_time_is_noted_for_a_later_day(ports: Adapters) -> None:
    """One whose own end would be noted under this very day again."""
    stored(ports, 1, NOW_S - 2 * 86_400)
    noted(ports, 0)
    assert sweeper(ports).run_once().postponed == 1
    assert [day > TODAY for day in days(ports)] == [True]


class Stuck(MemoryBlobs):
    """Notes cannot be deleted just now."""

    def delete(self, name: str) -> None:
        if name.startswith(FOLDER):
            raise unavailable()
        super().delete(name)


def test_a_run_that_breaks_off_leaves_a_note_for_later(ports: Adapters) -> None:
    ports = replace(ports, blobs=Stuck())
    stored(ports, 1, NOW_S + 86_400)
    noted(ports, 0)
    assert len(sweeper(ports).run_once().troubles) == 1
    assert any(day > TODAY for day in days(ports))


def test_bodies_for_which_time_was_too_short_have_another_run_of_the_function(ports: Adapters) -> None:
    bodies, inbox = [noted(ports, n) for n in range(30)], Inbox()
    functions.expire({}, SlowMinute(1_000), Deps(replace(ports, invoker=inbox)))
    assert {ports.blobs.get(body.body) for body in bodies} == {None, b"x"}
    (again,) = inbox.asked
    inbox.asked.clear()
    functions.expire(again[1], SlowMinute(1_000), Deps(replace(ports, invoker=inbox)))
    assert {ports.blobs.get(body.body) for body in bodies} == {None}
    assert not inbox.asked
