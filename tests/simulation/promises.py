"""What was agreed about messages that come later, delayed ones and transactions, and what must be true of it (I9, I11
to I13).

The producer of such a message notes all that may be true by its requests and their answers. An answer is judged when it
is given, by what the store holds at that moment; the outcome of everything, in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from chalicelib.domain.append import Promotable
from chalicelib.domain.limits import MAX_CHECKS
from chalicelib.domain.message import Message
from chalicelib.domain.segment import Segment
from chalicelib.domain.timer import Timer, TimerKind
from chalicelib.domain.topic import Topic
from chalicelib.domain.transaction import DECIDED, Transaction, TransactionState
from chalicelib.store.transactions import Transactions
from chalicelib.wiring import Deps
from tests.support.events import Event, Final, Op, Told
from tests.support.flows import label_of

Form = tuple[int, bytes]
"""When a message is due, and its body."""
_PAGE = 1000


@dataclass
class Delay:
    """A delayed message: the forms it may have by what its producer knows, and the answers to cancelling it."""

    forms: set[Form]
    message_id: str = ""
    cancels: list[Told] = field(default_factory=list)
    was_moved: bool = False  # to another time, or a client tried
    _changers: int = 0
    _is_contested: bool = False  # several clients change it: which change came last is unknown

    def change(self, ask: Callable[[], Told | None], due_ms: int | None, body: bytes | None) -> Told:
        """It is asked to have another time or body, and may have it before there is an answer."""
        self.was_moved |= due_ms is not None
        old, new = self.forms, {(due_ms or due, body or old_body) for due, old_body in self.forms}
        self.forms = old | new
        self._changers += 1
        self._is_contested |= self._changers > 1
        answer = ask() or Told.UNKNOWN
        self._changers -= 1
        if not self._is_contested:
            self.forms = {Told.OK: new, Told.REFUSED: old}.get(answer, self.forms)
        self._is_contested &= self._changers > 0
        return answer

    def cancel(self, ask: Callable[[], Told | None]) -> Told:
        """It is asked to be gone."""
        place = len(self.cancels)
        self.cancels.append(Told.UNKNOWN)
        self.cancels[place] = ask() or Told.UNKNOWN
        return self.cancels[place]


@dataclass
class Deal:
    """A transaction: how its producer answers a check, which decisions may have been made, and which were confirmed or
    refused."""

    truth: TransactionState | None
    mood: str
    asked: set[TransactionState] = field(default_factory=set)
    confirmed: set[TransactionState] = field(default_factory=set)
    refused: set[TransactionState] = field(default_factory=set)
    calls: int = 0


class Promises:
    """All that was agreed in a world, by the messages' labels; `entered` are the ids of what came into the log, and
    when, by the world's stamps."""

    def __init__(
        self, transactions: Transactions, accuse: Callable[[str], object], stamp: Callable[[], int]
    ) -> None:
        self.delays: dict[str, Delay] = {}
        self.deals: dict[str, Deal] = {}
        self.entered: dict[str, int] = {}
        self.deal_labels: dict[str, str] = {}  # by ids of transactions
        self._transactions = transactions
        self._accuse = accuse
        self._stamp = stamp

    # While it happens

    def stored(self, segment: Segment, timers: Sequence[Promotable], now_ms: int) -> None:
        """A segment was written by a process on whose clock it is now. (Retries may be hurried.)"""
        at = self._stamp()
        self.entered |= {
            draft.id: at for draft in segment.drafts if draft.id and draft.id not in self.entered
        }
        for timer in timers:
            if isinstance(timer, Timer) and timer.kind is TimerKind.DELIVER and timer.due_ms > now_ms:
                self._accuse(f"{timer.id} was moved {timer.due_ms - now_ms} ms early")

    def prepared(self, transaction: Transaction) -> None:
        assert transaction.draft
        self.deal_labels[transaction.id] = label_of(transaction.draft.body)

    def answered(self, delay: Delay, answer: Told) -> None:
        """An answer about a delayed message says which came first: its time, or the change."""
        is_entered = delay.message_id in self.entered
        if answer is Told.REFUSED and not is_entered and set(delay.cancels) <= {Told.REFUSED}:
            self._accuse(f"it is not too late for {delay.message_id}")
        if Told.OK in delay.cancels and is_entered:
            self._accuse(f"{delay.message_id} was cancelled, and has come")

    def decided(self, label: str, transaction_id: str, state: TransactionState, answer: Told) -> None:
        """The first decision is final, and a later one is refused."""
        deal, transaction = self.deals[label], self._transactions.get(transaction_id)
        assert transaction
        if answer is Told.OK:
            deal.confirmed.add(state)
        if answer is Told.REFUSED:
            deal.refused.add(state)
        if (answer is Told.OK) != (transaction.state is state) and answer is not Told.UNKNOWN:
            self._accuse(f"{label} is {transaction.state}; {state} was answered {answer}")

    def asks(self, transaction: Transaction) -> Deal:
        """A producer is asked about its transaction: no other client may know the answer yet."""
        deal, stored_transaction = (
            self.deals[self.deal_labels[transaction.id]],
            self._transactions.get(transaction.id),
        )
        if stored_transaction is None or stored_transaction.state is not TransactionState.PREPARED:
            self._accuse(
                f"{transaction.id} is checked, and is {stored_transaction and stored_transaction.state}"
            )
        deal.calls += 1
        return deal

    # In the end

    def resolved(self, events: Sequence[Event]) -> list[Event]:
        """The history in which producing means that the message came for good, by all answers."""
        return [replace(e, told=self._came(e)) if e.op is Op.PRODUCE and e.later else e for e in events]

    def _came(self, event: Event) -> Told:
        if delay := self.delays.get(event.label):
            return Told.REFUSED if Told.OK in delay.cancels else self._lost_or(event, delay.cancels)
        deal = self.deals[event.label]
        if TransactionState.COMMITTED in deal.confirmed and event.message_id:
            return Told.OK
        return Told.REFUSED if TransactionState.ROLLED_BACK in deal.confirmed else Told.UNKNOWN

    def _lost_or(self, event: Event, cancels: Sequence[Told]) -> Told:
        return Told.UNKNOWN if Told.UNKNOWN in cancels else event.told

    def broken(self, deps: Deps, topic: Topic, final: Final, set_back_ms: int) -> Iterator[str]:
        """What is wrong in the end. A clock may have been set back by so much between a look and its move."""
        for label, delay in self.delays.items():
            for message in _found(deps, topic, final, label):
                yield from _late_form(label, delay, message, set_back_ms)
        undecided_ids = {
            t.id for t in deps.adapters.transactions.of_state(topic, TransactionState.UNDECIDED, None, _PAGE)
        }
        for transaction_id, label in self.deal_labels.items():
            transaction = self._transactions.get(transaction_id)
            assert transaction
            if (transaction.state is TransactionState.UNDECIDED) != (transaction_id in undecided_ids):
                yield f"{label} is {transaction.state}, undecided are {undecided_ids}"
            messages = list(_found(deps, topic, final, label))
            yield from _wrong(label, self.deals[label], transaction, messages, set_back_ms)
        labels = list(self.deal_labels.values())
        yield from (f"{label} was prepared twice" for label in set(labels) if labels.count(label) > 1)


def _found(deps: Deps, topic: Topic, final: Final, label: str) -> Iterator[Message]:
    for message_id in final.places.get(label, ()):
        shard, offset = final.spots[message_id]
        (row,) = deps.adapters.log.read_back(topic.shard_key(shard), offset, 1)
        message = row.message(shard, offset)
        assert message
        yield message


def _late_form(label: str, delay: Delay, message: Message, set_back_ms: int) -> Iterator[str]:
    """I9, and no edit that was confirmed is lost."""
    forms = {form for form in delay.forms if form[1] == message.draft.body}
    if not forms:
        yield f"{label} came as {message.draft.body!r}, {delay.forms} are known"
    elif message.accepted_ms < min(forms)[0] - set_back_ms:
        yield f"{label} came {min(forms)[0] - message.accepted_ms} ms early"


def _wrong(
    label: str, deal: Deal, transaction: Transaction, messages: Sequence[Message], set_back_ms: int
) -> Iterator[str]:
    """I11 to I13."""
    ids = [message.id for message in messages]
    if ids != [transaction.message_id] * (transaction.state is TransactionState.COMMITTED):
        yield f"{label} is {transaction.state}, and in the log are {ids}"
    if transaction.state in DECIDED and transaction.state not in deal.asked:
        yield f"{label} is {transaction.state}; asked for was {deal.asked}"
    if deal.confirmed - {transaction.state} or (deal.refused and transaction.state in deal.refused):
        yield f"{label} is {transaction.state}; confirmed {deal.confirmed}, refused {deal.refused}"
    if transaction.state is TransactionState.PREPARED:
        yield f"{label} waits for its decision forever"
    if (
        transaction.state is TransactionState.UNDECIDED
        and transaction.check_url
        and transaction.checks != MAX_CHECKS
    ):
        yield f"{label} was given up after {transaction.checks} checks"
    if not transaction.checks <= min(deal.calls, MAX_CHECKS):
        yield f"{label} counts {transaction.checks} of {deal.calls} checks"
    for message in messages:
        if transaction.due_ms and message.accepted_ms < transaction.due_ms - set_back_ms:
            yield f"{label} came {transaction.due_ms - message.accepted_ms} ms early"
