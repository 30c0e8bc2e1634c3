"""Real departures all the way: produced, consumed, journaled, archived, compacted, replayed, reported. DuckDB reads the
Parquet by itself and finds exactly what was produced."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from glue_jobs.archiving import compaction, options, transforms
from glue_jobs.archiving import run as archive_run
from glue_jobs.common import session
from glue_jobs.common.bucket import FolderBucket
from glue_jobs.common.manifest import load_all
from glue_jobs.common.manifest import table as table_of
from glue_jobs.common.schemas import TABLES
from glue_jobs.common.service import Service
from glue_jobs.replaying import run as replay
from glue_jobs.reporting import as_of, hours
from glue_jobs.reporting import options as reporting_options
from glue_jobs.reporting import run as report
from local.engine.dynamodb_local import free_port

ROOT = Path(__file__).parents[2]
SECONDS = 60
TOPIC, GROUP = "/v1/topics/flights", "/v1/topics/flights/groups/tower"
ALL_TIME = {"from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z"}


@pytest.fixture
def headrace_service(engine: str, tmp_path: Path) -> Iterator[Service]:
    """`make run` in a folder of its own, with tables of its own."""
    port = free_port()
    environment = {
        "PYTHONPATH": str(ROOT),
        "HEADRACE_PORT": str(port),
        "HEADRACE_PREFIX": f"flights{uuid.uuid4().hex[:8]}",
        "HEADRACE_DATA": str(tmp_path),
        "HEADRACE_TOKEN": f"hr_flights_{uuid.uuid4().hex}",
        "AWS_ENDPOINT_URL_DYNAMODB": engine,
    }
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    with subprocess.Popen(
        [sys.executable, "-m", "local"],
        cwd=tmp_path,
        env=plain | environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("Headrace serves on ")
            yield Service(f"http://127.0.0.1:{port}", environment["HEADRACE_TOKEN"])
        finally:
            process.terminate()


class Flow:
    """One topic's way from producer to report."""

    def __init__(self, service: Service, spark: SparkSession, data: Path) -> None:
        self.ask = service.ask
        self._service = service
        self._spark = spark
        self._folder = data / "bucket"
        self._name = f"flights-{uuid.uuid4().hex[:8]}"
        session.map_bucket(spark, self._name, self._folder)
        self.bucket = FolderBucket(self._folder, self._name)
        self.produced: dict[str, Any] = {}

    def produce(self, events: list[Any]) -> None:
        for start in range(0, len(events), 500):
            part = events[start : start + 500]
            messages = [
                dict(zip(("body", "tag", "keys", "ordering_key"), (event, *said_of(event)), strict=True))
                for event in part
            ]
            results = self.ask("POST", f"{TOPIC}/messages/batch", {"messages": messages})["results"]
            self.produced |= {result["id"]: event for result, event in zip(results, part, strict=True)}

    def consume(self) -> Counter[str]:
        """Settle everything: what never took off is buried, the rest is taken; counts by outcome."""
        outcomes: Counter[str] = Counter()
        while messages := self.ask("POST", f"{GROUP}/receive", {"max": 1000})["messages"]:
            grounded_receipts = [
                m["receipt"] for m in messages if m["body"]["departure_delay_minutes"] is None
            ]
            receipts = [m["receipt"] for m in messages if m["body"]["departure_delay_minutes"] is not None]
            if grounded_receipts:
                body = {"receipts": grounded_receipts, "dead_letter": True, "reason": "never took off"}
                self.ask("POST", f"{GROUP}/nack", body)
            self.ask("POST", f"{GROUP}/ack", {"receipts": receipts})
            outcomes += Counter(SUCCESS=len(receipts), DEAD=len(grounded_receipts))
        return outcomes

    def journaled(self, table: str) -> int:
        """How many lines the journal has of a table."""
        return sum(
            gzip.decompress(path.read_bytes()).count(b"\n")
            for path in self._folder.glob(f"journal/{table}/**/*.gz")
        )

    def archive(self) -> None:
        choices = options.of_archive(
            None, [*self._here(), "--open", "yes", "--backfill", "no", "--rows-per-file", "300"]
        )
        assert archive_run.run(self._start, self.bucket, choices) == 0

    def compact(self) -> None:
        before = self.files()
        assert compaction.run(self._start, self.bucket, options.of_compact(None, self._here())) == 0
        assert self.files() < before

    def replay(self, replay_id: str) -> tuple[int, dict[str, Any]]:
        """Run a replay's job; its exit code, and the replay afterwards."""
        request = replay.request_of(self.ask("GET", f"/v1/replays/{replay_id}"))
        code = (
            replay.ReplayJob(
                spark=self._spark, bucket=self.bucket, service=self._service, request=request
            ).run()
            if request.state != "DONE"
            else 0
        )
        return code, self.ask("GET", f"/v1/replays/{replay_id}")

    def report(self) -> Path:
        """Make the report; its folder."""
        assert report.run(self._start, self.bucket, reporting_options.of_report(None, self._here())) == 0
        [page] = self._folder.glob("reports/*/report.html")
        return page.parent

    def as_of(self, topic: str, at: datetime) -> list[dict[str, Any]]:
        """Its groups as they were."""
        messages, deliveries = self._tables(topic)
        return as_of.state_counts(as_of.states(messages, deliveries, at))

    def counted_by_hour(self, topic: str, at: datetime) -> hours.Counts:
        """The same, as the report counts it, if that were a full hour."""
        messages, deliveries = self._tables(topic)
        steps = hours.steps(messages, deliveries, at, at).collect()
        return hours.counts([row.asDict() for row in steps], 0)[topic]

    def _tables(self, topic: str) -> Iterator[DataFrame]:
        manifests = load_all(self.bucket)
        return (table_of(self._spark, self.bucket, name, manifests, [topic]) for name in TABLES)

    def files(self) -> int:
        """How many files the tables have."""
        return sum(len(list(m.files(table))) for m in load_all(self.bucket) for table in m.tables)

    def rows(self, selection: str, table: str = "messages") -> list[tuple[Any, ...]]:
        """What DuckDB reads in the files that the manifests name."""
        names = {file.name for manifest in load_all(self.bucket) for file in manifest.files(table)}
        files = [str(self._folder / name) for name in sorted(names)]
        source = f"read_parquet({files}, hive_partitioning=true, hive_types={{'topic': 'VARCHAR'}})"
        return duckdb.execute(f"select {selection.replace('%', source)}").fetchall()

    def _start(self, is_small: bool = False) -> SparkSession:
        return self._spark

    def _here(self) -> list[str]:
        return ["--bucket", self._name, "--folder", str(self._folder)]


def wait_until(true: Callable[[], bool]) -> None:
    """Until something is true, for a minute at most."""
    pause = threading.Event()
    for _ in range(SECONDS * 5):
        if true():
            return
        pause.wait(0.2)
    raise AssertionError("it did not become true in time")


def said_of(event: Any) -> tuple[str, list[str], str]:
    """Tag, keys and ordering key of a departure."""
    return event["carrier"], [f"{event['carrier']}{event['flight']}"], event["tail_number"] or "none"


def delayed_at_jfk(event: Any) -> bool:
    return event["origin"] == "JFK" and (event["departure_delay_minutes"] or 0) > 30


@pytest.mark.soak
def test_a_topic_as_it_was_is_what_the_service_said_at_that_moment(
    headrace_service: Service, spark: SparkSession, tmp_path: Path
) -> None:
    flow = Flow(headrace_service, spark, tmp_path)
    topic, group = "/v1/topics/moment", "/v1/topics/moment/groups/tower"
    flow.ask("PUT", topic, {})
    flow.ask("PUT", group, {"from": "earliest"})
    flow.ask("POST", f"{topic}/messages/batch", {"messages": [{"body": n} for n in range(60)]})
    receipts = [m["receipt"] for m in flow.ask("POST", f"{group}/receive", {"max": 40})["messages"]]
    flow.ask("POST", f"{group}/ack", {"receipts": receipts[:10]})
    flow.ask("POST", f"{group}/nack", {"receipts": receipts[10:17], "delay_seconds": 3600})
    flow.ask("POST", f"{group}/nack", {"receipts": receipts[17:22], "dead_letter": True})
    service_states = flow.ask("GET", topic)["stats"]["groups"]["tower"]["states"]
    at = datetime.now(UTC)
    flow.ask("POST", f"{group}/ack", {"receipts": receipts[22:]})
    rest = [m["receipt"] for m in flow.ask("POST", f"{group}/receive", {"max": 40})["messages"]]
    flow.ask("POST", f"{group}/ack", {"receipts": rest})
    for table, lines in (("messages", 60), ("deliveries", 60)):
        wait_until(lambda table=table, lines=lines: flow.journaled(table) >= lines)  # type: ignore[misc]
    flow.archive()
    [archive_states] = flow.as_of("moment", at)
    assert flow.counted_by_hour("moment", at) == {
        "tower": {state: [archive_states[state]] for state in hours.STATES}
    }
    names = {
        "NEW": "waiting",
        "RUNNING": "in_flight",
        "RETRYING": "retrying",
        "SUCCESS": "done",
        "DEAD": "dead",
    }
    assert {name: archive_states[state] for name, state in names.items()} == {
        name: service_states[name] for name in names
    }
    assert (archive_states["in_flight"], archive_states["waiting"]) == (
        len(receipts) - 22,
        60 - len(receipts),
    )


@pytest.mark.soak
def test_departures_go_all_the_way(
    headrace_service: Service, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transforms, "_STRETCH", 50)  # so that there are files to compact
    flow = Flow(headrace_service, spark, tmp_path)
    with gzip.open(ROOT / "examples" / "flights.jsonl.gz", "rt") as file:
        events = [json.loads(line) for line in file]
    grounded_count = sum(event["departure_delay_minutes"] is None for event in events)

    flow.ask("PUT", TOPIC, {})
    flow.ask("PUT", GROUP, {"from": "earliest"})
    flow.produce(events)
    assert flow.consume() == {"SUCCESS": len(events) - grounded_count, "DEAD": grounded_count}
    for table in ("messages", "deliveries"):
        wait_until(lambda table=table: flow.journaled(table) >= len(events))  # type: ignore[misc]
    for step in (flow.archive, flow.compact, flow.archive):  # compacted, and nothing changes any more
        step()
        assert_archived(flow, grounded_count)

    late_ids = {id for id, event in flow.produced.items() if delayed_at_jfk(event)}
    replay_twice(flow, late_ids)
    wait_until(lambda: flow.journaled("messages") >= len(events) + len(late_ids))
    flow.archive()
    rows = flow.rows("headers['headrace-replay-of'], body from % where topic = 'again'")
    assert {of: json.loads(body) for of, body in rows} == {id: flow.produced[id] for id in late_ids}
    assert len(rows) == len(late_ids)
    assert_reported(flow.report(), {"flights": len(events), "again": len(late_ids)}, grounded_count)


def assert_archived(flow: Flow, grounded_count: int) -> None:
    """Every message, as it was produced, at dense offsets; and how each ended."""
    messages = flow.rows("id, body, tag, keys, ordering_key from %")
    assert {id: (json.loads(body), *fields) for id, body, *fields in messages} == {
        id: (event, *said_of(event)) for id, event in flow.produced.items()
    }
    assert len(messages) == len(flow.produced)
    [(shards,)] = flow.rows(
        'count(*) from (select shard from % group by 1 having max("offset") + 1 <> count(*))'
    )
    assert shards == 0, "offsets are dense"
    outcomes = dict(flow.rows("outcome, count(*) from % group by 1", "deliveries"))
    assert outcomes == {"SUCCESS": len(flow.produced) - grounded_count, "DEAD": grounded_count}


def replay_twice(flow: Flow, ids: set[str]) -> None:
    """Replay the messages of a predicate into a topic `again`, and once more: each comes once."""
    flow.ask("PUT", "/v1/topics/again", {})
    predicate = "origin = 'JFK' AND departure_delay_minutes > 30"
    body = {**ALL_TIME, "where": predicate, "into": "again", "rate": 10_000, "start": False}
    replay_id = flow.ask("POST", f"{TOPIC}/replays", body)["replay_id"]
    for _ in range(2):
        code, replay = flow.replay(replay_id)
        assert (code, replay["state"]) == (0, "DONE")
        assert (replay["matched"], replay["sent"]) == (len(ids), len(ids))
    flow.ask("PUT", "/v1/topics/again/groups/all", {"from": "earliest"})
    messages = flow.ask("POST", "/v1/topics/again/groups/all/receive", {"max": 1000})["messages"]
    assert {m["headers"]["headrace-replay-of"]: m["body"] for m in messages} == {
        id: flow.produced[id] for id in ids
    }
    assert len(messages) == len(ids)


def assert_reported(folder: Path, accepted_counts: dict[str, int], grounded_count: int) -> None:
    [counts] = duckdb.execute(
        f"select sum(attempts), sum(delivered), sum(dead_letters) from '{folder}/daily.csv' where topic = 'flights'"
    ).fetchall()
    assert counts == (accepted_counts["flights"], accepted_counts["flights"] - grounded_count, grounded_count)
    [(reason, count)] = duckdb.execute(
        f"select reason, sum(attempts) from '{folder}/failures/*.parquet' group by 1"
    ).fetchall()
    assert (reason, count) == ("never took off", grounded_count)
    volumes = duckdb.execute(
        f"select topic, sum(accepted) from '{folder}/volumes/*.parquet' group by 1"
    ).fetchall()
    assert dict(volumes) == accepted_counts
    [(waiting_count,)] = duckdb.execute(
        f"select arg_max(waiting, hour) from '{folder}/backlog/*.parquet' where topic = 'flights'"
    ).fetchall()
    assert waiting_count == 0
    page = (folder / "report.html").read_text()
    assert f"<b>{grounded_count}</b>dead letters" in page
