"""The front door's own CPU time: an invocation as Lambda makes it, less a bare put of the same row; and what calls take
and cost on Lambda by memory, computed from their CPU time and round trips (`python -m bench.handler`).

CPU time, not the clock: it hardly depends on what else the machine does.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from .figures import Figure, at_most, without_target
from .front_door import Api, text_of
from .meter import Meter
from .stage import Stage, say, stage

_ROUNDS = 400
_WARM_UP = 50
_BODY = {"order": 188, "customer": "customer-7", "lines": [{"sku": "A-17", "count": 2, "price": 19.9}] * 3}
_LIMIT_MS = 1.0


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """Median CPU milliseconds of producing one message, and of the put it makes."""
    say(f"handler: {_ROUNDS} messages, each beside a bare put")
    with stage(endpoint) as target:
        handle = _handler(target)
        put = _bare_put(target)
        for _ in range(_WARM_UP):
            handle(), put()
        pairs = [(_cpu_ms(handle), _cpu_ms(put)) for _ in range(_ROUNDS)]
        ours, bare = (median(times) for times in zip(*pairs, strict=True))
        ratio = f"{ours / bare:.2f} x the put"
        yield at_most("API handler, own CPU on top of the bare put", ours - bare, _LIMIT_MS, "ms", ratio)
        yield without_target("a bare conditional put, CPU of its client", f"{bare:.2f} ms")
        if verbose:
            _profile(handle)


def _handler(target: Stage) -> Callable[[], Any]:
    api = Api(target.deps())
    api.call("PUT", "/v1/topics/{topic}", {}, topic="t")
    event = api.event("POST", "/v1/topics/{topic}/messages", {"body": _BODY, "tag": "paid"}, topic="t")

    def handle() -> None:
        assert api.answer(event)["statusCode"] == 201

    return handle


def _bare_put(target: Stage) -> Callable[[], Any]:
    client = target.client()
    offset = iter(range(1_000_000))

    def put() -> None:
        client.put_item(
            TableName=target.tables.log,
            Item={
                "s": {"S": "bare:00000000/0"},
                "o": {"N": str(next(offset))},
                "n": {"N": "1"},
                "r": {"S": "0123456789"},
                "a": {"N": "1700000000000"},
                "x": {"N": "1900000000"},
                "v": {"N": "1"},
                "m": {"B": b"x" * 110},
            },
            ConditionExpression="attribute_not_exists(o)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )

    return put


def _cpu_ms(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1000


def _profile(handle: Callable[[], Any]) -> None:
    profile = cProfile.Profile()
    with profile:
        for _ in range(_ROUNDS):
            handle()
    pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(45)


MEMORIES = (256, 512, 1024, 1769)
_FULL_MB = 1769  # with so much memory a function has a whole virtual processor, with less its part
_GB_SECOND = 1.33334e-5  # on ARM
_ROUND_TRIP_MS = 5.0  # DynamoDB answers in a few milliseconds


def on_lambda(cpu_ms: float, round_trips: float, memory_mb: int) -> tuple[float, float]:
    """What a warm call takes, in milliseconds, and costs for its time, in USD a million."""
    took_ms = cpu_ms * max(1.0, _FULL_MB / memory_mb) + round_trips * _ROUND_TRIP_MS
    return took_ms, took_ms / 1000 * memory_mb / 1024 * _GB_SECOND * 1e6


def calls(endpoint: str) -> Iterator[tuple[str, float, float]]:
    """Median CPU milliseconds and round trips of each kind of call, warm."""
    with stage(endpoint) as target:
        meter = Meter()
        api = Api(target.deps(meter))
        group = {"topic": "t", "group": "g"}
        api.call("PUT", "/v1/topics/{topic}", {"shards": 1}, topic="t")
        api.call("PUT", "/v1/topics/{topic}/groups/{group}", {}, **group)
        verb = "/v1/topics/{topic}/groups/{group}/"
        kinds: dict[str, list[tuple[float, int]]] = {}

        def timed(kind: str, method: str, path: str, body: Any, **params: str) -> Any:
            event = api.event(method, path, body, **params)
            trips, start = meter.cost.trips, time.process_time()
            answer = api.answer(event)
            spent = (time.process_time() - start) * 1000, meter.cost.trips - trips
            kinds.setdefault(kind, []).append(spent)
            return json.loads(text_of(answer))

        for _ in range(_ROUNDS):
            timed("produce one", "POST", "/v1/topics/{topic}/messages", {"body": _BODY}, topic="t")
            [message] = timed("receive one", "POST", f"{verb}receive", {"max": 1}, **group)["messages"]
            timed("ack one", "POST", f"{verb}ack", {"receipts": [message["receipt"]]}, **group)
            timed("look once while waiting", "POST", f"{verb}receive", {"max": 1}, **group)
        for kind, rounds in kinds.items():
            cpus, trips = zip(*rounds[_WARM_UP:], strict=True)
            yield kind, median(cpus), median(trips)


def main() -> None:
    """Print the rows of the table in docs/deploy.md."""
    from .__main__ import engine

    with engine(os.environ.get("AWS_ENDPOINT_URL_DYNAMODB")) as endpoint:
        for kind, cpu_ms, trips in calls(endpoint):
            cells = [f"{ms:.0f} ms, {usd:.2f}" for ms, usd in (on_lambda(cpu_ms, trips, m) for m in MEMORIES)]
            print(f"| {kind} | {cpu_ms:.1f} ms | {trips:g} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
