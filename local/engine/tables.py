"""The tables and their rows, as SQLite keeps them.

Each table of DynamoDB is one of SQLite's: the keys as bytes that sort alike, the item's size, when it expires (s), the
item itself as MessagePack. An index is a table, too, whose rows have the keys of both and the part of the item that it
projects. `definitions` has the requests that made the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec

from .errors import invalid
from .expressions import TEXTS, Expression, Given, Path, Reader
from .values import Item, behind_prefix, key_bytes, stored_item

Connection = sqlite3.Connection
_LAST_S = 1 << 53  # of an expiry: what is later never comes

_WHAT = "KeyConditionExpression"
# A comparison of a key condition: its kind, the key, and the placeholders of its values.
_KeyTest = tuple[str, Path, list[str]]

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


@dataclass(frozen=True)
class KeyRange:
    """The keys that a query asks for: one partition, and the sort keys from `low` to `high`, in bytes. `low_is_in` and
    `high_is_in`: are the ends meant, too? None: there is no such end."""

    partition: bytes
    low: bytes | None = None
    high: bytes | None = None
    low_is_in: bool = True
    high_is_in: bool = True
    is_one_key: bool = False

    def ends_with(self, sort_key: bytes, *, forward: bool) -> bool:
        """Is this the last key that there may be? DynamoDB says that of a range that includes its end, and not where
        the condition was for one key."""
        end, is_in = (self.high, self.high_is_in) if forward else (self.low, self.low_is_in)
        return is_in and end == sort_key and not self.is_one_key


def key_range(text: str, given: Given, keys: Mapping[str, str]) -> KeyRange:
    """What a key condition asks for. `keys`: the type of the partition key, then of the sort key, by name. Raises
    Refused."""
    hash_name, *_ = keys
    found: dict[str, tuple[str, list[bytes]]] = {}
    for kind, path, placeholders in given.use(_key_condition(text)):
        name = ".".join(given.path(path))
        if name not in keys:
            raise invalid(f"Query condition missed key schema element: {hash_name}")
        if name in found:
            raise invalid(f"{_WHAT}s must only contain one condition per key")
        values = [given.values[placeholder] for placeholder in placeholders]
        if any(keys[name] not in value for value in values):
            raise invalid("Condition parameter type does not match schema type")
        found[name] = kind, [key_bytes(each, keys[name], name, is_hash=name == hash_name) for each in values]
    kind, ends = found.pop(hash_name, ("", []))
    if kind != "=":
        raise invalid(f"Query condition missed key schema element: {hash_name}")
    for sort_kind, sort_ends in found.values():
        return _sort_range(ends[0], sort_kind, sort_ends[0], sort_ends[-1])
    return KeyRange(ends[0])


@lru_cache(TEXTS)
def _key_condition(text: str) -> Expression[list[_KeyTest]]:
    reader = Reader(text, _WHAT)
    return reader.finished(_key_tests(reader))


def _key_tests(reader: Reader) -> list[_KeyTest]:
    """Comparisons, of which all must hold."""
    return [test for tests in reader.several(lambda: _key_test(reader), "AND") for test in tests]


def _key_test(reader: Reader) -> list[_KeyTest]:
    if reader.takes("("):
        found = _key_tests(reader)
        reader.expect(")")
        return found
    if reader.takes("BEGINS_WITH"):
        reader.expect("(")
        path = reader.path()
        reader.expect(",")
        found = [("begins_with", path, [reader.value()])]
        reader.expect(")")
        return found
    path = reader.path()
    if reader.takes("BETWEEN"):
        low = reader.value()
        reader.expect("AND")
        return [("between", path, [low, reader.value()])]
    kind = reader.comparator()
    if kind == "<>":
        raise invalid("Query key condition not supported")
    return [(kind, path, [reader.value()])]


def _sort_range(partition: bytes, kind: str, first: bytes, last: bytes) -> KeyRange:
    if kind == "begins_with":
        return KeyRange(partition, first, behind_prefix(first), high_is_in=False)
    if kind in ("<", "<="):
        return KeyRange(partition, None, first, high_is_in=kind == "<=")
    if kind in (">", ">="):
        return KeyRange(partition, first, None, low_is_in=kind == ">=")
    if last < first:
        raise invalid(f"Invalid {_WHAT}: The BETWEEN operator requires its upper bound to be the greater")
    return KeyRange(partition, first, last, is_one_key=kind == "=")


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
            ends = ((of.low, ">=" if of.low_is_in else ">"), (of.high, "<=" if of.high_is_in else "<"))
            for end, sign in ends:
                if end is not None:
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
