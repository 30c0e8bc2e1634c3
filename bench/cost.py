"""What docs/cost.md computes with: units and CPU seconds of what a message goes through, from a warm process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from chalicelib.domain.call_result import Verdict
from chalicelib.services.core.wake import NO_NEWS

from .delivery_units import DeliveryBench, delivery_bench
from .figures import Figure, without_target
from .meter import Cost
from .stage import StandingClock, say, stage
from .units import GROUP, TOPIC, Bench

_WARM, _ROUNDS = 2, 4
_CPU_ROUNDS = 200
_TOGETHER = 100


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """Both tables."""
    for name, cost in units(endpoint).items():
        yield without_target(f"cost: {name}", f"{cost.writes:.3g} WU, {cost.reads:.3g} RU")
    for name, seconds in cpu_seconds(endpoint).items():
        yield without_target(f"cost: {name}, CPU", f"{seconds * 1000:.1f} ms")


def units(endpoint: str) -> dict[str, Cost]:
    """Of each way, for a message."""
    say("cost: units")
    with stage(endpoint) as target:
        ways = dict(_produced(Bench(partial(target.deps, clock=StandingClock()))))
    with stage(endpoint) as target:
        ways |= _pulled(Bench(partial(target.deps, clock=StandingClock())))
    with stage(endpoint) as target:
        ways |= _pushed(delivery_bench(target, shards=1, max_in_flight=500))
    return ways


def _produced(b: Bench) -> Iterator[tuple[str, Cost]]:
    b.topic("t", shards=1)

    def one(**fields: Any) -> Cost:
        return _mean(lambda: b.produce("t", b.text(98), **fields))

    yield "one", one()
    yield "keyed", one(keys=["order-1"])
    numbers = iter(range(100))
    yield "named", _mean(lambda: b.produce("t", b.text(98), dedup_id=f"d{next(numbers)}"))
    hundred = [{"body": b.text(98)} for _ in range(100)]
    yield "hundredth", _mean(lambda: b.batch("t", hundred)).per(100)

    def transaction() -> Cost:
        with b.meter.measure() as cost:
            body = {"message": {"body": b.text(98)}, "check_after_seconds": 86_400}
            id = b.api.call("POST", f"{TOPIC}/transactions", body, topic="t")["transaction_id"]
            b.api.call("POST", "/v1/transactions/{id}/commit", {}, id=id)
        return cost

    yield "transaction", _mean(transaction)


def _pulled(b: Bench) -> dict[str, Cost]:
    ways = {}
    for name, size in (("pulled", 1), ("pulled_ten", 10), ("pulled_hundred", 100)):
        b.topic(name, shards=1)
        b.group(name, "g", **{"from": "latest"})
        ways[name] = _mean(partial(_receive_and_ack, b, name, size)).per(size)
    b.topic("rated", shards=1)
    b.group("rated", "g", rate_limit=5_000, **{"from": "latest"})
    ways["pulled_rated"] = _mean(partial(_receive_and_ack, b, "rated", 1))
    receipts: list[str] = []

    def with_ack() -> Cost:
        b.produce("pulled", b.text(98))
        with b.meter.measure() as cost:
            receipts[:] = _receive(b, "pulled", 1, {"ack": receipts} if receipts else {})
        return cost

    ways["pulled_acking"] = _mean(with_ack)
    return ways


def _receive(b: Bench, topic: str, size: int, fields: dict[str, Any]) -> list[str]:
    answer = b.api.call("POST", f"{GROUP}/receive", {"max": size, **fields}, topic=topic, group="g")
    receipts = [message["receipt"] for message in answer["messages"]]
    assert len(receipts) == size
    return receipts


def _receive_and_ack(b: Bench, topic: str, size: int) -> Cost:
    b.batch(topic, [{"body": b.text(98)} for _ in range(size)])
    with b.meter.measure() as cost:
        receipts = _receive(b, topic, size, {})
        b.api.call("POST", f"{GROUP}/ack", {"receipts": receipts}, topic=topic, group="g")
    return cost


def _pushed(b: DeliveryBench) -> dict[str, Cost]:
    ways = {
        "delayed": b.delay_cost(1),
        "delayed_hundred": b.delay_cost(_TOGETHER).per(_TOGETHER),
        "pushed": b.mean_delivery_cost(1),
        "pushed_hundred": b.mean_delivery_cost(_TOGETHER).per(_TOGETHER),
    }
    for name, count in (("failed", 1), ("failed_hundred", _TOGETHER)):
        b.subscriber.verdict = Verdict.FAILED
        cost = b.delivery_cost(b.produce(count))
        b.subscriber.verdict = Verdict.DONE
        cost += b.move_cost()
        cost += b.delivery_cost({0: NO_NEWS})
        ways[name] = cost.per(count)
    return ways


def _mean(work: Callable[[], Cost]) -> Cost:
    """Of some, behind those that read what is then cached."""
    cost = sum([work() for _ in range(_WARM + _ROUNDS)][_WARM:], Cost()).per(_ROUNDS)
    return replace(cost, trips=round(cost.trips / _ROUNDS))


def cpu_seconds(endpoint: str) -> dict[str, float]:
    """Of a call of the API, and of a run of `deliver`, the client's part of its requests included."""
    say("cost: CPU")
    with stage(endpoint) as target:
        b = Bench(target.deps)
        b.topic("t", shards=1)
        b.group("t", "g", **{"from": "latest"})
        body = {"body": b.text(98)}
        event = b.api.event("POST", f"{TOPIC}/messages", body, topic="t")
        seconds = {"produce": _median(lambda: b.api.answer(event))}
        b.group("t", "last", **{"from": "latest"})
        receipts: list[str] = []

        def receive() -> None:
            receipts[:] = _receive(b, "t", 1, {"ack": receipts} if receipts else {})

        seconds["receive"] = _median(receive)
        hundred = {"messages": [body] * 100}
        event = b.api.event("POST", f"{TOPIC}/messages/batch", hundred, topic="t")
        seconds["batch"] = _median(lambda: b.api.answer(event))
    with stage(endpoint) as target:
        d = delivery_bench(target, shards=1, max_in_flight=500)
        batch = {"messages": [{"body": "x" * 100}]}
        produce = d.api.event("POST", f"{TOPIC}/messages/batch", batch, topic="t")
        produced = _median(lambda: d.api.answer(produce))
        seconds["deliver"] = _median(lambda: d.delivery_cost(d.produce(1))) - produced
        shard = str(d.topic.shard_key(0))
        seconds["route"] = _median(lambda: d.deps.waker.route({shard: 1}))
        seconds["mover"] = median(_moved(d) for _ in range(5))
    return seconds


def _moved(d: DeliveryBench) -> float:
    """Of a run of the mover that finds one message due."""
    delayed = {"messages": [{"body": "x", "delay_seconds": 1}]}
    d.api.call("POST", f"{TOPIC}/messages/batch", delayed, topic="t")
    start = time.process_time()
    d.move()
    return time.process_time() - start


def _median(work: Callable[[], Any], rounds: int = _CPU_ROUNDS) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return median(times)
