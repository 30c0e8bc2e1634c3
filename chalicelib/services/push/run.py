"""One run of the push delivery for a task: claim, call the subscribers, settle, until nothing is left or time is up.

Called by `dispatcher.py`. The steps: `claims.py` (who may claim what), `calls.py` (send), `settlements.py` (settle).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ...domain.call_result import CallResult, Verdict
from ...domain.errors import NotFound, Unavailable, unavailable
from ...domain.message import traceparent
from ...domain.receipt import Receipt
from ...domain.timer import Timer, wake_up
from ...domain.topic import Callback, Consumer, Group, Topic, cursor_key, lane_of
from ..consume.claimant import ClaimedMessage
from ..consume.decision import SettleDecision, decision_after
from ..core.wake import DispatchTask, News, as_pushed, worker_of, workers_of
from .calls import LOOK_SECONDS, Calls, EndedCall
from .claims import Claims
from .run_time import RunTime
from .settlements import Settlements, is_to_be_split
from .sources import Capacity, DispatchContext, Sources

_MOST_AHEAD_MS = 60_000
_SHORTEST_WAIT_MS = 20
_LONGEST_WAIT_MS = 1_000  # for a permit
_EARLY_MS = 300
_KEYS_LOOK_MS = 5_000  # where messages may wait for what another source has leased of their keys
_STEP_MS, _SECOND_STEP_MS = 250, 5_000  # of the timers that a run, and a second one beside it, leave
_ACCEPTED = 202


class DispatchRun:
    """One run of the function for a task. `seconds_left()` is what is left of the function's time; `news` came with
    its wake-up."""

    def __init__(
        self, context: DispatchContext, task: DispatchTask, seconds_left: Callable[[], float], news: News
    ) -> None:
        self.task, uid = task, task.consumer_uid
        self._partitions = news.shards  # those that it was woken for; none: all
        self._ahead_ms = 0  # how much the clock of a mover is ahead of ours
        self.report = DispatchReport()
        self._context = context
        self._time = RunTime(seconds_left)
        self._capacity = Capacity(context, uid)
        self._settlements = Settlements(context.settler)
        self._claims = Claims(context.claimer, self._capacity, self._time, self._settlements, uid)
        self._calls = Calls(context, self._capacity, self._time)
        self._looked_ms = 0
        # How long it waited for permits since the last result; does another run of the task get them?
        self._waited_ms, self._is_second = 0, False
        self._is_slow = task.is_slow
        self._compare_clocks(news)
        self._last_known: tuple[Topic, Group] | None = None

    def wake(self, news: News) -> None:
        """Look for new messages soon, in the shards of these news (none: in all)."""
        has_both = self._partitions and news.shards
        self._partitions = self._partitions | news.shards if has_both else frozenset()
        self._compare_clocks(news)
        self._calls.wake()

    def _compare_clocks(self, news: News) -> None:
        if news.due_ms is not None:
            ahead_ms = min(_MOST_AHEAD_MS, news.due_ms - self._context.clock.now_ms())
            self._ahead_ms = max(self._ahead_ms, ahead_ms)

    def was_woken(self) -> bool:
        """Has a wake-up come since the last look? Takes it."""
        return self._calls.was_woken()

    def until_drained(self) -> None:
        """Claim and send as long as there are messages; settle every result. If the store is unavailable, settle the
        messages in flight as far as it allows; `leave` then reports the rest."""
        with self._context.threads() as self._pool:
            while self._launch(self._pool) or self._may_settle_yet() or self._has_waited_for_permit():
                seconds = min(LOOK_SECONDS, (self._permit_wait_ms() or _LONGEST_WAIT_MS) / 1000)
                self._settle_and_note(self._calls.take_ended(seconds))

    def leave(self) -> None:
        """Make sure that another run follows: at once if time ran out, else when the next message is due.

        After that, raises Unavailable if the store is not available, or was not for one source. Not where time ran out:
        a run that fails is repeated, beside the one that was started."""
        if not self.report.finished:
            self._context.waker.start(replace(self.task, is_slow=self._is_slow))
            return
        if topic_and_group := self._find():
            dues = self._next_dues(*topic_and_group)
            wakes = [self._wake(*topic_and_group, shard, due_ms) for due_ms, shard in dues]
            if wakes:
                self._context.timers.store(wakes)
                self._context.waker.wake_movers(wakes)
        if self._settlements.are_owed:
            raise unavailable("Outcomes could not be settled.")
        if faults := self._claims.faults:
            raise faults[0]

    def _wake(self, topic: Topic, group: Group, shard: int, due_ms: int) -> Timer:
        """A wake-up for what is due. If a mover took one too early, and the run found nothing, it is as much later:
        that mover would take the same one again at once, again and again."""
        key = replace(lane_of(topic, group, self.task.consumer_uid).shard_key(0), shard=shard)
        later_ms = 0 if self._partitions or self._claims.served else self._ahead_ms
        return wake_up("wake", key, due_ms + later_ms, self._context.clock.now_ms())

    def _next_dues(self, topic: Topic, group: Group) -> Collection[tuple[int, int]]:
        """The next time at which new work becomes due, with its shard: one for each worker, since by now another one
        may have a shard named to this run, or have had messages of it. Work that was due at the last look is not
        counted: time alone does not bring it back. The cursors are read, since other processes settle too."""
        sources = self._sources(topic, group)
        shards = dict.fromkeys((*sources.in_turn(self._claims.looks, sources.most), *self._claims.served))
        seconds = self._time.longest_lease_seconds(sources)
        dues = [(due_ms, self.task.worker) for due_ms in self._capacity.circuits_ms]
        dues += ((due_ms, shard or 0) for shard, due_ms in self._claims.fills_until_ms.items())
        if wait_ms := self._permit_wait_ms():
            dues.append((self._return_ms(wait_ms), self.task.worker))
        dues += ((self._return_ms(_KEYS_LOOK_MS), shard or 0) for shard in self._claims.keys_wait)
        for shard in shards:
            key = cursor_key(topic, group, shard, self.task.consumer_uid)
            dues += ((due_ms, shard or 0) for due_ms in self._context.claimer.dues_ms(key, seconds))
        workers = workers_of(topic, group)
        latest_first = sorted((due for due in dues if due[0] > self._looked_ms), reverse=True)
        return {worker_of(shard, workers): (due_ms, shard) for due_ms, shard in latest_first}.values()

    def _find(self, *, even_paused: bool = False) -> tuple[Topic, Group] | None:
        try:
            topic = self._context.catalog.topic(self.task.topic)
            group = self._context.catalog.group(topic, self.task.group)
        except NotFound:
            return None
        if group.is_paused(self._context.clock.now_ms()) and not even_paused:
            return None
        return topic, as_pushed(group, self._context.catalog.consumers(topic, group))

    def _sources(self, topic: Topic, group: Group) -> Sources:
        """The sources that the run was woken for; all, if another run may have left it its own."""
        partitions = () if self._capacity.was_crowded else self._partitions
        return Sources(topic, group, self.task, self._context.teams(topic, group), partitions)

    def _launch(self, pool: Executor) -> bool:
        """Send the messages that may be sent now. Returns whether to go on: some are in flight, or may be behind those
        that a claim settled without a delivery. If the named sources had nothing to send while slots were scarce, it
        looks in all sources."""
        was_crowded = self._capacity.was_crowded
        self._claims.has_left_off, self._claims.unpermitted = False, None
        try:
            self._look(pool)
        except Unavailable as error:
            self._claims.fault = error
        if self._partitions and not self._capacity.under_way and self._capacity.was_crowded > was_crowded:
            return self._launch(pool)
        return self._capacity.under_way > 0 or self._claims.has_left_off

    def _look(self, pool: Executor) -> None:
        """Claim what may be sent now, and send it."""
        topic_and_group = self._find()
        self._looked_ms = self._context.clock.now_ms()
        if topic_and_group:
            self._last_known = topic_and_group
            consumers = self._context.catalog.consumers(*topic_and_group)
            self._is_slow = any(consumer.is_slow for consumer in consumers)
            if self._is_slow and not self.task.is_slow:  # since this run was started
                self.report.finished = False
                return
            sources = self._sources(*topic_and_group)
            if self._time.allows_attempt(sources) and not self._claims.fault:
                self._capacity.see_circuits(*topic_and_group)
                for consumer, claimed_messages in self._claims.grants(sources):
                    self._calls.start(pool, sources, consumer, claimed_messages)
            self.report.finished = not self._time.ran_out

    def _may_settle_yet(self) -> bool:
        """Is something left to settle, and time for it? What cannot be settled is delivered again when its lease
        ends. Waits before the next try."""
        if not (self._settlements.may_retry() and self._time.allows_settlement()):
            return False
        self._context.clock.sleep(LOOK_SECONDS)
        return True

    def _permit_wait_ms(self) -> int:
        """How long the next permit of the group's rate limit takes; 0 if no message waits for one."""
        if not (self._claims.unpermitted and self._last_known):
            return 0
        free_ms = self._context.claimer.rate_limits.free_ms(self._last_known[1])
        return max(_SHORTEST_WAIT_MS, free_ms - self._context.clock.now_ms())

    def _has_waited_for_permit(self) -> bool:
        """Wait for the next permit, if it comes soon, and go on; not if another run of the task has claimed meanwhile:
        it goes on, and one run is enough."""
        key, wait_ms = self._claims.unpermitted, self._permit_wait_ms()
        if not (key and self.report.finished) or self._waited_ms + wait_ms > _LONGEST_WAIT_MS:
            return False
        before = self._context.claimer.states.last(key)
        self._context.clock.sleep(wait_ms / 1000)
        self._waited_ms += wait_ms
        self._is_second = self._context.claimer.states.read(key) != before
        return not self._is_second

    def _return_ms(self, wait_ms: int) -> int:
        """When a run is to look for the permit that took too long: a little early, for it may wait. At one of few
        times, so that several runs leave one timer."""
        now_ms, step_ms = self._context.clock.now_ms(), _SECOND_STEP_MS if self._is_second else _STEP_MS
        return max(now_ms + wait_ms - _EARLY_MS, now_ms + max(step_ms, _LONGEST_WAIT_MS)) // step_ms * step_ms

    def _settle_and_note(self, calls: Sequence[EndedCall]) -> None:
        """Settle the results of these calls, then note what they tell of their subscribers. A note may wait for the
        table of registrations: what has ended meanwhile is settled before the next, since leases do not wait."""
        if calls:
            self._waited_ms = 0
        to_note = deque(calls)
        try:
            self._settle(calls)
            while to_note:
                self._note_health(to_note.popleft())
                if ended_calls := self._calls.take_ended_meanwhile():
                    to_note += ended_calls
                    self._settle(ended_calls)
        finally:
            for call in to_note:
                self._note_health(call)

    def _settle(self, calls: Sequence[EndedCall]) -> None:
        """Settle the results of these calls, and what is left over from before. While the settings cannot be read, by
        those last known: otherwise messages that were delivered would be sent again."""
        with suppress(Unavailable):
            self._last_known = self._find(even_paused=True)
        topic_and_group = self._last_known
        decisions = self._settlements.take_owed()
        for call in calls:
            self.report.add(call.consumer, call.claimed_messages, call.results)
            if topic_and_group:
                for claimed_message, decision in self._decisions(*topic_and_group, call):
                    decisions[claimed_message.receipt] = decision
        if topic_and_group and decisions:
            began_ms = self._context.clock.now_ms()
            late = self._settlements.settle(*topic_and_group, decisions)
            self.report.late += len(late)
            for call in calls:
                if call.rest and call.results[-1].verdict is Verdict.DONE:
                    self._go_on(*topic_and_group, call, late, began_ms)

    def _go_on(self, topic: Topic, group: Group, call: EndedCall, late: set[Receipt], began_ms: int) -> None:
        """Send the next messages of a run, whose lease the settlement of `began_ms` made longer; if they may not be
        sent any more, give them back."""
        last, next_one = call.claimed_messages[-1].receipt, call.rest[0].receipt
        if last in late:
            return
        with suppress(Unavailable):
            sources = self._sources(topic, group)
            consumer = next((c for c in sources.called_consumers() if c.uid == call.consumer.uid), None)
            may_go_on = not group.is_paused(began_ms) and not self._settlements.owes(last)
            if consumer and may_go_on and self._time.allows_attempt(sources):
                rest = [replace(m, receipt=replace(m.receipt, claimed_ms=began_ms)) for m in call.rest]
                self._calls.send(self._pool, sources, consumer, rest)
                return
        self._settlements.give_back_behind(topic, group, last, next_one)

    def _note_health(self, call: EndedCall) -> None:
        if not (self._last_known and self._time.allows_note()):
            return
        (topic, group), messages = self._last_known, call.claimed_messages
        is_repeated = all(each.receipt.attempt_since_redrive(each.attempt) > 1 for each in messages)
        most = group.max_in_flight
        began_ms = max(each.receipt.claimed_ms for each in messages)
        self._context.subscriber_health.note(
            topic, group, call.consumer, call.results, most, began_ms=began_ms, is_repeated=is_repeated
        )

    def _decisions(
        self, topic: Topic, group: Group, call: EndedCall
    ) -> Iterator[tuple[ClaimedMessage, SettleDecision]]:
        is_split = is_to_be_split(call.claimed_messages, call.results)
        now_ms = self._context.clock.now_ms()
        for claimed_message, result in zip(call.claimed_messages, call.results, strict=True):
            if result.status == _ACCEPTED and not group.auto_ack:
                continue
            decision = decision_after(topic, group, claimed_message, result, now_ms, is_split=is_split)
            answer = result.answer if group.keeps_answers(topic) else None
            called = call.consumer.name if isinstance(call.consumer, Callback) else ""
            yield claimed_message, replace(decision, answer=answer, called=called)


_TROUBLES = 100


@dataclass(frozen=True, slots=True)
class FailedAttempt:
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
class DispatchReport:
    """What one run did: attempts by verdict, and late settlements. `troubles` are the first failed attempts; further
    ones are only counted."""

    verdicts: Counter[str] = field(default_factory=Counter)
    late: int = 0
    finished: bool = True
    troubles: list[FailedAttempt] = field(default_factory=list)

    def as_dict(self) -> dict[str, int | bool]:
        """The counts as JSON, for the function's log line."""
        return {**self.verdicts, "stale": self.late, "finished": self.finished}

    def add(
        self, consumer: Consumer, claimed_messages: Sequence[ClaimedMessage], results: Sequence[CallResult]
    ) -> None:
        """Count the results of one request, and keep failed attempts up to a limit."""
        self.verdicts.update(result.verdict.value for result in results)
        for claimed_message, result in zip(claimed_messages, results, strict=True):
            if len(self.troubles) < _TROUBLES and result.verdict not in (Verdict.DONE, Verdict.NOT_ATTEMPTED):
                message = claimed_message.message
                location = message.id, message.shard, message.offset, claimed_message.attempt, consumer.name
                ending = result.verdict.value, result.detail, traceparent(message.draft)
                self.troubles.append(FailedAttempt(*location, *ending))
