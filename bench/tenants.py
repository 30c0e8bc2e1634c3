"""Fairness among tenants, in virtual time: the product's producer, receiver and settler, or its runs of `deliver`; the
time that a consumer and the store take is the model's."""

from __future__ import annotations

import heapq
import itertools
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import pytest

from chalicelib.domain.append import ProduceResult, Stored
from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.message import Draft
from chalicelib.domain.receipt import sign_receipt
from chalicelib.domain.topic import Consumer, ConsumerKind, Group, Topic
from chalicelib.services.manage.registry import Contact
from chalicelib.wiring import Deps
from tests.simulation.plan import Plan, plan_of_seeks
from tests.simulation.processes import Process
from tests.simulation.pushing import Line
from tests.simulation.threads import make_virtual
from tests.simulation.virtual import Scheduler
from tests.simulation.world import World
from tests.support.stages import embedded_stage

from .figures import Figure, at_least, without_target

NOISY = "noisy"
_RECEIVE_MS, _ACK_MS = 5, 3
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 20, 1_000
_BATCH = 1_000
_BEGIN_MS = 1_000  # when the backlog comes: the others have had messages by then


@dataclass(kw_only=True, frozen=True)
class Case:
    """What a run models. `noisy_ms`: how long a message of the noisy tenant takes; `per_second`: messages of each other
    tenant."""

    shards: int = 16
    tenants: int = 100
    consumers: int = 8
    seconds: int = 60
    per_second: float = 1.5
    backlog: int = 0
    message_ms: int = 5
    noisy_ms: int = 5
    share: int = 75
    names: bool = True  # do the messages name their tenants?
    is_pushed: bool = False
    seed: int = 7


@dataclass
class Run:
    """One run of a case."""

    case: Case
    waits: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    noisy_count: int = 0

    def __post_init__(self) -> None:
        case, self._stage = self.case, embedded_stage()
        self._clock, self._random = self._stage.clock, random.Random(case.seed)
        self._deps = self._stage.process()
        self._deps.admin.put_topic("fair", {"shards": case.shards})
        self._topic: Topic = self._deps.catalog.topic("fair")
        settings = {"begin": "earliest", "tenant_share": case.share}
        self._deps.admin.put_group(self._topic, "workers", settings)
        self._group: Group = self._deps.catalog.group(self._topic, "workers")
        self._workers: list[tuple[Deps, Consumer]] = []
        for n in range(case.consumers):
            registered = self._deps.registry.register(self._topic, self._group, f"worker-{n}")
            self._workers.append((self._stage.process(), registered[0].consumer))
        self._order = itertools.count()
        self._events: list[tuple[float, int, str, int, float]] = []
        self._sent_ms: dict[str, float] = {}
        self._held: dict[int, str] = {}

    def play(self) -> Run:
        """Play it to its end."""
        case, begin_ms = self.case, float(self._clock.now_ms())
        for first in range(0, case.backlog, _BATCH):
            self._later(begin_ms + _BEGIN_MS, "backlog", min(_BATCH, case.backlog - first))
        for tenant in range(case.tenants - 1):
            self._later(begin_ms + self._random.expovariate(case.per_second) * 1000, "send", tenant)
        for n in range(case.consumers):
            self._later(begin_ms + n, "receive", n, _FIRST_PAUSE_MS)
        end_ms = begin_ms + case.seconds * 1000
        while self._events[0][0] < end_ms:
            at_ms, _, kind, number, value = heapq.heappop(self._events)
            self._clock.advance(max(0, int(at_ms) - self._clock.now_ms()))
            if kind == "send":
                self._produce(f"tenant-{number}", 1, at_ms)
                self._later(at_ms + self._random.expovariate(case.per_second) * 1000, "send", number)
            elif kind == "backlog":
                self._produce(NOISY, number, at_ms)
            elif kind == "ack":
                self._ack(number, at_ms)
            else:
                self._receive(number, at_ms, value)
        return self

    def _later(self, at_ms: float, kind: str, number: int, value: float = 0) -> None:
        heapq.heappush(self._events, (at_ms, next(self._order), kind, number, value))

    def _produce(self, tenant: str, count: int, at_ms: float) -> None:
        name = tenant if self.case.names else None
        drafts = [Draft(b'"%s"' % tenant.encode(), tenant=name) for _ in range(count)]
        for result in self._deps.producer.produce(self._topic, drafts):
            self._sent_ms[result.id] = at_ms  # type: ignore[union-attr]

    def _receive(self, number: int, at_ms: float, pause_ms: float) -> None:
        deps, consumer = self._workers[number]
        deps.registry.note_alive(self._topic, self._group, consumer.uid)
        messages = deps.receiver.receive(self._topic, self._group, consumer, 1, 0, 60)
        at_ms += _RECEIVE_MS
        if not messages:
            self._later(at_ms + pause_ms, "receive", number, min(pause_ms * 1.5, _LONGEST_PAUSE_MS))
            return
        [claimed] = messages
        tenant = claimed.message.draft.body.decode().strip('"')
        if tenant == NOISY:
            self.noisy_count += 1
        else:
            self.waits[tenant].append(at_ms - self._sent_ms[claimed.message.id])
        self._held[number] = sign_receipt(deps.signing_key, claimed.receipt)
        self._later(at_ms + (self.case.noisy_ms if tenant == NOISY else self.case.message_ms), "ack", number)

    def _ack(self, number: int, at_ms: float) -> None:
        self._workers[number][0].settler.ack(self._topic, self._group, [self._held.pop(number)])
        self._later(at_ms + _ACK_MS, "receive", number, _FIRST_PAUSE_MS)


@dataclass
class Pushed:
    """One run of a case in which the product's own runs of `deliver` call the consumers, in a world where nothing goes
    wrong and each invocation has a warm process of its own."""

    case: Case
    waits: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    noisy_count: int = 0

    def play(self) -> Pushed:
        """Play it to its end."""
        case, calm = self.case, plan_of_seeks(self.case.seed)
        times: dict[str, Any] = {"seconds": case.seconds, "function_seconds": 300, "cold_start_s": (0, 0)}
        with pytest.MonkeyPatch.context() as patch:
            make_virtual(patch)
            world = _World(replace(calm, pool=256, alone=True, **times))
            world.subscribers = cast(Any, self)
            deps = world.begin("founder", world.calm).deps
            topic, _ = deps.admin.put_topic("fair", {"shards": case.shards, "wake": "direct"})
            settings = {"begin": "earliest", "tenant_share": case.share}
            group, _ = deps.admin.put_group(topic, "workers", settings)
            for n in range(case.consumers):
                contact = Contact(ConsumerKind.URL, f"https://worker-{n}.example/")
                deps.registry.register(topic, group, f"worker-{n}", contact)
            for n in range(case.tenants - 1):
                world.scheduler.spawn(partial(self._sends, world, f"tenant-{n}", itertools.repeat(1)), world)
            batches = [_BATCH] * (case.backlog // _BATCH)
            world.scheduler.spawn(partial(self._sends, world, NOISY, batches), world, _BEGIN_MS)
            world.schedule()
            world.run()
        assert not world.scheduler.errors, world.scheduler.errors
        return self

    def _sends(self, world: World, tenant: str, counts: Iterable[int]) -> None:
        deps, chance = world.begin("api").deps, random.Random(f"{tenant} {self.case.seed}")
        topic = deps.catalog.topic("fair")
        for count in counts:
            world.pause(0 if tenant == NOISY else chance.expovariate(self.case.per_second))
            stored = deps.producer.produce(topic, [Draft(b"1", tenant=tenant) for _ in range(count)])
            deps.waker.wake_after_append(topic, [each for each in stored if isinstance(each, ProduceResult)])

    def of(self, process: Process) -> Line:
        """The way out of one process."""
        line = Line(process)
        line.send = partial(self._send, process.world.scheduler)  # type: ignore[method-assign]
        return line

    def _send(
        self, scheduler: Scheduler, _: Consumer, push_batch: PushBatch, seconds: float
    ) -> tuple[CallResult]:
        [attempt] = push_batch.attempts
        tenant = str(attempt.message.draft.tenant)
        if tenant == NOISY:
            self.noisy_count += 1
        else:
            self.waits[tenant].append(scheduler.now - attempt.message.accepted_ms)
        scheduler.wait(self.case.noisy_ms if tenant == NOISY else self.case.message_ms)
        return (CallResult(Verdict.DONE, status=200),)


class _World(World):
    """One of which no notes are taken. The stream shows a row within 0.2 s, an invocation begins within 50 ms."""

    observe = staticmethod(lambda process: None)

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        times = lambda least_ms, _: [self.random.uniform(least_ms, 10 * least_ms)]  # noqa: E731
        self.wakes._times = times  # type: ignore[method-assign]

    def trace(self, process: Process, method: str, args: Any, fault: str) -> None: ...

    def died(self, process: Process) -> None: ...

    def applied(self, process: Process, method: str, args: tuple[Any, ...], answer: Any) -> None:
        if method == "log.put" and isinstance(answer, Stored):
            self.wakes.appended(args[0], args[1].first)


def p99(waits: Sequence[float]) -> float:
    """The 99th percentile, ms."""
    return sorted(waits)[int(len(waits) * 0.99)] if waits else 0.0


def unhurt(calm: Run | Pushed, loud: Run | Pushed) -> int:
    """Of how many tenants the p99 of waiting is at most twice what it is without the noisy one: of all tenants, since
    they are alike, and each has few messages in the time of a run."""
    most_ms = 2 * p99([each for waits in calm.waits.values() for each in waits])
    names = (f"tenant-{n}" for n in range(loud.case.tenants - 1))
    return sum(bool(loud.waits[name]) and p99(loud.waits[name]) <= most_ms for name in names)


def measure(endpoint: str, verbose: bool = False) -> list[Figure]:
    """16 shards, 100 tenants, 8 consumers, 50,000 messages of one tenant waiting; some ten minutes."""
    figures: list[Figure] = []
    for what, base, case, is_target in _CASES:
        player = Pushed if base.is_pushed else Run
        calm, loud = player(base).play(), player(replace(base, backlog=50_000, **case)).play()
        work, count = f"tenants: {what}: others unhurt, of 99", unhurt(calm, loud)
        figures.append(
            at_least(work, count, 98, "tenants") if is_target else without_target(work, f"{count} tenants")
        )
        if verbose:
            waits = [[w for each in run.waits.values() for w in each] or [0.0] for run in (calm, loud)]
            times = ", ".join(f"{p99(each):.0f}" for each in waits)
            print(f"{what}: p99 in ms {times}, {loud.noisy_count} of the noisy tenant's", file=sys.stderr)
    return figures


_QUICK, _SLOW = Case(seconds=8), Case(seconds=12, per_second=0.5)
_PUSHED = replace(_SLOW, is_pushed=True)
_CASES: Sequence[tuple[str, Case, dict[str, Any], bool]] = (
    ("a backlog of 50,000", _QUICK, {}, True),
    ("of messages of 1 s", _SLOW, {"noisy_ms": 1_000}, True),
    ("of messages of 1 s, tenant_share 100", _SLOW, {"noisy_ms": 1_000, "share": 100}, False),
    ("pushed, of messages of 1 s", _PUSHED, {"noisy_ms": 1_000}, True),
    ("pushed, of messages of 1 s, tenant_share 100", _PUSHED, {"noisy_ms": 1_000, "share": 100}, False),
    ("of messages without tenants", _QUICK, {"names": False}, False),
)
