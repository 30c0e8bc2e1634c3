"""Twenty subscribers at once, most of them bad, and a judge who has seen everything (I17)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.load import behaviours as b
from tests.load.behaviours import Behaviour
from tests.load.serving import serving
from tests.support.history_push import PushAttempt, Reader, Rest, Sent, check_push
from tests.support.http import Client
from tests.support.receiver import How, Receiver, Reply, Visit

MESSAGES = 3_334  # of each topic
PATIENCE_SECONDS = 1_800.0
LATE_SECONDS = 1.0  # half of the shortest lease: what takes longer may have been given up
LADDER, MAX_ATTEMPTS = (1, 2, 3), 4
SHARDS = {"queue": 4, "serial": 2, "broadcast": 2}
PER_KEY = 12
SAMPLE = 20  # of each topic's messages are looked at one by one


@dataclass(frozen=True)
class Subscriber:
    """A consumer (of a group of its name, but for the broadcast's) and its ways."""

    mode: str
    name: str
    ways: Behaviour | None = None  # None: it is a function
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return "all" if self.mode == "broadcast" else self.name

    @property
    def reader(self) -> str:
        return f"{self.mode}/{self.group}" + (f"/{self.name}" if self.mode == "broadcast" else "")


SUBSCRIBERS = [
    Subscriber("queue", "good", b.good),
    Subscriber("queue", "slow", b.slow),
    Subscriber("queue", "failing", b.failing),
    Subscriber("queue", "hanging", b.hanging, {"lease_seconds": 2}),
    Subscriber("queue", "dying", b.dying),
    Subscriber("queue", "lying", b.lying),
    Subscriber("queue", "redirecting", b.redirecting),
    Subscriber("queue", "throttling", b.throttling),
    Subscriber("queue", "refusing", b.refusing),
    Subscriber("queue", "batches", b.lying, {"payload": "batch", "batch_size": 8}),
    Subscriber("queue", "function", None, {"batch_size": 5}),
    Subscriber("serial", "good", b.good),
    Subscriber("serial", "slow", b.slow, {"max_in_flight": 7}),
    Subscriber("serial", "failing", b.failing),
    Subscriber("serial", "hanging", b.hanging, {"lease_seconds": 2}),
    Subscriber("serial", "function", None, {"batch_size": 5}),
    Subscriber("broadcast", "good", b.good),
    Subscriber("broadcast", "failing", b.failing),
    Subscriber("broadcast", "dying", b.dying),
    Subscriber("broadcast", "throttling", b.throttling),
]


@pytest.mark.skipif(not os.environ.get("HEADRACE_SOAK"), reason="its judge reads this machine's clock")
def test_twenty_subscribers_get_what_they_are_owed_and_nothing_else(engine: str, tmp_path: Path) -> None:
    seen_file = tmp_path / "seen"
    functions = {
        "HEADRACE_FUNCTIONS": str(Path(b.__file__).with_name("functions.py")),
        "LOAD_SEEN": str(seen_file),
    }
    with (
        Receiver(_answer) as receiver,
        serving(tmp_path, f"load-{uuid4().hex[:8]}", **functions) as api,
    ):
        _set_up(api, receiver)
        messages = _produce(api)
        _await_rest(api)
        rest = _rest(api, messages)
        attempts = [
            *_visited(receiver.visits),
            *(PushAttempt(**json.loads(x)) for x in seen_file.read_text().splitlines()),
        ]
    readers = [
        Reader(s.mode, s.reader, LADDER, MAX_ATTEMPTS, s.mode == "serial", LATE_SECONDS) for s in SUBSCRIBERS
    ]
    assert check_push(readers, messages, attempts, rest) == []
    assert {t.fate for t in attempts} == {"SUCCESS", "RETRY", "DEAD"}
    assert "Traceback" not in (tmp_path / "errors").read_text()


def _answer(visit: Visit) -> Reply:
    subscriber = _subscriber(visit)
    assert subscriber.ways
    events = _events(visit)  # of a batch, one message decides
    decisive = next((event for event in events if b.is_poison(event["data"])), events[0])
    return subscriber.ways(subscriber.reader, decisive["data"], decisive["attempt"])


def _subscriber(visit: Visit) -> Subscriber:
    return next(s for s in SUBSCRIBERS if f"/{s.mode}/{s.name}" == visit.path)


def _events(visit: Visit) -> list[dict[str, Any]]:
    """Id, attempt and data of each message of a request."""
    body = json.loads(visit.body)
    if visit.headers["content-type"] == "application/cloudevents-batch+json":
        return [{"id": e["id"], "attempt": int(e["headraceattempt"]), "data": e["data"]} for e in body]
    headers = visit.headers
    return [{"id": headers["webhook-id"], "attempt": int(headers["headrace-attempt"]), "data": body}]


def _set_up(api: Client, receiver: Receiver) -> None:
    retry = {"max_attempts": MAX_ATTEMPTS, "ladder": LADDER, "jitter": 0.1}
    for mode, shards in SHARDS.items():
        api.put(f"/v1/topics/{mode}", {"mode": mode, "shards": shards, "retry": retry}).expect(201)
    for s in SUBSCRIBERS:
        group = f"/v1/topics/{s.mode}/groups/{s.group}"
        assert api.put(group, {"from": "earliest", **s.settings}).status in (200, 201)
        target = {"url": receiver.url(f"{s.mode}/{s.name}")} if s.ways else {"function": "partial"}
        assert api.put(f"{group}/consumers/{s.name}", target).expect(201)["state"] == "ACTIVE"


def _produce(api: Client) -> list[Sent]:
    """In batches of changing sizes, while what was sent before is delivered."""
    sent_messages: list[Sent] = []
    numbers = iter(range(MESSAGES))
    size = 0
    while batch := list(islice(numbers, 1 + size % 17)):
        size += 5
        for topic in SHARDS:
            messages = [_message(topic, n) for n in batch]
            results = api.post(f"/v1/topics/{topic}/messages/batch", {"messages": messages}).expect(200)[
                "results"
            ]
            sent_messages += [
                Sent(r["id"], topic, r["shard"], r["offset"], m.get("ordering_key", ""))
                for m, r in zip(messages, results, strict=True)
            ]
    return sent_messages


def _message(topic: str, n: int) -> dict[str, Any]:
    if topic == "serial":
        return {"body": {"n": n}, "ordering_key": f"key-{n % (MESSAGES // PER_KEY)}"}
    return {"body": {"n": n}, "shard": n % SHARDS[topic]}


def _visited(visits: Sequence[Visit]) -> Iterator[PushAttempt]:
    for visit in visits:
        reader, fate = _subscriber(visit).reader, _fate(visit.reply)
        wait = float(after) if (after := visit.reply.headers.get("Retry-After", "")).isdigit() else 0.0
        assert visit.ended is not None
        for event in _events(visit):
            yield PushAttempt(
                reader,
                event["id"],
                event["attempt"],
                visit.began,
                visit.ended,
                fate,
                wait,
                visit.reply.how is How.NONE,
            )


def _fate(reply: Reply) -> str:
    if reply.how is How.WHOLE and 200 <= reply.status < 300:
        return "SUCCESS"
    return "DEAD" if reply is b.NEVER_AGAIN else "RETRY"


def _await_rest(api: Client) -> None:
    """Until all is settled, by what each topic says of its groups."""

    def at_rest() -> bool:
        groups = [g for topic in SHARDS for g in _stats(api, topic)["groups"].values()]
        return not any(g["backlog"] or g["in_flight"] or g["retrying"] for g in groups)

    _wait(at_rest, lambda: str({topic: _stats(api, topic) for topic in SHARDS}))


def _wait(until: Callable[[], bool], state: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not until():
        assert time.monotonic() < deadline, state()
        time.sleep(0.25)


def _stats(api: Client, topic: str) -> Any:
    return api.get(f"/v1/topics/{topic}").expect(200)["stats"]


def _rest(api: Client, messages: Sequence[Sent]) -> Rest:
    dead_ids: dict[str, list[str]] = {}
    for s in SUBSCRIBERS:
        group = f"/v1/topics/{s.mode}/groups/{s.group}"
        letters = [x for page in api.pages(f"{group}/dead-letters", 200) for x in page]
        for letter in letters:
            assert letter["body"]["n"] >= 0
            assert letter["reason"] in ("ATTEMPTS_EXHAUSTED", "REJECTED")
        mine = [x for x in letters if x.get("consumer", s.name) == s.name]
        dead_ids[s.reader] = [x["id"] for x in mine]
    statuses = {}
    for message in (m for topic in SHARDS for m in [m for m in messages if m.topic == topic][:SAMPLE]):
        view = api.get(f"/v1/topics/{message.topic}/messages/{message.id}").expect(200)
        for group, delivery in view["deliveries"].items():
            if message.topic != "broadcast":
                statuses[f"{message.topic}/{group}", message.id] = delivery["status"]
    return Rest(dead_ids, statuses)
