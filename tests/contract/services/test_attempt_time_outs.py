"""How long an attempt may take, and how long its message is then the subscriber's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from chalicelib.domain.call_result import CallResult, PushBatch
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.topic import Consumer
from chalicelib.services.core.wake import DispatchTask
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.push import PushDesk, Subscribers
from tests.support.stages import embedded_stage


@dataclass
class Watched(Subscribers):
    """Subscribers, the seconds each request had, and until when its messages were theirs."""

    seen: list[tuple[float, list[int]]] = field(default_factory=list)
    desk: PushDesk | None = None

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        assert self.desk is not None
        group = self.desk.deps.catalog.group(self.desk.topic, "billing")
        leases = self.desk.cursor(group).leases.values()
        self.seen.append((seconds, [lease.deadline_ms - START_MS for lease in leases]))
        return super().send(consumer, push_batch, seconds)


def run(seconds_left: Sequence[float], **settings: Any) -> tuple[Watched, PushDesk]:
    """One run on one message; so many seconds are left at each look, the last of them from then on."""
    desk = PushDesk.at(embedded_stage(), lease_seconds=40)
    desk.subscriber(desk.group(**settings), "one")
    desk.produce(make.draft())
    desk.inbox.asked.clear()
    sender = Watched(desk.stage.clock, desk=desk)
    answers = list(seconds_left)
    deps = Deps(replace(desk.deps.adapters, sender=lambda: sender))
    task = DispatchTask(desk.topic.name, "billing")
    deps.dispatcher.deliver(task, lambda: answers.pop(0) if len(answers) > 1 else answers[0])
    return sender, desk


@pytest.mark.parametrize(("settings", "seconds"), [({}, 40), ({"lease_seconds": 12}, 12)])
def test_an_attempt_may_take_a_lease_of_the_group_and_the_message_stays_some_seconds_more(
    settings: dict[str, Any], seconds: int
) -> None:
    sender, _ = run([600], **settings)
    assert sender.seen == [(seconds, [(seconds + 6) * 1000])]


def test_no_attempt_begins_that_could_not_end_in_time_and_the_next_run_is_started() -> None:
    sender, desk = run([600, 44.9])
    assert sender.seen == []
    assert [event["group"] for function, event in desk.inbox.asked if function == "deliver"] == ["billing"]


@pytest.mark.parametrize(("waited_ms", "calls"), [(5_000, 1), (5_001, 0)])
def test_what_waited_for_its_body_too_long_is_not_sent_and_counts_as_no_attempt(
    waited_ms: int, calls: int
) -> None:
    """Too little of its lease would be left for the attempt."""
    desk = PushDesk.at(embedded_stage(), max_body_bytes=1 << 20)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft("x" * (BLOB_THRESHOLD_BYTES + 1)))

    class Slow:
        """Bodies that come late."""

        def __getattr__(self, name: str) -> Any:
            return getattr(desk.stage.adapters.blobs, name)

        def get(self, name: str) -> bytes | None:
            desk.stage.clock.advance(waited_ms)
            return desk.stage.adapters.blobs.get(name)

    deps = Deps(replace(desk.deps.adapters, blobs=Slow()))
    report = deps.dispatcher.deliver(DispatchTask(desk.topic.name, "billing"), lambda: 12.0)
    assert len(desk.subscribers.calls) == calls
    assert set(report.verdicts) == ({"DONE"} if calls else {"NOT_ATTEMPTED"}), report.verdicts


@pytest.mark.parametrize(("seconds_left", "calls"), [(40.0, 1), (39.9, 0)])
def test_an_attempt_that_waited_for_a_thread_until_its_time_is_over_is_not_made(
    seconds_left: float, calls: int
) -> None:
    desk = PushDesk.at(embedded_stage(), lease_seconds=40)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    task = DispatchTask(desk.topic.name, "billing")
    desk.deps.dispatcher.deliver(task, lambda: seconds_left if desk.cursor(group).leases else 600.0)
    assert len(desk.subscribers.calls) == calls
