"""Transactions on DynamoDB (layout: table `transactions`).

Every change is a transaction of DynamoDB, even of one row. Its client token shows, after a lost answer, whether our
own write succeeded, or another process wrote the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ..domain.append import DedupEntry
from ..domain.timer import Timer
from ..domain.topic import Topic
from ..domain.transaction import Counted, Transaction, TransactionState, check_timer
from . import codec
from .attributes import Fields, Item, number, packed, payload_of, rows, started_kib, text, values
from .dedup import store_with
from .dynamo import TableAccess, write_of
from .layout import BY_STATE, FORMAT, Tables, state_home, timer_key
from .timers import timer_put

_FIELDS = Fields(
    "id:t topic:q check_url:u last_answer:w committed_by:p",
    "version:e prepared_ms:a decided_ms:z keep_s:k check_ms:c check_after_ms:i checks:b delay_ms:l due_ms:d shard:h "
    "offset:f keys_until_s:n answer_by_ms:r",
    sparse="lnpr",
)


class Transactions(TableAccess, table="transactions"):
    """Messages that wait for a decision, and what was decided."""

    def prepare(self, transaction: Transaction, dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        """Store a transaction with its first CHECK timer and its dedup ids. Returns the entries of ids that were
        used before; then nothing is stored."""
        put = {"Put": {"TableName": self._table, "Item": _item(transaction)}}
        check = timer_put(self._dynamo.tables, check_timer(transaction))
        return store_with(self._dynamo, dedup, [put, check])

    def get(self, transaction_id: str) -> Transaction | None:
        """One transaction, read consistently."""
        item = self._dynamo.get(self._table, {"t": text(transaction_id)})
        return _transaction(item) if item else None

    def change(
        self, old: Transaction, new: Transaction, store: Sequence[Timer] = (), drop: Sequence[Timer] = ()
    ) -> bool:
        """Replace `old` by `new` as the next version, if it still has its version, and store and delete timers in
        the same transaction. False: another process has changed it."""
        tables = self._dynamo.tables
        puts = [timer_put(tables, timer) for timer in store]
        drops = [action for timer in drop for action in _drops(tables, timer)]
        return self._dynamo.transact([_put(self._table, old, new), *puts, *drops])

    def of_state(
        self, topic: Topic, state: TransactionState, after: str | None, limit: int
    ) -> list[Transaction]:
        """The topic's transactions of a state by time of preparation, behind a position, without their drafts,
        `keys_until_s` and `answer_by_ms`. It may be a moment old. Rows that cannot be read are skipped."""
        home, behind = state_home(topic.uid, state), after or "!"  # before all marks
        request = rows(self._table, "g = :g AND o > :o", g=home, o=behind)
        items = self._dynamo.query(**request, IndexName=BY_STATE, Limit=limit)
        return list(islice(self._dynamo.readable(items, _transaction), limit))

    def whole(self, listed: Iterable[Transaction]) -> Iterator[Transaction]:
        """These transactions as their rows have them, read one after the other as they are needed, without those that
        are gone or cannot be read."""
        rows = self._dynamo.readable(listed, lambda transaction: self.get(transaction.id))
        return (transaction for transaction in rows if transaction)

    def count(self, topic: Topic, state: TransactionState, most: int) -> Counted:
        """How many transactions of a topic are in a state. At most about `most` of them are counted. It may be a
        moment old."""
        request = rows(self._table, "g = :g", g=state_home(topic.uid, state))
        return self._dynamo.count(most, **request, IndexName=BY_STATE)


def transaction_writes(tables: Tables, old: Transaction, new: Transaction) -> list[dict[str, Any]]:
    """The actions that decide a transaction of just this version, and end its checks."""
    return [_put(tables.transactions, old, new), *_drops(tables, check_timer(old))]


def _put(table: str, old: Transaction, new: Transaction) -> dict[str, Any]:
    item = {**_item(new), "e": number(old.version + 1)}
    return {"Put": write_of(table, item=item, condition="e = :e", known=values(e=old.version))}


def _drops(tables: Tables, timer: Timer) -> list[dict[str, Any]]:
    """Delete a timer, in each fragment that may have it, without a condition: if a mover has moved it to a later time
    meanwhile, that timer finds the decision and ends itself."""
    keys = [timer_key(fragment, timer.due_ms, timer.id) for fragment in tables.fragments_of(timer.id)]
    return [{"Delete": {"TableName": tables.timers, "Key": key}} for key in keys]


def _item(of: Transaction) -> Item:
    place = {"g": text(state_home(of.topic_uid, of.state)), "o": text(of.sort_key)}
    item = {**_FIELDS.packed(of), **place, "v": {"N": FORMAT}}
    if of.expires_s is not None:
        item["x"] = number(of.expires_s)
    if of.draft:
        item["m"] = packed(codec.pack([of.draft]).payload)
    # what can be done without where it would cost a write unit
    for name, value in {name: item.pop(name) for name in "pr" if name in item}.items():
        if started_kib({**item, name: value}) == started_kib(item):
            item[name] = value
    return item


def _transaction(item: Item) -> Transaction:
    """The transaction a row holds. Raises Unreadable."""
    return codec.decoded("transactions", item, _transaction_of)


def _transaction_of(item: Item) -> Transaction:
    payload = payload_of(item)
    topic_uid, state, *_ = item["g"]["S"].split("#")
    draft, others = codec.unpack(payload)[0] if payload else None, _FIELDS.unpacked(item)
    return Transaction(topic_uid=topic_uid, state=TransactionState(state), draft=draft, **others)
