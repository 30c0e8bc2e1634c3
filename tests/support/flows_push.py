"""A process that also calls subscribers, runs what is scheduled and has an operator; all of it is written down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.domain.call_result import CallResult, Exchange, PushBatch, Verdict
from chalicelib.domain.errors import unavailable
from chalicelib.domain.ids import base32
from chalicelib.domain.record import DeadLetter, FailureFilter
from chalicelib.domain.status import Status
from chalicelib.domain.topic import Consumer, ConsumerKind
from chalicelib.scheduler.mover import MoveReport
from chalicelib.services.core.wake import DispatchTask, task_of
from chalicelib.services.manage.registry import Contact
from chalicelib.wiring import Deps
from tests.support.dead_letters import redrive_first
from tests.support.events import NEVER, PUSHED, Event, Op, Told
from tests.support.faults import FaultPlan
from tests.support.flows import Client, History, label_of, reader_name
from tests.support.push import Inbox, Subscribers

LADDER_SECONDS = 10
"""The only step of the ladders of groups whose subscribers may fail."""
PUSH_SECONDS = 60.0  # what a delivery has
_HELD_MS = 1_000
_SETTLING_MS = 5_000  # by which a lease outlives an attempt, at least
_FATES = {Verdict.DONE: "SUCCESS", Verdict.REFUSED: "DEAD", Verdict.NOT_ATTEMPTED: "RELEASED"}


@dataclass
class Audience:
    """ports.Sender of one process: asks the subscribers, and notes what each saw and said."""

    subscribers: Subscribers
    history: History
    broadcasts: frozenset[str] = frozenset()
    plan: FaultPlan | None = None
    _unheard: list[Event] = field(default_factory=list)

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        if self.plan:
            self.plan.outside += 1
        stamp, now_ms = self.history.stamp(), self.history.clock.now_ms()
        reader = reader_name(push_batch.group, consumer.name if push_batch.group in self.broadcasts else None)
        claims = [
            Event(
                op=Op.CLAIM,
                told=Told.OK,
                began=stamp,
                ended=stamp,
                began_ms=now_ms,
                ended_ms=now_ms,
                reader=reader,
                label=label_of(attempt.message.draft.body),
                message_id=attempt.message.id,
                token=f"{base32(stamp)}.{PUSHED}",
                attempt=attempt.number,
                lease_ms=round(seconds * 1000) + _SETTLING_MS,
            )
            for attempt in push_batch.attempts
        ]
        self.history.add(claims)
        outcomes = self.subscribers.send(consumer, push_batch, seconds)
        self._unheard += [self._answer(c, o) for c, o in zip(claims, outcomes, strict=True)]
        return outcomes

    def _answer(self, claim: Event, outcome: CallResult) -> Event:
        ladder_ms = max(LADDER_SECONDS * 1000, outcome.retry_after_ms or 0)
        delays = {Verdict.FAILED: ladder_ms, Verdict.GONE: ladder_ms, Verdict.NOT_ATTEMPTED: _HELD_MS}
        return replace(
            claim,
            op=Op.SETTLE,
            told=Told.UNKNOWN,
            ended=NEVER,
            lease_ms=0,
            fate=_FATES.get(outcome.verdict, "RETRY"),
            delay_ms=delays.get(outcome.verdict, 0),
        )

    def note_delivered(self, answer: Told) -> None:
        """A run is over: its subscribers' answers were recorded, or that is unknown."""
        stamp = self.history.stamp()
        self.history.add(replace(e, told=answer, ended=stamp) for e in self._unheard)
        self._unheard.clear()

    def refusal(self, kind: str, target: str) -> str | None:
        return self.subscribers.refusal(kind, target)

    def greet(self, url: str) -> CallResult:
        return self.subscribers.greet(url)

    def ping(
        self, consumer: Consumer, id: str, seconds: float, push_batch: PushBatch | None = None
    ) -> Exchange:
        raise AssertionError("nobody is tested here")


class Runner(Client):
    """A client that also does what schedules, wake-ups and operators do."""

    def __init__(self, deps: Deps, history: History, topic: str, audience: Audience, inbox: Inbox) -> None:
        super().__init__(deps, history, topic)
        self._audience = audience
        self.inbox = inbox

    @property
    def broadcasts(self) -> frozenset[str]:
        """The groups whose consumers are readers of their own."""
        return self._audience.broadcasts

    @broadcasts.setter
    def broadcasts(self, names: frozenset[str]) -> None:
        self._audience.broadcasts = names

    def subscribe(self, group: str, consumer: str, kind: str = "url", target: str = "") -> Consumer:
        """Register a consumer that is called at a target of its name."""
        broadcast = group in self.broadcasts
        event = self._event(Op.JOIN, reader=reader_name(group, consumer), begin="latest", max_attempts=3)
        with self._asking(*([event] if broadcast else [])) as request:
            topic, consumer_group, _ = self._find(group, None)
            contact = Contact(ConsumerKind(kind), target or consumer)
            registered_consumer = self.deps.registry.register(
                topic, consumer_group, consumer, contact
            ).member.consumer
            request.note_all(Told.OK)
        return registered_consumer

    def push(self, group: str) -> None:
        """All deliveries of a group."""
        topic, consumer_group, _ = self._find(group, None)
        for job in self.deps.waker.tasks_of(topic, consumer_group):
            self.deliver(job)

    def deliver(self, job: DispatchTask) -> None:
        """One run; its claims without an attempt are noted as unheard."""
        answer = Told.UNKNOWN
        with self._asking(self._event(Op.CLAIM, reader=job.group)):
            try:
                report = self.deps.dispatcher.deliver(job, lambda: PUSH_SECONDS)
                answer = Told.UNKNOWN if report.late else Told.OK
            finally:
                self._audience.note_delivered(answer)

    def run(self) -> None:
        """All deliveries that were asked for, and that they ask for."""
        while self.inbox.asked:
            function, event = self.inbox.asked.popleft()
            if function.startswith("deliver"):
                self.deliver(task_of(event))

    def move(self, early_ms: int = 0) -> MoveReport:
        """Move what is due now, for a wake-up that may be so much too early."""
        until_ms = self.deps.adapters.clock.now_ms() + early_ms
        return _raise_if_refused(self.deps.mover.run_once(until_ms=until_ms))

    def run_mover(self) -> MoveReport:
        """A scheduled run of the mover."""
        return _raise_if_refused(self.deps.mover.tick())

    def sweep(self) -> int:
        """A scheduled run of the sweeper, and what it wakes. It goes on beside what the store refuses; its report says
        so."""
        report = self.deps.sweeper.run_once()
        self.run()
        if report.stretch.troubles:
            raise unavailable()
        return report.woken

    def letters(self, group: str) -> list[DeadLetter]:
        """The group's dead letters."""
        topic, consumer_group, _ = self._find(group, None)
        return self.deps.letter_lookup.page(topic, consumer_group, FailureFilter(), None, 100)[0]

    def redrive(self, group: str, letters: Sequence[DeadLetter], every_ms: int = 0) -> int:
        """Redrive dead letters as they were read, one `every_ms`, and return how many. If another call sent all
        of them first, it counts as refused."""
        with self._asking(*self._about_letters(Op.REDRIVE, group, letters)) as request:
            topic, consumer_group, _ = self._find(group, None)
            begun_ms, redriver = self.deps.adapters.clock.now_ms(), self.deps.dead_letters
            count = (
                redriver.redrive_later(
                    topic, consumer_group, letters, lambda n: begun_ms + (n + 1) * every_ms, ""
                )
                if every_ms
                else redriver.redrive(topic, consumer_group, letters)
            )
            if count in (0, len(letters)):
                request.note_all(Told.OK if count else Told.REFUSED)
            else:
                request.note_all(Told.UNKNOWN)
        self.run()
        return count

    def redrive_all(self, group: str) -> None:
        """Redrive all dead letters that there are."""
        letters = self.letters(group)
        with self._asking(*self._about_letters(Op.REDRIVE, group, letters)) as request:
            topic, consumer_group, _ = self._find(group, None)
            count = redrive_first(self.deps, topic, consumer_group, 10_000)
            request.note_all(Told.OK if count == len(letters) else Told.UNKNOWN)
        self.run()

    def edit(self, group: str, letter: DeadLetter, label: str) -> DeadLetter:
        """Change a dead letter's body to this label's, with a mark."""
        body = f'"{label}|edited"'.encode()
        return self.deps.dead_letters.edit(self.topic, self.group(group), letter, body)

    def discard(self, group: str, letter: DeadLetter) -> None:
        with self._asking(*self._about_letters(Op.DISCARD, group, [letter])) as request:
            self.deps.dead_letters.discard(self.topic, self.group(group), letter)
            request.note_all(Told.OK)

    def retry_now(self, group: str, message_id: str, attempts: int | None = None) -> None:
        """Make the next attempt now, of what waits or (after `spent` attempts) is dead."""
        event = self._event(Op.RETRY_NOW, reader=group, message_id=message_id)
        if attempts is not None:
            event = replace(event, op=Op.REDRIVE, attempt=attempts)
        with self._asking(event) as request:
            topic, consumer_group, _ = self._find(group, None)
            self.deps.dead_letters.retry_now(topic, consumer_group, message_id)
            request.note_all(Told.OK)
        self.run()

    def settle_by_hand(self, group: str, message_id: str, fate: str) -> None:
        """An operator ends a delivery."""
        with self._asking(self._event(Op.SETTLE, reader=group, message_id=message_id, fate=fate)) as request:
            topic, consumer_group, _ = self._find(group, None)
            message = self.deps.lookup.message(topic, message_id)
            self.deps.deliveries.settle(topic, consumer_group, message, Status(fate))
            request.note_all(Told.OK)
        self.run()

    def edit_retry(self, group: str, message_id: str, label: str) -> None:
        """An operator gives a retry another body, and makes it due at once."""
        with self._asking(self._event(Op.RETRY_NOW, reader=group, message_id=message_id)) as request:
            topic, consumer_group, _ = self._find(group, None)
            message = self.deps.lookup.message(topic, message_id)
            changes = {"body": f'"{label}|edited"'.encode()}
            self.deps.deliveries.edit(
                topic, consumer_group, message, changes, self.deps.adapters.clock.now_ms()
            )
            request.note_all(Told.OK)
        self.run()

    def purge(self, group: str) -> None:
        """Drop what a group is owed: for the judge it goes to the end."""
        with self._asking(self._event(Op.SEEK, reader=group, begin="latest")) as request:
            topic, consumer_group, _ = self._find(group, None)
            self.deps.purger.purge(topic, consumer_group, [""])
            request.note_all(Told.OK)
        self.run()

    def _about_letters(self, op: Op, group: str, letters: Iterable[DeadLetter]) -> list[Any]:
        return [self._event(op, reader=group, message_id=x.message.id, attempt=x.attempts) for x in letters]


def _raise_if_refused(report: MoveReport) -> MoveReport:
    """A mover goes on with others beside what the store refuses; its report says so."""
    if report.refused:
        raise unavailable()
    return report
