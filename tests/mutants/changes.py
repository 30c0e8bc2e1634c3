"""The changes: mutmut's, and a few that ask whether a condition, an operand or a statement is needed at all."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

MANY = {
    "operator_arg_removal",
    "operator_assignment",
    "operator_string",
}  # and nearly all of them die at once
_LEFT_ALONE = (cst.Annotation, cst.Decorator, cst.Parameters, cst.Raise, cst.Assert)


@dataclass(frozen=True)
class Mutant:
    """`before` becomes `after`. Only tests that reach one of the `lines` can see it."""

    id: str
    before: str
    after: str
    lines: range
    operator: str
    source: str


def mutants(path: Path) -> Iterator[Mutant]:
    """All of a module, but for what is computed at import: constants, defaults, decorators."""
    text = path.read_text()
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    sites = _Sites()
    wrapper.visit(sites)
    places = wrapper.resolve(PositionProvider)
    starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    numbers: Counter[str] = Counter()
    for node, new, operator in sites.changes:
        start, end = places[node].start, places[node].end
        first, last = (starts[at.line - 1] + at.column for at in (start, end))
        after = wrapper.module.code_for_node(new).strip()
        if operator == "operator_string" and " " in after:
            continue  # prose
        after = f"({after})" if isinstance(new, cst.BaseExpression) else after
        id = f"{path}:{start.line}:{start.column}:{operator}"
        numbers[id] += 1
        before = text[first:last]
        source = text[:first] + after + text[last:]
        lines = range(start.line, end.line + 1)
        yield Mutant(f"{id}:{numbers[id]}", _line(before), _line(after), lines, operator, source)


def _line(text: str) -> str:
    return " ".join(text.split())


class _Sites(cst.CSTVisitor):
    """Every place in a function where something can be changed, what it can become, and by which operator."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[cst.CSTNode, cst.CSTNode, str]] = []
        self._depth = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        self._depth += isinstance(node, cst.FunctionDef)
        if isinstance(node, _LEFT_ALONE):
            return False
        if self._depth and not (isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString)):
            self.changes += [(where, new, name) for where, new, name in _changes(node)]
        return not isinstance(node, cst.Expr) or not isinstance(node.value, cst.SimpleString)

    def on_leave(self, node: cst.CSTNode) -> None:
        self._depth -= isinstance(node, cst.FunctionDef)


def _changes(node: cst.CSTNode) -> Iterator[tuple[cst.CSTNode, cst.CSTNode, str]]:
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            for new in itertools.islice(operator(node), 1 if kind is cst.BaseString else None):
                yield node, new, operator.__name__
    if isinstance(node, cst.If):
        yield from ((node.test, cst.Name(value), "forced") for value in ("True", "False"))
    elif isinstance(node, cst.CompIf):
        yield node.test, cst.Name("True"), "forced"
    elif isinstance(node, cst.BooleanOperation):
        yield from ((node, part, "operand") for part in (node.left, node.right))
    elif isinstance(node, cst.Expr) and not isinstance(node.value, cst.Yield):
        yield node, cst.Pass(), "statement"
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in ("min", "max"):
        plain = [arg.value for arg in node.args if not arg.star and not arg.keyword]
        yield from ((node, part, "operand") for part in plain if len(plain) > 1)
