"""Good messages hardly wait for bad ones: how soon they come beside others that fail and fail, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from chalicelib.adapters import Adapters
from chalicelib.domain.call_result import CallResult, PushBatch, Verdict
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.services.core.wake import DispatchTask
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.push import PushDesk
from tests.support.stages import embedded_stage

GOOD, BAD = b'"good"', b'"bad"'
READ_MS, WRITE_MS, TRANSACTION_MS = 3, 6, 15
EVERY_MS, GOOD_ONES = 20, 60


class Slow:
    """A port whose calls take as long as on AWS; meanwhile the world goes on."""

    def __init__(self, of: Any, passes: Callable[[int], None]) -> None:
        self._of = of
        self._passes = passes

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            beside = name == "write" and any(args[2:])
            self._passes(
                TRANSACTION_MS if beside else WRITE_MS if name in ("write", "note", "put") else READ_MS
            )
            return getattr(self._of, name)(*args, **kwargs)

        return call


@dataclass
class World:
    """A producer that stores a message each 20 ms, a mover that comes each second, and one delivery at a time. `bad` of
    ten messages are refused by their subscriber, whenever they come."""

    bad: int
    desk: PushDesk = field(default_factory=lambda: PushDesk.at(embedded_stage(), retry=Retry(16, (1,), 0.0)))
    sent_ms: dict[str, int] = field(default_factory=dict)
    late_ms: dict[str, int] = field(default_factory=dict)
    produced: int = 0

    def __post_init__(self) -> None:
        self.group = self.desk.group()
        self.desk.subscriber(self.group, "one", behaviour=self._answer)
        self.began_ms = self.moved_ms = self.desk.stage.clock.now_ms()
        a: Adapters = self.desk.deps.adapters
        ports = {name: Slow(getattr(a, name), self._passes) for name in ("log", "cursors", "traces")}
        self.dispatcher = Deps(replace(a, **ports)).dispatcher  # type: ignore[arg-type]

    def _answer(self, push_batch: PushBatch) -> CallResult:
        (attempt,) = push_batch.attempts
        now_ms = self.desk.stage.clock.now_ms()
        if attempt.message.draft.body == BAD:
            return CallResult(Verdict.FAILED, "HTTP 500", is_own_answer=True)
        self.late_ms.setdefault(attempt.message.id, now_ms - self.sent_ms[attempt.message.id])
        return CallResult(Verdict.DONE)

    def _passes(self, ms: int) -> None:
        clock = self.desk.stage.clock
        clock.advance(ms)
        while clock.now_ms() >= self.began_ms + self.produced * EVERY_MS and not self.is_over():
            body = BAD if self.produced % 10 >= 10 - self.bad else GOOD
            (result,) = self.desk.produce(replace(make.draft(), body=body))
            if body == GOOD:
                self.sent_ms[result.id] = self.began_ms + self.produced * EVERY_MS
            self.produced += 1
        if clock.now_ms() >= self.moved_ms + 1_000:
            self.moved_ms = clock.now_ms()
            self.desk.deps.mover.tick(range(FRAGMENTS))

    def is_over(self) -> bool:
        return len(self.sent_ms) >= GOOD_ONES

    def longest_ms(self) -> int:
        while len(self.late_ms) < GOOD_ONES:
            self._passes(1)
            self.dispatcher.deliver(DispatchTask(self.desk.topic.name, self.group.name), lambda: 900.0)
        return sorted(self.late_ms.values())[-1]


@pytest.mark.parametrize("bad", [1, 5, 9])
def test_good_messages_come_nearly_as_soon_beside_bad_ones(bad: int) -> None:
    alone, beside = World(0).longest_ms(), World(bad).longest_ms()
    assert beside <= 2 * alone + TRANSACTION_MS, "failures are settled by a transaction, before the next look"
