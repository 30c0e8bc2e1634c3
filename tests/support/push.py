"""A stage whose groups are pushed to: subscribers that a test holds in its hand, and what wakes, run by hand."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain.call_result import CallResult, Exchange, PushBatch, Verdict
from chalicelib.domain.ladder import Retry
from chalicelib.domain.topic import Consumer, ConsumerKind, CursorKey, Group, Topic, cursor_key, lane_of
from chalicelib.domain.transaction import CheckAnswer, Transaction
from chalicelib.services.core.wake import DispatchTask, task_of
from chalicelib.services.manage.registry import Contact
from chalicelib.services.produce.check_back import Check
from chalicelib.services.push.claims import Claims
from chalicelib.services.push.run_time import RunTime
from chalicelib.services.push.settlements import Settlements
from chalicelib.services.push.sources import Capacity, Sources
from chalicelib.store.layout import FRAGMENTS
from chalicelib.wiring import Deps

from .clock import ManualClock
from .desk import Desk
from .stages import Stage

Behaviour = Callable[[PushBatch], CallResult | Sequence[CallResult]]
Producer = Callable[[Transaction], CheckAnswer]
UNKNOWN = CheckAnswer(None, "unknown")
EXACT = Retry(4, (10, 30, 60), jitter=0.0)
"""A ladder of four attempts whose waits have no random part."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request a subscriber got: when, and which attempt of which messages."""

    at_ms: int
    target: str
    attempts: tuple[tuple[str, int], ...]
    offsets: tuple[int, ...]


@dataclass
class Subscribers:
    """ports.Sender: calls what a test put there; by default everybody says yes."""

    clock: ManualClock
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    agrees: bool = True
    producer: Producer = lambda _: UNKNOWN
    asked: list[tuple[int, str]] = field(default_factory=list)
    """When producers were asked, and about which transactions."""
    patience_seconds: list[float] = field(default_factory=list)
    """How long each of them might take to answer."""

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        attempts = tuple((a.message.id, a.number) for a in push_batch.attempts)
        offsets = tuple(a.message.offset for a in push_batch.attempts)
        self.calls.append(Call(self.clock.now_ms(), consumer.target, attempts, offsets))
        self.bodies += [a.message.draft.body for a in push_batch.attempts]
        behaviour = self.behaviours.get(consumer.target)
        answer = behaviour(push_batch) if behaviour else CallResult(Verdict.DONE)
        return (answer,) * len(attempts) if isinstance(answer, CallResult) else tuple(answer)

    def refusal(self, kind: str, target: str) -> str | None:
        return None

    def greet(self, url: str) -> CallResult:
        return CallResult(Verdict.DONE if self.agrees else Verdict.FAILED)

    def ping(
        self, consumer: Consumer, id: str, seconds: float, push_batch: PushBatch | None = None
    ) -> Exchange:
        raise AssertionError("nobody is tested here")

    def ask(self, transaction: Transaction, secrets: Sequence[bytes], seconds: float) -> CheckAnswer:
        self.asked.append((self.clock.now_ms(), transaction.id))
        self.patience_seconds.append(seconds)
        return self.producer(transaction)

    def numbers(self) -> dict[str, list[int]]:
        """The attempts each message got, in order."""
        attempts: defaultdict[str, list[int]] = defaultdict(list)
        for call in self.calls:
            for message_id, number in call.attempts:
                attempts[message_id].append(number)
        return dict(attempts)


class Inbox:
    """ports.Invoker that keeps what it was asked to start; what is asked for an answer runs at once, by app.py."""

    def __init__(self) -> None:
        self.asked: deque[tuple[str, Mapping[str, Any]]] = deque()

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        self.asked.append((function, event))

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        self.asked.append(("mover", {"Records": [{"body": json.dumps(hint)}]}))

    def hints(self) -> list[dict[str, Any]]:
        """What the wake-ups of the mover say."""
        events = [event for function, event in self.asked if function == "mover"]
        return [json.loads(record["body"]) for event in events for record in event["Records"]]

    def ask(self, function: str, event: Mapping[str, Any], seconds: int) -> Mapping[str, Any]:
        import app
        from local.functions import Invocations, functions_of

        return Invocations(functions_of(app.app)).ask(function, event, seconds)


@dataclass
class PushDesk(Desk):
    """One process's services on one topic, with subscribers."""

    subscribers: Subscribers = field(default_factory=lambda: Subscribers(ManualClock()))
    inbox: Inbox = field(default_factory=Inbox)

    @classmethod
    def at(cls, stage: Stage, **settings: Any) -> PushDesk:
        subscribers, inbox = Subscribers(stage.clock), Inbox()
        adapters = replace(stage.another(), sender=lambda: subscribers, invoker=inbox)
        desk = Desk.at(replace(stage, another=lambda: adapters), **settings)
        return cls(stage, desk.deps, desk.topic, subscribers, inbox)

    def restart(self) -> None:
        """A new process on the same data: nothing remembered, nothing under way."""
        a = self.deps.adapters
        fresh = replace(
            self.stage.another(), sender=lambda: self.subscribers, invoker=self.inbox, threads=a.threads
        )
        self.deps = Deps(fresh)
        self.inbox.asked.clear()

    def subscriber(
        self, group: Group, name: str, kind: str = "url", behaviour: Behaviour | None = None
    ) -> Consumer:
        """An active consumer that is called, at a target of its name."""
        if behaviour:
            self.subscribers.behaviours[name] = behaviour
        registration = self.deps.registry.register(
            self.topic, group, name, Contact(ConsumerKind(kind), name)
        ).member
        return registration.consumer

    def function(
        self, group: Group, name: str, timeout_seconds: int | None, behaviour: Behaviour | None = None
    ) -> Consumer:
        """A function that consumes, and its timeout as registered."""
        if behaviour:
            self.subscribers.behaviours[name] = behaviour
        contact = Contact(ConsumerKind.FUNCTION, name, timeout_seconds=timeout_seconds)
        return self.deps.registry.register(self.topic, group, name, contact).member.consumer

    def run(self) -> None:
        """Everything of this topic that was woken, and what it wakes, until there is nothing. (The sweeper of a
        shared stage wakes what other tests left, too.)"""
        while self.inbox.asked:
            function, event = self.inbox.asked.popleft()
            if function.startswith("deliver"):
                if (task := task_of(event)).topic == self.topic.name:
                    self.deps.dispatcher.deliver(task, lambda: 60.0)
            elif function == "check":
                self.deps.checker.check([Check(*check) for check in event["checks"]], lambda: 60.0)
            else:
                self.deps.mover.run_once()
                self.deps.waker.route(dict.fromkeys(self._partitions()))

    def _partitions(self) -> list[str]:
        groups = self.deps.catalog.groups(self.topic)
        lanes = [str(self.lane(group).shard_key(0)) for group in groups]
        return [*(str(self.topic.shard_key(s)) for s in self.topic.shard_numbers), *lanes]

    def cursor_key(self, group: Group, shard: int = 0) -> CursorKey:
        return cursor_key(self.topic, group, shard)

    def lane(self, group: Group) -> Topic:

        return lane_of(self.topic, group)

    def push(self) -> None:
        """The stream wakes all deliveries; they run."""
        self.deps.waker.route(dict.fromkeys(self._partitions()))
        self.run()

    def pass_time(self, seconds: float) -> None:
        """Time passes from one moment at which something happens to the next: movers take what is due, sweeps come by
        each minute, and what they wake runs."""
        clock = self.stage.clock
        end_ms = clock.now_ms() + round(seconds * 1000)
        while (now_ms := clock.now_ms()) < end_ms:
            minute_ms = now_ms - now_ms % 60_000 + 60_000
            timers_ms = self._next_timers(now_ms)
            clock.advance(min(end_ms, minute_ms, *timers_ms.values()) - now_ms)
            due = [fragment for fragment, due_ms in timers_ms.items() if due_ms <= clock.now_ms()]
            if due and self.deps.mover.run_once(fragments=due).moved:
                self.deps.waker.route(dict.fromkeys(self._partitions()))
            if clock.now_ms() == minute_ms:
                self.deps.sweeper.run_once()
            self.run()

    def _next_timers(self, now_ms: int) -> dict[int, int]:
        """When the next timer of each fragment that has one is due. What could not be moved is tried again after a
        second."""
        timers = self.deps.adapters.timers
        times = {fragment: timers.next_ms(fragment, consistent=True) for fragment in range(FRAGMENTS)}
        return {
            fragment: next_ms if next_ms > now_ms else now_ms + 1_000
            for fragment, next_ms in times.items()
            if next_ms is not None
        }


def fails(times: int, detail: str = "HTTP 500") -> Behaviour:
    """Fails each message's first `times` attempts."""
    return lambda push_batch: [
        CallResult(Verdict.FAILED, detail) if a.number <= times else CallResult(Verdict.DONE)
        for a in push_batch.attempts
    ]


def always(outcome: CallResult, _: PushBatch) -> CallResult:
    """With `partial`, a subscriber that answers each request alike."""
    return outcome


def sources_of(deps: Deps, topic: Topic, group: Group, worker: int = 0, consumer_uid: str = "") -> Sources:
    task = DispatchTask(topic.name, group.name, worker, consumer_uid)
    return Sources(topic, group, task, deps.dispatcher.context.teams(topic, group))


def capacity_of(deps: Deps, consumer_uid: str = "") -> Capacity:
    return Capacity(deps.dispatch_context, consumer_uid)


def claims_of(deps: Deps, capacity: Capacity) -> Claims:
    return Claims(deps.claimer, capacity, RunTime(lambda: 600.0), Settlements(deps.settler), "")
