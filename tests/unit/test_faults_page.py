"""The page of faults names tests and planted bugs that exist."""

from __future__ import annotations

import re

from tests.support import features
from tests.support.features import ROOT

_PAGE = (ROOT / "docs/faults.md").read_text()
_ROW = re.compile(
    r"^\| (?P<fault>(?!fault|---)[^|]+) \| [^|]+ \| (?P<tests>[^|]+) \| (?P<bugs>[^|]+) \|$", re.MULTILINE
)


def test_each_fault_names_tests_that_exist() -> None:
    for row in _ROW.finditer(_PAGE):
        citations = re.findall(r"`([\w/.]+\.py)::(\w+)`", row["tests"])
        assert citations, row["fault"]
        assert {test for file, test in citations if test not in features.tests_in(ROOT / file)} == set()


def test_each_planted_bug_that_a_fault_names_is_planted() -> None:
    planted = set(re.findall(r"^- (.+)$", (ROOT / "docs/net.md").read_text(), re.MULTILINE))
    named = {bug for row in _ROW.finditer(_PAGE) for bug in re.findall(r"\*([^*]+)\*", row["bugs"])}
    assert len(named) > 40
    assert named - planted == set()


def test_no_row_is_overlooked() -> None:
    lines = [
        line for line in _PAGE.splitlines() if line.startswith("| ") and not line.startswith("| fault |")
    ]
    assert len(lines) == len(_ROW.findall(_PAGE)) > 50
