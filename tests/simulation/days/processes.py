"""The processes of a stage: clocks, caches and deaths of their own, throttled partitions, and what they call."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from chalicelib.domain.call_result import CallResult, Exchange, PushBatch, Verdict
from chalicelib.domain.errors import unavailable
from chalicelib.domain.topic import Consumer
from chalicelib.domain.transaction import CheckAnswer, Transaction
from chalicelib.wiring import Deps
from tests.simulation.days.judge import inspect
from tests.simulation.days.ledger import Member
from tests.simulation.processes import LOCAL, PORTS
from tests.simulation.weather import Partition, partition_of
from tests.support.clock import Inline, ManualClock, SeededRandom
from tests.support.faults import Death
from tests.support.flows import label_of

if TYPE_CHECKING:
    from tests.simulation.days.stage import Days

_REFUSED = 0.9  # of the calls to a partition that is throttled


class SeatClock:
    """ports.Clock of one process, some seconds from the true time."""

    def __init__(self, of: ManualClock, skew_ms: int) -> None:
        self._of = of
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._of.now_ms() + self.skew_ms

    def monotonic_ms(self) -> int:
        return self._of.now_ms()

    def sleep(self, seconds: float) -> None:
        self._of.sleep(seconds)


class Mortal:
    """A port whose caller dies at one of its calls, or finds a partition throttled."""

    def __init__(self, name: str, port: Any, seat: Seat, sky: Sky) -> None:
        self._name = name
        self._port = port
        self._seat = seat
        self._sky = sky

    def __getattr__(self, method: str) -> Any:
        work = getattr(self._port, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._seat.calls += 1
            if self._seat.calls == self._seat.last:
                raise Death(f"before {method}")
            if method not in LOCAL and self._sky.refuses(self._name, args):
                raise unavailable()
            return work(*args, **kwargs)

        return call


class Sky:
    """Which partitions are throttled, and until when."""

    def __init__(self, clock: ManualClock, chance: random.Random) -> None:
        self._clock = clock
        self._random = chance
        self._until: dict[Partition, int] = {}
        self.used: dict[Partition, None] | None = None

    def darkens(self, ms: int) -> None:
        """Some partition that was used has too much to do for a while."""
        if self.used:
            self._until[self._random.choice(list(self.used))] = self._clock.at_ms + ms

    def clears(self) -> None:
        self.used = None
        self._until.clear()

    def refuses(self, port: str, args: tuple[Any, ...]) -> bool:
        if self.used is None:
            return False
        place = partition_of(port, args)
        self.used[place] = None
        return self._until.get(place, 0) > self._clock.at_ms and self._random.random() < _REFUSED


class Seat:
    """One process: its clock, its caches, and the call at which it dies (0: none). `sent` are attempts that succeeded
    and are not settled yet: the consumer's uid, its member and the label."""

    def __init__(self, days: Days, clock: SeatClock, name: str) -> None:
        self.clock = clock
        self.calls = 0
        self.last = 0
        self.sent: list[tuple[str, Member, str]] = []
        adapters = days.adapters
        ports: dict[str, Any] = {
            port: Mortal(port, getattr(adapters, port), self, days.sky) for port in PORTS
        }
        self.deps = Deps(
            replace(
                adapters,
                **ports,
                clock=clock,
                random=SeededRandom(name),
                invoker=days.inbox,
                threads=Inline,
                sender=lambda: Caller(days, self),
            )
        )


class Caller:
    """ports.Sender of one process."""

    def __init__(self, days: Days, seat: Seat) -> None:
        self._days = days
        self._seat = seat

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        days, mood = self._days, self._days.moods[consumer.uid]
        home, member = days.served[consumer.uid]
        if mood == "strange":
            days.accuse(f"{consumer.name} is called, and has not agreed")
        outcomes = tuple(days.outcome(mood) for _ in push_batch.attempts)
        days.note(
            f"{push_batch.topic} {push_batch.group} {consumer.name} ({mood}) is called {len(outcomes)} times"
        )
        for attempt, outcome in zip(push_batch.attempts, outcomes, strict=True):
            inspect(days, home, member, attempt.message, member is home.members.get(member.name))
            if outcome.verdict is Verdict.DONE:
                self._seat.sent.append((consumer.uid, member, label_of(attempt.message.draft.body)))
        return outcomes

    def refusal(self, kind: str, target: str) -> str | None:
        return None

    def greet(self, url: str) -> CallResult:
        """Who is asked whether it may be called: strangers agree at the third time."""
        uid = url.rpartition("/")[2]
        self._days.asked[uid] += 1
        consents = self._days.asked[uid] >= 3
        if consents:
            for consumer_uid in self._days.targets[url]:
                self._days.moods[consumer_uid] = "good"
        return CallResult(Verdict.DONE if consents else Verdict.FAILED)

    def ping(
        self, consumer: Consumer, id: str, seconds: float, push_batch: PushBatch | None = None
    ) -> Exchange:
        raise AssertionError("nobody is tested here")

    def ask(self, transaction: Transaction, secrets: Sequence[bytes], seconds: float) -> CheckAnswer:
        deal = self._days.deals.get(transaction.id)
        if deal is None or self._days.random.random() < 0.5:
            return CheckAnswer(None, "unknown")
        deal.asked = True
        return CheckAnswer(deal.truth, "told")
