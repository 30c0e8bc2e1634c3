"""The replay job against the service: what it chooses, and that each message comes once, also after failures."""

from __future__ import annotations

import itertools
import json
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import app
from chalicelib import adapters, wiring
from glue_jobs.common import manifest, session
from glue_jobs.common.arguments import FAILED
from glue_jobs.common.failures import sentence
from glue_jobs.common.schemas import MESSAGES
from glue_jobs.common.service import Service, Unreachable
from glue_jobs.replay import main
from glue_jobs.replaying import run
from glue_jobs.replaying.run import ReplayJob, ReplayRequest, choose, counts, in_order, request_of
from local.gateway import Gateway
from local.server import serve
from tests.support.embedded import embedded_adapters
from tests.support.http import Client, Topic

from .archives import BEGIN, fill, frame, message
from .journals import Place

DAY = timedelta(days=1)
TIMES = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-03T00:00:00.000Z"}


def replay_request(**fields: Any) -> ReplayRequest:
    plain = {"replay_id": "r", "topic": "orders", **TIMES, "state": "PENDING", "dry_run": False}
    return request_of({**plain, "tag": None, "key": None, "predicate": None, "rate": 1000, **fields})


CHOICES: list[tuple[dict[str, Any], set[int]]] = [
    ({}, {1, 2, 3, 4, 7}),
    ({"tag": "paid"}, {2, 3}),
    ({"key": "k"}, {3, 4}),
    ({"tag": "paid", "key": "k"}, {3}),
    ({"key": "K"}, set()),
    ({"predicate": [">", ["n"], 2]}, {3, 4}),
    ({"predicate": ["null", ["n"]]}, {7}),
    ({"predicate": ["or", ["=", ["n"], 1], ["like", ["n"], "4%"]]}, {1, 4}),
    ({"predicate": [">", ["n"], 2], "tag": "paid", "to": "2030-01-01T00:02:00.000Z"}, set()),
    ({"to": "2030-01-01T00:01:00.000Z"}, {1}),
    ({"from": "2030-01-01T00:01:00.000Z"}, {2, 3, 4, 7}),
    ({"topic": "others"}, {5}),
    ({"topic": "nobody"}, set()),
]


def test_messages_are_chosen_by_topic_time_tag_key_and_body(spark: SparkSession) -> None:
    rows = [
        message(1),
        message(2, minutes=1, tag="paid"),
        message(3, minutes=2, tag="paid", keys=["j", "k"]),
        message(4, minutes=60 * 47, keys=["k"]),
        message(5, topic="others"),
        message(6, minutes=60 * 48),
        message(7, minutes=60, body=None),
    ]
    table = frame(spark, MESSAGES, rows)
    chosen_rows = [
        choose(table, replay_request(**fields)).select("id", F.lit(n).alias("choice"))
        for n, (fields, _) in enumerate(CHOICES)
    ]
    found: list[set[int]] = [set() for _ in CHOICES]
    for row in reduce(DataFrame.unionAll, chosen_rows).collect():  # one query
        found[row.choice].add(int(row.id[1:]))
    assert found == [numbers for _, numbers in CHOICES]


def test_counts_are_by_day_and_shard(spark: SparkSession) -> None:
    rows = [message(n, minutes=60 * 5 * n) for n in range(6)]
    counts_by_portion = counts(choose(frame(spark, MESSAGES, rows), replay_request()))
    assert counts_by_portion == {
        (BEGIN.date(), "orders-uid"): {0: 2, 1: 1, 2: 1, 3: 1},
        ((BEGIN + DAY).date(), "orders-uid"): {1: 1},
    }
    assert replay_request(to="2030-01-02T00:00:00.000Z").days == (BEGIN.date(), BEGIN.date())


@pytest.mark.parametrize("senders", [1, 2, 16])
def test_a_shard_is_with_one_sender_by_offset_and_nothing_is_left_out(
    spark: SparkSession, senders: int
) -> None:
    shuffled_rows = frame(spark, MESSAGES, [message(n * 7 % 40) for n in range(40)]).repartition(5)
    parts = [part for part in in_order(shuffled_rows, senders).rdd.glom().collect() if part]
    assert len(parts) == min(senders, 4)
    assert [(row.shard, row.offset) for part in parts for row in part] == [
        (shard, offset) for shard in range(4) for offset in range(10)
    ]
    assert len({row.shard for row in parts[0]}) == 4 // len(parts)


@pytest.fixture
def client_and_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Client, Service]]:
    """Headrace on this machine, in memory."""
    deps = wiring.Deps(embedded_adapters(adapters.SystemClock(), adapters.SystemRandom()))
    monkeypatch.setattr(wiring, "deps", lambda: deps)
    token = deps.tokens.ensure_admin(None)
    assert token
    gateway = Gateway(app.app)
    server = serve(gateway)
    server.start()
    yield Client(gateway, token), Service(f"http://127.0.0.1:{server.port}", token, pauses=())
    server.shutdown()


@pytest.fixture
def filled_place(place: Place) -> Place:
    """100 messages on two days."""
    fill(place, messages=[message(n, minutes=24 * n, tag=f"t{n % 2}", keys=[f"k{n}"]) for n in range(100)])
    return place


def make(topic: Topic, **fields: Any) -> str:
    request = {**TIMES, "into": topic.name, "rate": 10_000, **fields}
    return str(topic.api.post("/v1/topics/orders/replays", request).expect(202)["replay_id"])


def job(filled_place: Place, service: Service, replay_id: str) -> ReplayJob:
    request = request_of(service.ask("GET", f"/v1/replays/{replay_id}"))
    return ReplayJob(spark=filled_place.spark, bucket=filled_place.bucket, service=service, request=request)


def received(topic: Topic) -> list[int]:
    """All messages of a topic, in order."""
    return sorted(m["body"]["n"] for m in topic.group("all").receive(1000))


def test_what_is_chosen_is_sent_and_the_service_is_told(
    filled_place: Place, client_and_service: tuple[Client, Service]
) -> None:
    api, service = client_and_service
    topic = api.topic(shards=2)
    replay_id = make(topic, where="n < 50", tag="t1")
    assert job(filled_place, service, replay_id).run() == 0
    view = api.get(f"/v1/replays/{replay_id}").expect(200)
    assert view.items() >= {"state": "DONE", "matched": 25, "sent": 25, "error": None}.items()
    assert received(topic) == list(range(1, 50, 2))


def test_messages_of_a_shard_are_sent_in_their_order(
    filled_place: Place, client_and_service: tuple[Client, Service]
) -> None:
    api, service = client_and_service
    topic = api.topic(shards=4)
    job(filled_place, service, make(topic)).run()
    messages = topic.group("all").receive(1000)
    for shard in range(4):
        numbers = [m["body"]["n"] for m in messages if m["shard"] == shard]
        assert numbers == list(range(shard, 100, 4))


def test_a_topic_that_was_made_again_is_sent_after_the_one_before(
    place: Place, client_and_service: tuple[Client, Service]
) -> None:
    lives_and_numbers = [(uid, n) for uid in ("second", "first") for n in range(4)]
    rows = [
        message(
            4 * n,
            minutes=n + 60 * (uid == "second"),
            topic_uid=uid,
            id=f"{uid}-{n}",
            body=b'"%s %d"' % (uid.encode(), n),
        )
        for uid, n in lives_and_numbers
    ]
    fill(place, messages=rows)
    api, service = client_and_service
    topic = api.topic(shards=4)
    job(place, service, make(topic)).run()
    bodies = [m["body"] for m in topic.group("all").receive(1000)]
    assert bodies == [f"{uid} {n}" for uid in ("first", "second") for n in range(4)]


def test_a_dry_run_only_counts(filled_place: Place, client_and_service: tuple[Client, Service]) -> None:
    api, service = client_and_service
    topic = api.topic()
    replay_id = make(topic, dry_run=True, key="k7")
    assert job(filled_place, service, replay_id).run() == 0
    view = api.get(f"/v1/replays/{replay_id}").expect(200)
    assert view.items() >= {"state": "DONE", "matched": 1, "sent": 0}.items()
    assert topic.accepted == 0


def test_a_job_that_fails_tells_why_and_can_be_run_again(
    filled_place: Place, client_and_service: tuple[Client, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, service = client_and_service
    topic = api.topic()
    replay_id = make(topic, rate=40)  # small batches
    with monkeypatch.context() as patch:
        patch.setattr(Gateway, "handle", refusing(f"{replay_id}/messages", after=1))
        first = job(filled_place, service, replay_id)
        with pytest.raises(Py4JError) as error_info:
            first.run()
        first.fail(sentence(error_info.value))
    view = api.get(f"/v1/replays/{replay_id}").expect(200)
    assert view.items() >= {"state": "FAILED", "error": "HTTP_503: {}"}.items()
    assert job(filled_place, service, replay_id).run() == 0
    assert received(topic) == list(range(100))


def refusing(ending: str, after: int) -> Callable[..., Any]:
    """A gateway that is too busy for requests to a path, after so many."""
    handle, call_numbers = Gateway.handle, itertools.count(1)

    def instead(self: Gateway, method: str, path: str, *rest: Any) -> Any:
        if path.endswith(ending) and next(call_numbers) > after:
            return 503, {}, b"{}"
        return handle(self, method, path, *rest)

    return instead


def test_a_job_says_again_and_again_that_it_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    beats: queue.Queue[str] = queue.Queue()

    class Listening:
        def ask(self, method: str, path: str, body: dict[str, Any]) -> None:
            beats.put(f"{method} {path} {body['state']}")
            raise Unreachable("and its answer may be lost")

    monkeypatch.setattr(run, "_BEAT_SECONDS", 0.001)
    silent: Any = None
    service: Any = Listening()
    before = threading.active_count()
    with ReplayJob(spark=silent, bucket=silent, service=service, request=replay_request()).heartbeat():
        for _ in range(3):
            assert beats.get(timeout=60) == "PATCH /v1/replays/r RUNNING"
    assert threading.active_count() <= before


def test_refused_messages_leave_a_replay_that_can_be_run_again(
    filled_place: Place, client_and_service: tuple[Client, Service]
) -> None:
    api, service = client_and_service
    topic = api.topic(max_body_bytes=7)
    replay_id = make(topic)
    assert job(filled_place, service, replay_id).run() == 3
    view = api.get(f"/v1/replays/{replay_id}").expect(200)
    assert view.items() >= {"state": "FAILED", "matched": 100, "sent": 10}.items()
    assert view["error"] == "Some messages were refused: 90 BODY_TOO_LARGE."
    api.put(topic.path, {"max_body_bytes": 1000}).expect(200)
    wiring.deps().catalog.forget(wiring.deps().catalog.topic(topic.name))
    assert job(filled_place, service, replay_id).run() == 0
    assert received(topic) == list(range(100))


def test_the_command_line_makes_a_replay_and_prints_a_summary(
    filled_place: Place,
    client_and_service: tuple[Client, Service],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    api, service = client_and_service
    topic = api.topic()
    filled_place.pull()
    monkeypatch.setenv("HEADRACE_TOKEN", service.token)
    monkeypatch.setattr(session, "start", lambda *_, **__: filled_place.spark)
    monkeypatch.setattr(filled_place.spark, "stop", lambda: None)
    args = ["--url", service.url, "--bucket", filled_place.name, "--folder", str(filled_place.folder)]
    choice = ["--topic", "orders", "--from", "2030-01-01", "--to", "2030-01-03", "--where", "n < 3"]
    assert main([*args, *choice, "--into", topic.name]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary.items() >= {"job": "replay", "state": "DONE", "matched": 3, "sent": 3}.items()
    assert main([*args, "--replay", summary["replay"]]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "DONE"
    assert received(topic) == [0, 1, 2]


def emptied(path: Path) -> None:
    """The same rows, without their tags."""
    rows = pq.ParquetFile(path).read()
    number = rows.schema.get_field_index("tag")
    pq.write_table(rows.set_column(number, "tag", pa.nulls(rows.num_rows, pa.string())), path)


@pytest.mark.parametrize(
    ("change", "is_known", "why"),
    [
        (Path.unlink, False, "it is not there"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), False, "bytes, and had"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), True, "it can't be read"),
        (emptied, True, "its rows are not those that were archived"),
    ],
)
def test_of_an_archive_with_a_damaged_file_nothing_is_sent(
    folder_place: Place,
    client_and_service: tuple[Client, Service],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], Any],
    is_known: bool,
    why: str,
) -> None:
    api, service = client_and_service
    topic = api.topic()
    fill(folder_place, messages=[message(n, minutes=60 * 20 * n, tag="t") for n in range(2)])
    day = folder_place.manifest("2030-01-01")
    [file] = day.table(MESSAGES).files
    path = folder_place.folder / file.name
    change(path)
    if is_known:  # the manifest names the size that the file has
        table = replace(day.table(MESSAGES), files=(replace(file, size=path.stat().st_size),))
        manifest.save(folder_place.bucket, replace(day, tables={MESSAGES: table}))
    monkeypatch.setenv("HEADRACE_TOKEN", service.token)
    monkeypatch.setattr(session, "start", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    args = ["--url", service.url, "--bucket", folder_place.name, "--folder", str(folder_place.folder)]
    assert main([*args, "--replay", make(topic)]) == FAILED
    out, err = capsys.readouterr()
    summary = json.loads(out.splitlines()[-1])
    assert summary.items() >= {"state": "FAILED", "sent": 0}.items()
    assert summary["error"].startswith(f"{file.name} is damaged: ")
    assert why in summary["error"]
    assert "Traceback" not in err
    view = api.get(f"/v1/replays/{summary['replay']}").expect(200)
    assert view.items() >= {"state": "FAILED", "sent": 0}.items()
    assert view["error"].startswith(f"{file.name} is damaged: ")
    assert topic.accepted == 0


def test_what_the_service_refuses_is_told_and_a_service_that_is_away_too(
    client_and_service: tuple[Client, Service],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, service = client_and_service
    monkeypatch.setenv("HEADRACE_TOKEN", service.token)
    monkeypatch.delenv("HEADRACE_DATA", raising=False)
    times = ["--from", "2030-01-01", "--to", "2030-01-02"]
    assert main(["--url", service.url, "--topic", "nobody", *times]) == 2
    out, err = capsys.readouterr()
    assert "TOPIC_NOT_FOUND" in err
    assert "TOPIC_NOT_FOUND" in json.loads(out)["error"]
    monkeypatch.setattr(Service, "ask", _away)
    assert main(["--url", service.url, "--replay", "r"]) == 1
    assert "nobody is there" in capsys.readouterr().err


def _away(*_: Any) -> None:
    raise Unreachable("nobody is there")
