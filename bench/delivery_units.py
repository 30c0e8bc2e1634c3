"""Write and read units of a delivery, from the claim to the trace; the production is not counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from chalicelib.adapters import Nobody
from chalicelib.domain.call_result import CallResult, Exchange, PushBatch, Verdict
from chalicelib.domain.topic import Consumer, ConsumerKind
from chalicelib.domain.transaction import CheckAnswer, Transaction
from chalicelib.services.core.mover_wakes import read_hints
from chalicelib.services.core.wake import NO_NEWS, DispatchTask, News, workers_of
from chalicelib.services.manage.registry import Contact
from chalicelib.wiring import Deps

from .figures import Figure, without_target
from .front_door import Api
from .meter import Cost, Meter
from .stage import Stage, StandingClock, say, stage

_CYCLES = 10
_TOPIC = "/v1/topics/{topic}"
_BODY = "x" * 100


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """Deliveries to a subscriber that answers at once."""
    say("units: delivery")
    for shards, max_in_flight in ((4, 16), (128, 64)):
        with stage(endpoint) as target:
            bench = delivery_bench(target, shards=shards, max_in_flight=max_in_flight)
            work = f"deliver one, of {shards} shards, {max_in_flight} in flight, warm"
            yield without_target(work, _cost_text(bench.mean_delivery_cost(1)))
    with stage(endpoint) as target:
        bench = delivery_bench(target, shards=1, max_in_flight=500)
        for size in (1, 10, 100):
            work = "deliver one" if size == 1 else f"deliver {size} that lie there together: per message"
            yield without_target(f"{work}, warm", _cost_text(bench.mean_delivery_cost(size).per(size)))
        bench.subscriber.verdict = Verdict.FAILED
        first = bench.delivery_cost(bench.produce(1))
        yield without_target("a first attempt that fails, and its timer", _cost_text(first))
        bench.subscriber.verdict = Verdict.DONE
        yield without_target("the way back: timer to retry lane", _cost_text(bench.move_cost()))
        second = bench.delivery_cost({0: NO_NEWS})
        yield without_target("the second attempt, from the retry lane", _cost_text(second))


@dataclass
class _Subscriber:
    """ports.Sender: every attempt ends like this."""

    verdict: Verdict = Verdict.DONE

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        return (CallResult(self.verdict),) * len(push_batch.attempts)

    def refusal(self, kind: str, target: str) -> str | None:
        return None

    def greet(self, url: str) -> CallResult:
        return CallResult(Verdict.DONE)

    def ping(
        self, consumer: Consumer, id: str, seconds: float, push_batch: PushBatch | None = None
    ) -> Exchange:
        raise AssertionError("nobody is tested here")

    def ask(self, transaction: Transaction, secrets: Sequence[bytes], seconds: float) -> CheckAnswer:
        raise AssertionError("nothing here is in a transaction")


@dataclass
class _Wakes(Nobody):
    """ports.Invoker: keeps the mover's wake-ups, and starts nothing."""

    hints: list[Mapping[str, Any]] = field(default_factory=list)

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        self.hints.append(hint)


@dataclass
class DeliveryBench:
    """A stage, and its subscriber."""

    meter: Meter
    subscriber: _Subscriber
    clock: StandingClock
    wakes: _Wakes
    deps: Deps

    def set_up(self, shards: int, max_in_flight: int) -> None:
        self.api = Api(self.deps)
        settings = {"shards": shards, "retry": {"max_attempts": 3, "ladder": [1], "jitter": 0}}
        self.api.call("PUT", _TOPIC, settings, topic="t")
        group_settings = {"max_in_flight": max_in_flight}
        self.api.call("PUT", f"{_TOPIC}/groups/{{group}}", group_settings, topic="t", group="g")
        self.topic = self.deps.catalog.topic("t")
        group = self.deps.catalog.group(self.topic, "g")
        self.workers = workers_of(self.topic, group)
        self.deps.registry.register(self.topic, group, "c", Contact(ConsumerKind.URL, "http://127.0.0.1:1"))

    def delay_cost(self, count: int) -> Cost:
        """Messages that are due together, stored and moved: what that costs on top of storing them one by one."""
        messages = [{"body": _BODY, "delay_seconds": 1} for _ in range(count)]
        with self.meter.measure() as cost:
            self.api.call("POST", f"{_TOPIC}/messages/batch", {"messages": messages}, topic="t")
        cost += self.move_cost()
        return replace(cost, writes=cost.writes - count)

    def produce(self, count: int) -> Mapping[int, News]:
        """The news of the log's stream, by the worker that it wakes."""
        messages = [{"body": _BODY} for _ in range(count)]
        answer = self.api.call("POST", f"{_TOPIC}/messages/batch", {"messages": messages}, topic="t")
        last = {stored["shard"]: stored["offset"] for stored in answer["results"]}
        return {
            shard % self.workers: News({str(self.topic.shard_key(shard)): offset})
            for shard, offset in last.items()
        }

    def delivery_cost(self, woken: Mapping[int, News]) -> Cost:
        with self.meter.measure() as cost:
            for worker, news in woken.items():
                self.deps.dispatcher.deliver(DispatchTask("t", "g", worker), lambda: 60.0, news)
        return cost

    def mean_delivery_cost(self, size: int) -> Cost:
        """Mean of several, without the first ones."""
        costs = []
        for _ in range(_CYCLES):
            costs.append(self.delivery_cost(self.produce(size)))
        warm = sum(costs[2:], Cost())
        return replace(warm.per(_CYCLES - 2), trips=round(warm.trips / (_CYCLES - 2)))

    def move_cost(self) -> Cost:
        with self.meter.measure() as cost:
            self.move()
        return cost

    def move(self) -> None:
        """What the wake-ups make the mover do, in one run, when what waits is due."""
        self.clock.sleep(1.5)
        bodies = [msgspec.json.encode(hint).decode() for hint in self.wakes.hints]
        self.wakes.hints.clear()
        hints = read_hints(bodies, self.deps.adapters.timers.fragments(), self.clock.now_ms())
        self.deps.mover.run_once(fragments=hints.fragments, until_ms=hints.until_ms)


def delivery_bench(target: Stage, *, shards: int, max_in_flight: int) -> DeliveryBench:
    """A group with a subscriber that answers at once."""
    meter, subscriber, clock, wakes = Meter(), _Subscriber(), StandingClock(), _Wakes()
    adapters = replace(target.deps(meter, clock).adapters, sender=lambda: subscriber, invoker=wakes)
    bench = DeliveryBench(meter, subscriber, clock, wakes, Deps(adapters))
    bench.set_up(shards, max_in_flight)
    return bench


def _cost_text(cost: Cost) -> str:
    return f"{cost.writes:.3g} WU, {cost.reads:.3g} RU, {cost.trips} trips"
