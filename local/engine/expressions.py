"""Reads DynamoDB's expressions: conditions, filters, key conditions, projections and updates.

Each text is parsed once. The result consists of tuples, which `conditions` and `updates` evaluate:

    path      (name | placeholder | index, …)                  a.#b[2]  ->  ("a", "#b", 2)
    operand   ("path", path) ("value", ":v") ("size", path) ("+" | "-", operand, operand)
              ("if_not_exists", path, operand)
    condition ("and" | "or", left, right) ("not", inner) (comparator, operand, operand) ("between", operand, low, high)
              ("in", operand, [operand, …]) (function, path, operand)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from .errors import invalid, unknown
from .values import Value, stored_value

Path = tuple[str | int, ...]
Node = tuple[Any, ...]

COMPARATORS = ("=", "<>", "<", "<=", ">", ">=")
_TOKEN = re.compile(
    r"\s*(?:([A-Za-z][A-Za-z0-9_]*)|([#:][A-Za-z0-9_]+)|([0-9]+)|(<=|>=|<>|[=<>()\[\],.+-]))|\s+\Z"
)
_FUNCTIONS = {
    "attribute_exists": 1,
    "attribute_not_exists": 1,
    "attribute_type": 2,
    "begins_with": 2,
    "contains": 2,
}
_TEXTS = 2000  # as many expressions as are kept: a claim's depends on how many leases it changes


@dataclass(frozen=True)
class Expression:
    """A text that was read: its tree, and which placeholders it uses."""

    tree: Any
    names: frozenset[str]
    values: frozenset[str]
    attributes: frozenset[str]
    """The names, or their placeholders, with which its paths begin."""


@dataclass(frozen=True)
class Update:
    """The parts of an update expression."""

    set: tuple[tuple[Path, Node], ...]
    remove: tuple[Path, ...]
    add: tuple[tuple[Path, Node], ...]

    @property
    def paths(self) -> list[Path]:
        """Every path that it changes."""
        return [path for path, _ in self.set] + list(self.remove) + [path for path, _ in self.add]


@dataclass
class Given:
    """What a request gives for the placeholders of its expressions, and which of them were used."""

    names: Mapping[str, str]
    values: dict[str, Value]
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Given:
        """Those of a request. Raises Refused."""
        values = request.get("ExpressionAttributeValues") or {}
        return cls(
            request.get("ExpressionAttributeNames") or {},
            {name: stored_value(value)[0] for name, value in values.items()},
        )

    def use(self, expression: Expression, what: str) -> Any:
        """The expression's tree. Raises Refused if it uses a placeholder that is not given."""
        if not expression.names <= self.names.keys():
            name = min(expression.names - self.names.keys())
            raise invalid(
                f"Invalid {what}: An expression attribute name used in the document path is not defined; "
                f"attribute name: {name}"
            )
        if not expression.values <= self.values.keys():
            name = min(expression.values - self.values.keys())
            raise invalid(
                f"Invalid {what}: An expression attribute value used in expression is not defined; "
                f"attribute value: {name}"
            )
        self.used |= expression.names | expression.values
        return expression.tree

    def check_all_used(self) -> None:
        """Raises Refused if the request gives a placeholder that no expression uses."""
        if len(self.used) == len(self.names) + len(self.values):  # `use` adds none that is not given
            return
        for what, given in (("Values", self.values), ("Names", self.names)):
            if unused := sorted(given.keys() - self.used):
                keys = ", ".join(unused)
                raise invalid(
                    f"Value provided in ExpressionAttribute{what} unused in expressions: keys: {{{keys}}}"
                )

    def path(self, path: Path) -> Path:
        """The path with each name in the place of its placeholder."""
        if not self.names:
            return path
        return tuple(self.names[step] if isinstance(step, str) and step[0] == "#" else step for step in path)


@lru_cache(_TEXTS)
def condition(text: str, what: str) -> Expression:
    """A condition, a filter or a key condition; `what` names it in errors. Raises Refused."""
    reader = _Reader(text, what)
    tree = reader.either()
    return reader.finished(tree)


@lru_cache(_TEXTS)
def projection(text: str) -> Expression:
    """The paths of a projection. Raises Refused."""
    reader = _Reader(text, "ProjectionExpression")
    paths = [reader.path()]
    while reader.takes(","):
        paths.append(reader.path())
    return reader.finished(tuple(paths))


@lru_cache(_TEXTS)
def update(text: str) -> Expression:
    """An update. Raises Refused."""
    reader = _Reader(text, "UpdateExpression")
    parts: dict[str, list[Any]] = {"SET": [], "REMOVE": [], "ADD": []}
    sections = {"SET": reader.assignment, "REMOVE": reader.path, "ADD": reader.addition}
    while not reader.is_at_end:
        section = reader.take().upper()
        if section == "DELETE":
            raise unknown("DELETE in an update expression")
        if section not in sections or parts[section]:
            raise reader.error()
        parts[section].append(sections[section]())
        while reader.takes(","):
            parts[section].append(sections[section]())
    if not any(parts.values()):
        raise reader.error()
    return reader.finished(Update(*(tuple(part) for part in parts.values())))


class _Reader:
    """Reads one text, token by token."""

    def __init__(self, text: str, what: str) -> None:
        self._what = what
        self._tokens: list[str] = []
        self._at = 0
        self._names: set[str] = set()
        self._values: set[str] = set()
        self._attributes: set[str] = set()
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match:
                raise invalid(f'Invalid {what}: Syntax error; token: "{text[position:].strip()[:1]}"')
            if match.lastindex:
                self._tokens.append(match[match.lastindex])
            position = match.end()
        if not self._tokens:
            raise invalid(f"Invalid {what}: The expression can not be empty;")

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._tokens)

    def finished(self, tree: Any) -> Expression:
        """The whole text has been read."""
        if not self.is_at_end:
            raise self.error()
        found = (self._names, self._values, self._attributes)
        return Expression(tree, *map(frozenset, found))

    def error(self) -> Exception:
        at = min(self._at, len(self._tokens) - 1)
        near = " ".join(self._tokens[max(0, at - 1) : at + 2])
        token = "<EOF>" if self.is_at_end else self._tokens[at]
        return invalid(f'Invalid {self._what}: Syntax error; token: "{token}", near: "{near}"')

    def take(self) -> str:
        if self.is_at_end:
            raise self.error()
        self._at += 1
        return self._tokens[self._at - 1]

    def takes(self, token: str) -> bool:
        """Is this the next token? Then it is taken."""
        if self.is_at_end or self._tokens[self._at].upper() != token:
            return False
        self._at += 1
        return True

    def expect(self, token: str) -> None:
        if not self.takes(token):
            raise self.error()

    # conditions, from the loosest binding to the tightest

    def either(self) -> Node:
        node = self._both()
        while self.takes("OR"):
            node = ("or", node, self._both())
        return node

    def _both(self) -> Node:
        node = self._negation()
        while self.takes("AND"):
            node = ("and", node, self._negation())
        return node

    def _negation(self) -> Node:
        return ("not", self._negation()) if self.takes("NOT") else self._predicate()

    def _predicate(self) -> Node:
        if self.takes("("):
            node = self.either()
            self.expect(")")
            return node
        if not self.is_at_end and self._tokens[self._at] in _FUNCTIONS and self._peek(1) == "(":
            return self._function()
        operand = self._operand()
        if self.takes("BETWEEN"):
            low = self._operand()
            self.expect("AND")
            return ("between", operand, low, self._operand())
        if self.takes("IN"):
            return ("in", operand, self._list())
        comparator = self.take()
        if comparator not in COMPARATORS:
            self._at -= 1
            raise self.error()
        return (comparator, operand, self._operand())

    def _function(self) -> Node:
        name = self.take()
        self.expect("(")
        arguments: list[Any] = [self.path()]
        if _FUNCTIONS[name] == 2:
            self.expect(",")
            arguments.append(self._operand())
        self.expect(")")
        return (name, *arguments)

    def _list(self) -> list[Node]:
        self.expect("(")
        operands = [self._operand()]
        while self.takes(","):
            operands.append(self._operand())
        self.expect(")")
        return operands

    def _operand(self) -> Node:
        token = self.take()
        if token[0] == ":":
            self._values.add(token)
            return ("value", token)
        if token == "size" and self.takes("("):
            path = self.path()
            self.expect(")")
            return ("size", path)
        self._at -= 1
        return ("path", self.path())

    def path(self) -> Path:
        """A document path."""
        steps: list[str | int] = [self._name()]
        self._attributes.add(str(steps[0]))
        while True:
            if self.takes("."):
                steps.append(self._name())
            elif self.takes("["):
                steps.append(int(self.take()))
                self.expect("]")
            else:
                return tuple(steps)

    def _name(self) -> str:
        token = self.take()
        if token[0] == "#":
            self._names.add(token)
        elif not token[0].isalpha():
            self._at -= 1
            raise self.error()
        return token

    def _peek(self, ahead: int) -> str:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ""

    # updates

    def assignment(self) -> tuple[Path, Node]:
        """`path = value` of SET."""
        path = self.path()
        self.expect("=")
        node = self._summand()
        for sign in ("+", "-"):
            if self.takes(sign):
                return path, (sign, node, self._summand())
        return path, node

    def _summand(self) -> Node:
        if self._peek(1) == "(" and self._tokens[self._at] == "if_not_exists":
            self._at += 2
            path = self.path()
            self.expect(",")
            node = ("if_not_exists", path, self._summand())
            self.expect(")")
            return node
        if self._peek(1) == "(":
            raise unknown(f"{self._tokens[self._at]} in an update expression")
        return self._operand()

    def addition(self) -> tuple[Path, Node]:
        """`path value` of ADD."""
        return self.path(), self._operand()
