"""What goes wrong with one fragment, one shard or one wake-up delays no other's timers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.adapters import Nobody
from chalicelib.domain.errors import unavailable
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import TimerKind, fragment_of
from chalicelib.domain.times import DAY_SECONDS, SECOND_MS
from chalicelib.domain.topic import ConsumerKind, Topic
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.manage.registry import Contact
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import require_stored
from tests.support.push import Inbox
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
    rows = [row for s in range(topic.shards) for row in stage.adapters.log.read(topic.shard_key(s), 0, 999)]
    return [draft.id for row in rows for draft in row.drafts]


def until(stage: Stage, seconds: float) -> Callable[[], bool]:
    """A function's time."""
    end_ms = stage.clock.now_ms() + round(seconds * 1000)
    return lambda: stage.clock.now_ms() < end_ms


@pytest.mark.parametrize("method", ["first_due", "next_ms", "acquire_lease"])
def test_a_fragment_that_is_throttled_stops_only_itself(method: str) -> None:
    stage = embedded_stage()
    bad = 3

    def throttled(fragment: int, *_: object) -> None:
        if fragment == bad:
            raise unavailable("throttled")

    deps = process(stage, timers=Troubled(stage.adapters.timers, **{method: throttled}))
    topic = topic_of(deps, shards=4)
    ids = later(deps, topic, 80)
    due_ms = stage.clock.now_ms() + SECOND_MS
    report = deps.mover.run_once(until(stage, 5))
    others = {id for id in ids if fragment_of(id) != bad}
    assert others <= set(entered(stage, topic))
    assert not report.finished
    times_ms = [
        row.accepted_ms for s in range(4) for row in stage.adapters.log.read(topic.shard_key(s), 0, 99)
    ]
    assert max(times_ms) - due_ms < 5 * SECOND_MS
    process(stage).mover.run_once()
    assert sorted(map(str, entered(stage, topic))) == sorted(ids)


def test_a_fragment_throttled_once_goes_on_within_the_same_run() -> None:
    stage = embedded_stage()
    for method in ("first_due", "next_ms", "acquire_lease", "release_lease"):
        refusals = dict.fromkeys(range(FRAGMENTS), 1)

        def throttled(fragment: int, *_: object, refusals: dict[int, int] = refusals) -> None:
            if refusals[fragment]:
                refusals[fragment] -= 1
                raise unavailable("throttled")

        deps = process(stage, timers=Troubled(stage.adapters.timers, **{method: throttled}))
        topic = topic_of(deps, f"shop-{method}", shards=4)
        ids = later(deps, topic, 40)
        due_ms = stage.clock.now_ms() + SECOND_MS
        deps.mover.run_once()
        assert sorted(map(str, entered(stage, topic))) == sorted(ids)
        assert stage.clock.now_ms() - due_ms < 5 * SECOND_MS


def test_a_wake_whose_invocation_is_refused_stops_only_itself() -> None:
    stage = embedded_stage()
    events: list[Mapping[str, Any]] = []
    is_broken = True

    class Refusing(Nobody):
        def invoke(self, function: str, event: Mapping[str, Any]) -> None:
            if is_broken:
                raise unavailable("throttled")
            events.append(event)

    deps = process(stage, invoker=Refusing())
    topic = topic_of(deps)
    deps.admin.put_group(topic, "billing", {})
    group = deps.catalog.group(topic, "billing")
    deps.registry.register(topic, group, "one", Contact(ConsumerKind.URL, "https://one.example/"))
    other = topic_of(deps, "other", shards=4)
    ids = later(deps, other, 30, 5)
    now_ms = stage.clock.now_ms()
    wake = make.timer(now_ms + SECOND_MS, kind=TimerKind.WAKE, shard=topic.shard_key(0))
    stage.adapters.timers.store([wake])
    report = deps.mover.run_once(until(stage, 10))
    assert sorted(map(str, entered(stage, other))) == sorted(ids)
    assert (report.woken, report.finished) == (0, False)
    is_broken = False
    assert process(stage, invoker=Refusing()).mover.run_once().woken == 1
    assert [event["topic"] for event in events] == ["shop"]


def test_a_check_whose_invocation_is_refused_comes_as_soon_as_it_is_not() -> None:
    """And not at the transaction's next check, which may be a day later."""
    stage = embedded_stage()
    started_ms: list[int] = []
    refusals = [True] * 3

    class Refusing(Nobody):
        def invoke(self, function: str, event: Mapping[str, Any]) -> None:
            if refusals:
                refusals.pop()
                raise unavailable("throttled")
            started_ms.append(stage.clock.now_ms())

    deps = process(stage, invoker=Refusing())
    checks = Checks("https://bank.example.com/check", DAY_SECONDS)
    transaction, _ = deps.transactor.prepare(topic_of(deps), make.draft("x"), checks)
    stage.clock.advance(DAY_SECONDS * SECOND_MS)
    assert deps.mover.run_once(until(stage, 10)).checked == 1
    assert [at_ms - transaction.check_ms for at_ms in started_ms] == [3 * SECOND_MS]
    timers = stage.adapters.timers
    assert timers.next_ms(fragment_of(transaction.id)) == transaction.check_ms + DAY_SECONDS * SECOND_MS


def test_checks_that_were_started_are_not_started_again_with_the_refused_ones() -> None:
    stage = embedded_stage()
    started: list[str] = []

    class Refusing(Nobody):
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

    deps = process(stage, invoker=Refusing())
    checks = Checks("https://bank.example.com/check", DAY_SECONDS)
    topic = topic_of(deps)
    ids = [deps.transactor.prepare(topic, make.draft(n), checks)[0].id for n in range(800)]
    stage.clock.advance(DAY_SECONDS * SECOND_MS)
    deps.mover.run_once(until(stage, 60))
    assert sorted(started) == sorted(ids)


def test_a_shard_that_is_throttled_stops_only_itself_and_keeps_its_order() -> None:
    stage = embedded_stage()
    bad: set[str] = {"bad"}

    def throttled(shard: ShardKey, *_: object) -> None:
        if shard.topic in bad:
            raise unavailable("throttled")

    deps = process(stage, log=Troubled(stage.adapters.log, put=throttled))
    first, good = topic_of(deps, "bad"), topic_of(deps, "good")
    stuck_ids = later(deps, first, 600, 1)  # more than one look holds
    ids = later(deps, good, 30, 1.5)
    report = deps.mover.run_once(until(stage, 5))
    assert sorted(map(str, entered(stage, good))) == sorted(ids)
    assert (entered(stage, first), report.finished) == ([], False)
    bad.clear()
    deps.mover.run_once()
    assert entered(stage, first) == stuck_ids


def test_more_that_is_stuck_than_a_drain_can_look_through_hides_nothing() -> None:
    stage = embedded_stage()
    bad: set[str] = {"bad"}

    def throttled(shard: ShardKey, *_: object) -> None:
        if shard.topic in bad:
            raise unavailable("throttled")

    def slow(*_: object) -> None:
        stage.clock.advance(300)

    deps = process(
        stage,
        log=Troubled(stage.adapters.log, put=throttled),
        timers=Troubled(stage.adapters.timers, first_due=slow),
    )
    first, good = topic_of(deps, "bad"), topic_of(deps, "good")
    stuck_ids = later(deps, first, 3_000, 1)  # one shard's, so in one fragment
    ids = later(deps, good, 1, 1.5)
    while (fragment := fragment_of(ids[-1])) != fragment_of(stuck_ids[0]):
        timers = stage.adapters.timers
        timers.drop(timers.first_due(fragment, stage.clock.now_ms() + 2_000, 1).timers)
        good = topic_of(deps, make.uid("good"))
        ids = later(deps, good, 1, 1.5)
    deps.mover.run_once(until(stage, 20))
    assert entered(stage, good) == ids
    bad.clear()
    deps.mover.run_once()
    assert entered(stage, first) == stuck_ids


def test_nothing_of_a_shard_goes_past_what_was_refused() -> None:
    stage, refusals = embedded_stage(), [True]

    def throttled(*_: object) -> None:
        if refusals.pop() if refusals else False:
            raise unavailable("throttled")

    deps = process(stage, log=Troubled(stage.adapters.log, put=throttled))
    topic = topic_of(deps)
    ids = later(deps, topic, 600)  # more than one look holds
    deps.mover.run_once()
    assert entered(stage, topic) == ids


def test_a_bug_that_one_shard_meets_stops_only_itself_and_is_told() -> None:
    stage = embedded_stage()

    def bug(shard: ShardKey, *_: object) -> None:
        if shard.topic == "bad":
            raise KeyError("bug")

    deps = process(stage, log=Troubled(stage.adapters.log, put=bug))
    bad, good = topic_of(deps, "bad"), topic_of(deps, "good")
    later(deps, bad, 3)
    ids = later(deps, good, 30)
    assert not deps.mover.run_once(until(stage, 5)).finished
    assert sorted(map(str, entered(stage, good))) == sorted(ids)


def test_a_shard_whose_write_hangs_holds_up_no_other() -> None:
    stage = embedded_stage()
    others_went = threading.Event()

    def hang(shard: ShardKey, *_: object) -> None:
        if shard.topic == "slow":
            assert others_went.wait(60)
        elif shard.topic == "last":
            others_went.set()

    deps = process(
        stage, log=Troubled(stage.adapters.log, put=hang), threads=lambda: ThreadPoolExecutor(FRAGMENTS)
    )
    slow, good, last = (topic_of(deps, name) for name in ("slow", "good", "last"))
    topics = [slow, good, last]
    ids = [later(deps, topic, 5, seconds) for seconds, topic in enumerate(topics, 1)]
    deps.mover.run_once()
    assert [sorted(map(str, entered(stage, topic))) for topic in topics] == [sorted(each) for each in ids]


def test_what_is_filed_while_a_mover_leaves_is_still_its_own() -> None:
    stage = embedded_stage()
    ids: list[str] = []

    def another(*_: object) -> None:
        if len(ids) < 3:
            ids.extend(later(process(stage), topic, 1, 2))

    deps = process(stage, timers=Troubled(stage.adapters.timers, release_lease=another))
    topic = topic_of(deps)
    ids.extend(later(deps, topic, 1))
    assert deps.mover.run_once().moved == 3
    assert entered(stage, topic) == ids


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_cancelled_timer_leaves_no_false_belief_in_its_mover(is_refused: bool) -> None:
    stage = embedded_stage()
    inbox = Inbox()

    class Perhaps(Nobody):
        def invoke(self, function: str, event: Mapping[str, Any]) -> None:
            if is_refused:
                raise unavailable("throttled")
            inbox.invoke(function, event)

    deps = process(stage, invoker=Perhaps())
    topic = topic_of(deps)
    for id in later(deps, topic, 40, 50):
        message = deps.delayed.find(topic, id)
        assert isinstance(message, DelayedMessage)
        deps.delayed.cancel(topic, message)
    is_refused = False
    for _, event in inbox.asked:
        deps.mover.run_once(fragments=event["detail"]["fragments"])
    inbox.asked.clear()
    (id,) = later(deps, topic, 1, 2)
    assert [event["detail"]["fragments"] for _, event in inbox.asked] == [[fragment_of(id)]]


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


def test_trouble_that_outlasts_movers_does_not_multiply_them() -> None:
    stage, inbox, count = embedded_stage(), Inbox(), 0
    from_ms, to_ms = (stage.clock.now_ms() + seconds * SECOND_MS for seconds in (20, 1_000))

    def away(*_: object) -> None:
        stage.clock.advance(1_000)  # a time-out
        if from_ms <= stage.clock.now_ms() < to_ms:
            raise unavailable("the store is away")

    methods = dict.fromkeys(("next_ms", "acquire_lease", "release_lease", "first_due"), away)
    deps = process(stage, timers=Troubled(stage.adapters.timers, **methods), invoker=inbox)
    topic = topic_of(deps)
    ids = later(deps, topic, 80, 60)
    while stage.clock.now_ms() < to_ms:
        scheduled_ms = stage.clock.now_ms() + 60 * SECOND_MS
        deps.mover.run_once(until(stage, 55))
        count += len(inbox.asked)
        while inbox.asked:
            _, event = inbox.asked.popleft()
            deps.mover.run_once(until(stage, 55), event["detail"]["fragments"])
            count += len(inbox.asked)
        stage.clock.advance(max(0, scheduled_ms - stage.clock.now_ms()))
    assert 0 < count <= FRAGMENTS, "only what was held when it began is handed on, once"
    deps.mover.run_once(until(stage, 300))
    assert sorted(map(str, entered(stage, topic))) == sorted(ids)
