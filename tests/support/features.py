"""The feature tables of docs/features: what another system has, where it is here, and which test shows it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "features"
LAST_ROWS = {
    "xxl_mq": "X102",
    "jmq": "J71",
    "redis_delay_queue": "D61",
    "dmq": "M74",
    "rocketmq": "R115",
}
_CELL = re.compile(r"(?<!\\)\|")
_CITATION = re.compile(r"`(?P<file>[\w/.]+\.py)::(?P<test>\w+)`")
_KINDS = ("another way", "partly", "no")


@dataclass(frozen=True)
class Row:
    """One feature. `here` begins with one of _KINDS and a colon where it does not simply work."""

    number: str
    feature: str
    here: str
    shown_by: str

    @property
    def kind(self) -> str:
        return next((kind for kind in _KINDS if self.here.startswith(f"{kind}:")), "works")

    @property
    def citations(self) -> list[tuple[str, str]]:
        """The tests that it names: file and function."""
        return [(match["file"], match["test"]) for match in _CITATION.finditer(self.shown_by)]

    @property
    def is_well_formed(self) -> bool:
        """Does it name one or two tests, and nothing else, or have a dash?"""
        cell = _CITATION.sub("", self.shown_by).replace(",", "").strip()
        return bool(self.here) and (cell, len(self.citations)) in [("-", 0), ("", 1), ("", 2)]


def rows_of(text: str, letter: str) -> list[Row]:
    """The rows of all tables of a page."""
    lines = [line for line in text.splitlines() if re.match(rf"\| {letter}\d", line)]
    return [Row(*(cell.strip() for cell in _CELL.split(line)[1:-1])) for line in lines]


def numbers_up_to(last: str) -> list[str]:
    """X1, X2 … up to the last."""
    return [f"{last[0]}{n}" for n in range(1, int(last[1:]) + 1)]


def figures(rows: list[Row]) -> str:
    """The cells of a page in the table of the folder's README."""
    kinds = Counter(row.kind for row in rows)
    counts = (len(rows), kinds["works"], *(kinds[kind] for kind in _KINDS))
    tests = sum(1 for row in rows if row.citations)
    return " | ".join(str(count) for count in (*counts, tests))


@cache
def tests_in(file: Path) -> frozenset[str]:
    """The names of a file's tests, read without importing it."""
    if not file.exists():
        return frozenset()
    tree = ast.walk(ast.parse(file.read_text()))
    return frozenset(node.name for node in tree if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
