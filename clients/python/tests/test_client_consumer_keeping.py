"""What a consumer does beside its handlers: it keeps its leases, stays online, and rests where nothing comes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from scripted_service import BUSY, Service, ignored, message

from headrace import Message, errors
from headrace.consume import consumer as consumer_module
from headrace.consume import holdings as holdings_module
from headrace.consume.consumer import Consumer
from headrace.consume.holdings import Holdings
from headrace.consume.settings import ConsumerSettings


class Clock:
    """The time of a consumer. It ends its keeper after so many rounds, each of which takes so long as it waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
        self.now, self.waits = 0.0, list[float]()
        self._rounds = rounds
        for module in (holdings_module, consumer_module):
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
) -> Consumer:
    consumer = Consumer(ConsumerSettings("orders", "mailer"), ignored)
    consumer._held, consumer._ended = holdings, cast(Any, clock)
    consumer._keep(cast(Any, service), lease, name)
    return consumer


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


def test_a_lease_whose_shard_is_busy_is_tried_again_in_the_next_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its lease was lost: another consumer had the message while its handler ran."""
    clock = Clock(monkeypatch, rounds=7)
    service, holdings = Keeping(clock, "b", error=BUSY), Holdings(10, None)
    holdings.take(message("a"))
    holdings.take(message("b"))
    keep(clock, service, holdings, 10)
    assert [ids for _, ids, _ in service.extended] == [["a", "b"], ["b"]]


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
    consumer = keep(clock, service, Holdings(60, None), 60, name)
    assert service.beats == beats
    assert consumer.registration == ("me at 22" if name else None)


def test_a_consumer_that_was_taken_over_keeps_its_leases_and_sends_no_more_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, rounds=25)
    service, holdings = Keeping(clock), Holdings(10, None)
    service.is_taken_over = True
    holdings.take(message("a"))
    keep(clock, service, holdings, 10, "me")
    assert len(service.beats) == 1
    assert len(service.extended) > 2


class Pauses:
    """Notes how long a consumer waits, instead of waiting."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._is_set = False

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set


def pauses(*answers: Sequence[Message] | errors.HeadraceError, **settings: Any) -> list[float]:
    """The pauses between these answers, in milliseconds."""
    return pauses_of(Service(*answers), **settings)


def pauses_of(service: Service, **settings: Any) -> list[float]:
    """The same, of a service that has more to say."""
    stop = Pauses()
    consumer = Consumer(ConsumerSettings("orders", "mailer", **settings), ignored)
    service.consumer, consumer._stopping = consumer, cast(Any, stop)
    consumer.run(cast(Any, service))
    return [round(1000 * seconds) for seconds in stop.waits]


def test_where_nothing_comes_the_rests_grow_up_to_what_was_said() -> None:
    assert pauses(*[()] * 6, rest=1, ack_linger=0) == [50, 150, 350, 750, 1000, 1000]
    assert pauses(*[()] * 6, rest=0, ack_linger=0) == []


def test_what_comes_ends_the_rest() -> None:
    assert pauses((), (), [message("a")], (), rest=1, ack_linger=0) == [50, 150, 50]


def test_trouble_is_waited_out_and_a_consumer_that_was_removed_comes_back_at_once() -> None:
    away = errors.Unavailable("UNAVAILABLE", "no answer", retryable=True)
    removal = errors.ConsumerNotFound("CONSUMER_NOT_FOUND", "offline for long")
    assert pauses(away, removal, away, (), rest=0, ack_linger=0) == [5000, 0, 5000]


def test_a_consumer_that_cannot_come_back_at_once_waits_and_tries_again() -> None:
    """Its error ended the consumer, and with it all others of its client."""

    class Busy(Service):
        def put_consumer(self, topic: str, group: str, name: str, **options: Any) -> Any:
            super().put_consumer(topic, group, name)
            if len(self.calls_of("put_consumer")) == 2:
                raise errors.Unavailable("UNAVAILABLE", "no answer", retryable=True)

    removal = errors.ConsumerNotFound("CONSUMER_NOT_FOUND", "offline for long")
    assert pauses_of(Busy(removal, removal, ()), rest=0, ack_linger=0) == [5000, 0]
