"""Reads DynamoDB's expressions: conditions, filters, key conditions, projections and updates.

Each text is read once, into functions of an item and of what a request gives for the text's placeholders.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar

from .errors import invalid
from .values import Item, Value, comparable, stored_value

T = TypeVar("T")
# The names, or their placeholders, that lead to a value through maps: `a.#b` is `("a", "#b")`.
Path = tuple[str, ...]

_TOKEN = re.compile(r"[A-Za-z][A-Za-z0-9_]*|[#:][A-Za-z0-9_]+|<=|>=|<>|\S")
TEXTS = 2000  # as many expressions as are kept: a claim's depends on how many leases it changes
# Which types a value of the request has, beside what is not every type's.
_ORDERED = ("<", "<=", ">", ">=", "BETWEEN")
_OPERANDS = {**dict.fromkeys(_ORDERED, "SNB"), "attribute_type": "S", "begins_with": "SB"}


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

    def use(self, expression: Expression[T]) -> T:
        """What was read. Raises Refused for a value of a wrong type."""
        self.used |= expression.placeholders
        for kind, _, names in expression.tests:
            for name in names if kind in _OPERANDS else ():
                if (type_ := next(iter(self.values[name]))) not in _OPERANDS[kind]:
                    raise invalid(f"Invalid {expression.what}: Incorrect operand type {type_} for {kind}")
        return expression.parts

    def check_all_used(self) -> None:
        """Raises Refused if a placeholder is used that is not given, or given and not used."""
        if others := self.used ^ {*self.names, *self.values}:
            raise invalid(
                f"Placeholders of expressions that are not defined, or unused: {', '.join(sorted(others))}"
            )

    def name(self, step: str) -> str:
        """A name, also in the place of its placeholder."""
        return self.names[step] if step[0] == "#" else step

    def path(self, path: Path) -> Path:
        """A path without placeholders."""
        return tuple(map(self.name, path))


# Finds an operand's value; None: there is none.
Find = Callable[[Item, Given], Value | None]
Holds = Callable[[Item, Given], bool]
Test = Callable[[Value, Sequence[Value]], bool]


@dataclass(frozen=True)
class Expression(Generic[T]):
    """A text that was read.

    `tests`: the comparisons and functions of a condition: what each is, of which path (none: a size), and the
    placeholders of its values.
    `attributes`: the names, or their placeholders, with which its paths begin.
    `is_conjunction`: all of its tests must hold.
    """

    parts: T
    what: str
    placeholders: frozenset[str]
    tests: Sequence[tuple[str, Path, Sequence[str]]]
    attributes: frozenset[str]
    is_conjunction: bool


@lru_cache(TEXTS)
def condition(text: str, what: str) -> Expression[Holds]:
    """Read a condition."""
    reader = Reader(text, what)
    return reader.finished(reader.either())


@lru_cache(TEXTS)
def _projection(text: str) -> Expression[list[str]]:
    reader = Reader(text, "ProjectionExpression")
    return reader.finished(reader.several(reader.name))


class Condition:
    """A condition or filter of a request."""

    def __init__(self, text: str, given: Given, what: str = "ConditionExpression") -> None:
        """Raises Refused."""
        expression = condition(text, what)
        self._given = given
        self._test = given.use(expression)
        # What it asks about.
        self.attributes = set(map(given.name, expression.attributes))

    def holds(self, item: Item | None) -> bool:
        """Does it hold for the item? One that is not there has no attributes."""
        return self._test(item or {}, self._given)


def projection(text: str | None, given: Given) -> list[str] | None:
    """The attributes that a request asks for; None: all. Raises Refused."""
    return None if text is None else [given.name(step) for step in given.use(_projection(text))]


def projected(item: Item, names: list[str] | None) -> Item:
    """These attributes of an item."""
    return item if names is None else {name: item[name] for name in names if name in item}


def at(item: Item, path: Path) -> Value | None:
    """The value at a path without placeholders; None: there is none."""
    for step in path[:-1]:
        value = item.get(step)
        if value is None or "M" not in value:
            return None
        item = value["M"]
    return item.get(path[-1])


def _finder(path: Path) -> Find:
    name = path[0]
    if len(path) > 1:
        return lambda item, given: at(item, given.path(path))
    if name[0] == "#":
        return lambda item, given: item.get(given.names[name])
    return lambda item, given: item.get(name)


def _size(find: Find) -> Find:
    def size(item: Item, given: Given) -> Value | None:
        ((kind, content),) = (find(item, given) or {"": None}).items()
        return {"N": str(len(content))} if kind in ("S", "B", "M", "L") else None

    return size


def _compared(compare: Callable[[Any, Any], bool]) -> Test:
    """A test whether a value and a given one, of the same type, compare so."""
    return lambda value, given: (
        value.keys() == given[0].keys() and compare(*map(comparable, (value, given[0])))
    )


def _begins_with(value: Value, given: Sequence[Value]) -> bool:
    ((kind, content),) = value.items()
    return kind in given[0] and bool(content.startswith(given[0][kind]))


# Do they hold for a value that is there, beside the values that the request gives?
_AT_LEAST, _AT_MOST = _compared(operator.ge), _compared(operator.le)
_TESTS: Mapping[str, Test] = {
    "=": lambda value, given: value == given[0],
    "<": _compared(operator.lt),
    "<=": _AT_MOST,
    ">": _compared(operator.gt),
    ">=": _AT_LEAST,
    "BETWEEN": lambda value, given: _AT_LEAST(value, given[:1]) and _AT_MOST(value, given[1:]),
    "IN": lambda value, given: value in given,
    "attribute_exists": lambda value, given: True,
    "attribute_not_exists": lambda value, given: False,
    "attribute_type": lambda value, given: given[0]["S"] in value,
    "begins_with": _begins_with,
}


class Reader:
    """Reads one text, token by token."""

    def __init__(self, text: str, what: str) -> None:
        self._what = what
        self._tokens: list[str] = _TOKEN.findall(text)
        self._at = 0
        self._attributes: set[str] = set()
        self._tests: list[tuple[str, Path, Sequence[str]]] = []
        if not self._tokens:
            raise invalid(f"Invalid {what}: The expression can not be empty;")

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._tokens)

    def finished(self, parts: T) -> Expression[T]:
        """The whole text has been read."""
        if not self.is_at_end:
            raise self.error()
        placeholders = frozenset(token for token in self._tokens if token[0] in "#:")
        is_conjunction = {"OR", "NOT"}.isdisjoint(map(str.upper, self._tokens))
        attributes = frozenset(self._attributes)
        return Expression(parts, self._what, placeholders, self._tests, attributes, is_conjunction)

    def error(self) -> Exception:
        """What comes next is wrong, or a part of the language that Headrace does not use."""
        near = " ".join(self._tokens[max(0, self._at - 1) : self._at + 2])
        return invalid(
            f'Invalid {self._what}: Syntax error, or not known to the embedded engine; near: "{near}"'
        )

    def next_is(self, *tokens: str) -> bool:
        """Are these the next tokens?"""
        return [each.upper() for each in self._tokens[self._at : self._at + len(tokens)]] == [*tokens]

    def takes(self, token: str) -> bool:
        """Is this the next token? Then it is taken."""
        is_next = self.next_is(token)
        self._at += is_next
        return is_next

    def expect(self, token: str) -> None:
        if not self.takes(token):
            raise self.error()

    def token(self, is_fit: Callable[[str], bool]) -> str:
        """The next token, of a kind."""
        if self.is_at_end or not is_fit(self._tokens[self._at]):
            raise self.error()
        self._at += 1
        return self._tokens[self._at - 1]

    def several(self, read: Callable[[], T], sign: str = ",") -> list[T]:
        """What `read` reads, again after each comma, or other `sign`."""
        found = [read()]
        while self.takes(sign):
            found.append(read())
        return found

    def path(self) -> Path:
        """A path through maps."""
        steps = self.several(self.name, ".")
        self._attributes.add(steps[0])
        return tuple(steps)

    def name(self) -> str:
        """One step of a path."""
        return self.token(lambda token: token[0] == "#" or token[0].isalpha())

    def value(self) -> str:
        """The placeholder of a value."""
        return self.token(lambda token: token[0] == ":" and len(token) > 1)

    def operand(self) -> Find:
        """A value or a path."""
        if not self.is_at_end and self._tokens[self._at][0] == ":":
            name = self.value()
            return lambda item, given: given.values[name]
        return _finder(self.path())

    # conditions, from the loosest binding to the tightest

    def either(self) -> Holds:
        tests = self.several(self._both, "OR")
        return tests[0] if len(tests) == 1 else lambda item, given: any(test(item, given) for test in tests)

    def _both(self) -> Holds:
        tests = self.several(self._negation, "AND")
        return tests[0] if len(tests) == 1 else lambda item, given: all(test(item, given) for test in tests)

    def _negation(self) -> Holds:
        if self.takes("NOT"):
            test = self._negation()
            return lambda item, given: not test(item, given)
        if self.takes("("):
            test = self.either()
            self.expect(")")
            return test
        is_function = self._tokens[self._at + 1 : self._at + 2] == ["("] and not self.next_is("SIZE")
        return self._function() if is_function else self._comparison()

    def _function(self) -> Holds:
        name = self.token(_TESTS.__contains__)
        self.expect("(")
        path, values = self.path(), []
        if not name.endswith("_exists"):
            self.expect(",")
            values.append(self.value())
        self.expect(")")
        return self._test(name, path, values)

    def _comparison(self) -> Holds:
        is_size = self.next_is("SIZE", "(")
        if is_size:
            self._at += 2
        path = self.path()
        if is_size:
            self.expect(")")
        kind = self.token(lambda token: token.upper() in _TESTS).upper()
        if kind == "BETWEEN":
            values = [self.value()]
            self.expect("AND")
            values.append(self.value())
        elif kind == "IN":
            self.expect("(")
            values = self.several(self.value)
            self.expect(")")
        else:
            values = [self.value()]
        return self._test(kind, path, values, is_size=is_size)

    def _test(self, kind: str, path: Path, values: Sequence[str], *, is_size: bool = False) -> Holds:
        self._tests.append((kind, () if is_size else path, values))
        find, test, if_absent = _finder(path), _TESTS[kind], kind == "attribute_not_exists"
        if is_size:
            find = _size(find)

        def holds(item: Item, given: Given) -> bool:
            value = find(item, given)
            return if_absent if value is None else test(value, [given.values[name] for name in values])

        return holds
