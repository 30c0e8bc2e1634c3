"""Evaluates conditions, filters, projections and key conditions."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import expressions
from .errors import UnfitItem, invalid
from .expressions import Given, Node, Path
from .values import Item, Value, behind_prefix, comparable, key_bytes

_ORDERED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_TYPED = {*_ORDERED, "between", "attribute_type", "begins_with"}
"""What not every type of operand can stand in."""
_KEYS = "KeyConditionExpression"
_TYPES = ("S", "SS", "N", "NS", "B", "BS", "BOOL", "NULL", "L", "M")


def at(item: Item, path: Path) -> Value | None:
    """The value at a path without placeholders; None: there is none."""
    value: Value | None = item.get(path[0])  # type: ignore[arg-type]
    for step in path[1:]:
        if value is None:
            return None
        content = value.get("M" if isinstance(step, str) else "L")
        if isinstance(content, dict):
            value = content.get(step)
        else:
            value = (
                content[step]
                if content is not None and isinstance(step, int) and step < len(content)
                else None
            )
    return value


class Condition:
    """A condition or filter of a request."""

    def __init__(self, text: str, given: Given, what: str = "ConditionExpression") -> None:
        """Raises Refused."""
        self._what = what
        self._given = given
        expression = expressions.condition(text, what)
        self._tree = given.use(expression, what)
        self.attributes = set(given.path(tuple(expression.attributes)))
        """What it asks about."""
        self._check(self._tree)

    def holds(self, item: Item | None) -> bool:
        """Does it hold for the item? One that is not there has no attributes."""
        return self._holds(self._tree, item or {})

    def _holds(self, node: Node, item: Item) -> bool:
        kind = node[0]
        if kind == "and":
            return self._holds(node[1], item) and self._holds(node[2], item)
        if kind == "or":
            return self._holds(node[1], item) or self._holds(node[2], item)
        if kind == "not":
            return not self._holds(node[1], item)
        if kind == "attribute_exists":
            return self._at(item, node[1]) is not None
        if kind == "attribute_not_exists":
            return self._at(item, node[1]) is None
        if kind in ("attribute_type", "begins_with", "contains"):
            return self._function(kind, self._at(item, node[1]), self._operand(node[2], item))
        left = self._operand(node[1], item)
        if kind == "between":
            low, high = self._operand(node[2], item), self._operand(node[3], item)
            return _compared("<=", low, left) and _compared("<=", left, high)
        if kind == "in":
            return any(_compared("=", left, self._operand(each, item)) for each in node[2])
        return _compared(kind, left, self._operand(node[2], item))

    @staticmethod
    def _function(kind: str, value: Value | None, operand: Value | None) -> bool:
        if value is None or operand is None:
            return False
        ((type_, content),), ((operand_type, wanted),) = value.items(), operand.items()
        if kind == "attribute_type":
            return bool(type_ == wanted)
        if kind == "begins_with":
            return type_ == operand_type and bool(content.startswith(wanted))
        if type_ == "L":
            return operand in content
        return type_ == operand_type and type_ in ("S", "B") and wanted in content

    def _operand(self, node: Node, item: Item) -> Value | None:
        if node[0] == "value":
            return self._given.values[node[1]]
        value = self._at(item, node[1])
        if node[0] == "path" or value is None:
            return value
        ((kind, content),) = value.items()
        return {"N": str(len(content))} if kind in ("S", "B", "M", "L") else None

    def _at(self, item: Item, path: Path) -> Value | None:
        return at(item, self._given.path(path))

    def _check(self, node: Node) -> None:
        """Raises Refused for operands that no item could make valid."""
        kind = node[0]
        if kind in ("and", "or", "not"):
            for inner in node[1:]:
                self._check(inner)
        elif kind in _TYPED:
            self._check_operands(kind, node)

    def _check_operands(self, kind: str, node: Node) -> None:
        operands = [each for each in node[1:] if isinstance(each, tuple) and each and each[0] == "value"]
        types = {type_ for _, name in operands for type_ in self._given.values[name]}
        if kind == "attribute_type":
            named = next(iter(self._given.values[node[2][1]].values())) if operands else None
            if types - {"S"}:
                raise self._wrong("Incorrect operand type", kind, types)
            if named not in _TYPES:
                raise invalid(f"Invalid {self._what}: Invalid attribute type name found; type: {named}")
        elif kind == "begins_with" and types - {"S", "B"}:
            raise self._wrong("Incorrect operand type", kind, types)
        elif (kind in _ORDERED or kind == "between") and types - {"S", "N", "B"}:
            raise self._wrong("Incorrect operand type", kind.upper(), types)

    def _wrong(self, why: str, kind: str, types: set[str]) -> Exception:
        found = ", ".join(sorted(types))
        return invalid(
            f"Invalid {self._what}: {why} for operator or function; operator or function: {kind}, operand type: {found}"
        )


def _compared(comparator: str, left: Value | None, right: Value | None) -> bool:
    if comparator == "<>":
        return left is None or left != right
    if left is None or right is None:
        return False
    if comparator == "=":
        return left == right
    if left.keys() != right.keys() or left.keys() & {"S", "N", "B"} == set():
        return False
    return bool(_ORDERED[comparator](comparable(left), comparable(right)))


class Projection:
    """The parts of an item that a request asks for."""

    def __init__(self, text: str, given: Given) -> None:
        """Raises Refused."""
        paths = given.use(expressions.projection(text), "ProjectionExpression")
        self._paths = [given.path(path) for path in paths]

    def of(self, item: Item) -> Item:
        """These parts of an item."""
        return parts_of(item, self._paths)


def parts_of(item: Item, paths: list[Path]) -> Item:
    """What an item has at some paths, in the maps that lead there. A list's elements move together."""
    parts: dict[str, Any] = {"M": {}}
    for path in sorted(paths, key=lambda path: [(isinstance(step, int), step) for step in path]):
        value = at(item, path)
        if value is None:
            continue
        place = parts
        for step, following in zip(path, (*path[1:], None), strict=True):
            new = (
                value
                if following is None
                else {"L" if isinstance(following, int) else "M": {} if isinstance(following, str) else []}
            )
            if isinstance(step, str):
                place = place["M"].setdefault(step, new)
            else:
                place["L"].append(new)
                place = place["L"][-1]
    return parts["M"]  # type: ignore[no-any-return]


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
        """Is this the last key that there may be? DynamoDB reports that for a range that includes its end, but not if
        the condition was for one key."""
        end, is_in = (self.high, self.high_is_in) if forward else (self.low, self.low_is_in)
        return is_in and end == sort_key and not self.is_one_key


def key_range(text: str, given: Given, keys: Mapping[str, str]) -> KeyRange:
    """What a key condition asks for. `keys`: the type of the partition key, then of the sort key, by name. Raises
    Refused."""
    nodes = _by_key(text, given, keys)
    hash_name, *sort_names = keys
    if hash_name not in nodes:
        raise invalid(f"Query condition missed key schema element: {hash_name}")

    def bytes_of(operand: Node, name: str) -> bytes:
        value = given.values[operand[1]]
        if keys[name] not in value:
            raise UnfitItem("Condition parameter type does not match schema type")
        return key_bytes(value, keys[name], name, is_hash=name == hash_name)

    if nodes[hash_name][0] != "=":
        raise invalid("Query key condition not supported")
    partition = bytes_of(nodes[hash_name][2], hash_name)
    for name in sort_names:
        if name in nodes:
            kind, _, *operands = nodes[name]
            return _sort_range(partition, kind, [bytes_of(operand, name) for operand in operands])
    return KeyRange(partition)


def _by_key(text: str, given: Given, keys: Mapping[str, str]) -> dict[str, Node]:
    """The conditions of a key condition, by the key that each is about."""
    nodes: dict[str, Node] = {}
    for node in _joined(given.use(expressions.condition(text, _KEYS), _KEYS)):
        (name,) = given.path(node[1] if node[0] == "begins_with" else node[1][1])
        if name not in keys:
            raise invalid(f"Query condition missed key schema element: {next(iter(keys))}")
        if name in nodes:
            raise invalid(f"{_KEYS}s must only contain one condition per key")
        nodes[str(name)] = node
    return nodes


def _sort_range(partition: bytes, kind: str, ends: list[bytes]) -> KeyRange:
    first, last = ends[0], ends[-1]
    if kind == "between":
        if last < first:
            why = "The BETWEEN operator requires upper bound to be greater than or equal to lower bound"
            raise invalid(f"Invalid {_KEYS}: {why}")
        return KeyRange(partition, first, last)
    if kind == "begins_with":
        return KeyRange(partition, first, behind_prefix(first), high_is_in=False)
    if kind == "=":
        return KeyRange(partition, first, first, is_one_key=True)
    if kind in ("<", "<="):
        return KeyRange(partition, None, first, high_is_in=kind == "<=")
    if kind in (">", ">="):
        return KeyRange(partition, first, None, low_is_in=kind == ">=")
    raise invalid("Query key condition not supported")


def _joined(node: Node) -> list[Node]:
    return [*_joined(node[1]), *_joined(node[2])] if node[0] == "and" else [node]
