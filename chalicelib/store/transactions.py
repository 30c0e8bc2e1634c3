"""Transactions on DynamoDB (layout: table `transactions`).

Every change is a transaction of DynamoDB, even of one row. Its client token shows, after a lost answer, whether our
own write succeeded, or another process wrote the same. CHECK timers are written before it and deleted after it, for
half the units: a check that finds no transaction to decide ends itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ..domain.append import DedupEntry
from ..domain.timer import Timer
from ..domain.topic import Topic
from ..domain.transaction import LISTED, Counted, Transaction, TransactionState, check_timer
from . import codec
from .attributes import Fields, Item, kib_of, number, packed, payload_of, rows, text, values
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
        """Store a transaction, after its first CHECK timer, with its dedup ids. Returns the entries of ids that were
        used before; then it is not stored."""
        tables, item = self._dynamo.tables, _item(transaction)
        self._dynamo.put(tables.timers, [timer_put(tables, check_timer(transaction))["Put"]["Item"]])
        if dedup:
            return store_with(self._dynamo, dedup, [{"Put": {"TableName": self._table, "Item": item}}])
        self._dynamo.replace(self._table, item, {"ConditionExpression": "attribute_not_exists(t)"})
        return ()

    def get(self, transaction_id: str) -> Transaction | None:
        """One transaction, read consistently."""
        item = self._dynamo.get(self._table, {"t": text(transaction_id)})
        return _transaction(item) if item else None

    def change(self, old: Transaction, new: Transaction, store: Sequence[Timer] = ()) -> bool:
        """Replace `old` by `new` as the next version, if it still has its version, and store timers in the same
        transaction. False: another process has changed it."""
        puts = [timer_put(self._dynamo.tables, timer) for timer in store]
        return self._dynamo.transact([transaction_write(self._dynamo.tables, old, new), *puts])

    def end_checks(self, of: Transaction) -> None:
        """Delete the CHECK timer, in each fragment that may have it. If a mover has moved it to a later time meanwhile,
        that timer finds the decision and ends itself."""
        tables, timer = self._dynamo.tables, check_timer(of)
        keys = [timer_key(fragment, timer.due_ms, timer.id) for fragment in tables.fragments_of(timer.id)]
        self._dynamo.delete(tables.timers, keys)

    def of_state(
        self, topic: Topic, state: TransactionState, after: str | None, limit: int
    ) -> list[Transaction]:
        """The topic's transactions of a state that the index has, by time of preparation, behind a position, without
        their drafts, `keys_until_s` and `answer_by_ms`. It may be a moment old. Rows that cannot be read are
        skipped."""
        home, behind = state_home(topic.uid, state), after or "!"  # before all marks
        request = rows(self._table, "g = :g AND o > :o", g=home, o=behind)
        items = self._dynamo.query(**request, IndexName=BY_STATE, Limit=limit)
        return list(islice(self._dynamo.readable(items, _transaction), limit))

    def scan(self, topic: Topic, state: TransactionState) -> Iterator[Transaction]:
        """The topic's transactions of any state, by a scan of the table, which reads all transactions."""
        request = rows(self._table, "g = :g", g=state_home(topic.uid, state))
        request["FilterExpression"] = request.pop("KeyConditionExpression")
        return self._dynamo.readable(self._dynamo.pages("scan", request), _transaction)

    def whole(self, ids: Iterable[str]) -> Iterator[Transaction]:
        """The transactions of these ids, read one after the other as they are needed, without those that are gone or
        cannot be read."""
        rows = self._dynamo.readable(ids, self.get)
        return (transaction for transaction in rows if transaction)

    def count(self, topic: Topic, state: TransactionState, most: int) -> Counted:
        """How many transactions of a topic are in a state. At most about `most` of them are counted. It may be a
        moment old."""
        request = rows(self._table, "g = :g", g=state_home(topic.uid, state))
        return self._dynamo.count(most, **request, IndexName=BY_STATE)


def transaction_write(tables: Tables, old: Transaction, new: Transaction) -> dict[str, Any]:
    """The action that replaces a transaction of just this version."""
    item = {**_item(new), "e": number(old.version + 1)}
    return {"Put": write_of(tables.transactions, item=item, condition="e = :e", known=values(e=old.version))}


def _item(of: Transaction) -> Item:
    item = {**_FIELDS.packed(of), "g": text(state_home(of.topic_uid, of.state)), "v": {"N": FORMAT}}
    if of.state in LISTED:
        item["o"] = text(of.sort_key)
    if of.expires_s is not None:
        item["x"] = number(of.expires_s)
    if of.draft:
        item["m"] = packed(codec.pack([of.draft]).payload)
    # what can be done without where it would cost a write unit
    for name, value in {name: item.pop(name) for name in "pr" if name in item}.items():
        if kib_of({**item, name: value}) == kib_of(item):
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
