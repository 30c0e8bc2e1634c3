"""The front door's own CPU time: an invocation as Lambda makes it, less a bare put of the same row.

CPU time, not the clock: it hardly depends on what else the machine does.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from .figures import Figure, at_most, without_target
from .front_door import Api
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
