"""Delayed messages: units, lateness beside many that wait, a crowd due at once; and what an idle stage reads.

    python -m bench.timers --waiting 1000000

measures lateness alone, beside ever more that wait (a million takes a quarter of an hour to file).
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import random
import resource
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from chalicelib.adapters import Nobody
from chalicelib.domain.message import Draft, Message
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import Timer, TimerKind
from chalicelib.domain.topic import Consumer, ConsumerKind, Group, Mode, Topic, cursor_key
from chalicelib.store.layout import FRAGMENTS
from chalicelib.wiring import Deps

from .figures import Figure, at_most, plain, without_target
from .meter import Cost, Meter
from .stage import Stage, say, stage

_BODY = b'"' + b"x" * 98 + b'"'
_CROWD = 10_000
_PROBES = 100
_WAITING = (1_000, 20_000)
_YEAR_MS = 365 * 86_400_000
_LOADERS = 4
_CANCELS = 1_000
_LARGE = 2_000


def measure(endpoint: str, verbose: bool = False, timer_counts: Sequence[int] = _WAITING) -> Iterator[Figure]:
    """Units, lateness with ever more timers waiting, a crowd, and idling."""
    with stage(endpoint) as target:
        yield from _measure_units(target)
    with stage(endpoint) as target:
        yield from _measure_lateness(target, timer_counts)
        yield from _measure_crowd(target)
    with stage(endpoint) as target:
        yield from _measure_after_cancels(target)
    with stage(endpoint) as target:
        yield from _measure_large(target)
    with stage(endpoint) as target:
        yield from _measure_idle(target)


def _measure_units(target: Stage) -> Iterator[Figure]:
    say("timers: units")
    meter = Meter()
    deps = target.deps(meter)
    topic, _ = deps.admin.put_topic("t", {"shards": 1})
    with meter.measure() as immediate_cost:
        deps.producer.produce(topic, [Draft(_BODY)])
    for count in (1, 100):
        due_ms = int(time.time() * 1000) + 1
        with meter.measure() as filing_cost:
            for _ in range(count):
                deps.producer.produce(topic, [Draft(_BODY, due_ms=due_ms)])
        time.sleep(0.01)
        timers = [
            t for f in range(FRAGMENTS) for t in deps.adapters.timers.first_due(f, due_ms, count).timers
        ]
        with meter.measure() as moving_cost:
            deps.due.append(timers[0].shard, 7, timers)
        extra = (filing_cost.writes + moving_cost.writes) / count - immediate_cost.writes
        work = "a delayed message, on top of an immediate one"
        if count == 1:
            yield without_target(f"{work}: due by itself", f"{extra:.3g} WU")
        else:
            yield at_most(f"{work}: {count} due together", extra, 3, "WU")


def _measure_lateness(target: Stage, timer_counts: Sequence[int]) -> Iterator[Figure]:
    deps = target.deps()
    topic, _ = deps.admin.put_topic("t", {"shards": 4})
    timer_count = 0
    for count in timer_counts:
        say(f"timers: {count:,} waiting")
        _load(target, topic.shard_key(0), timer_count, count)
        timer_count = count
        lateness_ms, units = _probe(target, deps, topic)
        at = f"with {count:,} timers waiting"
        yield at_most(f"a delayed message enters the log {at}: p99 late by", lateness_ms[98] / 1000, 1, "s")
        yield without_target(
            f"the mover {at}: per message due", f"{units.writes:.3g} WU, {units.reads:.3g} RU"
        )


def _probe(target: Stage, deps: Deps, topic: Any) -> tuple[list[int], Cost]:
    """How late 100 messages, due at different times within 3 s, enter the log; and the mover's units for each."""
    now_ms = int(time.time() * 1000)
    dues_ms = [now_ms + 1_000 + 20 * n for n in range(_PROBES)]
    places = deps.producer.produce(topic, [Draft(_BODY, due_ms=d) for d in dues_ms])
    meter = Meter()
    mover = target.deps(meter).mover
    with meter.measure() as cost:
        for due_ms in dues_ms[:: _PROBES // 3]:  # as wake-ups do, about one for each second
            time.sleep(max(0.0, due_ms / 1000 + 0.7 - time.time()))
            mover.run_once()
        time.sleep(max(0.0, dues_ms[-1] / 1000 - time.time()))
        mover.run_once()
    lateness_ms = []
    for place, due_ms in zip(places, dues_ms, strict=True):
        message = deps.lookup.message(topic, place.id)  # type: ignore[union-attr]
        lateness_ms.append(message.accepted_ms - due_ms)
    assert min(lateness_ms) >= 0, "never early"
    return sorted(lateness_ms), cost.per(_PROBES)


def _load(target: Stage, shard: ShardKey, first: int, count: int) -> None:
    """Timers that are due in some year."""
    fork = mp.get_context("fork")
    steps = [range(first + n, count, _LOADERS) for n in range(_LOADERS)]
    loaders = [fork.Process(target=_file, args=(target, shard, step)) for step in steps]
    for loader in loaders:
        loader.start()
    for loader in loaders:
        loader.join()


def _file(target: Stage, shard: ShardKey, numbers: range) -> None:
    timers = target.deps().adapters.timers
    base_ms = int(time.time() * 1000) + _YEAR_MS
    batch: list[Timer] = []
    for n in numbers:
        batch.append(Timer(base_ms + n, f"load{n}", TimerKind.DELIVER, shard, Draft(_BODY), 7))
        if len(batch) == 100:
            timers.store(batch)
            batch = []
    timers.store(batch)


def _measure_crowd(target: Stage) -> Iterator[Figure]:
    """10,000 due in the same second, two movers."""
    say(f"timers: {_CROWD:,} due in one second")
    deps = target.deps()
    topic = deps.catalog.topic("t")
    due_ms = int(time.time() * 1000) + 60_000
    drafts = [Draft(_BODY, due_ms=due_ms + n % 1_000) for n in range(_CROWD)]
    for start in range(0, _CROWD, 1_000):
        deps.producer.produce(topic, drafts[start : start + 1_000])
    time.sleep(max(0.0, (due_ms + 1_000) / 1000 - time.time()))
    start_time = time.monotonic()
    movers = [threading.Thread(target=target.deps().mover.run_once) for _ in range(2)]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join()
    seconds = time.monotonic() - start_time
    ratio = f"{_CROWD * target.bare_put() / seconds:.1f} x as quick as so many bare puts"
    yield at_most(f"{_CROWD:,} due in one second, out within", seconds, 5, "s", ratio)


class _Later:
    """ports.Clock that is moved, minute by minute."""

    def __init__(self) -> None:
        self.minutes = 10  # what was set up just now is idle by then

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.minutes * 60_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self.minutes * 60_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class _Movers(Nobody):
    """ports.Invoker that starts movers, each in a thread, as the queue and Lambda would."""

    def __init__(self, target: Stage) -> None:
        self._target = target
        self._started: list[threading.Timer] = []

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        run = partial(self._target.deps().mover.run_once, until_ms=hint["until_ms"])
        self._started.append(threading.Timer(delay_seconds, run))
        self._started[-1].daemon = True  # those of cancelled messages come much later
        self._started[-1].start()

    def end(self) -> None:
        for thread in self._started:
            thread.cancel()
            thread.join()


def _measure_after_cancels(target: Stage) -> Iterator[Figure]:
    """How late 50 short delays are whose process has filed and cancelled long ones before. No schedule runs."""
    say(f"timers: {_CANCELS:,} cancelled")
    movers = _Movers(target)
    deps = Deps(replace(target.deps().adapters, invoker=movers))
    topic, _ = deps.admin.put_topic("t", {"shards": 4})
    due_ms = int(time.time() * 1000) + 50_000
    for start in range(0, _CANCELS, 100):
        places = deps.producer.produce(
            topic, [Draft(_BODY, due_ms=due_ms + n) for n in range(start, start + 100)]
        )
        for place in places:
            message = deps.delayed.find(topic, place.id)  # type: ignore[union-attr]
            deps.delayed.cancel(topic, message)  # type: ignore[arg-type]
    lateness_ms = []
    for _ in range(10):
        due_ms = int(time.time() * 1000) + 2_000
        places = deps.producer.produce(topic, [Draft(_BODY, due_ms=due_ms + 20 * n) for n in range(5)])
        time.sleep(2.5)
        lateness_ms += [
            _lateness_ms(deps, topic, place.id, due_ms + 20 * n)  # type: ignore[union-attr]
            for n, place in enumerate(places)
        ]
    movers.end()
    work = f"a delay of 2 s after {_CANCELS:,} cancelled ones enters the log: p99 late by"
    yield at_most(work, sorted(lateness_ms)[-1] / 1000, 1, "s")


def _lateness_ms(deps: Deps, topic: Topic, message_id: str, due_ms: int) -> int:
    """How late a message entered the log, ms; a minute where it did not yet."""
    message = deps.lookup.find(topic, message_id)
    return message.accepted_ms - due_ms if isinstance(message, Message) else 60_000


def _measure_large(target: Stage, count: int = _LARGE) -> Iterator[Figure]:
    """What a process that moves many large timers takes."""
    say(f"timers: {count:,} large ones")
    fork = mp.get_context("fork")
    due_ms = int(time.time() * 1000)
    target.deps().admin.put_topic("t", {"shards": 4})
    filer = fork.Process(target=_file_large, args=(target, count, due_ms))
    filer.start()
    filer.join()
    receiver, sender = fork.Pipe(duplex=False)
    mover = fork.Process(target=_move_large, args=(target, count, sender))
    mover.start()
    peak_mb = receiver.recv()
    mover.join()
    yield at_most(
        f"{count:,} delayed messages of 190 KB due together: the mover's peak memory", peak_mb, 256, "MB"
    )


def _file_large(target: Stage, count: int, due_ms: int) -> None:
    deps = target.deps()
    topic = deps.catalog.topic("t")
    for n in range(count):
        body = random.randbytes(190_000)
        draft = Draft(body, False, "application/octet-stream", ordering_key=f"k{n % 16}", due_ms=due_ms)
        deps.producer.produce(topic, [draft])


def _move_large(target: Stage, count: int, sender: Connection) -> None:
    moved_count = target.deps().mover.run_once().moved
    assert moved_count == count, moved_count
    sender.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)


def _measure_idle(target: Stage) -> Iterator[Figure]:
    """What schedules cost while nothing happens, and how long they need to find that something did."""
    meter, clock = Meter(), _Later()

    def process() -> Deps:
        return Deps(replace(target.deps(meter).adapters, clock=clock))

    topic_count = 0
    for topics in (10, 100, 1000):
        say(f"timers: an idle stage, {topics:,} topics")
        for number in range(topic_count, topics):
            _put_subscribed_topic(target.deps(), f"t{number:04}")
        topic_count = topics
        jobs = process()
        for _ in range(2):
            with meter.measure() as cost:
                _run_schedules(jobs)
            clock.minutes += 1
        yield at_most(f"an idle minute, {topics:,} topics: write units", cost.writes, 0, "WU")
        yield at_most(f"an idle minute, {topics:,} topics: read units", cost.reads, 10, "RU")
        minutes = 0
        producer = process()
        producer.producer.produce(producer.catalog.topic(f"t{topics // 2:04}"), [Draft(_BODY)])
        while not _run_schedules(process()):
            clock.minutes += 1
            minutes += 1
        yield at_most(
            f"a wake-up lost there, {topics:,} topics: found by the sweep within", minutes + 1, 2, "min"
        )
        topic = producer.catalog.topic(f"t{topics // 2:04}")
        group = producer.catalog.group(topic, "g")
        for shard in topic.shard_numbers:
            producer.positions.seek(topic, cursor_key(topic, group, shard), "latest")
        clock.minutes += 10
        _run_schedules(jobs)
    yield without_target(
        "the same: each topic with an alarm_backlog, 4 shards", f"{_watch_reads(target):.3g} RU more"
    )


def _put_subscribed_topic(deps: Deps, name: str) -> None:
    """A topic with a group that has a subscriber."""
    control, chance, now_ms = deps.adapters.control, deps.adapters.random, deps.adapters.clock.now_ms()
    topic = Topic(name, chance.id(8), now_ms)
    group = Group(name, "g", chance.id(8), now_ms, mode=Mode.QUEUE, begin="earliest")
    control.put_topic(topic, None)
    control.put_group(topic, group, None)
    control.put_consumer(
        topic,
        group,
        Consumer(name, "g", "c", chance.id(8), now_ms, now_ms, ConsumerKind.URL, target="http://127.0.0.1:1"),
        None,
    )


def _run_schedules(deps: Deps) -> int:
    """What schedules start in a minute; how many deliveries the sweep wakes."""
    deps.mover.run_once()
    deps.assigner.run_once()
    deps.watch.run_once()
    return deps.sweeper.run_once().woken


def _watch_reads(target: Stage) -> float:
    """Read units of a minute's look at one idle topic, beside the list of those that are watched."""
    meter = Meter()
    deps = target.deps(meter)
    with meter.measure() as none:
        deps.watch.run_once()
    topic, _ = deps.admin.put_topic("watched", {"shards": 4, "alarm_backlog": 100})
    deps.admin.put_group(topic, "g", {})
    deps.watch.run_once()
    with meter.measure() as minute:
        deps.watch.run_once()
    return minute.reads - none.reads


def main() -> None:
    """Lateness beside a thousandth, a tenth and all of so many timers."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.timers", description="How late delayed messages come."
    )
    parser.add_argument("--waiting", type=int, default=1_000_000, help="timers that wait (1,000,000)")
    most = parser.parse_args().waiting
    from local.engine.dynamodb_local import dynamodb_local

    with dynamodb_local() as engine, stage(engine.endpoint) as target:
        print(plain(list(_measure_lateness(target, (most // 1_000, most // 10, most)))))


if __name__ == "__main__":
    main()
