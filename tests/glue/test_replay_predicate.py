"""A replay's predicate as a Spark expression: it chooses what it says, and nothing in it is ever run as SQL."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from chalicelib.domain.predicate import parse
from glue_jobs.replaying.predicate import condition

BODIES: dict[str, bytes | None] = {
    "rich": b'{"a":{"b":[1,{"c":"x"}]},"n":12.5,"name":"O\'Hara \\\\ %","on":true,"odd name":"!","none":null}',
    "poor": b'{"n":-3,"name":"bob","on":false}',
    "text number": b'{"n":"40"}',
    "far number": b'{"far":1e-999999999999999999999999999999}',
    "list": b"[1,2]",
    "no json": b"\xff{",
    "nothing": None,
}


CHOSEN: dict[str, set[str]] = {
    "n > 12": {"rich", "text number"},
    "n > 12.4 AND n <= 12.5": {"rich"},
    "far < 1 OR far >= 1": {"far number"},
    "n BETWEEN -3 AND 13": {"rich", "poor"},
    "n NOT BETWEEN -3 AND 13": {"text number"},
    "n <> -3": {"rich", "text number"},
    "n IN (-3, 40)": {"poor", "text number"},
    "name = 'O''Hara \\ %'": {"rich"},
    "name LIKE 'b_b'": {"poor"},
    "name LIKE 'b%' OR n = 40": {"poor", "text number"},
    "NOT name LIKE 'b%'": {"rich"},
    "on = true": {"rich"},
    "on <> true": {"poor"},
    "a.b[1].c = 'x'": {"rich"},
    "a.b[0] = 1": {"rich"},
    "\"odd name\" = '!'": {"rich"},
    "none IS NULL AND name IS NOT NULL": {"rich", "poor"},
    "name = 'x'' OR 1=1 --'": set(),
}
TEXTS = ("'", "\\", "\\'", "x' OR 1=1 --", "${env:HOME}", "\n\t\0", "`;--/*", "é😀", "%_")


def test_a_predicate_chooses_by_the_json_body(spark: SparkSession) -> None:
    rows = spark.createDataFrame(list(BODIES.items()), "case string, body binary")
    predicates = {f"p{n}": condition(parse(predicate)) for n, predicate in enumerate(CHOSEN)}
    answers = rows.select(
        "case", *(is_chosen.alias(name) for name, is_chosen in predicates.items())
    ).collect()
    chosen = [{row["case"] for row in answers if row[name]} for name in predicates]
    assert dict(zip(CHOSEN, chosen, strict=True)) == CHOSEN


def test_any_text_is_a_literal_and_nothing_more(spark: SparkSession) -> None:
    bodies = [(json.dumps({"t": text}).encode(),) for text in TEXTS]
    rows = spark.createDataFrame([*bodies, (b'{"t":"other"}',)], "body binary")
    counts = rows.select(*(F.count_if(condition(["=", ["t"], text])) for text in TEXTS)).first()
    assert counts
    assert dict(zip(TEXTS, counts, strict=True)) == dict.fromkeys(TEXTS, 1)


@pytest.mark.parametrize(
    "tree",
    [
        [],
        ["=", [], 1],
        ["=", "a", 1],
        ["and", ["null", ["a"]]],
        ["xor", ["null", ["a"]], ["null", ["a"]]],
        ["=", ["a"], None],
        ["=", ["a"], ["b"]],
        ["=", ["a'] --"], 1],
        ["=", [-1], 1],
        ["=", [1.5], 1],
        ["; drop table", ["a"], 1],
        ["like", ["a"], 5],
        ["in", ["a"], []],
        "1=1",
    ],
)
def test_what_is_no_tree_is_refused(spark: SparkSession, tree: Any) -> None:
    with pytest.raises(ValueError, match=r"^not a"):
        condition(tree)
