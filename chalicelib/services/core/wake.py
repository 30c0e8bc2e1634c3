"""Wake-ups: starts runs of `deliver` for appended messages, the mover when timers are due, and checks of transactions.

A lost, doubled or late wake-up is harmless: the state is in cursors and timers, and the sweeper and the movers'
schedule look at them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from math import inf
from typing import Any

from ...domain.append import ProduceResult
from ...domain.errors import HeadraceError, NotFound, Unavailable, Unreadable
from ...domain.limits import MAX_CALLS, MAX_SHARDS, MAX_SLOW_IN_FLIGHT
from ...domain.message import Message
from ...domain.push_limit import guaranteed_of
from ...domain.segment import ShardKey
from ...domain.timer import ANY, Timer, wake_up
from ...domain.topic import CALLBACKS, Consumer, ConsumerState, CursorKey, Group, Topic, lane_of
from ...modes import POLICIES
from ...ports.world import Clock, Invoker
from ...store import Timers
from ...store.layout import shard_of
from .catalog import CACHE_MS, Catalog
from .expiring_cache import TtlCache
from .mover_wakes import DueTimer, MoverWakes

_SLACK_MS = 500  # how much clocks may differ
_RATE_OF_ONE_RUN, _ANY_RATE = 50, inf  # messages a second
_AGAIN_MS = 100  # a producer wakes for the same shard at most this often: the stream wakes for it as well


@dataclass(frozen=True, slots=True)
class DispatchTask:
    """What one run of the function `deliver` works on: the shards whose `worker_of` it is, and one of each more urgent
    priority, which comes first in every run; worker 0 also has the retry lane. `consumer_uid` is a broadcast's
    consumer. Where one of the group's consumers `is_slow`, `deliver_slow` works on it."""

    topic: str
    group: str
    worker: int = 0
    consumer_uid: str = ""
    is_slow: bool = False

    @property
    def function(self) -> str:
        """The function that works on it."""
        return "deliver_slow" if self.is_slow else "deliver"

    def event(self) -> dict[str, Any]:
        """The task as JSON, for an event of its function; `task_of` reads it."""
        return asdict(self)


def task_of(event: Mapping[str, Any]) -> DispatchTask:
    """The task in an event of the `deliver` function."""
    return DispatchTask(**{name: event[name] for name in DispatchTask.__slots__ if name in event})


def as_pushed(group: Group, consumers: Sequence[Consumer]) -> Group:
    """The group with the limit of its push. With a slow consumer it is low: each message in flight may keep a run of
    `deliver_slow`, of which a group holds a quarter at most. A broadcast's consumers, each with a limit of its own,
    share it."""
    slow = sum(consumer.is_slow for consumer in consumers)
    if not slow:
        return group
    most = MAX_SLOW_IN_FLIGHT // slow if POLICIES[group.mode].per_consumer else MAX_SLOW_IN_FLIGHT
    return replace(group, max_in_flight=min(group.max_in_flight, max(1, most)))


def workers_of(topic: Topic, group: Group) -> int:
    """How many runs of `deliver` a group has in parallel: one for each shard, if each may have a whole batch in flight
    and has a guarantee. One is enough for a low rate: the others would only wait for permits."""
    is_low = group.max_in_flight <= MAX_CALLS and (group.rate_limit or _ANY_RATE) <= _RATE_OF_ONE_RUN
    if is_low or not guaranteed_of(topic, group):
        return 1
    return max(1, min(topic.shards, group.max_in_flight // group.batch_size))


def worker_of(shard: int, workers: int) -> int:
    """Which of the workers is woken for a shard."""
    return shard % MAX_SHARDS % workers


@dataclass(frozen=True, slots=True)
class News:
    """Hints passed with a wake-up: `last`, the last offset of the shards that it is for (by the log's partition key),
    so that a stale read is recognised; `changed`, if the group was just changed, so that nothing cached of it is
    used; `due_ms`, when the timer was due that a mover took: later than now, if the mover's clock is ahead of ours."""

    last: Mapping[str, int] = field(default_factory=dict)
    changed: bool = False
    due_ms: int | None = None

    @property
    def shards(self) -> frozenset[str]:
        """The shards to look at; empty: all."""
        return frozenset() if self.changed else frozenset(self.last)

    def event(self) -> dict[str, Any]:
        """The hints as JSON, for an event of the `deliver` function; `news_of` reads them."""
        hints = {"last": dict(self.last), "changed": self.changed, "due_ms": self.due_ms}
        return {name: value for name, value in hints.items() if value}


NO_NEWS = News()


def news_of(event: Mapping[str, Any]) -> News:
    """The hints in an event of the `deliver` function."""
    return News(event.get("last", {}), event.get("changed", False), event.get("due_ms"))


@dataclass(kw_only=True, eq=False)
class Waker:
    """Starts runs of `deliver`, and sends the mover's wake-ups. `mark` notes that a topic has messages to deliver;
    `on_skip` is called for each unreadable row that a batch of wake-ups skips."""

    catalog: Catalog
    invoker: Invoker
    mark: Callable[[Topic], None]
    timers: Timers
    clock: Clock
    on_skip: Callable[[Unreadable], object]

    def __post_init__(self) -> None:
        self._woken: TtlCache[str, bool] = TtlCache(self.clock, _AGAIN_MS)  # by the log's partition key
        self._mover_wakes = MoverWakes()

    def route(self, shards: Mapping[str, int | None], due_ms: int | None = None) -> int:
        """Start `deliver` for shards that have new rows (by the log's partition key; the value is the last offset, if
        it is known), or for a timer that was due at `due_ms`. Returns how many runs were started. A topic that has an
        unreadable row is skipped. Raises Unavailable if some could not be read or started, after the others were
        woken."""
        tasks: dict[DispatchTask, dict[str, int]] = {}
        refusals: list[Unavailable] = []
        groups_of = cache(self._groups_of)
        for text, last in shards.items():
            try:
                for task in self._tasks(text, groups_of):
                    tasks.setdefault(task, {}).update({} if last is None else {text: last})
            except Unreadable as error:
                self.on_skip(error)
            except Unavailable as error:
                refusals.append(error)
        for task, rows in tasks.items():
            try:
                self.invoker.invoke(task.function, task.event() | News(rows, due_ms=due_ms).event())
            except Unavailable as error:
                refusals.append(error)
        for refusal in refusals:
            raise refusal
        return len(tasks)

    def wake_after_append(self, topic: Topic, messages: Iterable[ProduceResult | Message]) -> None:
        """Start a topic's runs at once, if its setting `wake` is "direct": called after messages were stored. Those
        that wait for their time have no place yet."""
        if topic.wake != "direct":
            return
        last: dict[str, int] = {}
        for message in messages:
            if message.shard is not None and message.offset is not None:
                key = str(topic.shard_key(message.shard))
                last[key] = max(message.offset, last.get(key, 0))
        tasks: dict[DispatchTask, dict[str, int]] = {}
        groups_of = cache(self._groups_of)
        for key in [key for key in last if not self._woken.get(key)]:
            with suppress(Unavailable):  # it is stored: to refuse it now would have it produced twice
                for task in self._tasks(key, groups_of):
                    tasks.setdefault(task, {})[key] = last[key]
                self._woken.put(key, True)
        for task, rows in tasks.items():
            self.start(task, News(rows))

    def start(self, task: DispatchTask, news: News = NO_NEWS) -> None:
        """Start one run."""
        self._start(task.function, task.event() | news.event())

    def wake_group(self, topic: Topic, group: Group) -> None:
        """Start all runs of a group: after a seek, a redrive."""
        self.mark(topic)
        with suppress(Unavailable):  # it is done: a repeated redrive would report 0
            for task in self.tasks_of(topic, group):
                self.start(task, News(changed=True))

    def wake_after_resumption(self, topic: Topic, group: Group) -> None:
        """Start all runs of a group that was paused, now and once more when all processes have heard that it goes
        on."""
        self.wake_group(topic, group)
        uids = self._uids_to_run_for(topic, group)
        self._wake_again([lane_of(topic, group, uid).shard_key(ANY) for uid in uids])

    def wake_for(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Wake what a registration, or its end, changes: the group's runs; in a broadcast the consumer's own. Who pulls
        changes them, too: a shard that was left to it may now belong to a consumer that is called."""
        tasks = [task for task in self.tasks_of(topic, group) if task.consumer_uid in ("", consumer.uid)]
        for task in tasks:
            self.start(task, News(changed=True))
        if tasks or consumer.is_called:
            uid = consumer.uid if POLICIES[group.mode].per_consumer else ""
            self._wake_again([lane_of(topic, group, uid).shard_key(ANY)])

    def wake_beside_puller(self, topic: Topic, group: Group, key: CursorKey, owner: str) -> None:
        """Start the run of a cursor in which this owner let messages go, at once or sooner than promised, if the owner
        pulls and the group has consumers that are called, too. The run leaves a timer for what is not due yet. What a
        run settles it sees to by itself."""
        with suppress(HeadraceError):  # as for any wake-up: what was settled is settled
            topic = self.catalog.topic(topic.name)
            if not topic.is_called:
                return
            consumers = self.catalog.consumers(topic, group)
            called_uids = {CALLBACKS, *(consumer.uid for consumer in consumers if consumer.is_called)}
            if owner not in called_uids and key.consumer_uid in self._uids_to_run_for(topic, group):
                for task in self._tasks_at(topic, group, key.consumer_uid, key.shard.shard):
                    self.start(task, News(changed=True))
                self.mark(topic)  # the sweep may come by at the lease's first end only

    def wake_after_redivision(self, topic: Topic) -> None:
        """Wake a topic's runs after a change of the number of shards, or of a group's settings that `workers_of` reads.
        Until all processes have heard of it, the wake-up for a message may go to a worker that leaves the message's
        shard to another worker, or does not know it."""
        if topic.is_called:
            self._wake_again([topic.shard_key(ANY)])

    def _wake_again(self, shards: Sequence[ShardKey]) -> None:
        """Wake once more when the caches of all processes have expired: until then, the wake-up for a message may
        reach a process that does not know of a change yet, and end there."""
        now_ms = self.clock.now_ms()
        due_ms = now_ms + CACHE_MS + _SLACK_MS
        timers = [wake_up("again", shard, due_ms, now_ms) for shard in shards]
        if timers:
            self.timers.store(timers)
            self.wake_movers(timers)

    def tasks_of(self, topic: Topic, group: Group) -> Iterator[DispatchTask]:
        """All tasks of a group; none without push consumers."""
        for uid in self._uids_to_run_for(topic, group):
            yield from self._tasks_at(topic, group, uid)

    def _tasks_at(self, topic: Topic, group: Group, uid: str, shard: int = ANY) -> Iterator[DispatchTask]:
        """The task of a shard, or (ANY) those of all."""
        consumers = self.catalog.consumers(topic, group)
        is_slow = any(consumer.is_slow for consumer in consumers)
        workers = workers_of(topic, as_pushed(group, consumers))
        for worker in range(workers) if shard == ANY else [worker_of(shard, workers)]:
            yield DispatchTask(topic.name, group.name, worker, uid, is_slow)

    def _groups_of(self, topic: Topic, name: str) -> Sequence[Group]:
        """The group of this name, or ("") all of the topic."""
        return [self.catalog.group(topic, name)] if name else self.catalog.groups(topic)

    def _tasks(self, text: str, groups_of: Callable[[Topic, str], Sequence[Group]]) -> Iterator[DispatchTask]:
        shard = shard_of(text)
        name, _, group_name = shard.topic.partition("~")
        try:
            topic = self.catalog.topic(name)
            if shard.shard == ANY and shard.topic_uid == topic.uid:
                self.mark(topic)
            groups = groups_of(topic, group_name)
        except NotFound:
            return
        for group in groups:
            for consumer_uid in self._uids_to_run_for(topic, group):
                if shard.topic_uid == (consumer_uid or group.uid if group_name else topic.uid):
                    yield from self._tasks_at(topic, group, consumer_uid, shard.shard)

    def _uids_to_run_for(self, topic: Topic, group: Group) -> Sequence[str]:
        """The consumer uids to run for: "" for the group, or each push consumer of a broadcast."""
        if group.is_paused(self.clock.now_ms()):
            return ()
        consumers = self.catalog.consumers(topic, group)
        uids = [c.uid for c in consumers if c.is_called and c.state == ConsumerState.ACTIVE]
        if POLICIES[group.mode].per_consumer:
            return uids
        return ("",) if uids or group.callbacks else ()

    def wake_due(self, timers: Sequence[Timer]) -> None:
        """Start the runs for WAKE timers: of a shard or (ANY) of a whole topic, which is also marked."""
        shards = dict.fromkeys(str(timer.shard) for timer in timers)
        self.route(shards, max((timer.due_ms for timer in timers), default=None))

    def start_checks(self, timers: Sequence[Timer]) -> None:
        """Start one run that checks the transactions of these CHECK timers. Raises Unavailable; to start it twice does
        no harm."""
        self.invoker.invoke("check", {"checks": [[timer.id, timer.due_ms] for timer in timers]})

    def wake_movers(self, timers: Sequence[Timer]) -> None:
        """Send the wake-ups of timers that have just been stored. For those that are due in more than 15 minutes the
        mover's schedule does it."""
        self.wake_at([(timer.due_ms, self.timers.fragments_of(timer.id)) for timer in timers])

    def wake_at(self, due_timers: Iterable[DueTimer]) -> None:
        """Send wake-ups for these times and fragments, unless this process has sent them before. One that cannot be
        sent is left to the mover's schedule."""
        for wake in self._mover_wakes.add(due_timers, self.clock.now_ms()):
            try:
                self.invoker.wake_mover(wake.hint(), wake.delay_seconds)
            except Unavailable:
                self._mover_wakes.remove(wake)

    def restart(self, job: str, run: int) -> None:
        """Restart a scheduled job that ran out of time; `run` is the number of the new run."""
        self._start(job, as_if_scheduled({"run": run}))

    def _start(self, function: str, event: Mapping[str, Any]) -> None:
        """A wake-up that cannot be sent now is left to the stream, the sweeper and the schedules."""
        with suppress(Unavailable):
            self.invoker.invoke(function, event)


def as_if_scheduled(detail: Mapping[str, Any]) -> dict[str, Any]:
    """An event in EventBridge's shape, for functions that otherwise run on a schedule."""
    names = ("version", "id", "account", "region", "time", "source", "resources", "detail-type")
    return {**dict.fromkeys(names, ""), "detail": dict(detail)}
