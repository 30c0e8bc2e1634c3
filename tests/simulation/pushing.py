"""The way out to subscribers, and the notes that are taken on it: what a delivery claimed, sent and settled goes into
the history as if the subscriber had done it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from chalicelib.domain.call_result import Attempt, CallResult, Exchange, PushBatch, Verdict
from chalicelib.domain.cursor import Disposition
from chalicelib.domain.receipt import Receipt
from chalicelib.domain.topic import Consumer, Group, Topic
from chalicelib.domain.transaction import DECIDED, CheckAnswer, Transaction
from chalicelib.services.consume.claim import Claimer
from chalicelib.services.consume.claimant import Claim, Claimant, ClaimedMessage
from chalicelib.services.consume.decision import Decide, SettleDecision
from chalicelib.services.consume.lease_settlement import SettleAnswer
from chalicelib.services.consume.settle import Settler
from tests.simulation.processes import Process
from tests.support.events import NEVER, Event, Op, Told
from tests.support.flows import label_of, told_by

_BELIEVED_MS = 130_000  # an attempt lasts a minute, and a process may have stood still for one before it
_FATES = {
    Disposition.SUCCESS: "SUCCESS",
    Disposition.DEAD: "DEAD",
    Disposition.RETRY: "RETRY",
    Disposition.RETRY_LATER: "RETRY",
}

_FOREVER = 1 << 50


class Notes:
    """The deliveries of one process. Grants whose attempt did not begin are claims whose answers were lost."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self._granted: list[tuple[Event, int]] = []  # with when their leases end

    def asked(self, **settings: Any) -> Event:
        now_ms = self._process.clock.now_ms()
        return Event(
            told=Told.UNKNOWN,
            began=self._world.stamp(),
            ended=NEVER,
            began_ms=now_ms,
            ended_ms=now_ms,
            **settings,
        )

    def answered(self, event: Event, answer: Told, **settings: Any) -> Event:
        return replace(
            event, told=answer, ended=self._world.stamp(), ended_ms=self._process.clock.now_ms(), **settings
        )

    def add(self, event: Event) -> None:
        self._world.events.append(event)

    def granted(self, claim: Event, messages: Sequence[ClaimedMessage]) -> None:
        for d in messages:
            event = self.answered(
                claim,
                Told.OK,
                message_id=d.message.id,
                token=d.receipt.token,
                attempt=d.attempt,
                lane=d.receipt.entry is not None,
            )
            until_ms = d.receipt.claimed_ms + claim.lease_ms
            # It was behind another in a run, and was given back with it.
            self._granted = [
                g for g in self._granted if g[1] != _FOREVER or _attempt(g[0]) != _attempt(event)
            ]
            # The settlements of those before it in a run make the lease longer.
            self._granted.append((event, _FOREVER if d.is_in_run and d is not messages[0] else until_ms))

    def began(self, group: str, consumer: Consumer, push_batch: PushBatch, seconds: float) -> None:
        """Attempts begin: by now they must be ours, and time must be left for them."""
        reader = self._world.reader_of(group, consumer.name)
        for attempt in push_batch.attempts:
            attempt_key = (reader, attempt.message.id, attempt.number)
            now_ms = self._process.clock.now_ms()
            grants = [g for g in self._granted if _attempt(g[0]) == attempt_key]
            # the first with time: a seek makes leases void, and what was not begun under them is granted again
            in_time = (g for g in grants if g[1] - now_ms >= seconds * 1000)
            grant = next(in_time, grants[-1] if grants else None)
            if grant is None:
                self._world.accuse(f"attempt {attempt.number} of {attempt.message.id} was never granted")
                continue
            self._granted.remove(grant)
            event, until_ms = grant
            self.add(replace(event, label=label_of(attempt.message.draft.body)))
            left_ms = until_ms - now_ms
            if left_ms < seconds * 1000:
                self._world.accuse(
                    f"attempt {attempt.number} of {event.message_id} began with {left_ms} ms left of its lease"
                )

    def returned(self, token: str, message_id: str, *, counts: bool) -> None:
        """A grant whose attempt never began: its number will be used again, unless it `counts`."""
        for grant in [g for g in self._granted if (g[0].token, g[0].message_id) == (token, message_id)]:
            self._granted.remove(grant)
            if counts:
                self.add(_unheard(grant[0]))

    def ended(self) -> None:
        """The process has ended."""
        for event, _ in self._granted:
            self.add(_unheard(event))
        self._granted.clear()


def _attempt(event: Event) -> tuple[str, str, int]:
    return event.reader, event.message_id, event.attempt


def _unheard(event: Event) -> Event:
    return replace(event, told=Told.UNKNOWN, message_id="", token="", attempt=0)


class NotingClaimer:
    """The claimer of deliveries."""

    def __init__(self, claimer: Claimer, notes: Notes, world: Any) -> None:
        self._claimer = claimer
        self._notes = notes
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._claimer, name)

    def claim(self, claimant: Claimant, shard: int | None, most: int) -> Claim | None:
        reader = self._world.reader_by(claimant.group.uid, claimant.consumer_uid)
        event = self._notes.asked(op=Op.CLAIM, reader=reader, lease_ms=claimant.lease_seconds * 1000)
        try:
            claim = self._claimer.claim(claimant, shard, most)
        except BaseException:
            self._notes.add(self._notes.answered(event, Told.UNKNOWN))
            raise
        self._notes.granted(event, claim.messages if claim else ())
        self._world.gets(claimant.group.name, claim.messages if claim else ())
        return claim


class NotingSettler:
    """The settler of deliveries."""

    def __init__(self, settler: Settler, notes: Notes, world: Any) -> None:
        self._settler = settler
        self._notes = notes
        self._world = world

    def settle(
        self, topic: Topic, group: Group, receipts: Sequence[Receipt], rule: Decide
    ) -> list[SettleAnswer]:
        notes = self._notes
        decisions: dict[Receipt, tuple[SettleDecision, int]] = {}

        def noting(receipt: Receipt, attempt: int) -> SettleDecision:
            decisions[receipt] = rule(receipt, attempt), attempt
            return decisions[receipt][0]

        event = notes.asked(op=Op.SETTLE)
        answers: Sequence[SettleAnswer | None] | None = None
        try:
            answers = self._settler.settle(topic, group, receipts, noting)
        finally:
            for i, receipt in enumerate(receipts):
                answer = Told.UNKNOWN if answers is None else told_by(answers[i])
                decision, attempt = decisions.get(receipt) or (
                    rule(receipt, 0),
                    receipt.attempts_before_entry + 1,
                )
                self._note(event, receipt, decision, attempt, answer)
        return list(answers)

    def _note(
        self, event: Event, receipt: Receipt, decision: SettleDecision, attempt: int, answer: Told
    ) -> None:
        reader = self._world.reader_by(receipt.group_uid, receipt.consumer_uid)
        if decision.disposition is Disposition.RELEASED:
            self._world.flows[reader.partition("/")[0]].gives_back(receipt.token, receipt.id)
            self._notes.returned(receipt.token, receipt.id, counts=answer is not Told.OK)
            return
        self._notes.add(
            self._notes.answered(
                event,
                answer,
                reader=reader,
                message_id=receipt.id,
                token=receipt.token,
                attempt=attempt,
                fate=_FATES[decision.disposition],
                delay_ms=max(0, decision.due_ms - event.began_ms),
            )
        )


class Line:
    """ports.Sender of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        world = self._process.world
        mood = world.subscribers.mood_of(consumer)
        if mood == "held":
            return (CallResult(Verdict.NOT_ATTEMPTED),) * len(push_batch.attempts)
        self._process.notes.began(push_batch.group, consumer, push_batch, seconds)
        world.trace(
            self._process,
            "send",
            (consumer.name, [(a.message.id, a.number) for a in push_batch.attempts]),
            mood,
        )
        self._has_time(seconds)
        with world.subscribers.flying(push_batch, consumer):
            world.scheduler.wait(
                seconds * 1000 if mood == "silent" else world.random.uniform(*world.plan.answer_ms)
            )
        return tuple(world.subscribers.answer(mood, attempt) for attempt in push_batch.attempts)

    def _has_time(self, seconds: float) -> None:
        """I19: no attempt begins that the function's time may cut off."""
        world = self._process.world
        task = world.scheduler.current()
        left_s = world.seconds_left(task) if task else seconds
        if left_s < seconds:
            world.accuse(f"an attempt of {seconds} s began with {left_s} s left of its function")

    def ask(self, transaction: Transaction, secrets: Sequence[bytes], seconds: float) -> CheckAnswer:
        """A producer is asked what became of its transaction."""
        world = self._process.world
        deal = world.promises.asks(transaction)
        world.trace(self._process, "ask", (transaction.id,), deal.mood)
        world.scheduler.wait(seconds * 1000 * (deal.mood == "hanging" or world.random.random()))
        if deal.mood in ("unknown", "hanging"):
            return CheckAnswer(None, deal.mood)
        state = deal.truth if deal.mood == "honest" else world.random.choice((*DECIDED, None))
        if state:
            deal.asked.add(state)
        return CheckAnswer(state, deal.mood)

    def refusal(self, kind: str, target: str) -> str | None:
        return None

    def greet(self, url: str) -> CallResult:
        return CallResult(Verdict.DONE)

    def ping(
        self, consumer: Consumer, id: str, seconds: float, push_batch: PushBatch | None = None
    ) -> Exchange:
        raise AssertionError("nobody is tested here")


class Bound:
    """A group's `max_in_flight`, and those before it that an attempt or a process may still go by."""

    def __init__(self, world: Any, most: int) -> None:
        self.now = most
        self._world = world
        self._until_ms = {most: math.inf}

    def may_be(self, most: int) -> None:
        """It is being changed."""
        self._until_ms[most] = math.inf

    def is_now(self, most: int) -> None:
        """It was changed."""
        self.now = most
        until_ms = self._world.scheduler.now + _BELIEVED_MS
        self._until_ms = {each: min(old, until_ms) for each, old in self._until_ms.items()} | {most: math.inf}

    @property
    def most(self) -> int:
        """How many may be under way."""
        now_ms = self._world.scheduler.now
        return max(most for most, until_ms in self._until_ms.items() if until_ms > now_ms)


class Subscribers:
    """How those who are called behave, message by message."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self.healed = False
        self._flying: Counter[tuple[str, str, str]] = Counter()  # by topic, group and a broadcast's consumer

    def of(self, process: Process) -> Line:
        return Line(process)

    def mood_of(self, consumer: Consumer) -> str:
        if self.healed:
            return "good"
        moods = self._world.groups[consumer.group].moods or self._world.plan.moods
        return str(self._world.random.choices(list(moods), list(moods.values()))[0])

    @contextmanager
    def flying(self, push_batch: PushBatch, consumer: Consumer) -> Iterator[None]:
        """Attempts in flight: over all processes no more of a group than its `max_in_flight`. Not judged where clocks
        that differ end leases early, or seeks all of them, while attempts go on."""
        world = self._world
        per_consumer = world.groups[push_batch.group].mode == "broadcast"
        reader = (push_batch.topic, push_batch.group, consumer.uid if per_consumer else "")
        self._flying[reader] += len(push_batch.attempts)
        most = world.bounds[push_batch.group].most
        certain = not world.plan.skew_ms and not world.plan.seeks
        if self._flying[reader] > most and certain:
            world.accuse(f"{self._flying[reader]} of {push_batch.group} are in flight, {most} may be")
        try:
            yield
        finally:
            self._flying[reader] -= len(push_batch.attempts)

    def answer(self, mood: str, attempt: Attempt) -> CallResult:
        if mood == "at first":  # it fails those that are to fail once
            mood = "failing" if attempt.number == 1 and b"failing" in attempt.message.draft.body else "good"
        return ANSWERS[mood](self._world.random.random())


ANSWERS: dict[str, Callable[[float], CallResult]] = {
    "good": lambda _: CallResult(Verdict.DONE, status=200),
    "mixed": lambda draw: CallResult(Verdict.DONE if draw < 0.5 else Verdict.FAILED, "HTTP 500"),
    "failing": lambda _: CallResult(Verdict.FAILED, "HTTP 500", 500),
    "silent": lambda _: CallResult(Verdict.FAILED, "no answer in time"),
    "busy": lambda draw: CallResult(Verdict.FAILED, "HTTP 429", 429, int(draw * 30_000)),
    "gone": lambda _: CallResult(Verdict.GONE, "HTTP 410", 410),
    "refusing": lambda _: CallResult(Verdict.REFUSED, "HTTP 489", 489),
}


def observed(process: Process) -> None:
    """Take notes on a process's deliveries."""
    deps, world = process.deps, process.world
    process.notes = Notes(process)
    claimer: Any = NotingClaimer(deps.claimer, process.notes, world)
    settler: Any = NotingSettler(deps.settler, process.notes, world)
    context = replace(deps.dispatcher.context, claimer=claimer, settler=settler)
    deps.__dict__["dispatcher"] = replace(deps.dispatcher, context=context)
