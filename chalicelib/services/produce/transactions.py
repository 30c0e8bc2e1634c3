"""Transactions: a message is prepared, invisible to consumers, then committed or rolled back; the first decision is
final.

Each decision is one conditional write, together with what it brings about: the segment that the message becomes, or
the timer by which it waits for its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...domain import ids, signing
from ...domain import transaction as states
from ...domain.append import DedupEntry
from ...domain.errors import Conflict, NotFound, Unavailable, unavailable
from ...domain.limits import DEFAULT_CHECK_AFTER_SECONDS, MAX_CHECKS
from ...domain.message import Draft
from ...domain.record import FailureFilter
from ...domain.timer import ANY
from ...domain.topic import Topic
from ...domain.transaction import CheckAnswer, Transaction, TransactionState
from ...ports.world import Clock, Random
from ...store import Transactions
from ..core.catalog import Catalog
from ..core.counters import ACCEPTED, Counters
from ..core.secrets import SigningKeys
from ..core.wake import Waker
from .dedup import FirstUseOf, content_hash, entry_of, is_free, refusal_of_repeat, unknown_use
from .producer import Producer

_TRIES = 8
_TOPICS = 100  # of one look for undecided transactions
# A later check can wait for the movers' schedule: most transactions are decided by then.
_WAKES_BELOW_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Checks:
    """The check URL, and the waits before and between checks. Without a URL no check is made; the transaction is
    UNDECIDED after the time that all checks would have taken."""

    url: str | None = None
    after_seconds: int = DEFAULT_CHECK_AFTER_SECONDS


@dataclass(kw_only=True, frozen=True, slots=True)
class Transactor:
    """Prepares, decides and shows transactions."""

    catalog: Catalog
    transactions: Transactions
    producer: Producer
    waker: Waker
    clock: Clock
    random: Random
    signing_keys: SigningKeys
    counters: Counters

    def prepare(
        self,
        topic: Topic,
        draft: Draft,
        checks: Checks,
        *,
        delay_from_commit: bool = False,
        by: str = "",
        first_use: FirstUseOf = unknown_use,
    ) -> tuple[Transaction, bool]:
        """Store a message that no consumer sees before it is committed. `delay_from_commit`: its delay counts from
        the commit. `by` is the id of the producer's token; `first_use` says what has become of a dedup id's message.

        With a dedup id that was used for the same, the transaction it was used for; True: this one is new. Raises
        TooMany, Conflict, or why the topic does not take the message.
        """
        draft = self.producer.admit(topic, draft)
        if checks.url:
            self.signing_keys.present()  # `check`, which signs with it, may not make it
        # When the delay began, and before the upload: what counts from here shall not wait for it.
        now_ms = draft.accepted_ms or self.clock.now_ms()
        offloaded = self.producer.offload(topic, replace(draft, by=by))
        new = self._new(topic, offloaded, checks, delay_from_commit, now_ms)
        assert new.draft is not None
        self.producer.note_keys(topic, [(new.draft, _last_possible_ms(new))], new.prepared_ms)
        entries = [_dedup(topic, draft, new)] if draft.dedup_id else []
        while used_entries := self.transactions.prepare(new, entries):
            (entry,) = used_entries
            use = first_use(entry.message_id)
            if is_free(draft, use):
                entries = [replace(entries[0], instead_of=entry.message_id)]
                continue
            if error := refusal_of_repeat(entries[0].content_hash, entry, use):
                raise error
            return self.find(ids.parse_half_id(entry.message_id) or ""), False
        if checks.after_seconds < _WAKES_BELOW_SECONDS:
            self.waker.wake_movers([states.check_timer(new)])
        return new, True

    def _new(
        self, topic: Topic, draft: Draft, checks: Checks, delay_from_commit: bool, now_ms: int
    ) -> Transaction:
        after_ms = checks.after_seconds * 1000
        name = self.producer.waiting_name(topic, draft, ids.half_id) if draft.due_ms else None
        id = name or self.random.id(ids.TRANSACTION_ID_CHARS)
        new = Transaction(
            id=id,
            topic=topic.name,
            topic_uid=topic.uid,
            prepared_ms=now_ms,
            check_ms=now_ms + after_ms * (1 if checks.url else MAX_CHECKS),
            check_after_ms=after_ms,
            keep_s=max(topic.retention_ms // 1000, topic.dedup_window_seconds),
            draft=replace(draft, id=ids.half_id(id), due_ms=None, accepted_ms=None),
            check_url=checks.url,
            shard=draft.shard,
            delay_ms=draft.due_ms - now_ms if draft.due_ms and delay_from_commit else 0,
            due_ms=None if delay_from_commit else draft.due_ms,
        )
        return replace(new, keys_until_s=topic.expires_s(_last_possible_ms(new)))

    def find(self, transaction_id: str) -> Transaction:
        """The transaction, or NotFound."""
        match = ids.TRANSACTION_ID.match(transaction_id)
        transaction = self.transactions.get(transaction_id) if match else None
        if transaction is None:
            raise not_found()
        return transaction

    def undecided(
        self, topic: Topic | None, which: FailureFilter, after: Sequence[str] | None, limit: int
    ) -> tuple[list[Transaction], Sequence[str] | None]:
        """Up to `limit` UNDECIDED transactions that have a check URL, of a topic or (None) of all, and the next
        position: the last topic that is finished, and the place in the one after it (None: the end). A page may be
        empty before the end."""
        finished, place = after or ("", "")
        topics = [topic] if topic else self.catalog.control.topics(finished or None, _TOPICS)
        found: list[Transaction] = []
        for each in topics:
            rows = self.transactions.of_state(each, TransactionState.UNDECIDED, place or None, limit)
            for row in self.transactions.whole(row.id for row in rows) if which.reads_draft else rows:
                if _may_be_asked_again(row) and which.matches(row.failure):
                    found.append(row)
                if len(found) == limit:
                    return found, (finished, row.sort_key)
            if len(rows) == limit:
                return found, (finished, rows[-1].sort_key)
            finished, place = each.name, ""
        return found, (finished, "") if topic is None and len(topics) == _TOPICS else None

    def undecided_of(self, topic: Topic | None, transaction_ids: Sequence[str]) -> list[Transaction]:
        """Those with these ids, of the topic, that are UNDECIDED and have a check URL."""
        found = (self.transactions.get(id) for id in transaction_ids if ids.TRANSACTION_ID.match(id))
        undecided = (each for each in found if each and _may_be_asked_again(each))
        return [each for each in undecided if topic is None or topic.uid == each.topic_uid]

    def recheck(self, transaction: Transaction) -> bool:
        """Have an UNDECIDED transaction's producer asked again, now and then at its usual pace. False: it was decided
        meanwhile."""
        old = self.transactions.get(transaction.id)
        if old is None or not _may_be_asked_again(old):
            return False
        new = states.asked_again(old, self.clock.now_ms())
        if not self.transactions.change(old, new, store=[states.check_timer(new)]):
            return False
        self.waker.wake_movers([states.check_timer(new)])
        return True

    def secret(self, topic: Topic) -> bytes:
        """The secret that signs the checks of a topic's transactions."""
        return signing.derived(self.signing_keys.present(), "check", topic.uid)

    def secrets(self, topic: Topic) -> list[bytes]:
        """This, and those that it was before and that are still good."""
        return [signing.derived(key, "check", topic.uid) for key in self.signing_keys.live()]

    def topic_of(self, transaction: Transaction) -> Topic:
        """The topic it was prepared for, or NotFound."""
        topic = self.catalog.topic(transaction.topic)
        if topic.uid != transaction.topic_uid:
            raise NotFound("TOPIC_NOT_FOUND", f"The topic {topic.name!r} of this transaction was deleted.")
        return topic

    def decide(
        self,
        transaction: Transaction,
        decision: TransactionState,
        answer: CheckAnswer | None = None,
        by: str = "",
    ) -> Transaction:
        """Commit or roll back a transaction as it was read. The decision is final; repeating it is harmless. `answer`
        is a check's, and counts as one. `by` is the id of the token that decides.

        Raises Conflict where the opposite was decided, and NotFound.
        """
        for _ in range(_TRIES):
            if transaction.state in states.DECIDED:
                return _require_same_decision(transaction, decision)
            if answer:
                transaction = states.answered(transaction, answer)
            if decision is TransactionState.COMMITTED:
                new = self._commit(replace(transaction, committed_by=by))
            else:
                new = self._roll_back(transaction, by)
            if new:
                self.counters.add(ACCEPTED, decision is TransactionState.COMMITTED)
                with suppress(Unavailable):  # the next check finds the decision
                    self.transactions.end_checks(transaction)
                return new
            transaction = self.find(transaction.id)
        raise unavailable("Others keep changing this transaction; try again.")

    def _roll_back(self, transaction: Transaction, by: str) -> Transaction | None:
        new = states.rolled_back(transaction, self.clock.now_ms(), by)
        return new if self.transactions.change(transaction, new) else None

    def _commit(self, transaction: Transaction) -> Transaction | None:
        """None: it was changed meanwhile."""
        topic, now_ms = self.topic_of(transaction), self.clock.now_ms()
        draft = states.committed_draft(transaction, now_ms)
        comes_ms = draft.due_ms or now_ms
        expires_s = topic.expires_s(comes_ms)
        # The message's id leads to it by this row; the retention may have been raised since the preparation.
        transaction = replace(transaction, keep_s=max(transaction.keep_s, expires_s - comes_ms // 1000))
        if expires_s > transaction.keys_until_s:
            # Under the time at which it was prepared: a list of a key's messages shall not show this one twice.
            self.producer.note_keys(topic, [(draft, comes_ms)], transaction.prepared_ms)
        if draft.due_ms is not None:
            return self._commit_for_later(topic, transaction, draft, now_ms)
        (message,) = self.producer.move(topic, [(transaction, draft)])
        if message is None or message.shard is None:
            return None
        self.waker.wake_after_append(topic, [message])
        return states.committed(transaction, message.accepted_ms, shard=message.shard, offset=message.offset)

    def _commit_for_later(
        self, topic: Topic, transaction: Transaction, draft: Draft, now_ms: int
    ) -> Transaction | None:
        timer = self.producer.timer(topic, draft)
        shard = None if timer.shard.shard == ANY else timer.shard.shard
        new = states.committed(transaction, now_ms, shard=shard, due_ms=timer.due_ms)
        if not self.transactions.change(transaction, new, store=[timer]):
            return None
        self.waker.wake_movers([timer])
        return new


def _may_be_asked_again(transaction: Transaction) -> bool:
    return transaction.state is TransactionState.UNDECIDED and transaction.check_url is not None


def not_found() -> NotFound:
    """The error for an id that does not exist, or that the caller may not see."""
    return NotFound("TRANSACTION_NOT_FOUND", "There is no transaction with this id; it may have expired.")


def _last_possible_ms(new: Transaction) -> int:
    """When the message enters the log at the latest, if it does: after the last check and its delay."""
    checked_ms = new.prepared_ms + new.check_after_ms * MAX_CHECKS
    return max(checked_ms + new.delay_ms, new.due_ms or 0)


def _require_same_decision(transaction: Transaction, decision: TransactionState) -> Transaction:
    if transaction.state is not decision:
        word = "committed" if transaction.state is TransactionState.COMMITTED else "rolled back"
        raise Conflict("TRANSACTION_DECIDED", f"The transaction was {word}; the first decision is final.")
    return transaction


def _dedup(topic: Topic, draft: Draft, new: Transaction) -> DedupEntry:
    """The entry of a dedup id that a transaction uses; a message with the same id is a conflict."""
    entry = entry_of(topic, draft, new.message_id, new.prepared_ms)
    return replace(entry, content_hash=f"x{content_hash(draft)}")
