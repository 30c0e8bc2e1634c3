"""Delivering: claim, call the subscriber, settle, until the shards are drained or time is nearly up."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial

from ..domain.cursor import Fate
from ..domain.errors import Conflict, NotFound, Unavailable, unavailable
from ..domain.limits import MAX_CALLS
from ..domain.message import Message, traceparent
from ..domain.outcome import Attempt, Outcome, Parcel, Verdict
from ..domain.signing import Receipt
from ..domain.timer import Timer, TimerKind
from ..domain.topic import Consumer, Group, Topic, lane_of
from ..ports import Blobs, Clock, Sender, Timers
from .bodies import with_bodies
from .catalog import Catalog
from .claim import Claimant, Claimer, Delivery
from .consume import LANE_SHARE
from .health import Healths
from .in_flight import crowd, sure_of
from .parcels import parcels, ruling
from .settle import Ruling, Settler
from .wake import Job, Waker, workers_of

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

Owners = Callable[[Topic, Group], Sequence[Consumer | None]]
"""Who has which shard."""
Finished = tuple[Consumer, Sequence[Delivery], Sequence[Outcome]]
Events = queue.SimpleQueue[Finished | None]
"""What a delivery waits for: parcels that came back, or a bell (None): look again."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """An attempt that failed, by its ids."""

    message_id: str
    shard: int
    offset: int
    attempt: int
    consumer: str
    verdict: str
    detail: str
    traceparent: str | None


@dataclass(slots=True)
class Report:
    """What one delivery did: attempts by what came of them, and settlements that came too late. `troubles` are the
    first failed attempts; what there is more of is only counted."""

    outcomes: Counter[str] = field(default_factory=Counter)
    stale: int = 0
    finished: bool = True
    troubles: list[Trouble] = field(default_factory=list)

    def as_dict(self) -> dict[str, int | bool]:
        return {**self.outcomes, "stale": self.stale, "finished": self.finished}


@dataclass(frozen=True)
class Deliverer:
    """Delivers. Within a process one delivery runs for a job: a second one only rings the first one's bell."""

    catalog: Catalog
    claimer: Claimer
    settler: Settler
    sender: Sender
    blobs: Blobs
    timers: Timers
    waker: Waker
    healths: Healths
    owners: Owners
    clock: Clock
    threads: Callable[[], Executor]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: dict[Job, Events] = field(default_factory=dict)

    def deliver(self, job: Job, seconds_left: Callable[[], float]) -> Report:
        """Deliver until there is nothing left to claim. Where time ends first, the job is started anew.

        No attempt begins that could not end, with its settlement, within `seconds_left()`.
        """
        events: Events = queue.SimpleQueue()
        with self._lock:
            if self._running.setdefault(job, events) is not events:
                self._running[job].put(None)
                return Report()
        run = _Run(self, job, events, seconds_left)
        try:
            run.until_drained()
            while not self._may_end(job, events, run.report):
                run.until_drained()
        except BaseException:
            del self._running[job]
            raise
        run.leave()
        return run.report

    def _may_end(self, job: Job, events: Events, report: Report) -> bool:
        """Was the bell not rung since the last look? From now on who rings starts anew."""
        with self._lock:
            if report.finished and not events.empty():
                events.get()
                return False
            del self._running[job]
            return True


class _Run:
    """One delivery at work."""

    def __init__(self, of: Deliverer, job: Job, events: Events, seconds_left: Callable[[], float]) -> None:
        self._of = of
        self._job = job
        self._events = events
        self._seconds_left = seconds_left
        self._seconds_given = seconds_left()
        self._flying: Counter[str] = Counter()  # deliveries under way, by consumer
        self._flying_from_lane = 0
        self._others = 0  # places of the group that others have, as the last look at its cursors found
        self._others_ms = 0
        self._is_limited = False  # others had a place that there was a use for
        self._circuits_ms: list[int] = []  # when consumers may be called again, as the last look found
        self._looked_ms = 0
        self._looks = 0
        self._fault: Unavailable | None = None
        self._owed: dict[Receipt, Ruling] = {}  # settlements that the store has not taken yet
        self._pauses = 0  # since it took one
        self.report = Report()

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
        sources = _Sources(topic, group, self._job, self._of.owners(topic, group))
        waiting = (
            due_ms
            for shard in sources.in_turn(self._looks, sources.most)
            for due_ms in self._of.claimer.dues_ms(self._claimant(sources, shard), shard)
        )
        later = (due_ms for due_ms in (*self._circuits_ms, *waiting) if due_ms > self._looked_ms)
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
        sources = _Sources(*found, self._job, self._of.owners(*found)) if found else None
        if found and sources and self._has_time(sources) and not self._fault:
            self._wait_for_circuits(*found)
            try:
                self._launch_all(pool, sources)
            except Unavailable as error:  # what is under way is settled first
                self._fault = error
        return self._flying.total() > 0

    def _launch_all(self, pool: Executor, sources: _Sources) -> None:
        """From all sources. Whoever goes empty-handed because others have all places makes sure that they still have
        them, after it gave back the last one: then they will look at what is left here."""
        for _ in range(_LOST_RACES):
            self._looks += 1
            self._is_limited = False
            if self._others and self._spare(sources) <= 0 and self._is_stale():
                self._look_around(sources, 0)
            for shard in sources.in_turn(self._looks, self._allowance(sources)):
                self._launch_from(pool, sources, shard)
            if self._flying.total() or self._fault or not self._is_limited:
                return
            self._look_around(sources, 0)
            if self._spare(sources) <= 0:
                return

    def _wait_for_circuits(self, topic: Topic, group: Group) -> None:
        """A consumer whose circuit is open owns nothing: somebody must look again when it may be tried."""
        consumers = self._of.catalog.consumers(topic, group)
        self._circuits_ms = [c.open_until_ms for c in consumers if c.is_called and c.open_until_ms]

    def _has_time(self, sources: _Sources) -> bool:
        """Is there time for an attempt at whoever may take longest? Else all wait for the next run, lest the slow ones
        wait for ever."""
        seconds = max((self._attempt_seconds(sources, c) for c in sources.called()), default=0)
        self.report.finished = self._seconds_left() >= seconds + _MARGIN_SECONDS
        return self.report.finished

    def _attempt_seconds(self, sources: _Sources, consumer: Consumer) -> float:
        """How long one attempt is waited for: a function's own time where that is known, else as long as a consumer
        may keep a message, within what a run has."""
        if consumer.timeout_seconds:
            return min(consumer.busy_seconds, self._seconds_given - 2 * _MARGIN_SECONDS)
        lease_seconds = sources.group.lease_seconds or sources.topic.lease_seconds
        return min(lease_seconds, MAX_ATTEMPT_SECONDS, self._seconds_given / 2)

    def _lease_seconds(self, sources: _Sources, consumer: Consumer) -> int:
        """How long a message is the consumer's: an attempt, and what it may run on if this process dies."""
        seconds = max(self._attempt_seconds(sources, consumer), consumer.busy_seconds)
        return int(seconds + _MARGIN_SECONDS) + 1

    def _launch_from(self, pool: Executor, sources: _Sources, shard: int | None) -> None:
        lost = 0
        while lost < _LOST_RACES and (room := self._room(sources, shard)) > 0:
            self._is_limited |= self._spare(sources) <= 0
            granted = self._of.claimer.claim(self._claimant(sources, shard), shard, room)
            if granted is None:
                lost += 1
                continue
            if not granted:
                return
            kept = self._within_bounds(sources, shard, granted)
            self._send_all(pool, sources, kept)
            if len(kept) < len(granted):
                return

    def _within_bounds(
        self, sources: _Sources, shard: int | None, granted: Sequence[Delivery]
    ) -> Sequence[Delivery]:
        """What may be sent of what was granted; the rest is given back, and no attempt is counted."""
        claimant = self._claimant(sources, shard)
        unsure = self._of.claimer.in_flight(claimant, shard) - claimant.sure
        if unsure <= 0:
            return granted
        try:
            excess = self._look_around(sources, len(granted)) - sources.most
        except Unavailable as error:
            self._fault, excess = error, unsure
        kept = len(granted) - max(0, min(excess, unsure, len(granted)))
        if kept < len(granted):
            self._is_limited = True
            self._of.settler.settle(
                sources.topic,
                sources.group,
                [d.receipt for d in granted[kept:]],
                lambda *_: Ruling(Fate.BACK),
            )
        return granted[:kept]

    def _look_around(self, sources: _Sources, granted: int) -> int:
        """How many places of the group are taken, `granted` of them by a claim of this moment."""
        topic, group = sources.topic, sources.group
        now_ms = self._of.clock.now_ms()
        cursors = self._of.claimer.cursors(self._claimant(sources, None))
        seen = crowd(topic, group, cursors, self._of.catalog.consumers(topic, group), now_ms)
        own = self._flying.total() + granted
        self._others = max(0, seen.places - own) + seen.claims_of_others(sources.keys())
        self._others_ms = now_ms
        return seen.places

    def _is_stale(self) -> bool:
        return self._of.clock.now_ms() - self._others_ms > _LOOK_MS

    def _spare(self, sources: _Sources) -> int:
        """How many more messages may be under way, as far as is known."""
        return sources.most - self._others - self._flying.total()

    def _claimant(self, sources: _Sources, shard: int | None) -> Claimant:
        consumer = sources.consumer_of(shard)
        return Claimant(
            sources.topic,
            sources.group,
            max((self._lease_seconds(sources, c) for c in sources.called_for(shard)), default=0),
            consumer.uid if consumer else "",
            self._job.consumer_uid,
            sources.most_of(shard),
            sources.sure_of(shard),
            max(0, self._spare(sources)),
        )

    def _room(self, sources: _Sources, shard: int | None) -> int:
        """How many more messages of a source may be under way now."""
        consumer = sources.consumer_of(shard)
        if consumer is None:
            return 0
        healths = self._of.healths
        allowed = healths.allowance(consumer, sources.most)
        now_ms = self._of.clock.now_ms()
        if not allowed and not any(at_ms > now_ms for at_ms in self._circuits_ms):
            self._circuits_ms.append(now_ms + _LOOK_MS)  # it opened again since its registration was read
        room = min(sources.most_here - self._flying.total(), allowed - self._flying[consumer.uid])
        return room if shard is not None else min(room, _lane_share(allowed) - self._flying_from_lane)

    def _allowance(self, sources: _Sources) -> int:
        consumer = sources.consumer_of(None)
        return self._of.healths.allowance(consumer, sources.most) if consumer else 0

    def _send_all(self, pool: Executor, sources: _Sources, granted: Sequence[Delivery]) -> None:
        by_consumer: dict[str, tuple[Consumer, list[Delivery]]] = {}
        for delivery in granted:
            consumer = sources.consumer_for(delivery.message.shard)
            by_consumer.setdefault(consumer.uid, (consumer, []))[1].append(delivery)
        for consumer, deliveries in by_consumer.values():
            seconds = self._attempt_seconds(sources, consumer)
            for parcel in parcels(sources.group, consumer, deliveries):
                self._count(consumer, parcel, +1)
                future = pool.submit(self._send, sources.group, consumer, parcel, seconds)
                future.add_done_callback(partial(self._came, consumer, parcel))

    def _came(
        self, consumer: Consumer, parcel: Sequence[Delivery], sent: Future[tuple[Outcome, ...]]
    ) -> None:
        """A parcel is back; a fault of our own is a failed attempt, so that it shows and comes to an end."""
        error = sent.exception()
        failed = Outcome(Verdict.FAILED, f"fault of the sender: {type(error).__name__}")
        self._events.put((consumer, parcel, (failed,) * len(parcel) if error else sent.result()))

    def _count(self, consumer: Consumer, parcel: Sequence[Delivery], sign: int) -> None:
        self._flying[consumer.uid] += sign * len(parcel)
        self._flying_from_lane += sign * sum(d.receipt.entry is not None for d in parcel)

    def _send(
        self, group: Group, consumer: Consumer, deliveries: Sequence[Delivery], seconds: float
    ) -> tuple[Outcome, ...]:
        opened = with_bodies(self._of.blobs, self._of.clock, [d.message for d in deliveries])
        attempts = tuple(
            Attempt(message, d.attempt)
            for message, d in zip(opened, deliveries, strict=True)
            if isinstance(message, Message)
        )
        waited_ms = self._of.clock.now_ms() - min(d.receipt.claimed_ms for d in deliveries)
        # For a thread, or the store was slow: the lease, or what is left of the function, is too short now.
        if waited_ms > _MARGIN_SECONDS * 1000 or self._seconds_left() < seconds:
            return (Outcome(Verdict.HELD),) * len(deliveries)
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
        waiting = self._flying.total()
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
            self._count(consumer, deliveries, -1)
            self.report.outcomes.update(outcome.verdict.value for outcome in outcomes)
            self._remember(consumer, deliveries, outcomes)
            if found:
                self._of.healths.note(*found, consumer, outcomes, found[1].max_in_flight)
                now_ms = self._of.clock.now_ms()
                for delivery, outcome in zip(deliveries, outcomes, strict=True):
                    rulings[delivery.receipt] = ruling(*found, delivery, outcome, now_ms)
        if not found or not rulings:
            return
        answers = self._of.settler.settle(*found, list(rulings), lambda receipt, _: rulings[receipt])
        for receipt, answer in zip(rulings, answers, strict=True):
            self.report.stale += isinstance(answer, Conflict)
            if isinstance(answer, Unavailable):
                self._owed[receipt] = rulings[receipt]
        self._pauses = 0 if len(self._owed) < len(rulings) else self._pauses

    def _remember(
        self, consumer: Consumer, deliveries: Sequence[Delivery], outcomes: Sequence[Outcome]
    ) -> None:
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            if len(self.report.troubles) < _TROUBLES and outcome.verdict not in (Verdict.DONE, Verdict.HELD):
                message = delivery.message
                place = message.id, message.shard, message.offset, delivery.attempt, consumer.name
                told = outcome.verdict.value, outcome.detail, traceparent(message.draft)
                self.report.troubles.append(Trouble(*place, *told))


def _lane_share(most: int) -> int:
    """How many of so many messages under way may be the lane's."""
    return max(1, most // LANE_SHARE)


class _Sources:
    """The shards and the lane of one job: who has them, and how many messages may be under way."""

    def __init__(self, topic: Topic, group: Group, job: Job, owners: Sequence[Consumer | None]) -> None:
        self.topic = topic
        self.group = group
        self.most = group.max_in_flight
        self.most_here = min(self.most, MAX_CALLS * group.batch_size)
        self._lane = str(lane_of(topic, group, job.consumer_uid).shard_key(0))
        workers = workers_of(topic, group)
        worker = (
            job.worker % workers
        )  # there may have been more of them, before settings changed or by another release
        self._shards = range(worker, topic.shards, workers)
        self._has_lane = worker == 0
        if job.consumer_uid:
            owners = [next((c for c in owners if c and c.uid == job.consumer_uid), None)] * topic.shards
        self._owners = [c if c and c.is_called else None for c in owners]

    def in_turn(self, look: int, most: int) -> Iterator[int | None]:
        """The shards, another one first each time, after the lane; where hardly anything may be under way, the lane
        mostly comes last: what failed before is a bad probe of a subscriber that may be well again."""
        lane_first = most >= LANE_SHARE or not look % LANE_SHARE
        start = look % len(self._shards) if self._shards else 0
        if self._has_lane and lane_first:
            yield None
        yield from (*self._shards[start:], *self._shards[:start])
        if self._has_lane and not lane_first:
            yield None

    def most_of(self, shard: int | None) -> int:
        """How many messages of one source may be under way."""
        return self.most if shard is not None else _lane_share(self.most)

    def sure_of(self, shard: int | None) -> int:
        """How many of them whatever else is under way."""
        return min(sure_of(self.topic, self.group), self.most_of(shard))

    def keys(self) -> set[str]:
        """The log's partition keys of all sources."""
        return {str(self.topic.shard_key(s)) for s in self._shards} | (
            {self._lane} if self._has_lane else set()
        )

    def consumer_of(self, shard: int | None) -> Consumer | None:
        """Whom a source's messages go to; the lane's go to whoever has the message's shard."""
        if shard is not None:
            return self._owners[shard] if shard < len(self._owners) else None
        return next((c for c in self._owners if c), None)

    def called(self) -> set[Consumer]:
        """All whom messages may go to."""
        return {c for c in self._owners if c}

    def called_for(self, shard: int | None) -> set[Consumer]:
        """Those whom messages of a source may go to."""
        owner = self.consumer_of(shard)
        return self.called() if shard is None else {owner} if owner else set()

    def consumer_for(self, message_shard: int) -> Consumer:
        """Whom a granted message goes to."""
        consumer = self.consumer_of(message_shard) or self.consumer_of(None)
        assert consumer is not None, "nothing is claimed where nobody is called"
        return consumer
