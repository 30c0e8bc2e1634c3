"""The page of invariants defines each one that a test cites, and each one is cited."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_HERE = Path(__file__)


def test_each_invariant_is_defined_once_and_cited() -> None:
    numbers = re.findall(r"^\| I(\d+) ", (_ROOT / "docs/invariants.md").read_text(), re.MULTILINE)
    sources = (path for path in (_ROOT / "tests").rglob("*.py") if path != _HERE)
    citations = {number for path in sources for number in _cited(path.read_text())}
    assert sorted(map(int, numbers)) == sorted(citations) == list(range(1, 21))


def _cited(source: str) -> set[int]:
    """The numbers in a text: of `I4`, and of all from `I1 to I10`."""
    spans = re.findall(r"\bI(\d+) to I(\d+)\b", source)
    return {int(number) for number in re.findall(r"\bI(\d+)\b", source)} | {
        number for first, last in spans for number in range(int(first), int(last) + 1)
    }
