"""Write units, read units and round trips of each operation, as the engine reports them."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from typing import Any

from chalicelib.services.inspect.lookup import Filters

from .figures import Figure, at_most, without_target
from .front_door import Api
from .meter import Cost, Meter
from .stage import say, stage

_TEXT = string.ascii_letters + string.digits + "+/"
_CYCLES = 12
TOPIC = "/v1/topics/{topic}"
GROUP = "/v1/topics/{topic}/groups/{group}"


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """The unit table."""
    with stage(endpoint) as target:
        bench = Bench(target.deps)
        yield from _measure_produce(bench)
        for mode in ("queue", "serial", "broadcast"):
            for size in (10, 100):
                say(f"units: claim and settle {size}, {mode}")
                yield from _measure_claim_and_settle(bench, mode, size)
        yield from _measure_runs(bench)
        yield from _measure_others(bench)
        yield from _measure_schedules(bench)


class Bench:
    """The front door with a meter on its client."""

    def __init__(self, deps_of: Callable[[Meter], Any]) -> None:
        self.meter = Meter()
        self._deps_of = deps_of
        self.api = Api(deps_of(self.meter))
        self.random = random.Random(11)

    def drop_caches(self) -> None:
        """As a new process: nothing cached."""
        self.api.use(self._deps_of(self.meter))

    def text(self, length: int) -> str:
        """Text that does not repeat: compression finds only that it is text."""
        return "".join(self.random.choices(_TEXT, k=length))

    def topic(self, name: str, **settings: Any) -> None:
        self.api.call("PUT", TOPIC, settings, topic=name)

    def group(self, topic: str, name: str, **settings: Any) -> None:
        self.api.call("PUT", GROUP, settings, topic=topic, group=name)

    def cost(self, method: str, path: str, body: Any = None, **params: str) -> Cost:
        with self.meter.measure() as cost:
            self.api.call(method, path, body, **params)
        return cost

    def produce(self, topic: str, body: Any, **fields: Any) -> Cost:
        return self.cost("POST", f"{TOPIC}/messages", {"body": body, **fields}, topic=topic)

    def batch(self, topic: str, messages: list[dict[str, Any]]) -> Cost:
        return self.cost("POST", f"{TOPIC}/messages/batch", {"messages": messages}, topic=topic)

    def key_lookup_cost(self, topic: str, key: str) -> Cost:
        """The last 32 messages of a key, looked up by a process that has read none of them."""
        deps = self._deps_of(self.meter)
        the_topic = deps.catalog.topic(topic)
        with self.meter.measure() as cost:
            page, _ = deps.key_lookup.newest_first(the_topic, key, Filters(), 32, None)
        if len(page) != 32:
            raise RuntimeError(f"{topic}: a lookup by key gave {len(page)} of 32")
        return cost


def _measure_produce(b: Bench) -> Iterator[Figure]:
    say("units: produce")
    b.topic("t")
    cold = b.produce("t", b.text(500))
    cost = b.produce("t", b.text(500))
    yield at_most("produce one: write units", cost.writes, 1, "WU")
    yield at_most("produce one, warm: read units", cost.reads, 0, "RU")
    yield at_most("produce one, warm: round trips", cost.trips, 1, "trips")
    yield without_target("produce one, cold process", cost_text(cold))
    yield without_target("produce one: longest random text for 1 WU", f"{_longest(b)} B")
    batch = b.batch("t", [{"body": b.text(98)} for _ in range(100)])  # 98 and two quotes
    yield at_most("produce a batch of 100 x 100 B, random text: per message", batch.writes / 100, 0.12, "WU")
    batch_cost = b.batch("t", [{"body": b.text(98), "ordering_key": f"k{i % 20}"} for i in range(100)])
    yield without_target(
        "the same with 20 ordering keys on 4 shards: per message", cost_text(batch_cost.per(100))
    )
    for i in range(3):
        b.group("t", f"g{i}")
    groups_cost = b.produce("t", b.text(500))
    yield at_most("produce with three groups more: extra", groups_cost.writes - cost.writes, 0, "WU")
    b.produce("t", 1, dedup_id="warm")
    yield without_target("produce one with a dedup id", cost_text(b.produce("t", b.text(500), dedup_id="d1")))
    yield without_target("the same dedup id again", cost_text(b.produce("t", 1, dedup_id="warm")))
    yield from _measure_keys(b)
    yield from _measure_jobs(b)
    b.topic("limited", rate_limit=5_000)
    costs = [b.produce("limited", b.text(500)) for _ in range(300)]
    extra = sum(c.writes for c in costs[100:]) / 200 - 1
    yield without_target("produce one by one under a rate limit of 5,000: extra", f"{extra:.2g} WU")
    yield from _measure_transactions(b)


def _measure_transactions(b: Bench) -> Iterator[Figure]:
    """A transaction's ways."""
    b.topic("transactions", shards=1)
    costs: dict[str, Cost] = {}
    for decision, fields in (("commit", {}), ("rollback", {}), ("commit for later", {"delay_seconds": 3600})):
        for _ in range(3):  # the last is warm
            message = {"message": {"body": b.text(300), **fields}, "check_after_seconds": 86_400}
            with b.meter.measure() as prepare_cost:
                path = f"{TOPIC}/transactions"
                id = b.api.call("POST", path, message, topic="transactions")["transaction_id"]
            costs[decision] = b.cost("POST", f"/v1/transactions/{{id}}/{decision.split()[0]}", {}, id=id)
    yield without_target("prepare", cost_text(prepare_cost))
    for decision, cost in costs.items():
        yield without_target(f"prepare's {decision}", cost_text(cost))


def _measure_jobs(b: Bench) -> Iterator[Figure]:
    """A job's ways, beyond those of a delayed message."""
    path, at = f"{TOPIC}/jobs/{{job}}", [{"deliver_at": f"2030-01-0{n}T00:00:00Z"} for n in (1, 9)]
    times = (at[0], at[0], at[1])
    for warm_up in (True, False):
        costs = [
            b.cost("PUT", path, {"body": b.text(300), **when}, topic="t", job=f"j{warm_up}") for when in times
        ]
    for (way, most), cost in zip(
        {"create": 4, "other content": 1, "another time": 6}.items(), costs, strict=True
    ):
        yield at_most(f"a job, {way}: write units", cost.writes, most, "WU", f"{cost.reads:g} RU")
    yield without_target("delete a job", cost_text(b.cost("DELETE", path, None, topic="t", job="jFalse")))


def _measure_keys(b: Bench) -> Iterator[Figure]:
    """Keys: what they cost, and that a lookup does not cost more in a larger topic."""
    b.topic("keyed")
    b.produce("keyed", 1)
    costs = [b.produce("keyed", b.text(500), keys=["order-1"]) for _ in range(40)]
    yield at_most(
        "produce one with one key: write units", costs[-1].writes, 2, "WU", f"{costs[-1].trips} trips"
    )
    lookups = []
    for _ in range(2):
        lookups.append(b.key_lookup_cost("keyed", "order-1"))
        for _ in range(20):
            b.batch("keyed", [{"body": b.text(98), "keys": [f"n{i}"]} for i in range(100)])
    yield without_target("the last 32 messages of a key, each of a row of its own", cost_text(lookups[0]))
    yield at_most("the same with 2,000 messages more: extra", lookups[1].reads - lookups[0].reads, 0, "RU")


def _longest(b: Bench) -> int:
    """The longest body for one unit: 1 KiB less what the row needs for itself."""
    low, high = 500, 1500
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if b.produce("t", b.text(middle)).writes <= 1 else (low, middle)
    return low


def _measure_claim_and_settle(b: Bench, mode: str, size: int) -> Iterator[Figure]:
    name = f"{mode}{size}"
    b.topic(name, shards=4)
    b.group(name, "g", mode=mode, **{"from": "latest"})
    consumer = {}
    if mode == "broadcast":
        b.api.call("PUT", f"{GROUP}/consumers/{{consumer}}", {}, topic=name, group="g", consumer="c")
        consumer = {"consumer": "c"}
    cycles = []
    for _ in range(_CYCLES):
        b.batch(name, _messages(b, size))
        cycles.append(_cycle(b, name, size, consumer))
    warm = sum(cycles[2:], Cost()).per(_CYCLES - 2)
    trips = sum(c.trips for c in cycles[2:]) / (_CYCLES - 2)
    work = f"claim + settle {size}, {mode}, warm"
    yield at_most(f"{work}: write units with the trace", warm.writes, 3, "WU", f"{trips:.1f} round trips")
    beside = warm.reads - warm.log_reads
    yield at_most(f"{work}: read units besides the log's", beside, 1, "RU", f"log: {warm.log_reads:.2f} RU")
    cycles, receipts = [], list[str]()
    for _ in range(_CYCLES):
        b.batch(name, _messages(b, size))
        request = {"max": size, **consumer, **({"ack": receipts} if receipts else {})}
        with b.meter.measure() as cost:
            messages = b.api.call("POST", f"{GROUP}/receive", request, topic=name, group="g")["messages"]
        receipts = [m["receipt"] for m in messages]
        cycles.append(cost)
    b.api.call("POST", f"{GROUP}/ack", {"receipts": receipts}, topic=name, group="g")
    warm = sum(cycles[2:], Cost()).per(_CYCLES - 2)
    work = f"receive {size} and ack those before, {mode}, warm"
    yield at_most(f"{work}: write units with the trace", warm.writes, 2, "WU", f"{warm.reads:.2f} read units")
    b.batch(name, _messages(b, size))
    b.drop_caches()
    yield without_target(
        f"claim + settle {size}, {mode}, cold process", cost_text(_cycle(b, name, size, consumer))
    )
    b.group(name, "g", rate_limit=100_000)
    b.batch(name, _messages(b, size))
    cost = _cycle(b, name, size, consumer)
    yield at_most(f"the same under a rate limit, {mode}: write units", cost.writes, 4, "WU", cost_text(cost))
    if mode == "queue":
        b.group(name, "g", rate_limit=None, key_concurrency=1)
        b.batch(name, _messages(b, size))
        cost = _cycle(b, name, size, consumer)
        yield at_most("the same with key_concurrency: write units", cost.writes, 3, "WU", cost_text(cost))


def _measure_runs(b: Bench) -> Iterator[Figure]:
    """200 messages of one key in one shard, with another message between each two: each receive acknowledges the run
    before."""
    say("units: runs")
    b.topic("runs", shards=4)
    b.group("runs", "g", mode="serial", **{"from": "earliest"})
    for first in range(0, 400, 100):
        keys = ("a" if n % 2 else f"k{n % 10}" for n in range(first, first + 100))
        messages = [{"body": b.text(98), "ordering_key": key, "shard": 0} for key in keys]
        b.batch("runs", messages)
    calls, seen, receipts = 0, 0, list[str]()
    with b.meter.measure() as cost:
        while receipts or not calls:
            request = {"run": True, "max": 100, **({"ack": receipts} if receipts else {})}
            messages = b.api.call("POST", f"{GROUP}/receive", request, topic="runs", group="g")["messages"]
            receipts = [m["receipt"] for m in messages]
            calls, seen = calls + 1, seen + len(messages)
    note = f"{calls} calls, {cost.trips} round trips"
    yield at_most(
        f"{seen} messages of 6 keys in runs: write units per message", cost.writes / seen, 0.5, "WU", note
    )


def _messages(b: Bench, size: int) -> list[dict[str, Any]]:
    """Of one shard and of different keys, so that a serial group too may give them in one batch."""
    return [{"body": b.text(98), "ordering_key": f"k{i}", "shard": 0} for i in range(size)]


def _cycle(b: Bench, topic: str, size: int, consumer: dict[str, str]) -> Cost:
    """Claim and settle one batch; RuntimeError unless one receive gives all of it."""
    with b.meter.measure() as cost:
        request = {"max": size, **consumer}
        messages = b.api.call("POST", f"{GROUP}/receive", request, topic=topic, group="g")["messages"]
        receipts = [m["receipt"] for m in messages]
        b.api.call("POST", f"{GROUP}/ack", {"receipts": receipts}, topic=topic, group="g")
    if len(messages) != size:
        raise RuntimeError(f"{topic}: a receive gave {len(messages)} of {size}")
    return cost


def _measure_others(b: Bench) -> Iterator[Figure]:
    say("units: the rest")
    b.topic("rest")
    b.group("rest", "g", **{"from": "earliest"})
    polls = [b.cost("POST", f"{GROUP}/receive", {}, topic="rest", group="g") for _ in range(8)]
    yield at_most("idle receive on 4 shards: write units", max(p.writes for p in polls), 0, "WU")
    yield without_target("idle receive on 4 shards, the states just seen", cost_text(polls[-1]))
    poll = b.cost("POST", f"{GROUP}/receive", {"wait_seconds": 5}, topic="rest", group="g")
    yield without_target("idle receive waiting 5 s: per second", cost_text(poll.per(5)))
    body = {"body": b.text(500)}
    answer = b.api.call("POST", f"{TOPIC}/messages", body, topic="rest")
    messages = b.api.call("POST", f"{GROUP}/receive", {}, topic="rest", group="g")["messages"]
    extend = {"receipts": [messages[0]["receipt"]], "lease_seconds": 60}
    yield without_target(
        "extend a lease", cost_text(b.cost("POST", f"{GROUP}/extend", extend, topic="rest", group="g"))
    )
    lookup = b.cost("GET", f"{TOPIC}/messages/{{id}}", topic="rest", id=answer["id"])
    yield without_target("look up a message, one group", cost_text(lookup))
    seek_cost = b.cost("POST", f"{GROUP}/seek", {"to": "earliest"}, topic="rest", group="g")
    yield without_target("seek to earliest, 4 shards, and show the group", cost_text(seek_cost))


def _measure_schedules(b: Bench) -> Iterator[Figure]:
    fields = {"topic": "rest", "message": {"body": b.text(500)}, "every_seconds": 86_400}
    put = b.cost("PUT", "/v1/schedules/{schedule}", fields, schedule="daily")
    yield without_target("put a schedule", cost_text(put))
    deps = b._deps_of(b.meter)
    timer = deps.schedules.timer_of(deps.schedules.find("daily", str))
    costs: list[Cost] = []
    for day in range(2):  # the first run reads the topic, and the log's end
        timer = deps.adapters.timers.find(timer.due_ms + day * 86_400_000, timer.id)
        with b.meter.measure() as cost:
            deps.due.append(timer.shard, 0, [timer])
        costs.append(cost)
    yield at_most("a schedule fires: write units", costs[-1].writes, 6, "WU", cost_text(costs[-1]))


def cost_text(cost: Cost) -> str:
    """Its units and trips as text."""
    return f"{cost.writes:.3g} WU, {cost.reads:.3g} RU, {cost.trips} trips"
