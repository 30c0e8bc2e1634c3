"""What runs beside HTTP on AWS, run by hand: the stream, the mover, deliveries, and what they wake."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from chalicelib.services.core.wake import task_of
from chalicelib.wiring import Deps

from .http import ShiftingClock, Topic
from .push import Inbox
from .roles import at_work


@dataclass
class Background:
    """Of a service whose wake-ups arrive in `inbox`. Nothing runs unless a test says so."""

    deps: Deps
    clock: ShiftingClock
    inbox: Inbox = field(default_factory=Inbox)

    def move(self) -> None:
        """The mover's schedule."""
        with at_work("mover"):
            self.deps.mover.run_once()

    def pass_time(self, seconds: float) -> None:
        """Time passes; then the mover's schedule runs once."""
        self.clock.advance(seconds)
        self.move()

    def spend(self, topic: Topic, usd: float) -> None:
        """Another process has spent so much of the topic's budget in this month."""
        uid = self.deps.catalog.topic(topic.name).uid
        month = f"{datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC):%Y-%m}"
        self.deps.adapters.token_buckets.spend(f"spent#{uid}#{month}", int(usd * 1e9), 2**31)

    def run(self, topic: Topic) -> dict[str, Any]:
        """What was woken, and what that wakes, until there is nothing; how many attempts of this topic came to what:
        other tests' consumers are woken as well when their time comes."""
        totals: dict[str, Any] = {}
        while self.inbox.asked:
            function, event = self.inbox.asked.popleft()
            if function == "mover":
                self.move()
            if not function.startswith("deliver"):  # checks of transactions, which time has made due
                continue
            job = task_of(event)
            with at_work("deliver"):
                report = self.deps.dispatcher.deliver(job, lambda: 60.0).as_dict()
            if job.topic != topic.name:
                continue
            for name in report.keys() - {"finished"}:
                totals[name] = totals.get(name, 0) + report[name]
        return {name: count for name, count in totals.items() if count}

    def push(self, topic: Topic) -> dict[str, Any]:
        """The stream wakes a topic's deliveries; they run."""
        stored_topic = self.deps.catalog.topic(topic.name)
        for group in self.deps.catalog.groups(stored_topic):
            with at_work("route"):
                for job in self.deps.waker.tasks_of(stored_topic, group):
                    self.deps.waker.start(job)
        return self.run(topic)

    def later(self, topic: Topic, seconds: float) -> dict[str, Any]:
        """Time passes, what is due is moved, and what that woke runs."""
        self.pass_time(seconds)
        return self.push(topic)
