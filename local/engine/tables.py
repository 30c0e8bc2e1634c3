"""The tables and their rows, as SQLite keeps them.

Each table of DynamoDB is one of SQLite's: the keys as bytes that sort alike, also those of its one index, the item's
size, when it expires (s), the item itself as MessagePack. `definitions` has the requests that made the tables.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Mapping, Sequence
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
_CHANGED = ", ".join(f"{column} = excluded.{column}" for column in ("q", "r", "size", "x", "item"))
_COMPARED = ("=", "<", "<=", ">", ">=", "BETWEEN", "begins_with")

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

    def check_only(self, key: Item) -> None:
        """Raises Refused if a request's key has other attributes than these."""
        if key.keys() != self.types.keys():
            raise invalid("The provided key element does not match the schema")


class Row(NamedTuple):
    """A stored item. `data` is its MessagePack; each reading of `item` makes another one."""

    size: int
    data: bytes

    @property
    def item(self) -> Item:
        return _decode(self.data)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Index:
    """A global secondary index. `attributes` are those that it shows."""

    name: str
    keys: Keys
    attributes: frozenset[str]

    def place(self, item: Item) -> tuple[bytes, bytes] | tuple[None, None]:
        """The index's keys of an item; none where it is not in the index. Raises Refused."""
        return self.keys.bytes_of(item) if item.keys() >= self.keys.types.keys() else (None, None)


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
    for kind, path, placeholders in expression.tests:
        name = ".".join(given.path(path))
        if name not in keys or kind not in _COMPARED:
            raise invalid(f"Query condition missed key schema element: {hash_name}")
        if name in found:
            raise invalid(f"{_WHAT}s must only contain one condition per key")
        values = [given.values[placeholder] for placeholder in placeholders]
        if any(keys[name] not in value for value in values):
            raise invalid("Condition parameter type does not match schema type")
        found[name] = kind, [key_bytes(each, keys[name], name, is_hash=name == hash_name) for each in values]
    kind, partitions = found.pop(hash_name, ("", []))
    if kind != "=" or not expression.is_conjunction:
        raise invalid(f"Query condition missed key schema element: {hash_name}")
    return KeyRange(partitions[0], [end for kind, ends in found.values() for end in _ends(kind, ends)])


def _ends(kind: str, keys: Sequence[bytes]) -> Sequence[tuple[str, bytes]]:
    if kind == "begins_with":
        behind = behind_prefix(keys[0])
        return [(">=", keys[0]), *([("<", behind)] if behind else [])]
    if kind != "BETWEEN":
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

    @cached_property
    def keys(self) -> Keys:
        return self._keys_of(self.definition)

    @cached_property
    def index(self) -> Index | None:
        """Its one index, if it has one."""
        for each in self.definition.get("GlobalSecondaryIndexes") or ():
            keys, shown = self._keys_of(each), each["Projection"]["NonKeyAttributes"]
            return Index(each["IndexName"], keys, frozenset((*self.keys.names, *keys.names, *shown)))
        return None

    def _keys_of(self, definition: Mapping[str, Any]) -> Keys:
        attributes = self.definition["AttributeDefinitions"]
        types = {each["AttributeName"]: each["AttributeType"] for each in attributes}
        names = {each["KeyType"]: each["AttributeName"] for each in definition["KeySchema"]}
        return Keys({names[kind]: types[names[kind]] for kind in ("HASH", "RANGE") if kind in names})

    # What is done with rows

    def create(self, connection: Connection) -> None:
        """Make SQLite's table: `p` and `s` are the keys, `q` and `r` those of the index."""
        columns = "p BLOB, s BLOB, q BLOB, r BLOB, size INTEGER, x INTEGER, item BLOB"
        connection.execute(f"CREATE TABLE t{self.id} ({columns})")
        connection.execute(f"CREATE UNIQUE INDEX t{self.id}_k ON t{self.id} (p, s)")
        connection.execute(f"CREATE INDEX t{self.id}_x ON t{self.id} (x) WHERE x IS NOT NULL")
        connection.execute(f"CREATE INDEX t{self.id}_i ON t{self.id} (q, r, p, s) WHERE q IS NOT NULL")

    def get(self, connection: Connection, place: tuple[bytes, bytes]) -> Row | None:
        """The row at a place."""
        sql = f"SELECT size, item FROM t{self.id} WHERE p = ? AND s = ?"
        found = connection.execute(sql, place).fetchone()
        return Row(*found) if found else None

    def replace(
        self, connection: Connection, place: tuple[bytes, bytes], item: Item | None, size: int
    ) -> bytes | None:
        """Store an item at a place; None: delete what is there. Returns the stored bytes."""
        if item is None:
            connection.execute(f"DELETE FROM t{self.id} WHERE p = ? AND s = ?", place)
            return None
        data = _encode(item)
        index_place = self.index.place(item) if self.index else (None, None)
        sql = (
            f"INSERT INTO t{self.id} VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (p, s) DO UPDATE SET {_CHANGED}"
        )
        connection.execute(sql, (*place, *index_place, size, self._expiry(item), data))
        return data

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
        """Sizes and items, in the order of their keys, of a range or (None) of all, behind the keys in `start`. With
        the index, what that shows of them."""
        columns = ["p", "s"] if index is None else ["q", "r", "p", "s"]
        where: list[str] = []
        values: list[bytes] = []
        if of is not None:
            partition, sort_key, *_ = columns
            where += [f"{partition} = ?", *(f"{sort_key} {sign} ?" for sign, _ in of.ends)]
            values += [of.partition, *(end for _, end in of.ends)]
        if start is not None:
            place = self.keys.bytes_of(start)
            values += place if index is None else (*index.keys.bytes_of(start), *place)
            marks = ", ".join("?" * len(columns))
            where.append(f"({', '.join(columns)}) {'>' if forward else '<'} ({marks})")
        sql = f"SELECT size, item FROM t{self.id}"
        if where:
            sql += f" WHERE {' AND '.join(where)}"
        sql += f" ORDER BY {', '.join(c if forward else f'{c} DESC' for c in columns)}"
        for size, data in connection.execute(sql, values):
            item = _decode(data)
            if index is None:
                yield size, item
            else:
                part, size = stored_item({name: item[name] for name in item if name in index.attributes})
                yield size, part
