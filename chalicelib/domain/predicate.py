"""The language of a replay's `where`: comparisons of values in a JSON body, joined by AND, OR, NOT.

    departure_delay_minutes > 60 AND origin IN ('JFK', 'LGA') AND NOT items[0].sku LIKE 'x%'

The language has no functions, no sub-queries and no arithmetic, so a predicate can read nothing but the body. The text
becomes a tree of lists, `["and", left, right]`, which is passed to the job as JSON. The job builds its own expression
from the tree and never reads the text:

    predicate = ["and" | "or", predicate, predicate, …] | ["not", predicate]
              | ["=" | "<>" | "<" | "<=" | ">" | ">=" | "like", path, literal] | ["in", path, [literal, …]]
              | ["between", path, literal, literal] | ["null", path]
    path      = [name or index, …]            literal = text, number or bool
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 32
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>"[^"]+"|[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<number>-?[0-9]{1,30}(?:\.[0-9]{1,30})?(?![0-9A-Za-z_]))|(?P<sign><=|>=|<>|!=|[=<>(),.\[\]]))"""
)
_QUOTED = re.compile(r"[^\x00-\x1f'\"\\\[\]]{1,128}\Z")
_WORDS = frozenset(["AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"])
_COMPARISONS = frozenset(("=", "<>", "!=", "<", "<=", ">", ">="))
_MAX_INDEX_DIGITS = 6

Tree = list[Any]


class NotAPredicate(ValueError):
    """The text is not a predicate; the message says why, for its author."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # text, name, number, sign, word
    text: str
    at: int


def parse(text: str) -> Tree:
    """The tree of a predicate. Raises NotAPredicate."""
    parser = _Parser(_tokens(text))
    tree = parser.either(0)
    parser.end()
    return tree


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if not match:
            raise NotAPredicate(f"cannot be read from character {at + 1} on")
        kind = str(match.lastgroup)
        token, starts = match[kind], match.start(kind)
        if kind == "name" and token.upper() in _WORDS:
            kind, token = "word", token.upper()
        tokens.append(_Token(kind, token, starts))
        at = match.end()
    return [*tokens, _Token("end", "", end)]


class _Parser:
    """Recursive descent, of bounded depth."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def either(self, depth: int) -> Tree:
        return self._parse_joined("OR", self._conjunction, depth)

    def _conjunction(self, depth: int) -> Tree:
        return self._parse_joined("AND", self._one, depth)

    def _parse_joined(self, word: str, part: Callable[[int], Tree], depth: int) -> Tree:
        parts = [part(depth)]
        while self._accept(word):
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else [word.lower(), *parts]

    def _one(self, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            issue = f"is nested deeper than {MAX_DEPTH} levels, or joins more conditions than that"
            raise NotAPredicate(issue)
        if self._accept("NOT"):
            return ["not", self._one(depth + 1)]
        if self._accept("("):
            inner = self.either(depth + 1)
            self._expect(")")
            return inner
        return self._condition(self._path())

    def _condition(self, path: Tree) -> Tree:
        if self._token.text in _COMPARISONS:
            sign = self._take().text
            return ["<>" if sign == "!=" else sign, path, self._literal()]
        if self._accept("IS"):
            negated = self._accept("NOT")
            self._expect("NULL")
            return _maybe_not(negated, ["null", path])
        negated = self._accept("NOT")
        if self._accept("LIKE"):
            return _maybe_not(negated, ["like", path, self._text()])
        if self._accept("BETWEEN"):
            low = self._literal()
            self._expect("AND")
            return _maybe_not(negated, ["between", path, low, self._literal()])
        if self._accept("IN"):
            return _maybe_not(negated, ["in", path, self._list()])
        raise self._error("a comparison, IS, IN, LIKE or BETWEEN")

    def _list(self) -> list[Any]:
        self._expect("(")
        literals = [self._literal()]
        while self._accept(","):
            literals.append(self._literal())
        self._expect(")")
        return literals

    def _path(self) -> Tree:
        steps: list[str | int] = [self._name()]
        while True:
            if self._accept("."):
                steps.append(self._name())
            elif self._accept("["):
                steps.append(self._index())
                self._expect("]")
            else:
                return steps

    def _name(self) -> str:
        if self._token.kind != "name":
            raise self._error('a field of the body (in "double quotes" where its name is unusual)')
        name = self._take().text.strip('"')
        if not _QUOTED.match(name):
            raise NotAPredicate("names a field that cannot be asked for")
        return name

    def _index(self) -> int:
        digits = self._token.text
        if self._token.kind != "number" or not digits.isdigit() or len(digits) > _MAX_INDEX_DIGITS:
            raise self._error("the number of an element")
        return int(self._take().text)

    def _text(self) -> str:
        if self._token.kind != "text":
            raise self._error("a text in 'single quotes'")
        return self._take().text[1:-1].replace("''", "'")

    def _literal(self) -> Any:
        if self._token.kind == "number":
            digits = self._take().text
            return float(digits) if "." in digits else int(digits)
        for word, value in (("TRUE", True), ("FALSE", False)):
            if self._accept(word):
                return value
        return self._text()

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, text: str) -> bool:
        """Go on past a word or sign, if it is next."""
        if self._token.kind not in ("word", "sign") or self._token.text != text:
            return False
        self._next += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._error(f"{text}")

    def end(self) -> None:
        if self._token.kind != "end":
            raise self._error("AND, OR or the end")

    def _error(self, expectation: str) -> NotAPredicate:
        return NotAPredicate(f"at character {self._token.at + 1} there should be {expectation}")


def _maybe_not(negated: bool, tree: Tree) -> Tree:
    return ["not", tree] if negated else tree
