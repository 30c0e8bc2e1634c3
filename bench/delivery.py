"""Delivery by HTTP to subscribers on this machine: how soon, how many, how even, and how little one disturbs others."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from chalicelib.store.layout import FRAGMENTS
from tests.support.receiver import How, Receiver, Reply, Visit

from .figures import Figure, at_most, without_target
from .local_server import Client, LocalServer, serve
from .stage import Stage, say, stage

_SHARDS = 4
_GROUPS = 20
_PATIENCE_SECONDS = 60.0
_BODY = "x" * 100
_LATENCIES = 150
_LATENCY_PAUSE_SECONDS = 0.12  # long enough that most find the system idle
_STORM = 1_000
_STEP_SECONDS = 10
_ROUNDS = 30
_ROUND_PAUSE_SECONDS = 0.15
_BAD_PERCENT = (0, 1, 10, 90)
_MIXED = 30  # good messages of one round
_MIXED_ROUNDS = 4
_MIXED_STEP_SECONDS = 600  # retries come afterwards: they would be more calls than without bad ones
_MIXED_PAUSE_SECONDS = 0.02


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """Latency, rates, a storm of retries and a hanging subscriber."""
    with stage(endpoint) as target, serve(target) as server:
        bench = _Bench(target, server, server.client())
        yield from _latency(bench)
        yield from _rates(bench)
        yield from _storm(bench)
        yield from _bulkhead(bench)
        yield from _latency_beside_bad_messages(bench)


@dataclass(frozen=True, slots=True)
class _Bench:
    target: Stage
    server: LocalServer
    client: Client

    def topic(self, name: str, **settings: Any) -> None:
        self.client.ask("PUT", f"/topics/{name}", {"shards": _SHARDS, **settings})

    def groups(self, topic: str, count: int, **settings: Any) -> None:
        for n in range(count):
            self.client.ask("PUT", f"/topics/{topic}/groups/g{n}", {"from": "earliest", **settings})

    def register(self, topic: str, count: int, receiver: Receiver) -> None:
        """Each group's subscriber, at a path of its own."""
        for n in range(count):
            path = f"/topics/{topic}/groups/g{n}/consumers/c"
            self.client.ask("PUT", path, {"url": receiver.url(str(n))})

    def fill(self, topic: str, count: int) -> None:
        """Produce messages on all shards before there are subscribers."""
        for _ in range(count // 100):
            messages = [{"body": _BODY, "shard": i % _SHARDS} for i in range(100)]
            self.client.ask("POST", f"/topics/{topic}/messages/batch", {"messages": messages})

    def send(self, topic: str) -> tuple[str, float]:
        """Produce one message; its id, and when."""
        start = time.time()
        id: str = self.client.ask("POST", f"/topics/{topic}/messages", {"body": _BODY})["id"]
        return id, start


def _wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            raise RuntimeError("messages did not arrive")
        time.sleep(0.02)


def _share(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _latency(b: _Bench) -> Iterator[Figure]:
    """The two ways of waking take turns, so that what else the machine does meets both."""
    say("delivery: produce to subscriber")
    wakes = ("stream", "direct")
    chance, send_times = random.Random(1), {wake: dict[str, float]() for wake in wakes}
    with Receiver() as receiver:
        for wake in wakes:
            b.topic(f"wake-{wake}", wake=wake)
            b.groups(f"wake-{wake}", 1)
            b.register(f"wake-{wake}", 1, receiver)
        bare = b.target.bare_put()
        for n in range(_LATENCIES * len(wakes)):
            time.sleep(chance.expovariate(1 / _LATENCY_PAUSE_SECONDS))
            wake = wakes[n % len(wakes)]
            message_id, start = b.send(f"wake-{wake}")
            send_times[wake][message_id] = start
        _wait_until(lambda: len(receiver.visits) >= _LATENCIES * len(wakes))
        for wake in wakes:
            latencies = _latencies(receiver.visits, f"wake-{wake}", send_times[wake])
            work = f'produce → HTTP subscriber, idle, wake "{wake}"'
            for name, share, limit in (("p50", 0.5, 50), ("p99", 0.99, 300)):
                value = _share(latencies, share)
                yield at_most(
                    f"{work}: {name}", value * 1000, limit, "ms", f"{value / bare:.1f} x a bare put"
                )


def _latencies(visits: Sequence[Visit], topic: str, send_times: dict[str, float]) -> list[float]:
    return [
        v.began - send_times[v.headers["webhook-id"]] for v in visits if v.headers["headrace-topic"] == topic
    ]


def _rates(b: _Bench) -> Iterator[Figure]:
    work = "messages delivered to one quick subscriber"
    yield _rate(b, f"{work}, 64 in flight", 2_000, max_in_flight=64)
    yield _rate(b, f"{work}, 500 in flight", 2_000, max_in_flight=500)
    batches: dict[str, Any] = {"payload": "batch", "batch_size": 100}
    yield _rate(b, f"{work}, in batches of 100, 500 in flight", 10_000, max_in_flight=500, **batches)
    yield _rate(b, f"messages delivered to {_GROUPS} groups, a subscriber each", 100, groups=_GROUPS)


def _rate(b: _Bench, work: str, messages: int, groups: int = 1, **settings: Any) -> Figure:
    """The delivery rate of messages produced before any subscriber: from the first arrival to the last."""
    say(f"delivery: {work}")
    topic = f"rate-{time.time_ns()}"
    bare = b.target.bare_put()
    with Receiver() as receiver:
        b.topic(topic)
        b.groups(topic, groups, **settings)
        b.fill(topic, messages)
        before = b.server.cpu_seconds()
        b.register(topic, groups, receiver)
        _wait_until(lambda: sum(map(_message_count, receiver.visits[:])) >= messages * groups)
        cpu_seconds = (b.server.cpu_seconds() - before) / (messages * groups)
        times = [v.began for v in receiver.visits]
    rate = messages * groups / (max(times) - min(times))
    ratio = f"{rate * bare:.2f} x bare puts; {cpu_seconds * 1e6:,.0f} µs of the server's CPU a message"
    return without_target(work, f"{rate:,.0f} msg/s", ratio)


def _message_count(visit: Visit) -> int:
    return len(json.loads(visit.body)) if "batch" in visit.headers["content-type"] else 1


def _storm(b: _Bench) -> Iterator[Figure]:
    """All first attempts fail together."""
    say(f"delivery: {_STORM} retries at once")
    with Receiver(lambda v: Reply(500 if _attempt(v) == 1 else 200)) as receiver:
        b.topic("storm", retry={"max_attempts": 3, "ladder": [_STEP_SECONDS], "jitter": 0.1})
        # Twice as many: who fails them all is not called any more, and what was still to be sent would be late.
        b.groups("storm", 1, max_in_flight=2 * _STORM)
        b.fill("storm", _STORM)
        b.register("storm", 1, receiver)
        _wait_until(lambda: len(receiver.visits) >= _STORM)
        due = _due_times(b, _STORM)
        _wait_until(lambda: len(receiver.visits) >= 2 * _STORM)
    first, second = ({_id(v): v for v in receiver.visits if _attempt(v) == n} for n in (1, 2))
    waits = [second[i].began - (first[i].ended or 0) for i in second]
    lateness_seconds = [second[i].began - due[i] for i in second]
    tenths = Counter(int((at - min(due.values())) * 10) for at in due.values())
    work = f"{_STORM:,} messages that fail together, ladder {_STEP_SECONDS} s, jitter 0.1"
    early = sum(wait < _STEP_SECONDS for wait in waits) + sum(lateness < 0 for lateness in lateness_seconds)
    yield at_most(
        f"{work}: attempts before their time", early, 0, "messages", f"shortest wait {min(waits):.2f} s"
    )
    yield at_most(
        f"{work}: p99 of lateness",
        _share(lateness_seconds, 0.99),
        1,
        "s",
        f"p50 {_share(lateness_seconds, 0.5):.2f} s",
    )
    span = max(due.values()) - min(due.values())
    fullest = f"{max(tenths.values()) / _STORM:.0%} in the fullest tenth of a second"
    yield without_target(f"{work}: second attempts are due over", f"{span:.2f} s", fullest)


def _id(visit: Visit) -> str:
    return visit.headers["webhook-id"]


def _attempt(visit: Visit) -> int:
    return int(visit.headers["headrace-attempt"])


def _due_times(b: _Bench, count: int) -> dict[str, float]:
    """When the retries are due that are filed, by message id; all are before the first is."""
    timers, due_times = b.target.deps().adapters.timers, dict[str, float]()

    def are_all_filed() -> bool:
        until_ms = (int(time.time()) + 2 * _STEP_SECONDS) * 1000
        for timer in (t for f in range(FRAGMENTS) for t in timers.first_due(f, until_ms, count).timers):
            if timer.draft and timer.draft.origin:
                due_times[timer.draft.origin.id] = timer.due_ms / 1000
        return len(due_times) == count

    _wait_until(are_all_filed)
    return due_times


def _bulkhead(b: _Bench) -> Iterator[Figure]:
    """The same groups with and without one that hangs, in turns."""
    say(f"delivery: 1 of {_GROUPS} hangs")
    latencies: dict[bool, list[float]] = {True: [], False: []}
    for n, hangs in enumerate((False, True, False, True)):
        topic, send_times = f"bulkhead-{n}", dict[str, float]()
        with Receiver(partial(_answer, hangs)) as receiver:
            b.topic(topic, lease_seconds=5)
            b.groups(topic, _GROUPS, max_in_flight=16)
            b.register(topic, _GROUPS, receiver)
            for _ in range(_ROUNDS):
                time.sleep(_ROUND_PAUSE_SECONDS)
                message_id, start = b.send(topic)
                send_times[message_id] = start
            _wait_until(partial(_has_visits_of_others, receiver, _ROUNDS * (_GROUPS - 1)))
            latencies[hangs] += _latencies([v for v in receiver.visits if v.path != "/0"], topic, send_times)
    without, beside = (_share(latencies[hangs], 0.99) for hangs in (False, True))
    work = f"1 of {_GROUPS} subscribers hangs: p99 of the others"
    ratio = f"{beside * 1000:,.0f} ms beside it, {without * 1000:,.0f} ms without"
    yield at_most(work, beside / without, 1.2, "x without it", ratio)


def _answer(hangs: bool, visit: Visit) -> Reply:
    return Reply(how=How.NEVER) if hangs and visit.path == "/0" else Reply()


def _has_visits_of_others(receiver: Receiver, count: int) -> bool:
    return sum(v.path != "/0" for v in receiver.visits[:]) >= count


def _latency_beside_bad_messages(b: _Bench) -> Iterator[Figure]:
    """How soon good messages get through beside ones that the same subscriber always answers 500. The shares of bad
    ones take turns, so that what else the machine does meets all."""
    latencies: dict[int, list[float]] = {percent: [] for percent in _BAD_PERCENT}
    for n, percent in enumerate(_BAD_PERCENT * _MIXED_ROUNDS):
        say(f"delivery: {percent} % bad messages")
        latencies[percent] += _latencies_of_good_messages(b, f"bad-{n}-{percent}", percent)
    without = _share(latencies[0], 0.99)
    for percent in _BAD_PERCENT[1:]:
        beside = _share(latencies[percent], 0.99)
        work = f"good messages beside {percent} % that always fail: p99"
        ratio = f"{beside * 1000:,.0f} ms beside them, {without * 1000:,.0f} ms without"
        yield at_most(work, beside / without, 2, "x without them", ratio)


def _latencies_of_good_messages(b: _Bench, topic: str, percent: int) -> list[float]:
    """How long good messages took, among which so many in a hundred are bad."""
    send_times, sent_count = dict[str, float](), 0
    with Receiver(lambda v: Reply(500 if v.body == b'"bad"' else 200)) as receiver:
        b.topic(topic, retry={"max_attempts": 16, "ladder": [_MIXED_STEP_SECONDS]}, wake="direct")
        b.groups(topic, 1)
        b.register(topic, 1, receiver)
        while len(send_times) < _MIXED:
            is_bad = percent > 0 and sent_count * percent % 100 < percent
            body, start = "bad" if is_bad else "good", time.time()
            sent_id = b.client.ask("POST", f"/topics/{topic}/messages", {"body": body})["id"]
            sent_count += 1
            if not is_bad:
                send_times[sent_id] = start
            time.sleep(_MIXED_PAUSE_SECONDS)
        _wait_until(partial(_are_all_there, receiver, send_times))
        first = {_id(v): v for v in reversed(receiver.visits) if _id(v) in send_times}
    return [first[i].began - send_times[i] for i in send_times]


def _are_all_there(receiver: Receiver, send_times: dict[str, float]) -> bool:
    return send_times.keys() <= {_id(v) for v in receiver.visits[:]}
