"""Carries out update expressions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from .errors import invalid
from .expressions import TEXTS, Expression, Find, Given, Path, Reader, at
from .values import Item, Value, sum_of

_WHAT = "UpdateExpression"


# A path, and what finds its new value; None: it is removed.
_Change = tuple[Path, Find | None]


class Update:
    """An update expression of a request."""

    def __init__(self, text: str, given: Given, key_names: tuple[str, ...]) -> None:
        """`key_names`: the attributes that it must leave alone. Raises Refused."""
        self._given = given
        self._changes = [(given.path(path), find) for path, find in given.use(_update(text))]
        paths = [path for path, _ in self._changes]
        _check_apart(paths)
        # What it changes, or changes a part of.
        self.attributes = {path[0] for path in paths}
        if names := self.attributes.intersection(key_names):
            raise invalid(f"Cannot update attribute {min(names)}. This attribute is part of the key")

    def applied(self, old: Item, new: Item) -> None:
        """Change `new`, which is like `old`, but shares no part with it. Raises Refused."""
        for path, value in [(path, find and self._found(find, old)) for path, find in self._changes]:
            parent = _parent(new, path)
            if value is None:
                parent.pop(path[-1], None)
            else:
                parent[path[-1]] = value

    def _found(self, find: Find, old: Item) -> Value:
        value = find(old, self._given)
        if value is None:
            raise invalid("The provided expression refers to an attribute that does not exist in the item")
        return value


@lru_cache(TEXTS)
def _update(text: str) -> Expression[list[_Change]]:
    reader = Reader(text, _WHAT)
    reads: dict[str, Callable[[], _Change]] = {
        "SET": lambda: _assignment(reader),
        "REMOVE": lambda: (reader.path(), None),
        "ADD": lambda: _addition(reader),
    }
    changes: list[_Change] = []
    while not reader.is_at_end:
        section = next((name for name in reads if reader.takes(name)), None)
        if section is None:
            raise reader.error()
        changes += reader.several(reads.pop(section))
    return reader.finished(changes)


def _addition(reader: Reader) -> _Change:
    """`path :value` of ADD."""
    path, name = reader.path(), reader.value()
    return path, lambda item, given: _sum(at(item, given.path(path)) or {"N": "0"}, given.values[name])


def _assignment(reader: Reader) -> _Change:
    """`path = value` of SET."""
    path = reader.path()
    reader.expect("=")
    left = _first(reader)
    if not reader.takes("+"):
        return path, left
    right = reader.operand()
    return path, lambda item, given: _sum(left(item, given), right(item, given))


def _first(reader: Reader) -> Find:
    if not reader.next_is("IF_NOT_EXISTS", "("):
        return reader.operand()
    reader.takes("IF_NOT_EXISTS")
    reader.expect("(")
    there = reader.operand()
    reader.expect(",")
    otherwise = reader.operand()
    reader.expect(")")
    return lambda item, given: there(item, given) or otherwise(item, given)


def _sum(left: Value | None, right: Value | None) -> Value | None:
    if left is None or right is None:
        return None
    if "N" not in left or "N" not in right:
        raise invalid("An operand in the update expression has an incorrect data type")
    return {"N": sum_of(left["N"], right["N"])}


def _parent(item: Item, path: Path) -> Item:
    """The map that holds the last step's value."""
    parent: Value = {"M": item} if len(path) == 1 else at(item, path[:-1]) or {}
    if "M" not in parent:
        raise invalid("The document path provided in the update expression is invalid for update")
    return parent["M"]  # type: ignore[no-any-return]


def _check_apart(paths: list[Path]) -> None:
    seen = set(paths)
    if len(seen) < len(paths) or any(path[:end] in seen for path in paths for end in range(1, len(path))):
        raise invalid(
            f"Invalid {_WHAT}: Two document paths overlap with each other; must remove or rewrite one"
        )
