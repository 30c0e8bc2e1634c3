"""Sending from the executors: in order, in batches, no faster than asked, again after any answer that says so."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from chalicelib.domain.predicate import parse
from glue_jobs.common.service import Refused, Service, Unreachable
from glue_jobs.replaying.predicate import condition
from glue_jobs.replaying.sender import MOST_BYTES, MOST_PER_BATCH, ReplaySender, Sent, batches, message

Answer = tuple[int, Any]


@dataclass
class Standing:
    """A service that answers as a test says, and remembers what it was asked."""

    answer: Callable[[int, list[Any]], Answer]
    batches: list[list[Any]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def stand_in() -> Iterator[Standing]:
    fake_service = Standing(lambda n, messages: (200, {"results": [{"duplicate": False} for _ in messages]}))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake_service.batches.append(body["messages"])
            status, answer = fake_service.answer(len(fake_service.batches), body["messages"])
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        fake_service.url = f"http://127.0.0.1:{server.server_port}"
        yield fake_service
        server.shutdown()


class Time:
    """A clock that moves only during a sleep."""

    def __init__(self) -> None:
        self.at = 100.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.slept.append(seconds)


def row(number: int, **fields: Any) -> Row:
    plain: dict[str, Any] = {
        "content_type": "application/json",
        "keys": [],
        "tag": None,
        "tenant": None,
        "ordering_key": None,
        "headers": None,
    }
    return Row(**{"id": f"m{number}", "shard": 0, "body": b"%d" % number, **plain, **fields})


def dispatcher(
    stand_in: Standing, time: Time, rate: float = 1000, pauses: tuple[float, ...] = (1, 2)
) -> ReplaySender:
    service = Service(stand_in.url, "hr_x", time.sleep, pauses)
    return ReplaySender(service=service, replay="r1", rate=rate, now=time.now, sleep=time.sleep)


def send_all(each: ReplaySender, count: int) -> Sent:
    [total] = each.partition(row(n) for n in range(count))
    return total


def ids(batch: list[Any]) -> list[str]:
    return [each["id"] for each in batch]


def test_messages_go_in_their_order_and_are_counted(stand_in: Standing) -> None:
    assert send_all(dispatcher(stand_in, Time()), 1200) == Sent(1200)
    assert [each for batch in stand_in.batches for each in ids(batch)] == [f"m{n}" for n in range(1200)]


def test_no_second_has_more_than_the_rate(stand_in: Standing) -> None:
    time, batch_times = Time(), []
    usual = stand_in.answer
    stand_in.answer = lambda n, messages: (
        batch_times.append((time.now(), len(messages))),  # type: ignore[func-returns-value]
        usual(n, messages),
    )[1]
    send_all(dispatcher(stand_in, time, rate=50), 400)
    second_starts = [at for at, _ in batch_times]
    assert all(
        sum(count for at, count in batch_times if begin <= at < begin + 1) <= 50 for begin in second_starts
    )
    assert time.now() == pytest.approx(107, abs=0.1)


def test_a_rate_below_one_a_second_is_kept(stand_in: Standing) -> None:
    time = Time()
    send_all(dispatcher(stand_in, time, rate=0.25), 3)
    assert time.slept == [4.0, 4.0]


@pytest.mark.parametrize("status", [429, 503, 504])
def test_a_busy_service_is_asked_again(stand_in: Standing, status: int) -> None:
    usual, time = stand_in.answer, Time()
    stand_in.answer = lambda n, messages: (status, {}) if n < 3 else usual(n, messages)
    assert send_all(dispatcher(stand_in, time), 5) == Sent(5)
    assert time.slept == [1, 2]


def test_a_service_that_stays_busy_or_away_fails_the_task(stand_in: Standing) -> None:
    stand_in.answer = lambda n, messages: (503, {"code": "UNAVAILABLE", "detail": "Try again."})
    with pytest.raises(Refused, match="UNAVAILABLE"):
        send_all(dispatcher(stand_in, Time()), 5)
    stand_in.url = "http://127.0.0.1:1"
    with pytest.raises(Unreachable, match="does not answer"):
        send_all(dispatcher(stand_in, Time()), 5)


def test_a_replay_that_is_over_fails_the_task_at_once(stand_in: Standing) -> None:
    stand_in.answer = lambda n, messages: (409, {"code": "REPLAY_OVER", "detail": "It is done."})
    with pytest.raises(Refused, match="REPLAY_OVER"):
        send_all(dispatcher(stand_in, Time()), 5)
    assert len(stand_in.batches) == 1


def test_only_messages_of_unknown_outcome_are_sent_again(stand_in: Standing) -> None:
    unknown = {"error": {"code": "UNAVAILABLE", "retryable": True}}

    def answer(n: int, messages: list[Any]) -> Answer:
        results = [
            unknown if n == 1 and each["id"] in ("m1", "m3") else {"duplicate": n > 1} for each in messages
        ]
        return 200, {"results": results}

    stand_in.answer = answer
    assert send_all(dispatcher(stand_in, Time()), 5) == Sent(5, before=2)
    assert [ids(batch) for batch in stand_in.batches] == [["m0", "m1", "m2", "m3", "m4"], ["m1", "m3"]]


def test_what_was_sent_before_is_counted_even_where_the_archive_has_another_edition(
    stand_in: Standing,
) -> None:
    results = [
        {"duplicate": True},
        {"error": {"code": "DEDUP_MISMATCH", "retryable": False}},
        {"error": {"code": "BODY_TOO_LARGE", "retryable": False}},
        {"duplicate": False},
    ]
    stand_in.answer = lambda n, messages: (200, {"results": results})
    assert send_all(dispatcher(stand_in, Time()), 4) == Sent(3, 2, Counter({"BODY_TOO_LARGE": 1}))


def test_batches_are_cut_by_number_and_by_bytes_and_lose_nothing() -> None:
    many = [message(row(n)) for n in range(MOST_PER_BATCH * 2 + 1)]
    cut = list(batches(many, 10_000))
    assert [len(batch) for batch in cut] == [MOST_PER_BATCH, MOST_PER_BATCH, 1]
    assert [each for batch in cut for each in batch] == many
    large = [message(row(n, body=b"x" * (MOST_BYTES // 3))) for n in range(4)]
    assert [len(batch) for batch in batches(large, 10_000)] == [2, 2]
    assert [len(batch) for batch in batches(many[:5], 2)] == [2, 2, 1]
    assert list(batches([], 5)) == []


def test_a_token_is_in_no_text() -> None:
    assert "hr_secret" not in repr(ReplaySender(service=Service("http://x", "hr_secret"), replay="r", rate=1))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_message_for_which_a_whole_batch_is_refused_is_counted_and_its_neighbours_go(
    stand_in: Standing, status: int
) -> None:
    placed_ids, bad = [], {"m7", "m8", "m600"}

    def answer(n: int, messages: list[Any]) -> Answer:
        if bad & set(ids(messages)):
            return status, {"code": "BAD", "detail": "No."}
        placed_ids.extend(ids(messages))
        return 200, {"results": [{"duplicate": False} for _ in messages]}

    stand_in.answer = answer
    assert send_all(dispatcher(stand_in, Time()), 1000) == Sent(997, 0, Counter({"BAD": 3}))
    assert placed_ids == [f"m{n}" for n in range(1000) if f"m{n}" not in bad]


BODIES: dict[str, bytes | None] = {
    "rich": b'{"a":{"b":[1,{"c":"x"}]},"n":12.5,"name":"O\'Hara \\\\ %","on":true,"odd name":"!","none":null}',
    "poor": b'{"n":-3,"name":"bob","on":false}',
    "text number": b'{"n":"40"}',
    "far number": b'{"far":1e-999999999999999999999999999999}',
    "list": b"[1,2]",
    "no json": b"\xff{",
    "nothing": None,
}


CHOSEN: dict[str, set[str]] = {
    "n > 12": {"rich", "text number"},
    "n > 12.4 AND n <= 12.5": {"rich"},
    "far < 1 OR far >= 1": {"far number"},
    "n BETWEEN -3 AND 13": {"rich", "poor"},
    "n NOT BETWEEN -3 AND 13": {"text number"},
    "n <> -3": {"rich", "text number"},
    "n IN (-3, 40)": {"poor", "text number"},
    "name = 'O''Hara \\ %'": {"rich"},
    "name LIKE 'b_b'": {"poor"},
    "name LIKE 'b%' OR n = 40": {"poor", "text number"},
    "NOT name LIKE 'b%'": {"rich"},
    "on = true": {"rich"},
    "on <> true": {"poor"},
    "a.b[1].c = 'x'": {"rich"},
    "a.b[0] = 1": {"rich"},
    "\"odd name\" = '!'": {"rich"},
    "none IS NULL AND name IS NOT NULL": {"rich", "poor"},
    "name = 'x'' OR 1=1 --'": set(),
}
TEXTS = ("'", "\\", "\\'", "x' OR 1=1 --", "${env:HOME}", "\n\t\0", "`;--/*", "é😀", "%_")


def test_a_predicate_chooses_by_the_json_body(spark: SparkSession) -> None:
    rows = spark.createDataFrame(list(BODIES.items()), "case string, body binary")
    predicates = {f"p{n}": condition(parse(predicate)) for n, predicate in enumerate(CHOSEN)}
    answers = rows.select(
        "case", *(is_chosen.alias(name) for name, is_chosen in predicates.items())
    ).collect()
    chosen = [{row["case"] for row in answers if row[name]} for name in predicates]
    assert dict(zip(CHOSEN, chosen, strict=True)) == CHOSEN


def test_any_text_is_a_literal_and_nothing_more(spark: SparkSession) -> None:
    bodies = [(json.dumps({"t": text}).encode(),) for text in TEXTS]
    rows = spark.createDataFrame([*bodies, (b'{"t":"other"}',)], "body binary")
    counts = rows.select(*(F.count_if(condition(["=", ["t"], text])) for text in TEXTS)).first()
    assert counts
    assert dict(zip(TEXTS, counts, strict=True)) == dict.fromkeys(TEXTS, 1)


@pytest.mark.parametrize(
    "tree",
    [
        [],
        ["=", [], 1],
        ["=", "a", 1],
        ["and", ["null", ["a"]]],
        ["xor", ["null", ["a"]], ["null", ["a"]]],
        ["=", ["a"], None],
        ["=", ["a"], ["b"]],
        ["=", ["a'] --"], 1],
        ["=", [-1], 1],
        ["=", [1.5], 1],
        ["; drop table", ["a"], 1],
        ["like", ["a"], 5],
        ["in", ["a"], []],
        "1=1",
    ],
)
def test_what_is_no_tree_is_refused(spark: SparkSession, tree: Any) -> None:
    with pytest.raises(ValueError, match=r"^not a"):
        condition(tree)
