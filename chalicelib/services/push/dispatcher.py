"""Delivering: claim, call the subscriber, settle, until the shards are drained or time is nearly up."""

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
from ...domain.signing import Receipt
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
    5  # by which a lease, and the function itself, outlive an attempt: its settlement needs time
)
_GATHER_SECONDS = 0.02  # outcomes this close to one another are settled together
_LOOK_SECONDS = 1.0  # while an attempt runs, new messages are looked for this often
_LOOK_MS = 1_000
_PAUSES = 20  # of that length, in which the store takes no settlement: then the leases have to end
_LOST_RACES = 10
_TROUBLES = 100
_UNSIGNED_PAUSE_MS = 10_000  # before what cannot be signed now is tried again

Teams = Callable[[Topic, Group], Team]
"""Who has which shard, and who is called."""
Finished = tuple[Consumer, Sequence[Delivery], Sequence[Outcome]]
Events = queue.SimpleQueue[Finished | None]
"""What a delivery waits for: parcels that came back, or a bell (None): look again."""


@dataclass(frozen=True)
class Dispatcher:
    """Delivers. Within a process one delivery runs for a job: a second one only rings the first one's bell."""

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
        self, job: DeliveryTask, seconds_left: Callable[[], float], news: News = NO_NEWS
    ) -> DispatchReport:
        """Deliver until there is nothing left to claim. Where time ends first, the job is started anew.

        No attempt begins that could not end, with its settlement, within `seconds_left()`.
        """
        self._hear(job, news)
        events: Events = queue.SimpleQueue()
        with self._lock:
            if self._running.setdefault(job, events) is not events:
                self._running[job].put(None)
                return DispatchReport()
        run = DispatchRun(self, job, events, seconds_left)
        try:
            run.until_drained()
            while not self._may_end(job, events, run.report):
                run.until_drained()
        except BaseException:
            del self._running[job]
            raise
        run.leave()
        return run.report

    def _hear(self, job: DeliveryTask, news: News) -> None:
        """Read anew what may have changed since it was read: the group and its cursors."""
        self.claimer.expect(news.last)
        if not news.changed:
            return
        try:
            topic = self.catalog.topic(job.topic)
            group = self.catalog.group(topic, job.group)
        except NotFound:
            return
        self.catalog.forget(topic, group)
        sources = Sources(topic, group, job, Team((), ()))
        for shard in sources.in_turn(0, sources.most):
            self.claimer.look_again(cursor_key(topic, group, shard, job.consumer_uid))

    def _may_end(self, job: DeliveryTask, events: Events, report: DispatchReport) -> bool:
        """Was the bell not rung since the last look? From now on who rings starts anew."""
        with self._lock:
            if report.finished and not events.empty():
                events.get()
                return False
            del self._running[job]
            return True


class DispatchRun:
    """One delivery at work."""

    def __init__(
        self, of: Dispatcher, job: DeliveryTask, events: Events, seconds_left: Callable[[], float]
    ) -> None:
        self._of = of
        self._job = job
        self._events = events
        self._seconds_left = seconds_left
        self._seconds_given = seconds_left()
        self._capacity = Capacity(
            catalog=of.catalog,
            claimer=of.claimer,
            health=of.subscriber_health,
            clock=of.clock,
            consumer_uid=job.consumer_uid,
        )
        self._looked_ms = 0
        self._looks = 0
        self._fault: Unavailable | None = None
        self._owed: dict[Receipt, SettleDecision] = {}  # settlements that the store has not taken yet
        self._pauses = 0  # since it took one
        self.report = DispatchReport()

    def until_drained(self) -> None:
        """Claim and send as long as there is something; every outcome is settled."""
        with self._of.threads() as pool:
            while self._launch(pool) or self._may_settle_yet():
                self._settle(self._gather())
        if self._owed:
            raise unavailable("Outcomes could not be settled.")
        if self._fault:
            raise self._fault

    def leave(self) -> None:
        """See to it that somebody comes back: at once if time ran out, else when something is due."""
        if not self.report.finished:
            self._of.waker.start(self._job)
        elif (found := self._find()) and (due_ms := self._next_due_ms(*found)) is not None:
            lane = lane_of(*found, self._job.consumer_uid)
            shard = replace(lane.shard_key(0), shard=self._job.worker)
            wake = Timer(due_ms, f"wake.{shard}", TimerKind.WAKE, shard)
            self._of.timers.file([wake])
            self._of.waker.filed([wake])

    def _next_due_ms(self, topic: Topic, group: Group) -> int | None:
        """When there will be something to do that there was not at the last look. What was due then waits for
        nothing that time brings. The cursors say so, not what this run has settled: others settled before it."""
        sources = Sources(topic, group, self._job, self._of.teams(topic, group))
        keys = (
            cursor_key(topic, group, shard, self._job.consumer_uid)
            for shard in sources.in_turn(self._looks, sources.most)
        )
        seconds = max((self._lease_seconds(sources, c) for c in sources.called()), default=0)
        waiting = (due_ms for key in keys for due_ms in self._of.claimer.dues_ms(key, seconds))
        later = (due_ms for due_ms in (*self._capacity.circuits_ms, *waiting) if due_ms > self._looked_ms)
        return min(later, default=None)

    def _find(self, *, even_paused: bool = False) -> tuple[Topic, Group] | None:
        try:
            topic = self._of.catalog.topic(self._job.topic)
            group = self._of.catalog.group(topic, self._job.group)
        except NotFound:
            return None
        return None if group.paused and not even_paused else (topic, group)

    def _launch(self, pool: Executor) -> bool:
        """Send what may be sent now; whether anything is under way."""
        found = self._find()
        self._looked_ms = self._of.clock.now_ms()
        sources = Sources(*found, self._job, self._of.teams(*found)) if found else None
        if found and sources and self._has_time(sources) and not self._fault:
            self._capacity.see_circuits(*found)
            try:
                self._launch_all(pool, sources)
            except Unavailable as error:  # what is under way is settled first
                self._fault = error
        return self._capacity.under_way > 0

    def _launch_all(self, pool: Executor, sources: Sources) -> None:
        """From all sources. Whoever goes empty-handed because others have all places makes sure that they still have
        them, after it gave back the last one: then they will look at what is left here."""
        for _ in range(_LOST_RACES):
            self._looks += 1
            if self._capacity.is_limited and self._capacity.is_stale():
                self._capacity.look_around(sources)
            self._capacity.is_limited = False
            for shard in sources.in_turn(self._looks, self._capacity.allowance(sources)):
                if not self._has_time(sources):  # what is under way is to be settled
                    return
                self._launch_from(pool, sources, shard)
            if self._capacity.under_way or self._fault or not self._capacity.is_limited:
                return
            self._capacity.look_around(sources)
            if self._capacity.spare(sources) <= 0:
                return

    def _has_time(self, sources: Sources) -> bool:
        """Is there time for an attempt at whoever may take longest? Else all wait for the next run, lest the slow ones
        wait for ever."""
        seconds = max((self._attempt_seconds(sources, c) for c in sources.called()), default=0)
        self.report.finished = self._seconds_left() >= seconds + _MARGIN_SECONDS
        return self.report.finished

    def _attempt_seconds(self, sources: Sources, consumer: Consumer) -> float:
        """How long one attempt is waited for: a function's own time where that is known, else as long as a consumer
        may keep a message, within what a run has."""
        if consumer.timeout_seconds:
            return min(consumer.busy_seconds, self._seconds_given - 2 * _MARGIN_SECONDS)
        lease_seconds = sources.group.lease_seconds or sources.topic.lease_seconds
        return min(lease_seconds, MAX_ATTEMPT_SECONDS, self._seconds_given / 2)

    def _lease_seconds(self, sources: Sources, consumer: Consumer) -> int:
        """How long a message is the consumer's: an attempt, and what it may run on if this process dies."""
        seconds = max(self._attempt_seconds(sources, consumer), consumer.busy_seconds)
        return int(seconds + _MARGIN_SECONDS) + 1

    def _launch_from(self, pool: Executor, sources: Sources, shard: int | None) -> None:
        """Those who may have messages of a source take turns; each claims its part of what is there."""
        lost = 0
        served: set[str] = set()
        consumers = self._in_order(sources, shard)
        while lost < _LOST_RACES:
            rooms = {c: room for c in consumers if (room := self._capacity.room(sources, shard, c)) > 0}
            if not rooms:
                return
            waiting = [c for c in rooms if c.uid not in served]
            if not waiting:
                served, waiting = set(), list(rooms)
            self._capacity.is_limited |= self._capacity.spare(sources) <= 0
            claimant = self._claimant(sources, shard, waiting[0], len(waiting))
            granted = self._of.claimer.claim(claimant, shard, rooms[waiting[0]])
            if granted is None:
                lost += 1
                continue
            if not granted:
                return
            served.add(waiting[0].uid)
            kept = self._within_bounds(sources, claimant, shard, granted)
            self._send_all(pool, sources, waiting[0], kept)
            if len(kept) < len(granted):
                return

    def _in_order(self, sources: Sources, shard: int | None) -> Sequence[Consumer]:
        """Who may claim from a source, another one first as its messages go by, whichever process claims; and another
        one first in each shard, for where little comes each has only its first messages."""
        consumers = sources.consumers_of(shard)
        if len(consumers) < 2:
            return consumers
        turn = self._of.claimer.turn(self._claimant(sources, shard, consumers[0]), shard) + (shard or 0)
        start = turn % len(consumers)
        return (*consumers[start:], *consumers[:start])

    def _within_bounds(
        self, sources: Sources, claimant: Claimant, shard: int | None, granted: Sequence[Delivery]
    ) -> Sequence[Delivery]:
        """What may be sent of what was granted; the rest is given back, and no attempt is counted."""
        unsure = self._of.claimer.in_flight(claimant, shard) - claimant.sure
        if unsure <= 0:
            return granted
        try:
            excess = (
                self._capacity.look_around(sources, Counter({claimant.owner: len(granted)})) - sources.most
            )
        except Unavailable as error:
            self._fault, excess = error, unsure
        kept = len(granted) - max(0, min(excess, unsure, len(granted)))
        if kept < len(granted):
            self._capacity.is_limited = True
            self._give_back(sources, [d.receipt for d in granted[kept:]])
        return granted[:kept]

    def _give_back(self, sources: Sources, receipts: Sequence[Receipt]) -> None:
        back = SettleDecision(Fate.RELEASED)
        answers = self._of.settler.settle(sources.topic, sources.group, receipts, lambda *_: back)
        for receipt, answer in zip(receipts, answers, strict=True):
            if isinstance(answer, Unavailable):
                self._owed[receipt] = back

    def _claimant(self, sources: Sources, shard: int | None, consumer: Consumer, parts: int = 1) -> Claimant:
        return Claimant(
            sources.topic,
            sources.group,
            max(self._lease_seconds(sources, c) for c in sources.called_for(shard, consumer)),
            consumer.uid,
            self._job.consumer_uid,
            sources.most_of(shard),
            sources.sure_of(shard),
            max(0, self._capacity.spare(sources)),
            parts,
            batch_of(sources.group, consumer),
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
        """A parcel is back; a fault of our own is a failed attempt, so that it shows and comes to an end."""
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
        opened = with_bodies(self._of.blobs, self._of.clock, [d.message for d in deliveries])
        attempts = tuple(
            Attempt(message, d.attempt)
            for message, d in zip(opened, deliveries, strict=True)
            if isinstance(message, Message)
        )
        waited_ms = self._of.clock.now_ms() - min(d.receipt.claimed_ms for d in deliveries)
        # For a thread, or the store was slow: the lease, or what is left of the function, is too short now.
        if waited_ms > _MARGIN_SECONDS * 1000 or self._seconds_left() < seconds:
            return (Outcome(Verdict.NOT_ATTEMPTED),) * len(deliveries)
        parcel = Parcel(group.topic, group.name, group.payload, attempts)
        outcomes = iter(self._of.sender.send(consumer, parcel, seconds) if attempts else ())
        return tuple(each if isinstance(each, Outcome) else next(outcomes) for each in opened)

    def _may_settle_yet(self) -> bool:
        """Is something left to settle, and time for it? A lease that nobody settles is delivered again when it ends."""
        if not self._owed or self._pauses >= _PAUSES or self._seconds_left() < _MARGIN_SECONDS:
            return False
        self._pauses += 1
        self._of.clock.sleep(_LOOK_SECONDS)
        return True

    def _gather(self) -> list[Finished]:
        """What has come back, with what comes right behind it. Nothing after a while, or at a bell: look again."""
        got: list[Finished] = []
        waiting = self._capacity.under_way
        try:
            while waiting > 0 and (
                event := self._events.get(timeout=_GATHER_SECONDS if got else _LOOK_SECONDS)
            ):
                got.append(event)
                waiting -= len(event[1])
        except queue.Empty:
            pass
        return got

    def _settle(self, finished: Sequence[Finished]) -> None:
        found = self._find(even_paused=True)
        rulings, self._owed = self._owed, {}
        for consumer, deliveries, outcomes in finished:
            self._capacity.count(consumer, deliveries, -1)
            self.report.add(consumer, deliveries, outcomes)
            if found:
                repeated = all(d.attempt - d.receipt.spent > 1 for d in deliveries)
                most = found[1].max_in_flight
                self._of.subscriber_health.note(*found, consumer, outcomes, most, repeated=repeated)
                is_split = is_to_be_split(deliveries, outcomes)
                now_ms = self._of.clock.now_ms()
                for delivery, outcome in zip(deliveries, outcomes, strict=True):
                    rulings[delivery.receipt] = decision_after(
                        *found, delivery, outcome, now_ms, is_split=is_split
                    )
        if not found or not rulings:
            return
        answers = self._of.settler.settle(*found, list(rulings), lambda receipt, _: rulings[receipt])
        for receipt, answer in zip(rulings, answers, strict=True):
            self.report.stale += isinstance(answer, Conflict)
            if isinstance(answer, Unavailable):
                self._owed[receipt] = rulings[receipt]
        self._pauses = 0 if len(self._owed) < len(rulings) else self._pauses
