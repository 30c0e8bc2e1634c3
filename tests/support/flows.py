"""Clients that note what they saw, in worlds that can be ended and begun afresh over the same store."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from chalicelib.adapters import Adapters, SystemRandom, dynamo_adapters
from chalicelib.domain.errors import HeadraceError, Unavailable
from chalicelib.domain.message import Draft
from chalicelib.domain.receipt import sign_receipt
from chalicelib.domain.replay import Replay
from chalicelib.domain.request import Request
from chalicelib.domain.topic import EARLIEST, LATEST, Consumer, Group, Topic, cursor_key
from chalicelib.ports.world import Clock, Random
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.lease_settlement import Already
from chalicelib.services.consume.settle import Acks, Nack
from chalicelib.services.manage.registry import PULLS, Contact
from chalicelib.services.manage.replays import Archived
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.settings import Settings
from chalicelib.store.clients import Clients
from chalicelib.store.layout import Tables, definitions
from chalicelib.wiring import Deps
from tests.support.clock import ManualClock, SeededRandom
from tests.support.events import NEVER, Event, Op, Told
from tests.support.faults import FaultPlan

LEASE_SECONDS = 30


class History:
    """Events of all clients of one case, in the order of one counter."""

    def __init__(self, clock: Clock, stamp: Callable[[], int] | None = None) -> None:
        self.events: list[Event] = []
        self.clock = clock
        self._count = itertools.count()
        self.stamp = stamp or (lambda: next(self._count))
        self._lock = threading.Lock()

    def add(self, events: Iterable[Event]) -> None:
        with self._lock:
            self.events.extend(events)


@dataclass(frozen=True)
class SharedTables:
    """One set of tables that cases share; each has topics of its own."""

    prefix: str
    data: Path

    def deps(self, clock: Clock, chance: Random, plan: FaultPlan | None = None, **ways_out: Any) -> Deps:
        """A process that has just started: nothing cached. Under a plan it has a client of its own. `ways_out` are
        adapters that lead to others: sender, invoker, threads."""
        adapters = self._adapters(clock, plan) if plan else self._healthy
        return Deps(replace(adapters, clock=clock, random=chance, **ways_out))

    @cached_property
    def _healthy(self) -> Adapters:
        return self._adapters(ManualClock())

    def _adapters(self, clock: Clock, plan: FaultPlan | None = None) -> Adapters:
        """Adapters by themselves use chance for the names of transactions, which an engine remembers over runs."""
        settings = Settings(self.prefix, "us-east-1", None, self.data)
        return dynamo_adapters(settings, clock, SystemRandom(), plan.attach if plan else None)

    def remove(self) -> None:
        """Delete the tables."""
        client = Clients("us-east-1").get("dynamodb")
        tables = Tables(self.prefix)
        for definition in definitions(tables):
            client.delete_table(TableName=definition["TableName"])


def label_of(body: bytes) -> str:
    """The producer's name of a message: the body up to its padding."""
    return body.decode().strip('"').partition("|")[0]


def draft(label: str, *, padding: int = 0, **settings: Any) -> Draft:
    """A message named by its body."""
    body = f"{label}|{'x' * padding}" if padding else label
    return Draft(f'"{body}"'.encode(), **settings)


def told_by(answer: object) -> Told:
    """How one answer counts."""
    if isinstance(answer, Unavailable):
        return Told.UNKNOWN
    if isinstance(answer, Already):
        return Told.ALREADY
    return Told.REFUSED if isinstance(answer, HeadraceError) else Told.OK


class Client:
    """Does what the HTTP handlers do, and notes its requests and their answers."""

    def __init__(self, deps: Deps, history: History, topic: str) -> None:
        self.deps = deps
        self.history = history
        self.name = topic

    @property
    def topic(self) -> Topic:
        return self.deps.catalog.topic(self.name)

    def group(self, name: str) -> Group:
        return self.deps.catalog.group(self.topic, name)

    @contextmanager
    def _asking(self, *events: Event) -> Iterator[_Asking]:
        """Time the request; where it ends in an exception, all that was asked is refused or unknown."""
        request = _Asking(self.history, list(events))
        try:
            yield request
        except HeadraceError as error:
            request.note_all(told_by(error))
            raise
        except BaseException:
            request.note_all(Told.UNKNOWN)
            raise

    def reader(self, group: str, consumer: str | None) -> str:
        """Whose deliveries these are. Consumers are named in broadcasts only."""
        return reader_name(group, consumer)

    def put_group(self, name: str, **settings: Any) -> Group:
        """Create or change a group."""
        serial = settings.get("mode", "") == "serial"
        event = self._event(
            Op.JOIN,
            reader=name,
            serial=serial,
            begin=settings.get("begin", "latest"),
            tags=settings.get("tags"),
            max_attempts=settings["retry"].max_attempts if "retry" in settings else 16,
        )
        broadcast = settings.get("mode") == "broadcast"
        with self._asking(*([] if broadcast else [event])) as request:
            group, _ = self.deps.admin.put_group(self.topic, name, settings)
            request.note_all(Told.OK)
        return group

    def delete_group(self, name: str, readers: Sequence[str] = ()) -> None:
        with self._asking(*(self._event(Op.LEAVE, reader=r) for r in (name, *readers))) as request:
            topic = self.topic
            self.deps.admin.delete_group(topic, self.deps.catalog.group(topic, name))
            request.note_all(Told.OK)

    def register(self, group: str, consumer: str, contact: Contact = PULLS) -> None:
        topic, consumer_group = self.topic, self.group(group)
        event = self._event(
            Op.JOIN,
            reader=f"{group}/{consumer}",
            begin="latest",
            tags=consumer_group.tags,
            max_attempts=(consumer_group.retry or topic.retry).max_attempts,
        )
        with self._asking(event) as request:
            self.deps.registry.register(topic, consumer_group, consumer, contact)
            request.note_all(Told.OK)

    def unregister(self, group: str, consumer: str) -> None:
        with self._asking(self._event(Op.LEAVE, reader=f"{group}/{consumer}")) as request:
            topic = self.topic
            consumer_group = self.deps.catalog.group(topic, group)
            member = self.deps.registry.consumer_to_remove(topic, consumer_group, consumer)
            self.deps.registry.unregister(topic, consumer_group, member)
            request.note_all(Told.OK)

    def remove_expired(self, group: str, consumer: str) -> None:
        """As the minute's job does with what it has read; harmless if it is gone."""
        with self._asking(self._event(Op.LEAVE, reader=f"{group}/{consumer}")) as request:
            topic = self.topic
            consumer_group = self.deps.catalog.group(topic, group)
            if row := self.deps.adapters.control.consumer(topic, consumer_group, consumer):
                self.deps.registry.remove_expired(topic, consumer_group, row)
            request.note_all(Told.OK)

    def produce(self, *drafts: Draft, name: Request | None = None) -> list[ProduceResult | HeadraceError]:
        """`name`: that of the request, if it has one, for when it is sent again. Each draft has another content."""
        events = [
            self._event(
                Op.PRODUCE,
                label=label_of(d.body),
                unit=d.ordering_key or f"-{d.tenant or ''}",
                tag=d.tag or "",
                dedup_id=d.dedup_id or (f"{name.name} {label_of(d.body)}" if name else ""),
                expires=d.expires_ms is not None,
                later=d.due_ms is not None,
            )
            for d in drafts
        ]
        return self._place(events, lambda: self.deps.producer.produce(self.topic, drafts, request=name))

    def replay(self, replay: Replay, messages: Sequence[Archived]) -> list[ProduceResult | HeadraceError]:
        """Send archived messages under a replay of the topic."""
        events = [
            self._event(Op.PRODUCE, label=label_of(m.draft.body), unit="-", dedup_id=f"{replay.id}-{m.id}")
            for m in messages
        ]
        return self._place(events, lambda: self.deps.replays.send(replay, messages))

    def _place(
        self, events: Sequence[Event], place: Callable[[], list[ProduceResult | HeadraceError]]
    ) -> list[ProduceResult | HeadraceError]:
        with self._asking(*events) as request:
            outcomes = place()
            request.note(
                replace(e, told=told_by(o), message_id=o.id if isinstance(o, ProduceResult) else "")
                for e, o in zip(events, outcomes, strict=True)
            )
        return outcomes

    def receive(
        self,
        group: str,
        most: int = 10,
        consumer: str | None = None,
        lease_seconds: int = LEASE_SECONDS,
        *,
        acks: Acks | None = None,
        is_run: bool = False,
    ) -> list[ClaimedMessage]:
        blank = self._event(Op.CLAIM, reader=self.reader(group, consumer), lease_ms=lease_seconds * 1000)
        with self._asking(blank) as request:
            topic, consumer_group, who = self._find(group, consumer)
            messages = self.deps.receiver.receive(
                topic, consumer_group, who, most, 0, lease_seconds, acks=acks, is_run=is_run
            )
            request.note(
                replace(
                    blank,
                    told=Told.OK,
                    label=self._label(d),
                    message_id=d.message.id,
                    token=d.receipt.token,
                    attempt=d.attempt,
                    lane=d.receipt.entry is not None,
                )
                for d in messages
            )
        return messages

    def ack_and_receive(
        self, group: str, messages: Sequence[ClaimedMessage], most: int = 10
    ) -> list[ClaimedMessage]:
        """One receive that acknowledges these first."""
        blank = self._event(Op.SETTLE, fate="SUCCESS", delay_ms=0)
        events = [self._about(blank, group, None, d) for d in messages]
        with self._asking(*events) as request:
            topic, consumer_group, _ = self._find(group, None)
            acks = self.deps.settler.acks(topic, consumer_group, self.receipts(consumer_group, messages))
            received = self.receive(group, most, acks=acks)
            request.note(replace(e, told=told_by(a)) for e, a in zip(events, acks.answers, strict=True))
        return received

    def _find(self, group: str, consumer: str | None) -> tuple[Topic, Group, Consumer | None]:
        topic = self.topic
        consumer_group = self.deps.catalog.group(topic, group)
        return (
            topic,
            consumer_group,
            self.deps.catalog.consumer(topic, consumer_group, consumer) if consumer else None,
        )

    def _label(self, delivery: ClaimedMessage) -> str:
        assert delivery.message.draft.has_body, f"the body of {delivery.message.id} is gone"
        return label_of(delivery.message.draft.body)

    def ack(self, group: str, messages: Sequence[ClaimedMessage], consumer: str | None = None) -> list[Any]:
        return self._settle(group, messages, consumer, "SUCCESS", None)

    def nack(
        self, group: str, messages: Sequence[ClaimedMessage], how: Nack, consumer: str | None = None
    ) -> list[Any]:
        return self._settle(group, messages, consumer, "DEAD" if how.dead_letter else "RETRY", how)

    def _settle(
        self,
        group: str,
        messages: Sequence[ClaimedMessage],
        consumer: str | None,
        fate: str,
        how: Nack | None,
    ) -> list[Any]:
        blank = self._event(Op.SETTLE, fate=fate, delay_ms=how.delay_ms if how else 0)
        events = [self._about(blank, group, consumer, d) for d in messages]
        if fate == "RETRY" and any(d.is_in_run for d in messages):  # those behind the first are not tried
            events[1:] = (replace(event, fate="RELEASED", delay_ms=0) for event in events[1:])
        with self._asking(*events) as request:
            topic, consumer_group, _ = self._find(group, None)
            receipts = self.receipts(consumer_group, messages)
            settler = self.deps.settler
            answers = (
                settler.nack(topic, consumer_group, receipts, how)
                if how
                else settler.ack(topic, consumer_group, receipts)
            )
            request.note(replace(e, told=told_by(a)) for e, a in zip(events, answers, strict=True))
        return answers

    def extend(
        self, group: str, messages: Sequence[ClaimedMessage], lease_seconds: int, consumer: str | None = None
    ) -> list[Any]:
        blank = self._event(Op.EXTEND, lease_ms=lease_seconds * 1000)
        events = [self._about(blank, group, consumer, d) for d in messages]
        with self._asking(*events) as request:
            topic, consumer_group, _ = self._find(group, None)
            answers = self.deps.settler.extend(
                topic, consumer_group, self.receipts(consumer_group, messages), lease_seconds
            )
            request.note(replace(e, told=told_by(a)) for e, a in zip(events, answers, strict=True))
        return answers

    def seek(self, group: str, where: str) -> None:
        """Send a group to `earliest`, `latest` or `@<ms>` on every shard."""
        begin = where if where in (EARLIEST, LATEST) else "since"
        with self._asking(self._event(Op.SEEK, reader=group, begin=begin)) as request:
            topic = self.topic
            consumer_group = self.deps.catalog.group(topic, group)
            for shard in topic.shard_numbers:
                self.deps.positions.seek(topic, cursor_key(topic, consumer_group, shard), where)
            request.note_all(Told.OK)

    def receipts(self, group: Group, messages: Sequence[ClaimedMessage]) -> list[str]:
        """What the consumer was handed with its messages."""
        return [sign_receipt(self.deps.signing_key, d.receipt) for d in messages]

    def _about(self, blank: Event, group: str, consumer: str | None, d: ClaimedMessage) -> Event:
        last = blank.fate == "RETRY" and d.attempt >= d.receipt.last_attempt
        return replace(
            blank,
            fate="DEAD" if last else blank.fate,
            reader=self.reader(group, consumer),
            message_id=d.message.id,
            token=d.receipt.token,
            attempt=d.attempt,
        )

    def _event(self, op: Op, **settings: Any) -> Event:
        return Event(op=op, told=Told.UNKNOWN, began=0, ended=NEVER, **settings)


class _Asking:
    """A request on its way."""

    def __init__(self, history: History, events: Sequence[Event]) -> None:
        self._history = history
        self._asked = events
        self._began, self._began_ms = history.stamp(), history.clock.now_ms()

    def note_all(self, answer: Told) -> None:
        self.note(replace(e, told=answer) for e in self._asked)

    def note(self, events: Iterable[Event]) -> None:
        end, end_ms = self._history.stamp(), self._history.clock.now_ms()
        self._history.add(
            replace(e, began=self._began, ended=end, began_ms=self._began_ms, ended_ms=end_ms) for e in events
        )


def reader_name(group: str, consumer: str | None) -> str:
    return f"{group}/{consumer}" if consumer else group


def chance(*seed: object) -> SeededRandom:
    """Randomness that no other world of the run has: ids in shared tables must differ."""
    return SeededRandom(":".join(map(str, seed)))
