"""Clients of the simulated world: they ask any of its processes, and live on when that dies."""

from __future__ import annotations

from chalicelib.domain.errors import HeadraceError
from chalicelib.domain.message import Draft
from chalicelib.services.claim import Delivery
from chalicelib.services.produce import Placed
from tests.simulation.processes import Process
from tests.support.flows import LEASE_SECONDS, Client, History

TOPIC = "orders"


class Notebook(History):
    """The world's one history, with the clock of the process that was asked."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.clock, process.world.stamp)
        self.events = process.world.events


class SimClient(Client):
    """What the HTTP handlers do, for one request."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.deps, Notebook(process), TOPIC)
        self.world = process.world

    def reader(self, group: str, consumer: str | None) -> str:
        """Consumers have deliveries of their own in broadcasts only."""
        return str(self.world.reader_of(group, consumer))

    def produce(self, *drafts: Draft) -> list[Placed | HeadraceError]:
        outcomes = super().produce(*drafts)
        self.deps.waker.appended(self.topic, {o.shard for o in outcomes if isinstance(o, Placed)})
        return outcomes

    def receive(
        self, group: str, most: int = 10, consumer: str | None = None, lease_seconds: int = LEASE_SECONDS
    ) -> list[Delivery]:
        if consumer is not None:
            topic, found, who = self._find(group, consumer)
            assert who
            self.deps.admin.sign_of_life(topic, found, who)
        return super().receive(group, most, consumer, lease_seconds)
