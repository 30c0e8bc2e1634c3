"""The tables and their rows, as SQLite keeps them.

Each table of DynamoDB is one of SQLite's: the keys as bytes that sort alike, the item's size, when it expires (s), the
item itself as MessagePack. An index is a table, too, whose rows have the keys of both and the part of the item that it
projects. `definitions` has the requests that made the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from .errors import invalid
from .expressions import Given, condition
from .values import Item, behind_prefix, key_bytes, stored_item

Connection = sqlite3.Connection
_LAST_S = 1 << 53  # of an expiry: what is later never comes

_WHAT = "KeyConditionExpression"
# How many tokens each of its comparisons has.
_TOKENS = {**dict.fromkeys(("=", "<", "<=", ">", ">="), 3), "between": 5, "begins_with": 6}

_encode = msgspec.msgpack.Encoder().encode
_decode: Any = msgspec.msgpack.Decoder(dict[str, Any]).decode

SCHEMA = "CREATE TABLE IF NOT EXISTS definitions (id INTEGER PRIMARY KEY, name TEXT UNIQUE, definition BLOB)"


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
        return (*self.keys.bytes_of(item), *table_keys.bytes_of(item), stored_item(part)[1], _encode(part))


class KeyRange(NamedTuple):
    """The keys that a query asks for: one partition, and how its sort keys compare with others, all in bytes."""

    partition: bytes
    ends: Sequence[tuple[str, bytes]] = ()


def key_range(text: str, given: Given, keys: Mapping[str, str]) -> KeyRange:
    """What a key condition asks for. `keys`: the type of the partition key, then of the sort key, by name. Raises
    Refused."""
    hash_name, *_ = keys
    expression = condition(text, _WHAT)
    given.use(expression)
    found: dict[str, tuple[str, list[bytes]]] = {}
    for kind, tokens in expression.tests:
        path = tokens[2] if kind == "begins_with" else tokens[0]
        name = given.names.get(path, path)
        values = [given.values[token] for token in tokens if token[0] == ":"]
        is_simple = len(tokens) == _TOKENS.get(kind) and len(values) == 1 + (kind == "between")
        if name not in keys or not is_simple:
            raise invalid(f"Query condition missed key schema element: {hash_name}")
        if name in found:
            raise invalid(f"{_WHAT}s must only contain one condition per key")
        if any(keys[name] not in value for value in values):
            raise invalid("Condition parameter type does not match schema type")
        found[name] = kind, [key_bytes(each, keys[name], name, is_hash=name == hash_name) for each in values]
    kind, partitions = found.pop(hash_name, ("", []))
    if kind != "=" or not expression.is_conjunction:
        raise invalid(f"Query condition missed key schema element: {hash_name}")
    for sort_kind, sort_keys in found.values():
        return KeyRange(partitions[0], _ends(sort_kind, sort_keys))
    return KeyRange(partitions[0])


def _ends(kind: str, keys: Sequence[bytes]) -> Sequence[tuple[str, bytes]]:
    if kind == "begins_with":
        behind = behind_prefix(keys[0])
        return [(">=", keys[0]), *([("<", behind)] if behind else [])]
    if kind != "between":
        return [(kind, keys[0])]
    if keys[1] < keys[0]:
        raise invalid(f"Invalid {_WHAT}: The BETWEEN operator requires its upper bound to be the greater")
    return [(">=", keys[0]), ("<=", keys[1])]


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

    @cached_property
    def keys(self) -> Keys:
        return self._keys_of(self.definition["KeySchema"])

    @cached_property
    def indexes(self) -> tuple[Index, ...]:
        return tuple(
            Index(each["IndexName"], f"i{self.id}_{n}", self._keys_of(each["KeySchema"]), self._part_of(each))
            for n, each in enumerate(self.definition.get("GlobalSecondaryIndexes") or ())
        )

    def _keys_of(self, schema: Iterable[Mapping[str, str]]) -> Keys:
        attributes = self.definition["AttributeDefinitions"]
        types = {each["AttributeName"]: each["AttributeType"] for each in attributes}
        kinds = {each["KeyType"]: each["AttributeName"] for each in schema}
        return Keys({kinds[kind]: types[kinds[kind]] for kind in ("HASH", "RANGE") if kind in kinds})

    def _part_of(self, index: Mapping[str, Any]) -> frozenset[str] | None:
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
        connection.execute(f"CREATE INDEX t{self.id}_x ON t{self.id} (x) WHERE x IS NOT NULL")
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

    def get(self, connection: Connection, place: tuple[bytes, bytes]) -> Row | None:
        """The row at a place."""
        sql = f"SELECT rowid, size, item FROM t{self.id} WHERE p = ? AND s = ?"
        found = connection.execute(sql, place).fetchone()
        return Row(*found) if found else None

    def replace(
        self,
        connection: Connection,
        place: tuple[bytes, bytes],
        old: Row | None,
        item: Item | None,
        size: int,
    ) -> bytes | None:
        """Store an item in the place of a row; None: delete that. Returns the stored bytes."""
        data = None if item is None else _encode(item)
        if item is None:
            if old is not None:
                connection.execute(f"DELETE FROM t{self.id} WHERE rowid = ?", (old.id,))
        elif old is None:
            sql = f"INSERT INTO t{self.id} (p, s, size, x, item) VALUES (?, ?, ?, ?, ?)"
            connection.execute(sql, (*place, size, self._expiry(item), data))
        else:
            sql = f"UPDATE t{self.id} SET size = ?, x = ?, item = ? WHERE rowid = ?"
            connection.execute(sql, (size, self._expiry(item), data, old.id))
        for index in self.indexes:
            self._reindex(connection, index, old, item)
        return data

    def _reindex(self, connection: Connection, index: Index, old: Row | None, item: Item | None) -> None:
        before = index.entry(old.item, self.keys) if old is not None else None
        after = index.entry(item, self.keys) if item is not None else None
        if before is not None and (after is None or after[:4] != before[:4]):
            where = "p = ? AND s = ? AND tp = ? AND ts = ?"
            connection.execute(f"DELETE FROM {index.sql} WHERE {where}", before[:4])
        if after is not None and after != before:
            connection.execute(f"INSERT OR REPLACE INTO {index.sql} VALUES (?, ?, ?, ?, ?, ?)", after)

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
            for sign, end in of.ends:
                where.append(f"s {sign} ?")
                values.append(end)
        if start is not None:
            place = self.keys.bytes_of(start)
            values += place if index is None else (*index.keys.bytes_of(start), *place)
            marks = ", ".join("?" * len(columns))
            where.append(f"({', '.join(columns)}) {'>' if forward else '<'} ({marks})")
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
