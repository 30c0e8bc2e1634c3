"""The background producer against a service in a few lines: what goes together, when, and again."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headrace import Producer, Sent, errors, moments
from headrace import producer as producer_module
from headrace._sync.sends import Batch
from headrace.outgoing import RequestIds
from headrace.spool import Spool

SOON = 20  # seconds: for what comes at once
AWAY = errors.Unavailable("UNAVAILABLE", "no answer", retryable=True)
FULL = errors.RateLimited("RATE_LIMITED", "later", retryable=True)
WRONG = errors.Refused("NO_SUCH_SHARD", "there is none")
FORGOTTEN = errors.ResendTooLate("RESEND_TOO_LATE", "Too much was stored.")


class Service:
    """Stores batches, except those with a given result. It holds back its answers until `gate` is open."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.batches: list[Batch] = []
        self.seen: Callable[[], object] = lambda: None
        self.asked, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def send_batch(self, batch: Batch) -> list[Sent | errors.HeadraceError]:
        self.batches.append(batch)
        self.seen()
        self.asked.set()
        assert self.gate.wait(SOON)
        outcome = self.outcomes.pop(0) if self.outcomes else []
        if isinstance(outcome, Exception):
            raise outcome
        return outcome or [sent_at(n) for n in range(len(batch.messages))]

    @property
    def bodies(self) -> list[list[Any]]:
        return [[msgspec.json.decode(each)["body"] for each in batch.messages] for batch in self.batches]  # type: ignore[arg-type]


def sent_at(offset: int) -> Sent:
    return Sent(
        id=f"m{offset}",
        topic="orders",
        status="NEW",
        accepted_at=datetime(2026, 11, 22, tzinfo=timezone.utc),
        offset=offset,
    )


class Clock:
    """The producer's time, which its pauses let pass; they are noted."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self.is_stopping = False

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return self.is_stopping

    def set(self) -> None:
        self.is_stopping = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """For producers that are made from now on."""
    clock = Clock()
    monkeypatch.setattr(producer_module, "time", clock)
    monkeypatch.setattr(moments, "now", lambda: moments.Moment(clock.now, clock.now, "a"))
    threads = SimpleNamespace(
        Condition=threading.Condition, Lock=threading.Lock, Thread=threading.Thread, Event=lambda: clock
    )
    monkeypatch.setattr(producer_module, "threading", threads)
    return clock


def producer(service: Service, **options: Any) -> Producer:
    return Producer(service, **{"linger_ms": 0, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "fits"), [(0, False), (1, True), (1000, True), (1001, False)])
def test_a_batch_has_a_size_that_the_service_takes(size: int, fits: bool) -> None:
    if fits:
        producer(Service(), max_batch=size).close()
    else:
        with pytest.raises(ValueError, match="max_batch"):
            producer(Service(), max_batch=size)


@pytest.mark.parametrize("spooled", [False, True])
@pytest.mark.parametrize("topic", ["", "..", None])
def test_what_is_no_topic_is_refused_at_once_and_stops_nobody(path: Path, spooled: bool, topic: Any) -> None:
    """It ended the thread, and each that read the spool: nothing was sent any more, and `flush` had no end."""
    service = Service()
    with producer(service, spool=path if spooled else None) as sender:
        with pytest.raises(ValueError, match="no name"):
            sender.send(topic, 1)
        assert sender.send("orders", 2).result(SOON).offset == 0
    assert service.bodies == [[2]]


def test_a_full_batch_does_not_linger() -> None:
    service = Service()
    with producer(service, linger_ms=3_600_000, max_batch=3) as sender:
        futures = [sender.send("orders", n) for n in range(3)]
        assert [future.result(SOON).offset for future in futures] == [0, 1, 2]
        assert service.bodies == [[0, 1, 2]]
        assert sender.flush(SOON)
        assert sender._flushing == 0, "what comes now lingers again"


def test_a_linger_is_of_milliseconds_and_a_flush_ends_it() -> None:
    service = Service()
    with producer(service, linger_ms=60) as sender:
        sender.send("orders", 0).result(SOON)
    with producer(service, linger_ms=3_600_000) as sender:
        sender.send("orders", 1)
        sender.send("orders", 2)
        assert sender.flush(SOON)
    assert service.bodies == [[0], [1, 2]]


def test_a_forked_child_does_not_close_what_is_its_parents(path: Path) -> None:
    service = Service()
    sender = producer(service, linger_ms=3_600_000, spool=path)
    future = sender.send("orders", 1)
    sender._pid += 1
    sender.close()
    assert (service.batches, future.done()) == ([], False)
    sender._pid -= 1
    sender.close()
    assert service.bodies == [[1]]


def test_threads_that_send_first_in_a_forked_child_begin_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the second one gave to the parent's queue was never sent."""
    sender = producer(Service(), linger_ms=3_600_000)
    futures: list[Any] = []
    second = threading.Thread(target=lambda: futures.append(sender.send("orders", 2)))

    class Begun(RequestIds):
        def __init__(self) -> None:
            super().__init__()
            second.start()
            second.join(0.05)

    monkeypatch.setattr(producer_module, "RequestIds", Begun)
    sender._pid += 1
    futures.append(sender.send("orders", 1))
    second.join(SOON)
    sender.close()
    assert [future.done() for future in futures] == [True, True]


def test_what_waits_goes_in_order_a_topic_and_a_batch_at_a_time() -> None:
    service = Service()
    service.gate.clear()
    with producer(service, max_batch=2) as sender:
        sender.send("orders", 0)
        assert service.asked.wait(SOON)
        for topic, body in (("orders", 1), ("orders", 2), ("orders", 3), ("bills", 4), ("orders", 5)):
            sender.send(topic, body)
        assert not sender.flush(0.01), "one is on its way"
        assert sender.pending == 6
        service.gate.set()
    assert service.bodies == [[0], [1, 2], [3], [4], [5]]
    assert [batch.topic for batch in service.batches] == ["orders", "orders", "orders", "bills", "orders"]
    assert len({batch.request for batch in service.batches}) == 5


def test_what_goes_together_fits_one_call() -> None:
    service = Service()
    service.gate.clear()
    with producer(service) as sender:
        sender.send("orders", "")
        assert service.asked.wait(SOON)
        for _ in range(3):
            sender.send("orders", "x" * 1_400_000)
        service.gate.set()
    assert [len(batch.messages) for batch in service.batches] == [1, 2, 1]


def test_what_is_late_is_due_by_the_time_at_which_it_was_given() -> None:
    """It may wait here for hours."""
    service = Service()
    with producer(service) as sender:
        sender.send("orders", 1, delay="1h")
    (message,) = (msgspec.json.decode(each) for each in service.batches[0].messages)  # type: ignore[arg-type]
    assert "deliver_at" in message
    assert "delay_seconds" not in message


def test_the_time_of_a_batch_counts_from_when_it_was_given_or_the_last_answer_before(clock: Clock) -> None:
    """In an outage what waits behind others has no two minutes of its own."""
    service = Service([sent_at(0)], AWAY, AWAY)

    def takes_five_seconds() -> None:
        clock.now += 5
        if len(service.batches) == 1:
            assert is_given.wait(SOON)

    service.seen, is_given = takes_five_seconds, threading.Event()
    with producer(service, max_batch=1) as sender:
        futures = [sender.send("orders", n) for n in range(3)]
        is_given.set()
        assert [future.exception(SOON) for future in futures] == [None, AWAY, AWAY]
    assert [batch.since for batch in service.batches] == [1000, 1005, 1005]


def test_who_closes_it_waits_for_no_retries() -> None:
    service, pauses, is_waiting = Service(*[AWAY] * 9), list[Any](), threading.Event()

    def waits_for_long() -> None:
        is_waiting.set()
        pause = service.batches[-1].pause
        assert pause
        pauses.append(pause(600))

    service.seen = waits_for_long
    sender = producer(service)
    future = sender.send("orders", 1)
    assert is_waiting.wait(SOON)
    sender.close(timeout=0)
    assert future.exception(SOON) is AWAY
    assert pauses == [True]
    sender.close()


def test_who_waits_for_room_is_told_that_there_will_be_none() -> None:
    service, refusals = Service(), list[Exception]()
    service.gate.clear()
    sender = producer(service, max_pending=1)
    sender.send("orders", 1)

    def send() -> None:
        try:
            sender.send("orders", 2)
        except RuntimeError as error:
            refusals.append(error)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    sender.close(timeout=0)
    thread.join(SOON)
    assert len(refusals) == 1
    service.gate.set()


def test_whatever_keeps_a_batch_from_being_sent_fails_its_futures_and_stops_no_other() -> None:
    """Certificates that cannot be read ended the thread: no future had an outcome, and `close` had no end."""
    trouble = ValueError("The certificates to trust cannot be read.")
    with producer(Service(trouble)) as sender:
        assert sender.send("orders", 1).exception(SOON) is trouble
        assert sender.send("orders", 2).result(SOON).offset == 0


# Spools.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def spool_contents(path: Path) -> list[Any]:
    """The bodies in a spool, and why they were refused."""
    spool = Spool(path)
    contents = [(msgspec.json.decode(each.message)["body"], each.reason) for each in spool.contents(99)]
    spool.close()
    return contents


def test_what_the_last_process_left_is_sent_without_being_asked(path: Path) -> None:
    spool = Spool(path)
    for n in range(3):
        spool.add("orders", msgspec.json.encode({"body": n}))
    spool.close()
    service = Service()
    with producer(service, spool=path, max_batch=2) as sender:
        assert sender.flush(SOON)
    assert service.bodies == [[0, 1], [2]]
    assert spool_contents(path) == []


def test_a_batch_has_its_name_in_the_file_before_it_is_sent(path: Path, clock: Clock) -> None:
    service, batches = Service(AWAY, AWAY), list[Any]()
    sender = producer(service, spool=path)

    def look() -> None:
        assert sender._spool
        batches.append(sender._spool.next(9, 10**6))
        clock.now += 5

    service.seen = look
    assert sender.send("orders", 1).result(SOON).offset == 0
    sender.close()
    assert len({batch.request for batch in service.batches}) == 1
    assert [each.request for each in batches] == [batch.request for batch in service.batches]
    begun = moments.Moment(1000, 1000, "a")
    assert [each.first_sent for each in batches] == [begun] * 3
    assert [batch.first_sent for batch in service.batches] == [None, begun, begun]


def test_what_is_in_the_way_of_all_messages_is_waited_out_for_longer_and_longer(
    path: Path, clock: Clock
) -> None:
    client_closed = errors.ClientClosed("CLIENT_CLOSED", "")
    token_unknown, scope_missing = (
        errors.Unauthorized("TOKEN_UNKNOWN", ""),
        errors.Forbidden("SCOPE_MISSING", ""),
    )
    no_certificates = ValueError("The certificates to trust cannot be read.")
    service = Service(
        AWAY, token_unknown, scope_missing, client_closed, no_certificates, AWAY, [sent_at(0)], AWAY
    )
    sender = producer(service, spool=path, max_batch=1)
    futures = [sender.send("orders", n) for n in range(2)]
    assert [future.result(SOON).offset for future in futures] == [0, 0]
    sender.close()
    assert clock.pauses == [1, 2, 5, 10, 30, 30, 1], "and from the beginning after a success"
    assert service.bodies == [[0]] * 7 + [[1]] * 2
    assert spool_contents(path) == []


def test_a_message_that_finds_no_place_on_the_disk_is_not_waited_for(path: Path) -> None:
    sender = producer(Service(), spool=path)
    assert sender._spool
    file = sender._spool._file
    (pages,) = file.execute("PRAGMA page_count").fetchone()
    file.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        sender.send("orders", "x" * 100_000)
    assert sender.pending == 0
    file.execute("PRAGMA max_page_count = 1000")
    assert sender.send("orders", 1).result(SOON).offset == 0
    assert sender.flush(SOON)
    sender.close()


@pytest.mark.parametrize(("change", "tries"), [("UPDATE", 1), ("DELETE", 2)])
def test_a_disk_that_takes_nothing_is_waited_out(path: Path, clock: Clock, change: str, tries: int) -> None:
    """What was sent meanwhile goes again under its name, by which the service knows it."""
    service = Service()
    sender = producer(service, spool=path, linger_ms=3_600_000)
    assert sender._spool
    file = sender._spool._file
    file.execute(
        f"CREATE TEMP TRIGGER full BEFORE {change} ON message BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    future = sender.send("orders", 1)

    def has_waited(seconds: float) -> bool:
        file.execute("DROP TRIGGER IF EXISTS full")
        return False

    clock.wait = has_waited  # type: ignore[method-assign]
    assert sender.flush(SOON)
    assert future.result(SOON).offset == 0
    sender.close()
    assert service.bodies == [[1]] * tries
    assert len({batch.request for batch in service.batches}) == 1


def test_of_a_batch_only_what_is_decided_leaves_the_spool(path: Path) -> None:
    """What was stored of the request goes again, too: the service knows its messages by their contents."""
    service = Service([sent_at(0), WRONG, FULL], [sent_at(0), FORGOTTEN], [sent_at(2)])
    sender = producer(service, spool=path, max_batch=3, linger_ms=3_600_000)
    futures = [sender.send("orders", n) for n in range(3)]
    assert futures[0].result(SOON).offset == 0
    assert futures[1].exception(SOON) is WRONG
    assert sender.flush(SOON)
    assert futures[2].result(SOON).offset == 2
    assert service.bodies == [[0, 1, 2], [0, 2], [2]]
    first, second, third = service.batches
    assert first.request == second.request != third.request
    assert (first.first_sent, third.first_sent) == (None, None)
    assert second.first_sent is not None
    sender.close()
    assert spool_contents(path) == [(1, str(WRONG))]


def test_what_refuses_a_whole_batch_for_good_is_each_messages_reason(path: Path) -> None:
    topic_not_found = errors.TopicNotFound("TOPIC_NOT_FOUND", "there is none")
    sender = producer(Service(topic_not_found), spool=path, max_batch=2, linger_ms=3_600_000)
    futures = [sender.send("orders", n) for n in range(2)]
    assert [future.exception(SOON) for future in futures] == [topic_not_found, topic_not_found]
    sender.close()
    assert spool_contents(path) == [(0, str(topic_not_found)), (1, str(topic_not_found))]


def test_who_waits_for_what_is_left_in_a_spool_is_told_so_when_it_is_closed(path: Path) -> None:
    """It waited without end."""
    sender, answers = producer(Service(*[AWAY] * 99), spool=path), list[bool]()
    sender.send("orders", 1)
    waiting = [threading.Thread(target=lambda: answers.append(sender.flush()), daemon=True) for _ in "ab"]
    waiting[0].start()
    sender.close(timeout=0)
    waiting[1].start()
    for thread in waiting:
        thread.join(SOON)
    assert answers == [False, False]
    assert spool_contents(path) == [(1, None)]


def test_a_future_tells_that_its_message_was_left_in_the_spool(path: Path) -> None:
    """Who waited for its outcome waited without end."""
    with producer(Service(*[AWAY] * 99), spool=path) as sender:
        future, cancelled_future = sender.send("orders", 1), sender.send("orders", 2)
        assert cancelled_future.cancel()
        sender.close(timeout=0)
    with pytest.raises(errors.ClientClosed, match="left in its spool"):
        future.result(SOON)
    assert spool_contents(path) == [(1, None), (2, None)]


def test_who_closes_it_waits_for_no_service_that_never_answers(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spool was closed after all retries of the send, two minutes later."""
    monkeypatch.setattr(producer_module, "_LAST_SEND_SECONDS", 0, raising=False)
    service = Service()
    service.gate.clear()
    sender = producer(service, spool=path)
    future = sender.send("orders", 1)
    assert service.asked.wait(SOON)
    sender.close(timeout=0)
    assert isinstance(future.exception(0), errors.ClientClosed)
    with pytest.raises(BlockingIOError):
        Spool(path)
    service.gate.set()
    sender._thread.join(SOON)
    assert spool_contents(path) == [], "it came through all the same"


def add(spool: Spool, *messages: tuple[str, str]) -> None:
    for topic, text in messages:
        spool.add(topic, text.encode())


def test_a_spool_gives_the_oldest_that_go_together(path: Path) -> None:
    spool = Spool(path)
    assert spool.next(9, 99) is None
    add(spool, ("a", "1"), ("a", "2"), ("a", "3"), ("b", "4"), ("a", "5"))

    def numbers(most: int = 9, most_bytes: int = 99) -> tuple[int, ...]:
        batch = spool.next(most, most_bytes)
        assert batch
        return batch.numbers

    assert (numbers(), numbers(most=2), numbers(most_bytes=4), numbers(most_bytes=1)) == (
        (1, 2, 3),
        (1, 2),
        (1, 2),
        (1,),
    )
    first_sent = moments.Moment(7.5, 3, "a")
    spool.begin((1, 2), "r-1", first_sent)
    batch = spool.next(9, 1)
    assert batch
    assert (batch.numbers, batch.request, batch.first_sent) == ((1, 2), "r-1", first_sent), "as it was sent"
    spool.forget((1, 2))
    assert numbers() == (1, 2, 3)
    spool.remove((1, 2, 3))
    assert numbers() == (4,)
    spool.close()


def test_what_was_refused_waits_again_behind_all_others(path: Path) -> None:
    spool = Spool(path)
    add(spool, ("a", '{"body":0}'), ("a", '{"body":1}'), ("a", '{"body":2}'))
    spool.remove((1, 2), {1: "no 1", 2: "no 2"})
    assert spool.count() == 1
    spool.close()
    assert spool_contents(path) == [(2, None), (0, "no 1"), (1, "no 2")]
    spool = Spool(path)
    assert (spool.readmit(), spool.readmit()) == (2, 0)
    spool.close()
    assert spool_contents(path) == [(2, None), (0, None), (1, None)]
