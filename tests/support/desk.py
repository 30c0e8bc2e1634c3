"""A producer's and a consumer's view of the services, in few words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from chalicelib.domain.append import PutResult
from chalicelib.domain.cursor import Cursor
from chalicelib.domain.errors import HeadraceError
from chalicelib.domain.message import Draft
from chalicelib.domain.receipt import sign_receipt
from chalicelib.domain.record import Record
from chalicelib.domain.segment import Segment, ShardKey
from chalicelib.domain.topic import Consumer, Group, Topic, cursor_key
from chalicelib.services.consume.claimant import Claimant, ClaimedMessage
from chalicelib.services.consume.lease_settlement import SettleAnswer
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.trace import Event
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.producer import Producer
from chalicelib.store.log import Log
from chalicelib.wiring import Deps

from . import factories as make
from .stages import Stage

GIVE_BACK = Nack()  # for the next attempt at once; by the ladder: Nack(delay_ms=None)
ALREADY = "already"


@dataclass
class Desk:
    """One process's services on one topic."""

    stage: Stage
    deps: Deps
    topic: Topic

    @classmethod
    def at(cls, stage: Stage, **settings: Any) -> Desk:
        deps = stage.process()
        topic, _ = deps.admin.put_topic(make.uid("orders-"), {"shards": 1, **settings})
        return cls(stage, deps, deps.catalog.topic(topic.name))

    def group(self, name: str = "billing", begin: str = "earliest", **settings: Any) -> Group:
        self.deps.admin.put_group(self.topic, name, {"begin": begin, **settings})
        return self.deps.catalog.group(self.topic, name)

    def consumer(self, group: Group, name: str) -> Consumer:
        return self.deps.registry.register(self.topic, group, name)[0].consumer

    def produce(self, *drafts: Draft) -> list[ProduceResult]:
        return require_stored(self.deps.producer.produce(self.topic, drafts))

    def receive(
        self, group: Group, most: int = 10, consumer: Consumer | None = None, lease: int = 30
    ) -> list[ClaimedMessage]:
        self.deps.mover.run_once()
        return self.deps.receiver.receive(self.topic, group, consumer, most, 0, lease)

    def receive_run(self, group: Group, most: int = 10, lease: int = 30) -> list[ClaimedMessage]:
        """The messages of one key, in order under one lease."""
        self.deps.mover.run_once()
        return self.deps.receiver.receive(self.topic, group, None, most, 0, lease, is_run=True)

    def claim(self, claimant: Claimant, shard: int | None, most: int) -> list[ClaimedMessage]:
        """What one claim grants."""
        claim = self.deps.claimer.claim(claimant, shard, most)
        return list(claim.messages) if claim else []

    def ack(self, group: Group, deliveries: Iterable[ClaimedMessage]) -> list[str | None]:
        """The code of the refusal for each delivery, None for the good, ALREADY for what is repeated."""
        return codes(self.deps.settler.ack(self.topic, group, self.receipts(deliveries)))

    def nack(
        self, group: Group, deliveries: Iterable[ClaimedMessage], how: Nack = GIVE_BACK
    ) -> list[str | None]:
        return codes(self.deps.settler.nack(self.topic, group, self.receipts(deliveries), how))

    def extend(self, group: Group, deliveries: Iterable[ClaimedMessage], seconds: int) -> list[str | None]:
        return codes(self.deps.settler.extend(self.topic, group, self.receipts(deliveries), seconds))

    def receipts(self, deliveries: Iterable[ClaimedMessage]) -> list[str]:
        return [sign_receipt(self.deps.signing_key, d.receipt) for d in deliveries]

    def drain(self, group: Group, most: int = 100, consumer: Consumer | None = None) -> list[int]:
        """Receive and acknowledge until there is nothing; the offsets in their order."""
        drained: list[int] = []
        while messages := self.receive(group, most, consumer):
            drained += offsets(messages)
            assert set(self.ack(group, messages)) == {None}
        return drained

    def seek(self, group: Group, where: int | str, shard: int = 0) -> Cursor:
        return self.deps.positions.seek(self.topic, cursor_key(self.topic, group, shard), where)

    def cursor(self, group: Group, shard: int = 0, consumer_uid: str = "") -> Cursor:
        key = cursor_key(self.topic, group, shard, consumer_uid)
        return self.stage.adapters.cursors.get(key, consistent=True) or Cursor()

    def trace(self, message_id: str) -> list[Event]:
        """The message's path: its events and attempts, the oldest first."""
        return self.deps.tracer.path(self.topic, self.deps.lookup.message(self.topic, message_id))

    def outcomes(self, message_id: str) -> list[str]:
        """How the message's attempts ended."""
        return [event.outcome for event in self.trace(message_id) if event.outcome]

    def rows(self, shard: int = 0) -> list[Segment]:
        """Every row of a shard."""
        segments: list[Segment] = []
        key, log = self.topic.shard_key(shard), self.stage.adapters.log
        while page := log.read(key, segments[-1].end if segments else 0, 50, consistent=True):
            segments += page
        return segments

    def producer(self, log: Log | None = None) -> Producer:
        """A producer of a further process, perhaps with a log of the test's own."""
        a = self.stage.another()
        return Deps(replace(a, log=log or a.log)).producer


class Overtaken:
    """A log in which something happens before each of the first puts: what a slow writer sees."""

    def __init__(self, log: Log, event: Callable[[ShardKey], object], times: int = 1) -> None:
        self._log = log
        self._happens = event
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def put(self, shard: ShardKey, *rest: Any) -> PutResult:
        if self._left:
            self._left -= 1
            self._happens(shard)
        return self._log.put(shard, *rest)


def overtaken(log: Log, event: Callable[[ShardKey], object], times: int = 1) -> Log:
    return cast(Log, Overtaken(log, event, times))


def require_stored(outcomes: Sequence[ProduceResult | HeadraceError]) -> list[ProduceResult]:
    """The places of drafts that must all have been stored."""
    assert all(isinstance(o, ProduceResult) for o in outcomes), outcomes
    return [o for o in outcomes if isinstance(o, ProduceResult)]


def codes(answers: Iterable[SettleAnswer]) -> list[str | None]:
    return [answer.code if isinstance(answer, HeadraceError) else answer and ALREADY for answer in answers]


def offsets(deliveries: Iterable[ClaimedMessage]) -> list[int]:
    return [d.message.offset for d in deliveries]


def attempts(deliveries: Iterable[ClaimedMessage]) -> dict[int, int]:
    return {d.message.offset: d.attempt for d in deliveries}


def records(desk: Desk, group: Group) -> dict[int, Record]:
    key = cursor_key(desk.topic, group, 0)
    candidates = (desk.stage.adapters.records.get(key, o) for o in range(20))
    return {record.offset: record for record in candidates if record}
