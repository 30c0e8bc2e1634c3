"""What goes wrong with one fragment, one shard or one wake-up delays no other's timers."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from chalicelib.adapters import Nobody
from chalicelib.domain.errors import unavailable
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import TimerKind
from chalicelib.domain.times import DAY_SECONDS, SECOND_MS
from chalicelib.domain.topic import ConsumerKind, Topic
from chalicelib.domain.transaction import TransactionState
from chalicelib.scheduler.mover import MoveReport
from chalicelib.services.manage.registry import Contact
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.layout import FRAGMENTS, fragment_of
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import require_stored
from tests.support.stages import Stage, embedded_stage

Trouble = Callable[..., None]


class Troubled:
    """A port one of whose methods meets trouble first."""

    def __init__(self, port: Any, **troubles: Trouble) -> None:
        self._port = port
        self._troubles = troubles

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name not in self._troubles:
            return method

        def call(*args: Any, **settings: Any) -> Any:
            self._troubles[name](*args)
            return method(*args, **settings)

        return call


def process(stage: Stage, **ports: Any) -> Deps:
    return Deps(replace(stage.another(), **ports))


def topic_of(deps: Deps, name: str = "shop", **settings: Any) -> Topic:
    topic, _ = deps.admin.put_topic(name, {"shards": 1, **settings})
    return topic


def later(deps: Deps, topic: Topic, count: int, seconds: float = 1) -> list[str]:
    """Delayed messages of a topic that are due together; their ids."""
    due_ms = deps.adapters.clock.now_ms() + round(seconds * 1000)
    drafts = [make.draft(n, due_ms=due_ms) for n in range(count)]
    return [place.id for place in require_stored(deps.producer.produce(topic, drafts))]


def entered(stage: Stage, topic: Topic) -> list[str | None]:
    """The ids in a topic's log, in their order."""
    rows = [row for s in topic.shard_numbers for row in stage.adapters.log.read(topic.shard_key(s), 0, 999)]
    return [draft.id for row in rows for draft in row.drafts]


class Queue(Nobody):
    """The queue of the mover's wake-ups, and the runs that they start."""

    def __init__(self, stage: Stage) -> None:
        self._clock = stage.clock
        self._numbers = itertools.count()
        self._to_come: list[tuple[int, int, dict[str, Any]]] = []
        self.sent = 0

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        self.sent += 1
        due_ms = self._clock.now_ms() + delay_seconds * SECOND_MS
        heapq.heappush(self._to_come, (due_ms, next(self._numbers), dict(hint)))

    def work(self, deps: Deps, seconds: float) -> MoveReport:
        """So much time passes; what the runs did, all together."""
        total, end_ms = MoveReport(), self._clock.now_ms() + round(seconds * SECOND_MS)
        while self._to_come and self._to_come[0][0] <= end_ms:
            due_ms, _, hint = heapq.heappop(self._to_come)
            self._clock.advance(max(0, due_ms - self._clock.now_ms()))
            report = deps.mover.run_once(fragments=hint.get("fragments"), until_ms=hint["until_ms"])
            total.add(report)
            total.refused += report.refused
        self._clock.advance(max(0, end_ms - self._clock.now_ms()))
        return total


def test_a_fragment_that_is_throttled_stops_only_itself() -> None:
    stage = embedded_stage()
    bad = [3]

    def throttled(fragment: int, *_: object) -> None:
        if fragment in bad:
            raise unavailable("throttled")

    queue = Queue(stage)
    deps = process(stage, timers=Troubled(stage.adapters.timers, first_due=throttled), invoker=queue)
    topic = topic_of(deps, shards=4)
    ids = later(deps, topic, 80)
    due_ms = stage.clock.now_ms() + SECOND_MS
    queue.work(deps, 5)
    assert set(entered(stage, topic)) == {id for id in ids if fragment_of(id) != 3}
    times_ms = [
        row.accepted_ms for s in range(4) for row in stage.adapters.log.read(topic.shard_key(s), 0, 99)
    ]
    assert max(times_ms) - due_ms < 2 * SECOND_MS
    bad.clear()
    queue.work(deps, 2)
    assert sorted(map(str, entered(stage, topic))) == sorted(ids)


def test_a_wake_whose_invocation_is_refused_stops_only_itself() -> None:
    stage = embedded_stage()
    events: list[Mapping[str, Any]] = []
    is_broken = True

    class Refusing(Queue):
        def invoke(self, function: str, event: Mapping[str, Any]) -> None:
            if is_broken:
                raise unavailable("throttled")
            events.append(event)

    queue = Refusing(stage)
    deps = process(stage, invoker=queue)
    topic = topic_of(deps)
    deps.admin.put_group(topic, "billing", {})
    group = deps.catalog.group(topic, "billing")
    deps.registry.register(topic, group, "one", Contact(ConsumerKind.URL, "https://one.example/"))
    other = topic_of(deps, "other", shards=4)
    ids = later(deps, other, 30, 5)
    now_ms = stage.clock.now_ms()
    wake = make.timer(now_ms + SECOND_MS, kind=TimerKind.WAKE, shard=topic.shard_key(0))
    stage.adapters.timers.store([wake])
    deps.waker.wake_movers([wake])
    report = queue.work(deps, 10)
    assert sorted(map(str, entered(stage, other))) == sorted(ids)
    assert (report.woken, report.refused) == (0, 10)
    is_broken = False
    assert queue.work(deps, 1).woken == 1
    assert [event["topic"] for event in events] == ["shop"]


def test_a_check_whose_invocation_is_refused_comes_as_soon_as_it_is_not() -> None:
    """And not at the transaction's next check, which may be a day later."""
    stage = embedded_stage()
    started_ms: list[int] = []
    refusals = [True] * 3

    class Refusing(Queue):
        def invoke(self, function: str, event: Mapping[str, Any]) -> None:
            if refusals:
                refusals.pop()
                raise unavailable("throttled")
            started_ms.append(stage.clock.now_ms())

    queue = Refusing(stage)
    deps = process(stage, invoker=queue)
    checks = Checks("https://bank.example.com/check", DAY_SECONDS)
    transaction, _ = deps.transactor.prepare(topic_of(deps), make.draft("x"), checks)
    stage.clock.advance(DAY_SECONDS * SECOND_MS)
    assert deps.mover.tick().checked == 0
    assert queue.work(deps, 10).checked == 1
    assert [at_ms - transaction.check_ms for at_ms in started_ms] == [3 * SECOND_MS]
    timers = stage.adapters.timers
    assert timers.next_ms(fragment_of(transaction.id)) == transaction.check_ms + DAY_SECONDS * SECOND_MS


def test_checks_that_were_started_are_not_started_again_with_the_refused_ones() -> None:
    stage = embedded_stage()
    started: list[str] = []

    class Refusing(Queue):
        """Takes no more than two invocations a second."""

        invoked_ms: tuple[int, int] = (0, 0)

        def invoke(self, function: str, event: Mapping[str, Any]) -> None:
            if function != "check":
                return
            now_ms = stage.clock.now_ms()
            if self.invoked_ms[0] > now_ms - SECOND_MS:
                raise unavailable("throttled")
            self.invoked_ms = (self.invoked_ms[1], now_ms)
            assert len(event["checks"]) <= 25
            started.extend(transaction_id for transaction_id, _ in event["checks"])

    queue = Refusing(stage)
    deps = process(stage, invoker=queue)
    checks = Checks("https://bank.example.com/check", DAY_SECONDS)
    topic = topic_of(deps)
    ids = [deps.transactor.prepare(topic, make.draft(n), checks)[0].id for n in range(800)]
    stage.clock.advance(DAY_SECONDS * SECOND_MS)
    deps.mover.tick()
    queue.work(deps, 60)
    assert sorted(started) == sorted(ids)


def test_a_shard_that_is_throttled_stops_only_itself_and_keeps_its_order() -> None:
    stage = embedded_stage()
    bad: set[str] = {"bad"}

    def throttled(shard: ShardKey, *_: object) -> None:
        if shard.topic in bad:
            raise unavailable("throttled")

    queue = Queue(stage)
    deps = process(stage, log=Troubled(stage.adapters.log, put=throttled), invoker=queue)
    first, good = topic_of(deps, "bad"), topic_of(deps, "good")
    stuck_ids = later(deps, first, 600, 1)  # more than one look holds
    ids = later(deps, good, 30, 1)
    queue.work(deps, 5)
    assert sorted(map(str, entered(stage, good))) == sorted(ids)
    assert entered(stage, first) == []
    bad.clear()
    queue.work(deps, 2)
    assert entered(stage, first) == stuck_ids


def test_nothing_of_a_shard_goes_past_what_was_refused() -> None:
    stage, refusals = embedded_stage(), [True]

    def throttled(*_: object) -> None:
        if refusals.pop() if refusals else False:
            raise unavailable("throttled")

    deps = process(stage, log=Troubled(stage.adapters.log, put=throttled))
    topic = topic_of(deps)
    ids = later(deps, topic, 600)  # more than one look holds
    stage.clock.advance(SECOND_MS)
    for count in (0, 600):
        deps.mover.run_once()
        assert entered(stage, topic) == ids[:count]


def test_a_bug_that_one_shard_meets_stops_only_itself_and_is_told() -> None:
    stage = embedded_stage()

    def bug(shard: ShardKey, *_: object) -> None:
        if shard.topic == "bad":
            raise KeyError("bug")

    deps = process(stage, log=Troubled(stage.adapters.log, put=bug))
    bad, good = topic_of(deps, "bad"), topic_of(deps, "good")
    later(deps, bad, 3)
    ids = later(deps, good, 30)
    stage.clock.advance(SECOND_MS)
    assert not deps.mover.run_once().finished
    assert sorted(map(str, entered(stage, good))) == sorted(ids)


def test_a_shard_whose_write_hangs_holds_up_no_other() -> None:
    """Not even what is due later than the run that waits for it has begun."""
    stage = embedded_stage()
    last_went = threading.Event()

    def hang(shard: ShardKey, *_: object) -> None:
        if shard.topic == "slow":
            assert last_went.wait(60)
        elif shard.topic == "last":
            last_went.set()

    deps = process(
        stage, log=Troubled(stage.adapters.log, put=hang), threads=lambda: ThreadPoolExecutor(FRAGMENTS)
    )
    slow, good, last = (topic_of(deps, name) for name in ("slow", "good", "last"))
    topics = [slow, good, last]
    ids = [later(deps, topic, 5, seconds) for topic, seconds in zip(topics, (1, 1, 1.2), strict=True)]
    stage.clock.advance(SECOND_MS)
    deps.mover.run_once()
    assert [sorted(map(str, entered(stage, topic))) for topic in topics] == [sorted(each) for each in ids]


def test_a_transactions_delay_does_not_run_while_its_body_is_uploaded() -> None:
    stage = embedded_stage()
    slow = Troubled(stage.adapters.blobs, put=lambda *_: stage.clock.advance(3 * SECOND_MS))
    deps = process(stage, blobs=slow)
    topic = topic_of(deps, max_body_bytes=1_000_000)
    began_ms = stage.clock.now_ms()
    draft = make.draft("x" * 300_000, due_ms=began_ms + 10 * SECOND_MS)
    transaction, _ = deps.transactor.prepare(topic, draft, Checks(), delay_from_commit=True)
    assert (transaction.prepared_ms, transaction.delay_ms) == (began_ms, 10 * SECOND_MS)
    decision = deps.transactor.decide(transaction, TransactionState.COMMITTED)
    assert decision.due_ms == stage.clock.now_ms() + 10 * SECOND_MS


def test_trouble_does_not_multiply_wake_ups() -> None:
    stage = embedded_stage()
    queue = Queue(stage)
    to_ms = stage.clock.now_ms() + 600 * SECOND_MS

    def away(*_: object) -> None:
        if stage.clock.now_ms() < to_ms:
            raise unavailable("the store is away")

    deps = process(stage, timers=Troubled(stage.adapters.timers, first_due=away), invoker=queue)
    topic = topic_of(deps)
    ids = [id for n in range(80) for id in later(deps, topic, 1, 5 * n)]
    for _ in range(10):
        deps.mover.tick()
        queue.work(deps, 60)
    assert queue.sent < 80 + 3 * 600, "about two a second, as for what is in order"
    queue.work(deps, 2)
    assert sorted(map(str, entered(stage, topic))) == sorted(ids)
