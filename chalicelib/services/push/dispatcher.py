"""Push delivery: claim, call the subscriber, settle, until the shards are drained or time is nearly up."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial

from ...domain.assignment import Team
from ...domain.cursor import Fate
from ...domain.errors import Conflict, NotFound, Unavailable, unavailable
from ...domain.message import Message
from ...domain.outcome import Attempt, Outcome, Parcel, Verdict
from ...domain.receipt import Receipt
from ...domain.timer import Timer, TimerKind
from ...domain.topic import Consumer, Group, Topic, cursor_key, lane_of
from ...ports.timers import Timers
from ...ports.world import Blobs, Clock, Sender
from ..consume.claim import Claimer
from ..consume.claimant import Claimant, Delivery
from ..consume.decision import SettleDecision, decision_after
from ..consume.settle import Settler
from ..core.bodies import with_bodies
from ..core.catalog import Catalog
from ..core.sealer import Sealer
from ..core.wake import NO_NEWS, DeliveryTask, News, Waker
from .batches import batch_of, is_to_be_split, parcels
from .capacity import Capacity
from .health import SubscriberHealth
from .report import DispatchReport
from .sources import Sources

MAX_ATTEMPT_SECONDS = 60
_MARGIN_SECONDS = (
    5  # how much longer than an attempt a lease, and the function, last: the settlement needs time
)
_GATHER_SECONDS = 0.02  # outcomes within this time are settled together
_LOOK_SECONDS = 1.0  # while an attempt runs, new messages are looked for this often
_LOOK_MS = 1_000
_PAUSES = 20  # of that length without a successful settlement; then the run stops, and the leases end
_LOST_RACES = 10
_TROUBLES = 100
_UNSIGNED_PAUSE_MS = 10_000  # before a message that cannot be signed now is tried again

Teams = Callable[[Topic, Group], Team]
"""The owners of a group's shards, and its push consumers."""
Finished = tuple[Consumer, Sequence[Delivery], Sequence[Outcome]]
Events = queue.SimpleQueue[Finished | None]
"""The events of a run: requests that have ended, or a wake-up (None): look for new messages."""


@dataclass(kw_only=True, frozen=True)
class Dispatcher:
    """Runs deliveries. A process has one run for a task; a second call only wakes the first one's run."""

    catalog: Catalog
    claimer: Claimer
    settler: Settler
    sender: Sender
    sealer: Sealer
    blobs: Blobs
    timers: Timers
    waker: Waker
    subscriber_health: SubscriberHealth
    teams: Teams
    clock: Clock
    threads: Callable[[], Executor]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[DeliveryTask, Events] = field(default_factory=dict)

    def deliver(
        self, task: DeliveryTask, seconds_left: Callable[[], float], news: News = NO_NEWS
    ) -> DispatchReport:
        """Deliver until there is nothing left to claim. If time ends first, the task is started again.

        No attempt begins that could not end, with its settlement, within `seconds_left()`.
        """
        self._hear(task, news)
        events: Events = queue.SimpleQueue()
        with self._lock:
            if self._running.setdefault(task, events) is not events:
                self._running[task].put(None)
                return DispatchReport()
        run = DispatchRun(self, task, events, seconds_left)
        try:
            run.until_drained()
            while not self._may_end(task, events, run.report):
                run.until_drained()
        except BaseException:
            del self._running[task]
            raise
        run.leave()
        return run.report

    def _hear(self, task: DeliveryTask, news: News) -> None:
        """Drop what is cached of the group and its cursors, if the wake-up says that it changed."""
        self.claimer.expect_rows(news.last)
        if not news.changed:
            return
        try:
            topic = self.catalog.topic(task.topic)
            group = self.catalog.group(topic, task.group)
        except NotFound:
            return
        self.catalog.forget(topic, group)
        sources = Sources(topic, group, task, Team((), ()))
        for shard in sources.in_turn(0, sources.most):
            self.claimer.reread(cursor_key(topic, group, shard, task.consumer_uid))

    def _may_end(self, task: DeliveryTask, events: Events, report: DispatchReport) -> bool:
        """End the run unless it was woken since its last look; False: it was. After the end, a wake-up starts a new
        run."""
        with self._lock:
            if report.finished and not events.empty():
                events.get()
                return False
            del self._running[task]
            return True


class DispatchRun:
    """One run of the function for a task."""

    def __init__(
        self, of: Dispatcher, task: DeliveryTask, events: Events, seconds_left: Callable[[], float]
    ) -> None:
        self._of = of
        self._task = task
        self._events = events
        self._seconds_left = seconds_left
        self._seconds_given = seconds_left()
        self._capacity = Capacity(
            catalog=of.catalog,
            claimer=of.claimer,
            health=of.subscriber_health,
            clock=of.clock,
            consumer_uid=task.consumer_uid,
        )
        self._looked_ms = 0
        self._looks = 0
        self._fault: Unavailable | None = None
        self._owed: dict[Receipt, SettleDecision] = {}  # settlements that the store has not taken yet
        self._pauses = 0  # since it took one
        self.report = DispatchReport()

    def until_drained(self) -> None:
        """Claim and send as long as there are messages; settle every outcome."""
        with self._of.threads() as pool:
            while self._launch(pool) or self._may_settle_yet():
                self._settle(self._gather())
        if self._owed:
            raise unavailable("Outcomes could not be settled.")
        if self._fault:
            raise self._fault

    def leave(self) -> None:
        """Make sure that another run follows: at once if time ran out, else when the next message is due."""
        if not self.report.finished:
            self._of.waker.start(self._task)
        elif (topic_and_group := self._find()) and (
            due_ms := self._next_due_ms(*topic_and_group)
        ) is not None:
            lane = lane_of(*topic_and_group, self._task.consumer_uid)
            shard = replace(lane.shard_key(0), shard=self._task.worker)
            wake = Timer(due_ms=due_ms, id=f"wake.{shard}", kind=TimerKind.WAKE, shard=shard)
            self._of.timers.file([wake])
            self._of.waker.wake_movers([wake])

    def _next_due_ms(self, topic: Topic, group: Group) -> int | None:
        """The next time at which new work becomes due. Work that was due at the last look is not counted: time alone
        does not bring it back. The cursors are asked, since other processes settle too."""
        sources = Sources(topic, group, self._task, self._of.teams(topic, group))
        keys = (
            cursor_key(topic, group, shard, self._task.consumer_uid)
            for shard in sources.in_turn(self._looks, sources.most)
        )
        seconds = max((self._lease_seconds(sources, c) for c in sources.called()), default=0)
        waiting = (due_ms for key in keys for due_ms in self._of.claimer.dues_ms(key, seconds))
        later = (due_ms for due_ms in (*self._capacity.circuits_ms, *waiting) if due_ms > self._looked_ms)
        return min(later, default=None)

    def _find(self, *, even_paused: bool = False) -> tuple[Topic, Group] | None:
        try:
            topic = self._of.catalog.topic(self._task.topic)
            group = self._of.catalog.group(topic, self._task.group)
        except NotFound:
            return None
        return None if group.paused and not even_paused else (topic, group)

    def _launch(self, pool: Executor) -> bool:
        """Send the messages that may be sent now. Returns whether any are in flight."""
        topic_and_group = self._find()
        self._looked_ms = self._of.clock.now_ms()
        sources = (
            Sources(*topic_and_group, self._task, self._of.teams(*topic_and_group))
            if topic_and_group
            else None
        )
        if topic_and_group and sources and self._has_time(sources) and not self._fault:
            self._capacity.see_circuits(*topic_and_group)
            try:
                self._launch_all(pool, sources)
            except Unavailable as error:  # the messages in flight are settled first
                self._fault = error
        return self._capacity.under_way > 0

    def _launch_all(self, pool: Executor, sources: Sources) -> None:
        """Claim from all sources. If the group's limit left nothing for us, read the cursors again after our last
        return: a run that still holds slots will come back for the rest; if slots are free by now, claim again."""
        for _ in range(_LOST_RACES):
            self._looks += 1
            if self._capacity.is_limited and self._capacity.is_stale():
                self._capacity.look_around(sources)
            self._capacity.is_limited = False
            for shard in sources.in_turn(self._looks, self._capacity.allowance(sources)):
                if not self._has_time(sources):  # the messages in flight have to be settled
                    return
                self._launch_from(pool, sources, shard)
            if self._capacity.under_way or self._fault or not self._capacity.is_limited:
                return
            self._capacity.look_around(sources)
            if self._capacity.free(sources) <= 0:
                return

    def _has_time(self, sources: Sources) -> bool:
        """Is there time for an attempt at the slowest consumer? If not, all wait for the next run; otherwise the slow
        ones would wait for ever."""
        seconds = max((self._attempt_seconds(sources, c) for c in sources.called()), default=0)
        self.report.finished = self._seconds_left() >= seconds + _MARGIN_SECONDS
        return self.report.finished

    def _attempt_seconds(self, sources: Sources, consumer: Consumer) -> float:
        """How long one attempt may take: the function's own time-out if it is known, else as long as a consumer may
        keep a message, limited by a run's time."""
        if consumer.timeout_seconds:
            return min(consumer.busy_seconds, self._seconds_given - 2 * _MARGIN_SECONDS)
        lease_seconds = sources.group.lease_seconds or sources.topic.lease_seconds
        return min(lease_seconds, MAX_ATTEMPT_SECONDS, self._seconds_given / 2)

    def _lease_seconds(self, sources: Sources, consumer: Consumer) -> int:
        """The lease of a message: one attempt, plus the time that the consumer may work on if this process dies."""
        seconds = max(self._attempt_seconds(sources, consumer), consumer.busy_seconds)
        return int(seconds + _MARGIN_SECONDS) + 1

    def _launch_from(self, pool: Executor, sources: Sources, shard: int | None) -> None:
        """The consumers of a source take turns; each claims its share of the messages."""
        losses = 0
        served: set[str] = set()
        consumers = self._in_order(sources, shard)
        while losses < _LOST_RACES:
            rooms = {c: room for c in consumers if (room := self._capacity.room(sources, shard, c)) > 0}
            if not rooms:
                return
            waiting = [c for c in rooms if c.uid not in served]
            if not waiting:
                served, waiting = set(), list(rooms)
            self._capacity.is_limited |= self._capacity.free(sources) <= 0
            claimant = self._claimant(sources, shard, waiting[0], len(waiting))
            granted = self._of.claimer.claim(claimant, shard, rooms[waiting[0]])
            if granted is None:
                losses += 1
                continue
            if not granted:
                return
            served.add(waiting[0].uid)
            sendable = self._within_bounds(sources, claimant, shard, granted)
            self._send_all(pool, sources, waiting[0], sendable)
            if len(sendable) < len(granted):
                return

    def _in_order(self, sources: Sources, shard: int | None) -> Sequence[Consumer]:
        """The consumers of a source, rotated with each claim (in whichever process), and by shard: where little is
        produced, only the first in order would ever get messages."""
        consumers = sources.consumers_of(shard)
        if len(consumers) < 2:
            return consumers
        turn = self._of.claimer.turn(self._claimant(sources, shard, consumers[0]), shard) + (shard or 0)
        start = turn % len(consumers)
        return (*consumers[start:], *consumers[:start])

    def _within_bounds(
        self, sources: Sources, claimant: Claimant, shard: int | None, granted: Sequence[Delivery]
    ) -> Sequence[Delivery]:
        """The granted messages that may be sent within the group's limit; the rest is returned, and no attempt is
        counted."""
        unsure = self._of.claimer.in_flight(claimant, shard) - claimant.guaranteed
        if unsure <= 0:
            return granted
        try:
            excess = (
                self._capacity.look_around(sources, Counter({claimant.owner: len(granted)})) - sources.most
            )
        except Unavailable as error:
            self._fault, excess = error, unsure
        count = len(granted) - max(0, min(excess, unsure, len(granted)))
        if count < len(granted):
            self._capacity.is_limited = True
            self._give_back(sources, [d.receipt for d in granted[count:]])
        return granted[:count]

    def _give_back(self, sources: Sources, receipts: Sequence[Receipt]) -> None:
        back = SettleDecision(Fate.RELEASED)
        answers = self._of.settler.settle(sources.topic, sources.group, receipts, lambda *_: back)
        for receipt, answer in zip(receipts, answers, strict=True):
            if isinstance(answer, Unavailable):
                self._owed[receipt] = back

    def _claimant(self, sources: Sources, shard: int | None, consumer: Consumer, parts: int = 1) -> Claimant:
        limits = sources.limits(shard)
        return Claimant(
            topic=sources.topic,
            group=sources.group,
            lease_seconds=max(self._lease_seconds(sources, c) for c in sources.called_for(shard, consumer)),
            owner=consumer.uid,
            consumer_uid=self._task.consumer_uid,
            most_in_flight=limits.most,
            guaranteed=limits.guaranteed,
            free=max(0, self._capacity.free(sources)),
            parts=parts,
            batch=batch_of(sources.group, consumer),
        )

    def _send_all(
        self, pool: Executor, sources: Sources, claimant: Consumer, granted: Sequence[Delivery]
    ) -> None:
        by_consumer: dict[str, tuple[Consumer, list[Delivery]]] = {}
        for delivery in granted:
            consumer = sources.target(claimant, delivery)
            by_consumer.setdefault(consumer.uid, (consumer, []))[1].append(delivery)
        for consumer, deliveries in by_consumer.values():
            seconds = self._attempt_seconds(sources, consumer)
            for parcel in parcels(sources.group, consumer, deliveries):
                self._capacity.count(consumer, parcel, +1)
                future = pool.submit(self._send, sources, consumer, parcel, seconds)
                future.add_done_callback(partial(self._came, consumer, parcel))

    def _came(
        self, consumer: Consumer, parcel: Sequence[Delivery], sent: Future[tuple[Outcome, ...]]
    ) -> None:
        """A request has ended. An exception of our own counts as a failed attempt, so that it is visible and does not
        repeat for ever."""
        error = sent.exception()
        failed = Outcome(Verdict.FAILED, f"fault of the sender: {type(error).__name__}")
        self._events.put((consumer, parcel, (failed,) * len(parcel) if error else sent.result()))

    def _send(
        self, sources: Sources, consumer: Consumer, deliveries: Sequence[Delivery], seconds: float
    ) -> tuple[Outcome, ...]:
        group = sources.group
        try:
            consumer = self._of.sealer.ready(sources.topic, group, consumer, self._of.clock.now_ms())
        except Unavailable as error:
            unsigned = Outcome(Verdict.NOT_ATTEMPTED, str(error), retry_after_ms=_UNSIGNED_PAUSE_MS)
            return (unsigned,) * len(deliveries)
        contents = with_bodies(self._of.blobs, self._of.clock, [d.message for d in deliveries])
        attempts = tuple(
            Attempt(message, d.attempt)
            for message, d in zip(contents, deliveries, strict=True)
            if isinstance(message, Message)
        )
        waited_ms = self._of.clock.now_ms() - min(d.receipt.claimed_ms for d in deliveries)
        # We waited for a thread or the store: too little of the lease or of the function's time is left.
        if waited_ms > _MARGIN_SECONDS * 1000 or self._seconds_left() < seconds:
            return (Outcome(Verdict.NOT_ATTEMPTED),) * len(deliveries)
        parcel = Parcel(group.topic, group.name, group.payload, attempts)
        outcomes = iter(self._of.sender.send(consumer, parcel, seconds) if attempts else ())
        return tuple(each if isinstance(each, Outcome) else next(outcomes) for each in contents)

    def _may_settle_yet(self) -> bool:
        """Is something left to settle, and time for it? What cannot be settled is delivered again when its lease
        ends."""
        if not self._owed or self._pauses >= _PAUSES or self._seconds_left() < _MARGIN_SECONDS:
            return False
        self._pauses += 1
        self._of.clock.sleep(_LOOK_SECONDS)
        return True

    def _gather(self) -> list[Finished]:
        """The requests that have ended, with those that end right after. Empty after a while, or when woken: look for
        new messages."""
        finished: list[Finished] = []
        waiting = self._capacity.under_way
        try:
            while waiting > 0 and (
                event := self._events.get(timeout=_GATHER_SECONDS if finished else _LOOK_SECONDS)
            ):
                finished.append(event)
                waiting -= len(event[1])
        except queue.Empty:
            pass
        return finished

    def _settle(self, finished: Sequence[Finished]) -> None:
        topic_and_group = self._find(even_paused=True)
        decisions, self._owed = self._owed, {}
        for consumer, deliveries, outcomes in finished:
            self._capacity.count(consumer, deliveries, -1)
            self.report.add(consumer, deliveries, outcomes)
            if topic_and_group:
                repeated = all(d.attempt - d.receipt.spent > 1 for d in deliveries)
                most = topic_and_group[1].max_in_flight
                self._of.subscriber_health.note(*topic_and_group, consumer, outcomes, most, repeated=repeated)
                is_split = is_to_be_split(deliveries, outcomes)
                now_ms = self._of.clock.now_ms()
                for delivery, outcome in zip(deliveries, outcomes, strict=True):
                    decisions[delivery.receipt] = decision_after(
                        *topic_and_group, delivery, outcome, now_ms, is_split=is_split
                    )
        if not topic_and_group or not decisions:
            return
        answers = self._of.settler.settle(
            *topic_and_group, list(decisions), lambda receipt, _: decisions[receipt]
        )
        for receipt, answer in zip(decisions, answers, strict=True):
            self.report.stale += isinstance(answer, Conflict)
            if isinstance(answer, Unavailable):
                self._owed[receipt] = decisions[receipt]
        self._pauses = 0 if len(self._owed) < len(decisions) else self._pauses
