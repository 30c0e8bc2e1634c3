"""The journal has what the tables' streams tell: messages as they stand, attempts as they ended."""

from __future__ import annotations

import gzip
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib import functions, wiring
from chalicelib.domain.errors import unavailable
from chalicelib.store.clients import Clients
from chalicelib.store.layout import Tables
from local.stream import StreamPoller, stream_event
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.stages import dynamo_stage

_BOUND_SECONDS = 120.0
Line = dict[str, Any]


class Journaling:
    """A stage whose two streams are journaled as under `make run`."""

    def __init__(self, folder: Path) -> None:
        prefix = f"hr-{uuid.uuid4().hex[:8]}"
        self.stage = dynamo_stage(prefix, folder)
        self.folder = folder / "bucket"
        self._written = threading.Condition()
        tables = Tables(prefix)
        self._pollers = [
            StreamPoller(
                table=table,
                name="journal",
                function=self._journal,
                dynamodb=Clients("us-east-1").get("dynamodb"),
                streams=Clients("us-east-1").get("dynamodbstreams"),
            )
            for table in (tables.log, tables.traces)
        ]
        self._threads = [threading.Thread(target=poller.run) for poller in self._pollers]

    def _journal(self, event: Any, context: Any) -> None:
        with self._written:
            functions.journal(event, self.stage.process())
            self._written.notify_all()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        assert all(poller.wait_until_ready(_BOUND_SECONDS) for poller in self._pollers)

    def stop(self) -> None:
        for poller in self._pollers:
            poller.stop()
        for thread in self._threads:
            thread.join(_BOUND_SECONDS)

    def lines(self, table: str) -> list[Line]:
        objects = sorted(self.folder.glob(f"journal/{table}/**/*.gz"))
        return [
            json.loads(line) for path in objects for line in gzip.decompress(path.read_bytes()).splitlines()
        ]

    def wait_for(self, table: str, enough: Callable[[list[Line]], bool]) -> list[Line]:
        with self._written:
            assert self._written.wait_for(lambda: enough(self.lines(table)), _BOUND_SECONDS), self.lines(
                table
            )
        return self.lines(table)


@pytest.fixture
def journaling(engine: str, tmp_path: Path) -> Iterator[Journaling]:
    new_journaling = Journaling(tmp_path)
    new_journaling.start()
    yield new_journaling
    new_journaling.stop()


def test_messages_edits_and_cancellations_are_journaled(journaling: Journaling) -> None:
    desk = Desk.at(journaling.stage)
    results = desk.produce(*(make.draft({"n": n}, keys=("k",), tag="t") for n in range(3)))
    desk.deps.amender.amend(
        desk.topic, desk.deps.lookup.message(desk.topic, results[1].id), {"body": b'"new"'}
    )
    desk.deps.amender.cancel(desk.topic, desk.deps.lookup.message(desk.topic, results[2].id))
    journal_lines = journaling.wait_for("messages", lambda lines: any(line.get("void") for line in lines))
    latest = {line["offset"]: line for line in sorted(journal_lines, key=lambda line: line["edition"])}
    assert [latest[n].get("body") for n in range(3)] == ['{"n":0}', '"new"', None]
    assert latest[2]["void"] == "cancelled"
    assert [latest[n]["id"] for n in range(3)] == [each.id for each in results]
    assert latest[0]["topic"] == desk.topic.name


def test_attempts_are_journaled_with_the_names_of_topic_and_group(journaling: Journaling) -> None:
    desk = Desk.at(journaling.stage)
    group = desk.group("billing")
    desk.produce(make.draft(1), make.draft(2))
    desk.ack(group, desk.receive(group))
    journal_lines = journaling.wait_for("deliveries", lambda lines: len(lines) == 2)
    assert {(line["topic"], line["group"], line["offset"], line["outcome"]) for line in journal_lines} == {
        (desk.topic.name, "billing", n, "SUCCESS") for n in range(2)
    }


class NoAnswer:
    """A bucket that does not answer."""

    def put(self, name: str, body: bytes) -> None:
        raise unavailable()

    def get(self, name: str) -> bytes | None:
        raise unavailable()

    def delete(self, name: str) -> None:
        raise unavailable()

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        raise unavailable()


def test_what_the_bucket_does_not_take_comes_again_also_where_nobody_can_read_it(
    journaling: Journaling,
) -> None:
    whole = journaling.stage.process().adapters
    deps = wiring.Deps(replace(whole, blobs=NoAnswer()))
    image = {"s": "t:u/0", "r": "r", "m": '[{"b":"1"}]'}
    numbers = {"o": "0", "n": "1", "a": "0", "x": "0"}
    row = {key: {"S": text} for key, text in image.items()} | {key: {"N": n} for key, n in numbers.items()}
    record = {"eventName": "INSERT", "dynamodb": {"NewImage": row, "SequenceNumber": "7"}}
    event = stream_event([record], "arn:aws:dynamodb:::table/log/stream/2026-11-21T00:00:00.000")
    assert functions.journal(event, deps) == {"batchItemFailures": [{"itemIdentifier": "7"}]}
    del event["Records"][0]["dynamodb"]["NewImage"]["s"]
    assert functions.journal(event, deps) == {"batchItemFailures": [{"itemIdentifier": "7"}]}
