"""What depends neither on how much waits nor on who does the work."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, cast

from chalicelib.domain.ladder import Retry
from chalicelib.domain.receipt import sign_receipt
from chalicelib.domain.times import SECOND_MS
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Nack
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk, codes
from tests.support.stages import Stage
from tests.support.troubled import Counted


class CountedLog(Counted):
    """Counts rows, too."""

    def read(self, *arguments: Any, **options: Any) -> Any:
        rows = self._port.read(*arguments, **options)  # type: ignore[attr-defined]
        self.calls.update(read=1, rows=len(rows))
        return rows


def price_of_ten(stage: Stage, backlog: int) -> dict[str, Counter[str]]:
    """What receiving and acknowledging ten messages asks of the ports, with a backlog behind them."""
    desk = Desk.at(stage)
    group = desk.group()
    for first in range(0, backlog, 20):
        desk.produce(*(make.draft(n) for n in range(first, first + 20)))
    ports = {
        "log": CountedLog(stage.adapters.log),
        **{name: Counted(getattr(stage.adapters, name)) for name in ("cursors", "records", "timers")},
    }
    desk.deps = Deps(replace(stage.adapters, **cast(Any, ports)))
    desk.deps.catalog.topic(desk.topic.name)
    deliveries = desk.deps.receiver.receive(desk.topic, group, None, 10, 0, 30)
    assert len(deliveries) == 10
    assert desk.ack(group, deliveries) == [None] * 10
    return {name: port.calls for name, port in ports.items()}


def test_a_claim_costs_the_same_however_much_waits(stage: Stage) -> None:
    assert price_of_ten(stage, 1_000) == price_of_ten(stage, 200)


def test_each_step_of_a_message_may_be_done_by_another_process(stage: Stage) -> None:
    desk = Desk.at(stage, retry=Retry(max_attempts=3, ladder=(1,)))
    group = desk.group()

    def receive() -> list[ClaimedMessage]:
        return stage.process().receiver.receive(desk.topic, group, None, 10, 0, 30)

    def receipts(deliveries: list[ClaimedMessage]) -> list[str]:
        return [sign_receipt(stage.process().signing_key, each.receipt) for each in deliveries]

    def pass_time(seconds: int) -> None:
        stage.clock.advance(seconds * SECOND_MS)
        stage.process().mover.run_once()

    draft = make.draft("report", due_ms=stage.clock.now_ms() + 5 * SECOND_MS)
    (result,) = stage.process().producer.produce(desk.topic, [draft])
    assert receive() == []
    pass_time(6)
    first = receive()
    assert codes(stage.process().settler.nack(desk.topic, group, receipts(first), Nack())) == [None]
    pass_time(2)
    second = receive()
    assert [(each.message.id, each.attempt) for each in second] == [(result.id, 2)]  # type: ignore[union-attr]
    assert codes(stage.process().settler.extend(desk.topic, group, receipts(second), 60)) == [None]
    stage.clock.advance(40 * SECOND_MS)
    assert receive() == [], "a process that never heard of the lease respects it"
    assert codes(stage.process().settler.ack(desk.topic, group, receipts(second))) == [None]
    assert stage.process().lookup.state_by_id(desk.topic)(result.id).status == "SUCCESS"  # type: ignore[union-attr]
