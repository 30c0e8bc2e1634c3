"""The engine: its tables, and what is done with one item, several, or all that have expired."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from .changes import VIEW, Feed
from .errors import Refused, condition_failed, invalid, no_table, unknown
from .expressions import Condition, Given
from .storage import Storage
from .tables import SCHEMA, Connection, Row, Table
from .updates import Update
from .values import Item, stored_item

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/"
_TOKEN_MS = 10 * 60 * 1000
_EXPIRED_AT_ONCE = 200
_TRANSACTION_BYTES = 4 << 20
_REASONS = {
    "ConditionalCheckFailedException": "ConditionalCheckFailed",
    "ValidationException": "ValidationError",
}


@dataclass
class Write:
    """One action on one item, which was read and checked, but not yet done."""

    kind: str
    table: Table
    place: tuple[bytes, bytes]
    key: Item
    condition: Condition | None = None
    shows_refused: bool = False
    item: Item | None = None
    size: int = 0
    update: Update | None = None

    def look(self, connection: Connection) -> Change:
        """What it would change. Raises Refused where its condition does not hold."""
        old = self.table.get(connection, self.place)
        found = old.item if old is not None and (self.condition or self.update) else None
        if self.condition is not None and not self.condition.holds(found):
            raise condition_failed(found if self.shows_refused else None)
        item, size = self.item, self.size
        if self.update is not None:
            item = old.item if old is not None else dict(self.key)
            self.update.applied(found or self.key, item)
            _, size = stored_item(item)
        return Change(self, old, item, size)


@dataclass
class Change:
    """What a write changes: the row that was there, and what takes its place (None: nothing)."""

    write: Write
    old: Row | None
    new: Item | None
    size: int
    data: bytes | None = None

    def apply(self, connection: Connection) -> None:
        """Store it."""
        if self.write.kind != "ConditionCheck":
            table, place = self.write.table, self.write.place
            self.data = table.replace(connection, place, self.new, self.size)


@dataclass
class Engine:
    """Tables in a SQLite file, or in memory. For any number of threads.

    `now_ms`: the time, for what expires and how old a change is.
    `_tokens`: transactions of the last ten minutes, by their tokens: until when, and a digest of what was asked.
    """

    file: Path | None = None
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000

    _tables: dict[str, Table] = field(default_factory=dict, init=False)
    _feeds: dict[str, Feed] = field(default_factory=dict, init=False)
    _tokens: dict[str, tuple[int, bytes]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._storage = Storage(self.file)
        self._news = threading.Condition()
        # Rises with the changes in streams.
        self.news = 0

        def prepare(connection: Connection) -> list[tuple[int, bytes]]:
            connection.execute(SCHEMA)
            return connection.execute("SELECT id, definition FROM definitions").fetchall()

        for id_, definition in self._storage.write(prepare):
            self._open(Table(id_, msgspec.json.decode(definition)))

    def close(self) -> None:
        """End; what was answered stays in the file."""
        self._storage.close()

    def reading(self) -> AbstractContextManager[Connection]:
        """A connection that sees what is stored. Raises Refused."""
        return self._storage.reading()

    # Tables

    @property
    def tables(self) -> Sequence[str]:
        """Their names."""
        return sorted(self._tables)

    def table(self, name: str) -> Table:
        """The table of a name. Raises Refused."""
        try:
            return self._tables[name]
        except KeyError:
            raise no_table("Cannot do operations on a non-existent table") from None

    def create(self, definition: dict[str, Any]) -> Table:
        """Make a table. Raises Refused."""
        name = definition["TableName"]
        indexes = definition.get("GlobalSecondaryIndexes") or []
        projections = [each["Projection"]["ProjectionType"] for each in indexes]
        view = (definition.get("StreamSpecification") or {}).get("StreamViewType", VIEW)
        if projections not in ([], ["INCLUDE"]) or view != VIEW:
            raise unknown(f"tables with indexes of {projections}, or a stream of {view},")

        def make(connection: Connection) -> Table:
            if name in self._tables:
                raise Refused("ResourceInUseException", "Cannot create preexisting table")
            data = msgspec.json.encode(definition)
            row = connection.execute("INSERT INTO definitions (name, definition) VALUES (?, ?)", (name, data))
            assert row.lastrowid is not None, "inserted"
            table = Table(row.lastrowid, definition)
            table.create(connection)
            return table

        return self._storage.write(make, self._open)

    def drop(self, name: str) -> Table:
        """Delete a table with its rows. Raises Refused."""

        def remove(connection: Connection) -> Table:
            table = self.table(name)
            connection.execute("DELETE FROM definitions WHERE id = ?", (table.id,))
            connection.execute(f"DROP TABLE t{table.id}")
            return table

        def forget(table: Table) -> None:
            del self._tables[name]
            self._feeds.pop(name, None)

        return self._storage.write(remove, forget)

    def expire_by(self, name: str, attribute: str) -> None:
        """Let an attribute say when a table's items expire. Raises Refused."""

        def change(connection: Connection) -> Table:
            table = self.table(name)
            table = replace(table, definition={**table.definition, "TimeToLive": attribute})
            data = msgspec.json.encode(table.definition)
            connection.execute("UPDATE definitions SET definition = ? WHERE id = ?", (data, table.id))
            return table

        self._storage.write(change, self._open)

    def _open(self, table: Table) -> None:
        self._tables[table.name] = table
        stream = table.definition.get("StreamSpecification") or {}
        if stream.get("StreamEnabled") and table.name not in self._feeds:
            self._feeds[table.name] = Feed(table, f"{ARN}{table.name}/stream/{self.now_ms()}")

    # Writes

    def prepared(self, kind: str, request: Mapping[str, Any]) -> Write:
        """An action ("Put", "Update", "Delete", "ConditionCheck") as a request or a transaction has it. Raises
        Refused."""
        table = self.table(request["TableName"])
        given = Given.of(request)
        update = condition = None
        if kind == "Update":
            update = Update(request.get("UpdateExpression") or "", given, table.keys.names)
        if "ConditionExpression" in request:
            condition = Condition(request["ConditionExpression"], given)
        given.check_all_used()
        shows_refused = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        if kind == "Put":
            item, size = stored_item(request["Item"])
            if table.index:
                table.index.place(item)  # refuses keys of another type
            return Write(kind, table, table.keys.bytes_of(item), {}, condition, shows_refused, item, size)
        key, _ = stored_item(request["Key"])
        table.keys.check_only(key)
        return Write(kind, table, table.keys.bytes_of(key), key, condition, shows_refused, update=update)

    def write(self, *writes: Write) -> list[Change]:
        """Do some actions, on one item each. Raises Refused."""
        return self._storage.write(lambda connection: _done(writes, connection), self._tell)

    def transact(self, writes: Sequence[Write], token: str | None, request: Any) -> list[Change]:
        """Do all actions, or none of them: then Refused says for each what was in its way. `token` names the `request`:
        for ten minutes it is done once."""
        digest = blake2b(msgspec.msgpack.encode(request, order="sorted"), digest_size=16).digest()

        def do(connection: Connection) -> list[Change]:
            if token is not None and self._is_known(token, digest):
                return []
            changes = _look_at_all(writes, connection)
            if sum(change.size for change in changes) > _TRANSACTION_BYTES:
                raise invalid("Collection of items in the transaction request exceeds the 4MB limit")
            return _applied(changes, connection)

        def tell(changes: list[Change]) -> None:
            if token is not None:
                self._tokens.setdefault(token, (self.now_ms() + _TOKEN_MS, digest))
            self._tell(changes)

        return self._storage.write(do, tell)

    def _is_known(self, token: str, digest: bytes) -> bool:
        """Was it done before?"""
        while self._tokens and next(iter(self._tokens.values()))[0] <= self.now_ms():
            del self._tokens[next(iter(self._tokens))]
        if token in self._tokens and self._tokens[token][1] != digest:
            raise Refused(
                "IdempotentParameterMismatchException",
                "Request parameters do not match with previous request for the given ClientRequestToken",
            )
        return token in self._tokens

    def drop_expired(self, now_s: int | None = None) -> int:
        """Delete what has expired by the time given, or by now. Returns how many items."""
        if now_s is None:
            now_s = self.now_ms() // 1000
        count = sum(sum(self._drop_expired(name, now_s)) for name in list(self._tables))
        if count:
            self._storage.shrink()
        return count

    def _drop_expired(self, name: str, now_s: int) -> Iterator[int]:
        def remove(connection: Connection) -> list[Change]:
            table = self.table(name)
            places = table.expired(connection, now_s, _EXPIRED_AT_ONCE)
            return _done([Write("Delete", table, place, {}) for place in places], connection)

        count = _EXPIRED_AT_ONCE
        while count == _EXPIRED_AT_ONCE:
            count = len(self._storage.write(remove, lambda changes: self._tell(changes, is_expiry=True)))
            yield count

    def clear(self) -> None:
        """Delete every row of every table."""

        def remove(connection: Connection) -> None:
            for table in self._tables.values():
                connection.execute(f"DELETE FROM t{table.id}")

        self._storage.write(remove)

    # Streams

    def feed(self, arn: str) -> Feed:
        """The stream of an ARN. Raises Refused."""
        for feed in self._feeds.values():
            if feed.arn == arn:
                return feed
        raise no_table(f"Requested resource not found: Stream: {arn} not found")

    def feed_of(self, table: Table) -> Feed | None:
        """A table's stream."""
        return self._feeds.get(table.name)

    def wait_for_news(self, seen: int, seconds: float) -> None:
        """Wait until there were more changes in streams than the `seen` ones, so many seconds at most."""
        with self._news:
            self._news.wait_for(lambda: self.news != seen, seconds)

    def wake(self) -> None:
        """End the waits for news."""
        with self._news:
            self.news += 1
            self._news.notify_all()

    def _tell(self, changes: Sequence[Change], *, is_expiry: bool = False) -> None:
        """Add changes to the streams of their tables."""
        is_new = False
        for change in changes:
            feed = self._feeds.get(change.write.table.name)
            old = change.old.data if change.old is not None else None
            if feed is not None and change.write.kind != "ConditionCheck" and old != change.data:
                feed.add(self.now_ms(), old, change.data, is_expiry=is_expiry)
                is_new = True
        if is_new:
            self.wake()


def _done(writes: Sequence[Write], connection: Connection) -> list[Change]:
    """Look at all, which may be refused, before the first is stored."""
    return _applied([write.look(connection) for write in writes], connection)


def _applied(changes: list[Change], connection: Connection) -> list[Change]:
    for change in changes:
        change.apply(connection)
    return changes


def _look_at_all(writes: Sequence[Write], connection: Connection) -> list[Change]:
    """Raises Refused with what is in the way of each."""
    changes: list[Change] = []
    reasons: list[dict[str, Any]] = []
    for write in writes:
        try:
            changes.append(write.look(connection))
            reasons.append({"Code": "None"})
        except Refused as refusal:
            reasons.append({"Code": _REASONS[refusal.code], "Message": refusal.message, **refusal.extra})
    if len(changes) < len(writes):
        codes = ", ".join(reason["Code"] for reason in reasons)
        why = f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]"
        raise Refused("TransactionCanceledException", why, CancellationReasons=reasons)
    return changes
