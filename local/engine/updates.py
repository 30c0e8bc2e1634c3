"""Carries out update expressions."""

from __future__ import annotations

from typing import Any

from . import expressions
from .conditions import at
from .errors import invalid
from .expressions import Given, Node, Path
from .values import Item, Value, sum_of

_WHAT = "UpdateExpression"


class Update:
    """An update expression of a request."""

    def __init__(self, text: str, given: Given, key_names: tuple[str, ...]) -> None:
        """`key_names`: the attributes that it must leave alone. Raises Refused."""
        self._given = given
        self._parts: expressions.Update = given.use(expressions.update(text), _WHAT)
        paths = [given.path(path) for path in self._parts.paths]
        _check_apart(paths)
        self.attributes = {str(path[0]) for path in paths}
        """What it changes, or changes a part of."""
        for name in self.attributes.intersection(key_names):
            raise invalid(
                f"One or more parameter values were invalid: Cannot update attribute {name}. This attribute is part of "
                "the key"
            )

    def applied(self, old: Item, new: Item) -> None:
        """Change `new`, which is like `old`, but shares no part with it. Raises Refused."""
        sets = [(self._given.path(path), self._value(node, old)) for path, node in self._parts.set]
        for path, node in self._parts.add:
            sets.append((self._given.path(path), self._added(path, node, old)))
        for path, value in sets:
            _put(new, path, value)
        for path in sorted(
            (self._given.path(path) for path in self._parts.remove), key=_by_index, reverse=True
        ):
            _remove(new, path)

    def _value(self, node: Node, old: Item) -> Value:
        kind = node[0]
        if kind == "value":
            return self._given.values[node[1]]
        if kind == "if_not_exists":
            found = at(old, self._given.path(node[1]))
            return found if found is not None else self._value(node[2], old)
        if kind in ("+", "-"):
            return _sum(self._value(node[1], old), self._value(node[2], old), 1 if kind == "+" else -1)
        value = at(old, self._given.path(node[1]))
        if value is None:
            raise invalid("The provided expression refers to an attribute that does not exist in the item")
        return value

    def _added(self, path: Path, node: Node, old: Item) -> Value:
        value = self._value(node, old)
        if "N" not in value:
            raise invalid(
                f"Invalid {_WHAT}: Incorrect operand type for operator or function; operator: ADD, operand type: "
                f"{next(iter(value))}"
            )
        before = at(old, self._given.path(path))
        return value if before is None else _sum(before, value, 1)


def _sum(left: Value, right: Value, sign: int) -> Value:
    if "N" not in left or "N" not in right:
        raise invalid("An operand in the update expression has an incorrect data type")
    return {"N": sum_of(left["N"], right["N"], sign)}


def _put(item: Item, path: Path, value: Value) -> None:
    parent = _parent(item, path)
    step = path[-1]
    if isinstance(parent, dict) and isinstance(step, str):
        parent[step] = value
    elif isinstance(parent, list) and isinstance(step, int):
        parent[step : step + 1] = [value]
    else:
        raise _no_place()


def _remove(item: Item, path: Path) -> None:
    parent = _parent(item, path)
    step = path[-1]
    if isinstance(parent, dict) and isinstance(step, str):
        parent.pop(step, None)
    elif isinstance(parent, list) and isinstance(step, int):
        del parent[step : step + 1]
    else:
        raise _no_place()


def _parent(item: Item, path: Path) -> Any:
    """What holds the last step's value: a map, or a list."""
    if len(path) == 1:
        return item
    value = at(item, path[:-1])
    if value is None:
        raise _no_place()
    return value.get("M" if isinstance(path[-1], str) else "L")


def _no_place() -> Exception:
    return invalid("The document path provided in the update expression is invalid for update")


def _by_index(path: Path) -> list[tuple[bool, Any]]:
    return [(isinstance(step, int), step) for step in path]


def _check_apart(paths: list[Path]) -> None:
    seen = set(paths)
    for path in paths:
        if len(seen) < len(paths) or any(path[:end] in seen for end in range(1, len(path))):
            raise invalid(
                f"Invalid {_WHAT}: Two document paths overlap with each other; must remove or rewrite one of these "
                "paths"
            )
