"""The tables and their rows, as SQLite keeps them.

Each table of DynamoDB is one of SQLite's: the keys as bytes that sort alike, the item's size, when it expires (s), the
item itself as MessagePack. An index is a table, too, whose rows have the keys of both and the part of the item that it
projects. `definitions` has the requests that made the tables; `tokens` the transactions of the last ten minutes.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from .conditions import KeyRange
from .errors import UnfitItem, invalid
from .values import Item, key_bytes, size_of

Connection = sqlite3.Connection
KIB = 1024
_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_LAST_S = 1 << 53  # of an expiry: what is later never comes

_encode = msgspec.msgpack.Encoder().encode
_decode: Any = msgspec.msgpack.Decoder(dict[str, Any]).decode

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS definitions (id INTEGER PRIMARY KEY, name TEXT UNIQUE, definition BLOB)",
    "CREATE TABLE IF NOT EXISTS tokens (token TEXT PRIMARY KEY, request BLOB, until INTEGER) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS tokens_until ON tokens (until)",
)


@dataclass(frozen=True)
class Keys:
    """The key attributes of a table or an index, with their types; the sort key may be missing."""

    types: Mapping[str, str]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.types)

    def bytes_of(self, item: Item) -> tuple[bytes, bytes]:
        """The two keys of an item, as they are stored; the second is empty where there is no sort key. Raises
        Refused."""
        hash_name, *range_names = self.names
        first = key_bytes(item.get(hash_name), self.types[hash_name], hash_name, is_hash=True)
        for name in range_names:
            return first, key_bytes(item.get(name), self.types[name], name, is_hash=False)
        return first, b""

    def of(self, item: Item) -> Item:
        """The key attributes of an item."""
        return {name: item[name] for name in self.types}

    def check_only(self, key: Item) -> None:
        """Raises Refused if a request's key has other attributes than these."""
        if key.keys() != self.types.keys():
            raise invalid("The provided key element does not match the schema")


class Row(NamedTuple):
    """A stored item. `data` is its MessagePack; each reading of `item` makes another one."""

    id: int
    size: int
    data: bytes

    @property
    def item(self) -> Item:
        return _decode(self.data)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Index:
    """A global secondary index. `attributes` None: it has whole items."""

    name: str
    sql: str
    keys: Keys
    attributes: frozenset[str] | None

    def entry(self, item: Item, table_keys: Keys) -> tuple[bytes, bytes, bytes, bytes, int, bytes] | None:
        """The index's row of an item; None where it lacks a key of the index."""
        if not item.keys() >= self.keys.types.keys():
            return None
        part = item
        if self.attributes is not None:
            part = {name: value for name, value in item.items() if name in self.attributes}
        return (*self.keys.bytes_of(item), *table_keys.bytes_of(item), size_of(part), _encode(part))


@dataclass(frozen=True)
class Table:
    """A table: its definition, as CreateTable and what changed it since gave it, and its rows."""

    id: int
    definition: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.definition["TableName"])

    @property
    def ttl(self) -> str | None:
        """The attribute that says when an item expires."""
        return self.definition.get("TimeToLive")

    @property
    def view(self) -> str | None:
        """What its stream shows; None: it has none."""
        stream = self.definition.get("StreamSpecification") or {}
        return str(stream["StreamViewType"]) if stream.get("StreamEnabled") else None

    def changed(self, **changes: Any) -> Table:
        """The table with another definition."""
        return replace(self, definition={**self.definition, **changes})

    @cached_property
    def keys(self) -> Keys:
        return self._keys_of(self.definition["KeySchema"])

    @cached_property
    def indexes(self) -> tuple[Index, ...]:
        return tuple(
            Index(
                each["IndexName"], f"i{self.id}_{n}", self._keys_of(each["KeySchema"]), self._projected(each)
            )
            for n, each in enumerate(self.definition.get("GlobalSecondaryIndexes") or ())
        )

    def _keys_of(self, schema: Iterable[Mapping[str, str]]) -> Keys:
        types = {
            each["AttributeName"]: each["AttributeType"] for each in self.definition["AttributeDefinitions"]
        }
        kinds = {each["KeyType"]: each["AttributeName"] for each in schema}
        return Keys({kinds[kind]: types[kinds[kind]] for kind in ("HASH", "RANGE") if kind in kinds})

    def _projected(self, index: Mapping[str, Any]) -> frozenset[str] | None:
        projection = index["Projection"]
        if projection["ProjectionType"] == "ALL":
            return None
        keys = (*self.keys.names, *self._keys_of(index["KeySchema"]).names)
        return frozenset((*keys, *projection.get("NonKeyAttributes", ())))

    # What is done with rows

    def create(self, connection: Connection) -> None:
        """Make SQLite's tables."""
        columns = "p BLOB, s BLOB, size INTEGER, x INTEGER, item BLOB"
        connection.execute(f"CREATE TABLE t{self.id} ({columns})")
        connection.execute(f"CREATE UNIQUE INDEX t{self.id}_k ON t{self.id} (p, s)")
        for index in self.indexes:
            columns = "p BLOB, s BLOB, tp BLOB, ts BLOB, size INTEGER, item BLOB, PRIMARY KEY (p, s, tp, ts)"
            connection.execute(f"CREATE TABLE {index.sql} ({columns}) WITHOUT ROWID")

    def drop(self, connection: Connection) -> None:
        """Remove them."""
        for name in (f"t{self.id}", *(index.sql for index in self.indexes)):
            connection.execute(f"DROP TABLE {name}")

    def clear(self, connection: Connection) -> None:
        """Remove all rows."""
        for name in (f"t{self.id}", *(index.sql for index in self.indexes)):
            connection.execute(f"DELETE FROM {name}")

    def begin_expiry(self, connection: Connection) -> None:
        """Store the expiry of each row that was written before expiry was enabled."""
        connection.execute(f"CREATE INDEX IF NOT EXISTS t{self.id}_x ON t{self.id} (x) WHERE x IS NOT NULL")
        for row_id, data in connection.execute(f"SELECT rowid, item FROM t{self.id}").fetchall():
            expiry = (self._expiry(_decode(data)), row_id)
            connection.execute(f"UPDATE t{self.id} SET x = ? WHERE rowid = ?", expiry)

    @cached_property
    def _get(self) -> str:
        return f"SELECT rowid, size, item FROM t{self.id} WHERE p = ? AND s = ?"

    @cached_property
    def _insert(self) -> str:
        return f"INSERT INTO t{self.id} (p, s, size, x, item) VALUES (?, ?, ?, ?, ?)"

    @cached_property
    def _update(self) -> str:
        return f"UPDATE t{self.id} SET size = ?, x = ?, item = ? WHERE rowid = ?"

    @cached_property
    def _delete(self) -> str:
        return f"DELETE FROM t{self.id} WHERE rowid = ?"

    def get(self, connection: Connection, place: tuple[bytes, bytes]) -> Row | None:
        """The row at a place."""
        found = connection.execute(self._get, place).fetchone()
        return Row(*found) if found else None

    def replace(
        self,
        connection: Connection,
        place: tuple[bytes, bytes],
        old: Row | None,
        item: Item | None,
        size: int,
    ) -> tuple[bytes | None, float]:
        """Store an item in the place of a row; None: delete that. Returns the stored bytes, and the write units of the
        indexes."""
        data = None if item is None else _encode(item)
        if item is None:
            if old is not None:
                connection.execute(self._delete, (old.id,))
        elif old is None:
            connection.execute(self._insert, (*place, size, self._expiry(item), data))
        else:
            connection.execute(self._update, (size, self._expiry(item), data, old.id))
        units = sum(self._reindex(connection, index, old, item) for index in self.indexes)
        return data, units

    def _reindex(self, connection: Connection, index: Index, old: Row | None, item: Item | None) -> int:
        before = index.entry(old.item, self.keys) if old is not None else None
        after = index.entry(item, self.keys) if item is not None else None
        if before == after:
            return 0
        units = 0
        if before is not None and (after is None or after[:4] != before[:4]):
            where = "p = ? AND s = ? AND tp = ? AND ts = ?"
            connection.execute(f"DELETE FROM {index.sql} WHERE {where}", before[:4])
            units += units_of(before[4])
        if after is not None:
            connection.execute(f"INSERT OR REPLACE INTO {index.sql} VALUES (?, ?, ?, ?, ?, ?)", after)
            units += units_of(max(after[4], before[4] if before and after[:4] == before[:4] else 0))
        return units

    def _expiry(self, item: Item) -> int | None:
        text = item[self.ttl].get("N") if self.ttl and self.ttl in item else None
        at = float(text) if text is not None else None
        return int(at) if at is not None and abs(at) < _LAST_S else None

    def expired(self, connection: Connection, now_s: int, most: int) -> list[tuple[bytes, bytes]]:
        """The places of some rows that have expired."""
        sql = f"SELECT p, s FROM t{self.id} WHERE x <= ? LIMIT ?"
        return connection.execute(sql, (now_s, most)).fetchall() if self.ttl else []

    def rows(
        self,
        connection: Connection,
        index: Index | None,
        of: KeyRange | None,
        start: Item | None,
        *,
        forward: bool = True,
    ) -> Generator[tuple[int, Item]]:
        """Sizes and items, in the order of their keys, of a range or (None) of all, behind the keys in `start`."""
        columns = ["p", "s"] if index is None else ["p", "s", "tp", "ts"]
        where: list[str] = []
        values: list[bytes] = []
        if of is not None:
            where.append("p = ?")
            values.append(of.partition)
            ends = ((of.low, ">=" if of.low_is_in else ">"), (of.high, "<=" if of.high_is_in else "<"))
            for end, sign in ends:
                if end is not None:
                    where.append(f"s {sign} ?")
                    values.append(end)
        if start is not None:
            place = self.keys.bytes_of(start)
            values += place if index is None else (*index.keys.bytes_of(start), *place)
            where.append(
                f"({', '.join(columns)}) {'>' if forward else '<'} ({', '.join('?' * len(columns))})"
            )
        sql = f"SELECT size, item FROM {f't{self.id}' if index is None else index.sql}"
        if where:
            sql += f" WHERE {' AND '.join(where)}"
        sql += f" ORDER BY {', '.join(c if forward else f'{c} DESC' for c in columns)}"
        for size, data in connection.execute(sql, values):
            yield size, _decode(data)

    def index(self, name: str) -> Index:
        """One of its indexes. Raises Refused."""
        for index in self.indexes:
            if index.name == name:
                return index
        raise invalid(f"The table does not have the specified index: {name}")


def units_of(size: int) -> int:
    """The write units of an item of this size."""
    return max(1, -(-size // KIB))


def check_definition(request: Mapping[str, Any]) -> None:
    """Raises Refused for a table that could not be made."""
    name = request["TableName"]
    if not _NAME.fullmatch(name):
        raise invalid(
            f"Invalid TableName {name!r}: 3 to 255 characters of a-z, A-Z, 0-9, '_', '-' and '.' are allowed"
        )
    keys = [each["AttributeName"] for each in request["KeySchema"]]
    for index in request.get("GlobalSecondaryIndexes") or ():
        keys += [each["AttributeName"] for each in index["KeySchema"]]
    defined = {each["AttributeName"] for each in request["AttributeDefinitions"]}
    if missing := set(keys) - defined:
        raise UnfitItem(
            f"Some index key attributes are not defined in AttributeDefinitions. Keys: {sorted(missing)}"
        )
