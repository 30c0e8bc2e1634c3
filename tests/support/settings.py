"""What a request may give for a setting, by its row in the table."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from chalicelib.domain.settings import GroupSettings, Setting, TopicSettings, rows_of

TOPIC = [row for row in rows_of(TopicSettings) if row.name != "key_shards"]  # shown of a topic that grew
GROUP = list(rows_of(GroupSettings))


NUMBERS = (int, float)


def numbers(rows: Iterable[Setting]) -> list[tuple[str, int, int]]:
    """The names of the numbers among settings, with their bounds."""
    return [(row.name, ceil(row.least or 0), row.most or 0) for row in rows if row.given in NUMBERS]


def values(row: Setting) -> tuple[str | int | float | None, ...]:
    """All words, or the most, or the least and the most; nothing for what is neither a word nor a number."""
    return row.choices or {int: (row.most,), float: (row.least, row.most)}.get(row.given, ())


def shape(row: Setting) -> str:
    """The types of values that are taken; "-": some words or times only."""
    if row.choices or (row.given is str and not row.most):
        return "-"
    of = {int: "int", float: "int float", bool: "bool", str: "text", list: "list"}.get(row.given, "dict")
    return f"{of} null" if row.nullable else of
