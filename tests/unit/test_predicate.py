"""What a replay's `where` may say, and that it may say nothing else."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain.predicate import MAX_DEPTH, NotAPredicate, Tree, parse


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a = 1", ["=", ["a"], 1]),
        ("a.b[2].c <> 'it''s'", ["<>", ["a", "b", 2, "c"], "it's"]),
        ("a != true", ["<>", ["a"], True]),
        ("a > -1.5", [">", ["a"], -1.5]),
        ('"odd name".x >= 2', [">=", ["odd name", "x"], 2]),
        ("a in ('x', 'y') and b is not null", ["and", ["in", ["a"], ["x", "y"]], ["not", ["null", ["b"]]]]),
        ("a not like 'x%'", ["not", ["like", ["a"], "x%"]]),
        ("a BETWEEN 1 AND 2 AND b = 3", ["and", ["between", ["a"], 1, 2], ["=", ["b"], 3]]),
        ("a = 1 OR b = 2 AND c = 3", ["or", ["=", ["a"], 1], ["and", ["=", ["b"], 2], ["=", ["c"], 3]]]),
        ("NOT (a = 1 OR b = 2)", ["not", ["or", ["=", ["a"], 1], ["=", ["b"], 2]]]),
        ("  a = 1  ", ["=", ["a"], 1]),
    ],
)
def test_a_predicate_is_read(text: str, tree: Tree) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a = ",
        "= 1",
        "a = b",
        "a = null",
        "a = 1;",
        "a = 1 -- and nothing else",
        "a = 1 /* x */",
        "a = 1 b = 2",
        "upper(a) = 'X'",
        "java_method('java.lang.Runtime', 'x') = 1",
        "a = (SELECT 1)",
        "a IN (SELECT b FROM t)",
        "EXISTS (SELECT 1)",
        "a + 1 = 2",
        "a = 'x",
        "a = 'x' || 'y'",
        "a = 0x10",
        "a = 1e9",
        "a LIKE 5",
        "a[-1] = 1",
        "a[x] = 1",
        "a..b = 1",
        "a`b` = 1",
        '"a\'b" = 1',
        '"a]b" = 1',
        '"" = 1',
        "(a = 1",
        "a = 1)",
        "a IN ()",
        "parquet.`s3://bucket/file` = 1",
        "${x} = 1",
        "{x} = 1",
        "a = 1\x00",
    ],
)
def test_anything_else_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(NotAPredicate, match=r"^(at|cannot|names|is nested)"):
        parse(text)


def test_nesting_is_bounded() -> None:
    assert parse("(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH) == ["=", ["a"], 1]
    for deep in ("(" * 10_000 + "a = 1", "NOT " * 10_000 + "a = 1"):
        with pytest.raises(NotAPredicate, match="nested"):
            parse(deep)


@given(st.text("ab.'\"()=<>! ,[]019-ANDORNOTINLIKEisnull\\%", max_size=60) | st.text(max_size=40))
def test_whatever_comes_is_read_or_refused(text: str) -> None:
    try:
        tree = parse(text)
    except NotAPredicate:
        return
    assert json.loads(json.dumps(tree)) == tree
