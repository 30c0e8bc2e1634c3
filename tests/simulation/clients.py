"""Clients of the simulated world: they ask any of its processes, and live on when that dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.domain.errors import HeadraceError
from chalicelib.domain.message import Draft
from chalicelib.domain.record import DeadLetter, FailureFilter
from chalicelib.domain.request import Request
from chalicelib.domain.topic import Topic
from chalicelib.domain.transaction import Transaction, TransactionState
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Acks
from chalicelib.services.manage.registry import PULLS, Contact
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from tests.simulation.processes import Process
from tests.support.events import Event, Op, Told
from tests.support.flows import LEASE_SECONDS, Client, History, label_of, told_by

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
        self.process = process

    def reader(self, group: str, consumer: str | None) -> str:
        """Consumers have deliveries of their own in broadcasts only."""
        return str(self.world.reader_of(group, consumer))

    def produce(self, *drafts: Draft, name: Request | None = None) -> list[ProduceResult | HeadraceError]:
        outcomes = super().produce(*drafts, name=name)
        self.deps.waker.wake_after_append(self.topic, [o for o in outcomes if isinstance(o, ProduceResult)])
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
        if consumer is not None:
            topic, consumer_group, who = self._find(group, consumer)
            assert who
            self.deps.registry.sign_of_life(topic, consumer_group, who)
        with self.process.noting_leases() as leases:
            messages = super().receive(group, most, consumer, lease_seconds, acks=acks, is_run=is_run)
        self.world.gets(group, messages)
        message_counts = Counter(each.receipt.token for each in messages)
        if any(count > message_counts[token] for token, count in leases.items()):
            # A claim's answer was lost, or messages without a body were not given back: their leases lapse.
            unheard = self._event(
                Op.CLAIM, reader=self.reader(group, consumer), lease_ms=lease_seconds * 1000
            )
            with self._asking(unheard) as request:
                request.note_all(Told.UNKNOWN)
        return messages

    def register(self, group: str, consumer: str, contact: Contact = PULLS) -> None:
        if self.world.groups[group].mode == "broadcast":
            super().register(group, consumer, contact)
        else:
            self.deps.registry.register(self.topic, self.group(group), consumer, contact)
        consumer_group = self.group(group)
        self.deps.waker.wake_for(
            self.topic, consumer_group, self.deps.catalog.consumer(self.topic, consumer_group, consumer)
        )

    def come(self, group: str, consumer: str, contact: Contact) -> bool:
        """Register a subscriber, and read nothing that may be left out."""
        topic = self.deps.catalog.topic(TOPIC, consistent=True)
        consumer_group = self.deps.catalog.group(topic, group, consistent=True)
        registration = self.deps.registry.register(topic, consumer_group, consumer, contact)
        self.deps.waker.wake_for(topic, consumer_group, registration.member.consumer)
        return True

    def unregister(self, group: str, consumer: str) -> None:
        if self.world.groups[group].mode == "broadcast":
            return super().unregister(group, consumer)
        consumer_group = self.group(group)
        member = self.deps.catalog.consumer(self.topic, consumer_group, consumer)
        self.deps.registry.unregister(self.topic, consumer_group, member)
        self.deps.waker.wake_for(self.topic, consumer_group, member)

    def seek(self, group: str, where: str) -> None:
        super().seek(group, where)
        self.deps.waker.wake_group(self.topic, self.group(group))

    def grow(self) -> None:
        """One more shard."""
        topic, _ = self.deps.admin.put_topic(TOPIC, {"shards": self.topic.shards + 1})
        self.deps.waker.wake_after_redivision(topic)

    def pause(self, group: str, is_paused: bool) -> None:
        consumer_group = self.deps.admin.pause(self.topic, group, is_paused)
        if not is_paused:
            self.deps.waker.wake_after_resumption(self.topic, consumer_group)

    def rotate(self, group: str, consumer: str) -> None:
        consumer_group = self.group(group)
        self.deps.registry.rotate_secret(
            self.topic, consumer_group, self.deps.catalog.consumer(self.topic, consumer_group, consumer)
        )

    def change_topic(self, settings: Mapping[str, Any]) -> None:
        """Change settings of the topic."""
        self.deps.admin.put_topic(TOPIC, settings)

    def change_group(self, group: str, settings: Mapping[str, Any]) -> None:
        """Change settings of a group."""
        bound = self.world.bounds[group]
        bound.may_be(settings.get("max_in_flight", bound.now))
        self.deps.admin.put_group(self.topic, group, settings)
        bound.is_now(settings.get("max_in_flight", bound.now))
        if settings.keys() & {"max_in_flight", "batch_size"}:
            self.deps.waker.wake_after_redivision(self.topic)

    def redrive_page(self, group: str, after: str | None) -> tuple[int, str | None]:
        """Send a page of dead letters again; where the next one begins."""
        letters, after = self.deps.letter_lookup.page(
            self.topic, self.group(group), FailureFilter(), after, 2
        )
        return self._redrive(group, letters), after

    def letters(self, group: str) -> list[DeadLetter]:
        """Some dead letters of the group."""
        return self.deps.letter_lookup.page(self.topic, self.group(group), FailureFilter(), None, 10)[0]

    def redrive(self, group: str) -> None:
        """Send some dead letters again."""
        self._redrive(group, self.letters(group))

    def _redrive(self, group: str, letters: Sequence[DeadLetter]) -> int:
        with self._asking(*(self._about_letter(Op.REDRIVE, x) for x in letters)) as request:
            count = self.deps.dead_letters.redrive(self.topic, self.group(group), letters)
            request.note_all(Told.OK if count == len(letters) else Told.UNKNOWN)
        return count

    def retry_now(self, group: str, message_id: str) -> None:
        """Make the next attempt of a message now, be it dead or waiting."""
        consumer_group = self.group(group)
        letters = self.deps.letter_lookup.letters(self.topic, consumer_group, message_id)
        uids = self.deps.catalog.cursor_owners(self.topic, consumer_group)
        readers = [self.world.reader_by(consumer_group.uid, uid) for uid in uids]
        retries = [self._event(Op.RETRY_NOW, reader=reader, message_id=message_id) for reader in readers]
        redrives = [self._about_letter(Op.REDRIVE, x) for x in letters]
        # A waiting message may be a dead letter when it is looked at, after its last attempt.
        most = (consumer_group.retry or self.topic.retry).max_attempts
        letters_by_then = [
            replace(retry, op=Op.REDRIVE, attempt=most)
            for retry in retries
            if retry.reader not in {event.reader for event in redrives}
        ]
        with self._asking(*retries, *redrives, *letters_by_then) as request:
            self.deps.dead_letters.retry_now(self.topic, consumer_group, message_id)
            request.note_all(Told.UNKNOWN)  # of a broadcast's consumers, it may have been one

    def _about_letter(self, op: Op, letter: DeadLetter) -> Event:
        reader = self.world.reader_by(letter.key.group_uid, letter.key.consumer_uid)
        return self._event(op, reader=reader, message_id=letter.message.id, attempt=letter.attempts)

    def mend(self, group: str) -> None:
        """Give a dead letter another body."""
        for letter in [x for x in self.letters(group) if self._label_of(x)][:1]:
            label = self._label_of(letter)
            body = f'"{label}|mended"'.encode()
            self.deps.dead_letters.edit(self.topic, self.group(group), letter, body)

    def _label_of(self, letter: DeadLetter) -> str:
        """By who produced it: a large body lies elsewhere."""
        asked = (e for e in self.world.events if e.op is Op.PRODUCE and e.message_id == letter.message.id)
        return label_of(letter.message.draft.body) or next((e.label for e in asked), "")

    def discard(self, group: str) -> None:
        """Delete a dead letter."""
        for letter in self.letters(group)[:1]:
            with self._asking(self._about_letter(Op.DISCARD, letter)) as request:
                self.deps.dead_letters.discard(self.topic, self.group(group), letter)
                request.note_all(Told.OK)

    def amend(self, message_id: str, **changes: Any) -> Told:
        """Edit, hurry or postpone a delayed message."""
        delayed_messages = self.deps.delayed
        return self._change_mind(
            message_id, lambda topic, message: delayed_messages.amend(topic, message, changes)
        )

    def cancel(self, message_id: str) -> Told:
        """Take a delayed message back."""
        return self._change_mind(message_id, self.deps.delayed.cancel)

    def _change_mind(self, message_id: str, change: Callable[[Topic, DelayedMessage], object]) -> Told:
        """REFUSED: it was too late, for the message has come."""
        try:
            message = self.deps.lookup.find(self.topic, message_id)
            if not isinstance(message, DelayedMessage):
                return Told.REFUSED
            change(self.topic, message)
            return Told.OK
        except HeadraceError as error:
            return told_by(error)

    def prepare(self, draft: Draft, checks: Checks, *, delay_from_commit: bool) -> Transaction:
        """The result is not known before it is decided."""
        event = self._event(
            Op.PRODUCE,
            label=label_of(draft.body),
            unit=draft.ordering_key or "-",
            tag=draft.tag or "",
            dedup_id=draft.dedup_id or "",
            later=True,
        )
        with self._asking(event) as request:
            transaction, _ = self.deps.transactor.prepare(
                self.topic, draft, checks, delay_from_commit=delay_from_commit
            )
            request.note([replace(event, message_id=transaction.message_id)])
        return transaction

    def decide(self, transaction_id: str, state: TransactionState) -> Told:
        """Commit or roll back. REFUSED: the opposite was decided."""
        transactor = self.deps.transactor
        try:
            transactor.decide(transactor.find(transaction_id), state)
            return Told.OK
        except HeadraceError as error:
            return told_by(error)
