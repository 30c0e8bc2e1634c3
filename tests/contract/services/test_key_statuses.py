"""A key finds a message in every state, also before it is in the log."""

from __future__ import annotations

from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.message import Message
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.inspect.lookup import Filters, status_before_log
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from tests.support import factories as make
from tests.support.clock import ManualClock
from tests.support.desk import Desk
from tests.support.stages import Stage


class Keyed:
    """Messages with one key, in every state that a message may be in before it is in the log."""

    def __init__(self, desk: Desk, clock: ManualClock) -> None:
        self._desk, self._deps, self._now_ms = desk, desk.deps, clock.now_ms

    def later(self, name: str) -> str:
        (result,) = self._desk.produce(make.draft(name, keys=("k",), due_ms=self._now_ms() + 60 * SECOND_MS))
        return result.id

    def postponed(self, name: str) -> str:
        message_id = self.later(name)
        due_ms = self._now_ms() + 40 * DAY_MS
        self._deps.delayed.amend(self._desk.topic, self._waiting(message_id), {"due_ms": due_ms})
        return message_id

    def cancelled(self, name: str) -> str:
        message_id = self.later(name)
        self._deps.delayed.cancel(self._desk.topic, self._waiting(message_id))
        return message_id

    def prepared(self, name: str, delay_ms: int = 0, decision: TransactionState | None = None) -> str:
        draft = make.draft(name, keys=("k",), due_ms=self._now_ms() + delay_ms if delay_ms else None)
        transaction, _ = self._deps.transactor.prepare(
            self._desk.topic, draft, Checks(), delay_from_commit=bool(delay_ms)
        )
        if decision:
            self._deps.transactor.decide(self._deps.transactor.find(transaction.id), decision)
        return self._deps.transactor.find(transaction.id).message_id

    def statuses(self) -> dict[str, str]:
        """What the key finds now, by message id."""
        page, mark = self._deps.key_lookup.newest_first(self._desk.topic, "k", Filters(), 100, None)
        assert mark is None
        messages = {m.id if isinstance(m, Message) else m.message.id: m for m in page}
        assert len(messages) == len(page), "each once"
        state_of = self._deps.lookup.state_by_id(self._desk.topic)
        return {
            id: state_of(id).status if isinstance(message, Message) else status_before_log(message)
            for id, message in messages.items()
        }

    def _waiting(self, message_id: str) -> DelayedMessage:
        message = self._deps.lookup.find(self._desk.topic, message_id)
        assert isinstance(message, DelayedMessage)
        return message


def test_a_key_finds_a_message_in_every_state(stage: Stage) -> None:
    desk = Desk.at(stage)
    keyed_desk = Keyed(desk, stage.clock)
    postponed_id = keyed_desk.postponed("postponed")
    expected = {
        keyed_desk.later("delayed"): "DELAYED",
        postponed_id: "DELAYED",
        keyed_desk.cancelled("cancelled"): "CANCELLED",
        keyed_desk.prepared("half"): "PREPARED",
        keyed_desk.prepared("slow", 5000): "PREPARED",
        keyed_desk.prepared("rolled back", decision=TransactionState.ROLLED_BACK): "CANCELLED",
        keyed_desk.prepared("committed", 70 * SECOND_MS, TransactionState.COMMITTED): "DELAYED",
        keyed_desk.prepared("done", decision=TransactionState.COMMITTED): "NEW",
    }
    (result,) = desk.produce(make.draft("new", keys=("k",)))
    expected[result.id] = "NEW"

    assert keyed_desk.statuses() == expected
    stage.clock.advance(71 * SECOND_MS)
    desk.deps.mover.tick(range(FRAGMENTS))
    assert keyed_desk.statuses() == {
        id: "NEW" if word == "DELAYED" and id != postponed_id else word for id, word in expected.items()
    }
    stage.clock.advance(9 * DAY_MS)  # longer than it is kept from when it was due at first
    stage.drop_expired()
    assert keyed_desk.statuses()[postponed_id] == "DELAYED"
