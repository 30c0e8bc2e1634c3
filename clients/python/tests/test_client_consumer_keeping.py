"""What a consumer does beside its handlers: it keeps its leases, stays online, and rests where nothing comes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scripted_service import Service, ignored, message

from headrace import Message, errors
from headrace.consume import holdings as holdings_module
from headrace.consume import session as session_module
from headrace.consume.consumer import Consumer
from headrace.consume.holdings import Holdings
from headrace.consume.membership import Membership
from headrace.consume.session import Session
from headrace.consume.settings import ConsumerSettings
from headrace.consume.trouble import Trouble


class Clock:
    """The time of a consumer. It ends its keeper after so many rounds, each of which takes so long as it waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
        self.now, self.waits = 0.0, list[float]()
        self._rounds = rounds
        for module in (holdings_module, session_module):
            monkeypatch.setattr(module, "time", self)

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        """Is it over?"""
        self.waits.append(seconds)
        self.now += seconds
        return len(self.waits) > self._rounds


class Keeping:
    """A service that extends leases, but those of `lost` for the reason `error`, and gets the registrations. A call
    takes two seconds."""

    def __init__(
        self,
        clock: Clock,
        *lost_ids: str,
        away: int = 0,
        trouble: Exception | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        self.clock, self.lost, self.away, self.error = clock, lost_ids, away, error
        self.trouble = trouble or errors.Unavailable("UNAVAILABLE", "no answer", retryable=True)
        self.extended: list[tuple[float, list[str], Any]] = []
        self.beats: list[float] = []
        self.is_taken_over = False

    def extend(self, topic: str, group: str, *messages: Message, **options: Any) -> list[Any]:
        self.extended.append((self.clock.now, [each.id for each in messages], options))
        if self.away:
            self.away -= 1
            raise self.trouble
        self.clock.now += 2
        return [
            SimpleNamespace(ok=each.id not in self.lost, error=self.error if each.id in self.lost else None)
            for each in messages
        ]

    def heartbeat(self, topic: str, group: str, name: str, *, instance: str) -> Any:
        self.beats.append(self.clock.now)
        if self.is_taken_over:
            raise errors.ConsumerTakenOver("CONSUMER_TAKEN_OVER", "by another process")
        return f"{name} at {self.clock.now:g}"


def keep(
    clock: Clock, service: Keeping, holdings: Holdings, lease: float, name: str | None = None
) -> Membership:
    consumer = Consumer(ConsumerSettings("orders", "mailer", name=name, register=name is not None), ignored)
    member, group = Membership(consumer.settings), cast(Any, SimpleNamespace(mode="queue"))
    session = Session(consumer, cast(Any, service), member, group, lease, cast(Any, None))
    session._held, session._ended = holdings, cast(Any, clock)
    session._keep()
    return member


@pytest.mark.parametrize(("lease", "wait"), [(4, 0.5), (8, 1), (600, 1)])
def test_leases_are_looked_at_often_enough_for_the_shortest(
    monkeypatch: pytest.MonkeyPatch, lease: float, wait: float
) -> None:
    clock = Clock(monkeypatch, rounds=3)
    keep(clock, Keeping(clock), Holdings(lease, None), lease)
    assert clock.waits == [wait] * 4


def test_what_was_extended_is_kept_from_before_the_call_and_what_was_lost_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, rounds=6)
    service, holdings = Keeping(clock, "b"), Holdings(10, None)
    own_message = message("a")
    holdings.take(own_message)
    holdings.take(message("b"))
    keep(clock, service, holdings, 10)
    assert service.extended == [(6.0, ["a", "b"], {"lease": 10})], "half of it is over"
    ages = []
    for clock.now in (11.0, 11.1):
        ages.append(holdings.ageing())
    assert ages == [[], [own_message]]
    assert not holdings.begin(message("b"))


@pytest.mark.parametrize("trouble", [None, RuntimeError("can't start new thread")])
def test_what_was_not_extended_is_tried_again_in_the_next_round(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception | None
) -> None:
    """An error of another kind ended the thread: all leases ran out."""
    clock = Clock(monkeypatch, rounds=8)
    service, holdings = Keeping(clock, away=2, trouble=trouble), Holdings(10, None)
    holdings.take(message("a"))
    keep(clock, service, holdings, 10)
    assert [at for at, *_ in service.extended] == [6, 7, 8]
    clock.now = 17.9
    assert holdings.begin(message("a"))


def test_many_leases_are_extended_in_calls_that_the_service_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, rounds=6)
    service, holdings = Keeping(clock), Holdings(10, None)
    names = [f"{n}" for n in range(2001)]
    for name in names:
        holdings.take(message(name))
    keep(clock, service, holdings, 10)
    assert [len(part) for _, part, _ in service.extended] == [1000, 1000, 1]
    assert [name for _, part, _ in service.extended for name in part] == names


@pytest.mark.parametrize(("name", "beats"), [("me", [11, 22]), (None, [])])
def test_who_has_a_name_says_every_ten_seconds_that_it_is_there(
    monkeypatch: pytest.MonkeyPatch, name: str | None, beats: list[float]
) -> None:
    clock = Clock(monkeypatch, rounds=25)
    service = Keeping(clock)
    member = keep(clock, service, Holdings(60, None), 60, name)
    assert service.beats == beats
    assert member.registration == ("me at 22" if name else None)


def test_a_consumer_that_was_taken_over_keeps_its_leases_and_sends_no_more_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, rounds=25)
    service, holdings = Keeping(clock), Holdings(10, None)
    service.is_taken_over = True
    holdings.take(message("a"))
    assert holdings.begin(message("a"))
    keep(clock, service, holdings, 10, "me")
    assert len(service.beats) == 1
    assert len(service.extended) > 2


class Pauses(threading.Event):
    """Notes how long a consumer waits, instead of waiting: `now` is the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    @property
    def now(self) -> float:
        return sum(self.waits)

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return super().wait()
        self.waits.append(timeout)
        return self.is_set()


def pauses(*answers: Sequence[Message] | errors.HeadraceError, **settings: Any) -> list[float]:
    """The pauses between these answers, in milliseconds."""
    return [round(1000 * seconds) for seconds in pauses_of(Service(*answers), **settings).waits]


def pauses_of(service: Service, **settings: Any) -> Pauses:
    """The same in seconds, of a service that has more to say."""
    stop = Pauses()
    options: dict[str, Any] = {"rest": 0, "ack_linger": 0, **settings}
    consumer = Consumer(ConsumerSettings("orders", "mailer", **options), ignored)
    service.consumer, consumer._stopping = consumer, stop
    consumer.run(cast(Any, service))
    return stop


def test_where_nothing_comes_the_rests_grow_up_to_what_was_said() -> None:
    assert pauses(*[()] * 6, rest=1) == [50, 150, 350, 750, 1000, 1000]
    assert pauses(*[()] * 6) == []


def test_what_comes_ends_the_rest() -> None:
    assert pauses((), (), [message("a")], (), rest=1) == [50, 150, 50]


AWAY = errors.NoAnswer("NO_ANSWER", "Connection refused.", retryable=True)
FAILS = errors.Unavailable("UNAVAILABLE", "Try again.", retryable=True)


class Outage(Service):
    """Its calls of this name fail for an hour, alternately in two ways."""

    def __init__(self, name: str) -> None:
        super().__init__((), [message("a")], ())
        self._call, self._tries = getattr(self, name), 0
        setattr(self, name, self._fail_for_an_hour)

    def _fail_for_an_hour(self, *arguments: Any, **options: Any) -> Any:
        self._tries += 1
        assert self.consumer is not None
        if cast(Pauses, self.consumer._stopping).now < 3600:
            raise (AWAY, FAILS)[self._tries % 2]
        return self._call(*arguments, **options)


@pytest.mark.parametrize("name", ["get_group", "put_consumer", "receive"])
def test_an_hour_without_the_service_is_waited_out_with_two_log_lines(
    caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A consumer gave up after nine seconds at its start; later it wrote a line every five seconds."""
    caplog.set_level("INFO", "headrace")
    service = Outage(name)
    stop = pauses_of(service)
    assert service.settled == [("ack", "a")]
    assert [record.getMessage().split(" ")[1] for record in caplog.records] == ["waits", "is"]
    assert stop.waits[0] <= 0.5
    assert 15 <= min(stop.waits[10:]) < max(stop.waits) <= 30, "they grow up to a limit, and differ"


def test_a_wait_is_not_shorter_than_the_service_asks_for() -> None:
    waits: list[float] = []
    trouble = Trouble("orders/mailer", waits.append, chance=lambda: 0.0)
    for _ in range(2):
        trouble.wait_out(errors.RateLimited("RATE_LIMITED", "Later.", retryable=True, retry_after=0.3))
    assert waits == [0.3, 0.5]


class Deleted(Service):
    """After its first answer its topic is missing, then its group."""

    def __init__(self, **group: Any) -> None:
        gone = errors.TopicNotFound("TOPIC_NOT_FOUND", "There is none.")
        super().__init__((), gone, gone, [message("a")], (), **group)
        self._found = [None, gone, errors.GroupNotFound("GROUP_NOT_FOUND", "There is none.")]

    def get_group(self, topic: str, group: str) -> Any:
        if error := self._found.pop(0):
            raise error
        return self.group


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_a_topic_that_was_deleted_is_waited_for_and_entered_where_the_consumer_was(mode: str) -> None:
    """It ended the consumer, and all others of its process."""
    service = Deleted(mode=mode)
    start = datetime.now(timezone.utc) - timedelta(minutes=10)
    assert len(pauses_of(service).waits) == 2
    assert service.settled == [("ack", "a")]
    (group,), (first, second) = service.calls_of("put_group"), service.calls_of("put_consumer")
    assert start <= group["begin"] <= start + timedelta(minutes=1), "not from the beginning"
    assert (first["begin"], second["begin"]) == (None, group["begin"] if mode == "broadcast" else None)


def test_a_consumer_that_was_removed_comes_back_also_where_that_needs_a_second_try() -> None:
    """Its error ended the consumer, and with it all others of its client."""

    class Busy(Service):
        def put_consumer(self, topic: str, group: str, name: str, **options: Any) -> Any:
            super().put_consumer(topic, group, name)
            if len(self.calls_of("put_consumer")) == 2:
                raise FAILS

    removal = errors.ConsumerNotFound("CONSUMER_NOT_FOUND", "offline for long")
    service = Busy(removal, removal, ())
    assert len(pauses_of(service).waits) == 2
    assert len(service.calls_of("put_consumer")) == 3
