"""Consumers: handlers are handed messages, and what they do is settled."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import programs
import pydantic
import pytest

from headrace import AsyncHeadrace, Bury, Headrace, Message, Outgoing, Retry, errors
from headrace.models import GroupCounts
from headrace.once import Once

QUICK = {"wait": 0.2, "rest": 0.05}


def counts(hr: Headrace, topic: str, group: str = "g") -> GroupCounts:
    stats = hr.get_topic(topic).stats
    assert stats is not None
    return stats.groups[group]


class Log:
    """What handlers got, and a stop when it is enough."""

    def __init__(self, hr: Headrace, enough: int) -> None:
        self.messages: list[Any] = []
        self._hr = hr
        self._enough = enough
        self._lock = threading.Lock()

    def add(self, message: Any) -> None:
        with self._lock:
            self.messages.append(message)
            if len(self.messages) >= self._enough:
                self._hr.stop()


def test_a_handler_that_returns_acks(hr: Headrace, topic: str) -> None:
    log = Log(hr, 20)
    hr.put_group(topic, "g", begin="earliest")
    hr.send_many(topic, range(20))
    hr.consumer(topic, group="g", concurrency=4, **QUICK)(log.add)
    hr.run(for_seconds=30)
    assert sorted(m.body for m in log.messages) == list(range(20))
    after = counts(hr, topic)
    assert (after.consumed, after.in_flight, after.backlog) == (20, 0, 0)


def test_a_missing_group_is_made_from_the_beginning(hr: Headrace, topic: str) -> None:
    hr.send(topic, "first", tag="paid")
    hr.send(topic, "other", tag="lost")
    log = Log(hr, 1)
    hr.consumer(topic, group="new", tags=["paid"], **QUICK)(log.add)
    hr.run(for_seconds=30)
    assert [m.body for m in log.messages] == ["first"]


def test_a_handler_may_retry_bury_or_fail(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest", retry={"ladder": [600]})

    def handle(message: Message) -> None:
        log.add((message.body, message.attempt))
        if message.body == "bury":
            raise Bury("no such customer")
        if message.body == "retry" and message.attempt == 1:
            raise Retry(in_seconds=0)
        if message.body == "fail":
            raise KeyError("customer")

    log = Log(hr, 4)
    sent = {body: hr.send(topic, body) for body in ("bury", "retry", "fail")}
    hr.consumer(topic, group="g", **QUICK)(handle)
    hr.run(for_seconds=30)
    assert sorted(log.messages) == [("bury", 1), ("fail", 1), ("retry", 1), ("retry", 2)]
    (letter,) = hr.list_dead_letters(topic, "g")
    assert (letter.id, letter.last_error) == (sent["bury"].id, "no such customer")
    delivery = hr.get_message(topic, sent["fail"].id).deliveries["g"]
    assert (delivery.status, delivery.last_error) == ("RETRYING", "KeyError: 'customer'")


def test_who_asks_for_a_longer_wait_than_there_is_gets_the_longest(hr: Headrace, topic: str) -> None:
    """The service refuses a longer one, and the message came again when its lease ended."""
    hr.put_group(topic, "g", begin="earliest")
    sent, log = hr.send(topic, 1), Log(hr, 1)

    def handle(message: Message) -> None:
        log.add(message)
        raise Retry(in_seconds="60d")

    hr.consumer(topic, group="g", **QUICK)(handle)
    hr.run(for_seconds=30)
    delivery = hr.get_message(topic, sent.id).deliveries["g"]
    assert delivery.status == "RETRYING"
    assert delivery.next_attempt_at is not None
    wait = delivery.next_attempt_at - datetime.now(timezone.utc)
    assert timedelta(days=29) < wait <= timedelta(days=30)


@dataclass
class Order:
    order: int
    note: str = ""


class Payment(pydantic.BaseModel):
    paid: int


def test_bodies_have_the_type_of_the_annotation(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "orders", begin="earliest")
    hr.put_group(topic, "payments", begin="earliest")
    log, bodies = Log(hr, 4), []

    def counted(message: Message, call: Callable[[Message], Any]) -> Any:
        try:
            return call(message)
        finally:
            log.add(message)

    @hr.consumer(topic, group="orders", middleware=[counted], **QUICK)
    def order(body: Order, message: Message) -> None:
        bodies.append((body, message.attempt))

    @hr.consumer(topic, group="payments", middleware=[counted], **QUICK)
    def payment(body: Payment) -> None:
        bodies.append((body, 1))

    hr.send(topic, Order(188, "soon"))
    hr.send(topic, Payment(paid=30))
    hr.run(for_seconds=30)
    assert sorted(bodies, key=str) == [(Order(188, "soon"), 1), (Payment(paid=30), 1)]
    reasons = [str(letter.last_error) for letter in hr.list_dead_letters(topic, "orders")]
    assert len(reasons) == 1
    assert reasons[0].startswith("The body is no Order")


def test_a_serial_group_keeps_the_order_of_each_key(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest", mode="serial")
    hr.send_many(topic, [Outgoing(body=n, ordering_key=f"k{n % 3}") for n in range(30)])
    bodies_by_key: defaultdict[str | None, list[int]] = defaultdict(list)
    log = Log(hr, 30)

    def handle(message: Message) -> None:
        bodies_by_key[message.ordering_key].append(message.body)
        log.add(message)

    hr.consumer(topic, group="g", mode="serial", concurrency=4, **QUICK)(handle)
    hr.run(for_seconds=40)
    assert {key: sorted(bodies) for key, bodies in bodies_by_key.items()} == dict(bodies_by_key)
    assert len(log.messages) == 30


def test_in_a_broadcast_every_consumer_gets_everything(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", mode="broadcast")
    counts_by_name: Counter[str] = Counter()
    log = Log(hr, 6)
    for name in ("a", "b"):

        def handle(message: Message, name: str = name) -> None:
            counts_by_name[name] += 1
            log.add(message)

        hr.consumer(topic, group="g", name=name, **QUICK)(handle)
        hr.put_consumer(topic, "g", name)
    hr.send_many(topic, range(3))
    hr.run(for_seconds=30)
    assert counts_by_name == {"a": 3, "b": 3}


def test_consumers_know_their_rank_and_leave(hr: Headrace, topic: str) -> None:
    log = Log(hr, 1)
    hr.put_group(topic, "g", begin="earliest")
    hr.send(topic, 1)
    hr.consumer(topic, group="g", name="only", **QUICK)(log.add)
    hr.run(for_seconds=30)
    registration = hr.consumers[0].registration
    assert registration is not None
    assert (registration.rank, registration.total) == (0, 1)
    assert list(hr.list_consumers(topic, "g")) == []


def test_middleware_stands_around_the_handler(hr: Headrace, topic: str) -> None:
    steps: list[str] = []

    def outer(message: Message, call: Callable[[Message], Any]) -> Any:
        steps.append("in")
        try:
            return call(message)
        finally:
            steps.append("out")

    def handle(message: Message) -> None:
        steps.append(message.body)
        log.add(message)

    log = Log(hr, 1)
    hr.consumer(topic, group="g", middleware=[outer], **QUICK)(handle)
    hr.send(topic, "handled")
    hr.run(for_seconds=30)
    assert steps == ["in", "handled", "out"]


def test_what_one_group_has_handled_the_other_gets_though_they_share_a_file(
    hr: Headrace, topic: str, tmp_path: Path
) -> None:
    once, log = Once(tmp_path / "handled"), Log(hr, 2)
    for group in ("mailer", "stock"):
        hr.put_group(topic, group, begin="earliest")
        hr.consumer(topic, group=group, middleware=[once], **QUICK)(log.add)
    id = hr.send(topic, 1).id
    hr.run(for_seconds=10)
    assert sorted((m.id, m.topic, m.group) for m in log.messages) == [
        (id, topic, "mailer"),
        (id, topic, "stock"),
    ]
    once.close()


def test_async_handlers_run_beside_one_another(hr: Headrace, service: str, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest")
    hr.send_many(topic, range(4))
    together = asyncio.Barrier(4) if hasattr(asyncio, "Barrier") else None

    async def main() -> list[int]:
        async with AsyncHeadrace(service, hr.transport.token) as client:
            bodies: list[int] = []

            @client.consumer(topic, group="g", concurrency=4, **QUICK)
            async def handle(message: Message) -> None:
                if together:
                    await together.wait()
                bodies.append(message.body)
                if len(bodies) == 4:
                    client.stop()

            await client.run(for_seconds=30)
            return bodies

    assert sorted(asyncio.run(main())) == [0, 1, 2, 3]
    assert counts(hr, topic).consumed == 4


def test_who_is_cancelled_before_a_thread_is_free_ends(hr: Headrace, service: str, topic: str) -> None:
    """It began when there was a thread, and could not be ended."""

    async def main() -> None:
        loop, is_free = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        loop.run_in_executor(None, is_free.wait)
        async with AsyncHeadrace(service, hr.transport.token) as client:
            client.consumer(topic, group="g", **QUICK)(lambda _: None)
            work = asyncio.create_task(client.run(for_seconds=40))
            await asyncio.sleep(0)
            work.cancel()
            await asyncio.sleep(0)
            is_free.set()
            await asyncio.wait({work}, timeout=20)
            assert work.cancelled()

    asyncio.run(main())


def test_a_process_that_is_told_twice_to_end_waits_for_no_timer(hr: Headrace, topic: str) -> None:
    """It lived on until `for_seconds` were over."""
    hr.send(topic, 1)
    timers: list[bool] = []

    @hr.consumer(topic, group="g", **QUICK)
    def handle(message: Message) -> None:
        timers.extend(each.daemon for each in threading.enumerate() if isinstance(each, threading.Timer))
        hr.stop()

    hr.run(for_seconds=30)
    assert timers == [True]


def test_what_makes_work_impossible_is_raised(hr: Headrace) -> None:
    with pytest.raises(ValueError, match="no consumer"):
        hr.run()
    hr.consumer("nowhere", group="g")(lambda message: None)
    with pytest.raises(errors.TopicNotFound):
        hr.run()


WORKER = """
import sys, time
from headrace import Headrace
hr = Headrace.from_env()
@hr.consumer(sys.argv[1], group="g", concurrency=2, prefetch=1, wait=1, lease=2, name="one", drain=2)
def handle(message):
    print(f"{message.body} {message.attempt}\\n", end="", flush=True)  # whole: two threads print
    time.sleep(message.body)
hr.run()
print("ended", flush=True)
"""


def test_sigterm_gives_back_what_has_not_begun_and_ends_within_the_limit(hr: Headrace, topic: str) -> None:
    """It worked off all it had fetched, for as long as that took."""
    hr.put_topic(own_topic := f"{topic}-one", shards=1)
    hr.put_group(own_topic, "g", begin="earliest")
    hr.send_many(own_topic, [60, 0.3, 5])
    with programs.start(hr, WORKER, own_topic) as process:
        assert process.stdout is not None
        assert sorted(process.stdout.readline() for _ in range(2)) == ["0.3 1\n", "60 1\n"]
        process.send_signal(signal.SIGTERM)
        start = time.monotonic()
        (unbegun,) = hr.receive(own_topic, "g", wait=20)
        assert process.poll() is None, "at once"
        assert process.stdout.read() == "ended\n"
        assert process.wait(20) == 0
        assert time.monotonic() - start < 4
    assert (unbegun.body, unbegun.attempt) == (5, 1)
    (cut_off,) = hr.receive(own_topic, "g", wait=20)
    assert (cut_off.body, cut_off.attempt) == (60, 2)
    assert counts(hr, own_topic).consumed == 1
    assert list(hr.list_consumers(own_topic, "g")) == []


def test_what_a_killed_consumer_held_is_handled_by_another(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest", retry={"ladder": [1]})
    sent = hr.send(topic, 60)
    with programs.start(hr, WORKER, topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "60 1\n"
        process.kill()
    log = Log(hr, 1)
    hr.consumer(topic, group="g", **QUICK)(log.add)
    hr.run(for_seconds=30)
    assert [(m.id, m.attempt) for m in log.messages] == [(sent.id, 2)]
    outcomes = [e.outcome for e in hr.get_trace(topic, sent.id) if e.attempt is not None and e.outcome]
    assert outcomes, "each attempt is explained"


def test_a_handler_may_be_tried_again_at_once(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest")
    sent = hr.send(topic, "shaky")
    log = Log(hr, 3)

    def handle(message: Message) -> None:
        log.add(message.attempt)
        if len(log.messages) < 3:
            raise OSError("not yet")

    hr.consumer(topic, group="g", local_retries=2, **QUICK)(handle)
    hr.run(for_seconds=30)
    assert log.messages == [1, 1, 1]
    assert hr.get_message(topic, sent.id).deliveries["g"].status == "SUCCESS"


def test_without_auto_ack_the_handler_acks_when_it_likes(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", begin="earliest")
    hr.send(topic, 1)
    log = Log(hr, 1)
    hr.consumer(topic, group="g", auto_ack=False, **QUICK)(log.add)
    hr.run(for_seconds=30)
    assert counts(hr, topic).in_flight == 1
    assert hr.ack(topic, "g", log.messages[0])[0].ok
    assert counts(hr, topic).consumed == 1


def test_a_name_keeps_its_place_in_a_broadcast(hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "g", mode="broadcast")
    log = Log(hr, 2)
    hr.consumer(topic, group="g", name="node-1", **QUICK)(log.add)
    hr.run(for_seconds=0.3)
    hr.send_many(topic, ["while", "away"])
    hr.run(for_seconds=30)
    assert sorted(m.body for m in log.messages) == ["away", "while"]


def test_consumers_are_discovered_in_a_package(
    hr: Headrace, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "shop_consumers" / "mail"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("hr = None\n")
    (package / "__init__.py").write_text("")
    (package / "orders.py").write_text(
        "import shop_consumers\n"
        "@shop_consumers.hr.consumer('orders', group='mailer')\n"
        "def mail(message): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import shop_consumers  # type: ignore[import-not-found]

    shop_consumers.hr = hr
    hr.discover("shop_consumers")
    assert [(c.settings.topic, c.settings.group) for c in hr.consumers] == [("orders", "mailer")]


def test_a_send_that_is_refused_is_a_log_line_as_well(hr: Headrace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "headrace")
    with pytest.raises(errors.TopicNotFound):
        hr.send("nowhere", 1, key="order-1")
    (facts,) = [record.headrace for record in caplog.records if hasattr(record, "headrace")]
    assert facts == {"topic": "nowhere", "key": "order-1", "outcome": "TOPIC_NOT_FOUND"}


def test_each_message_is_one_log_line_with_fields(
    hr: Headrace, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "headrace")
    log = Log(hr, 1)
    sent = hr.send(topic, 1, key="order-1")
    hr.consumer(topic, group="g", **QUICK)(log.add)
    hr.run(for_seconds=30)
    facts = [record.headrace for record in caplog.records if hasattr(record, "headrace")]
    send_fields, handling_fields = facts
    assert send_fields == {"topic": topic, "message_id": sent.id, "key": "order-1", "outcome": "NEW"}
    assert handling_fields == {
        "topic": topic,
        "group": "g",
        "message_id": sent.id,
        "attempt": 1,
        "outcome": "ack",
    }
