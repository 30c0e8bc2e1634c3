"""A replay's predicate, as parsed by the service, as a Spark expression over JSON bodies.

The tree (docs/replay.md) has comparisons, AND, OR and NOT, and nothing else; any other form is refused here again.
Expressions are made from values, never from text: in SQL text even a quoted '${env:HOME}' would be filled in.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

_COMPARISONS: dict[str, Callable[[Column, Column], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAME = re.compile(r"[^\x00-\x1f'\"\\\[\]]{1,128}\Z")
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"

Tree = list[Any]


def condition(tree: Tree) -> Column:
    """The expression over the column `body`. Raises ValueError for what is no tree."""
    match tree:
        case ["and", *parts] if len(parts) > 1:
            return reduce(operator.and_, map(condition, parts))
        case ["or", *parts] if len(parts) > 1:
            return reduce(operator.or_, map(condition, parts))
        case ["not", inner]:
            return ~condition(inner)
        case ["null", path]:
            return _value(path).isNull()
        case ["like", path, str(pattern)]:
            return _value(path).like(pattern)
        case ["between", path, low, high]:
            return condition([">=", path, low]) & condition(["<=", path, high])
        case ["in", path, [*literals]] if literals:
            return reduce(operator.or_, (condition(["=", path, literal]) for literal in literals))
        case [str(sign), path, literal] if sign in _COMPARISONS:
            field, value = _alike(_value(path), literal)
            return _COMPARISONS[sign](field, value)  # type: ignore[no-any-return]
    raise ValueError(f"not a predicate: {tree!r}")


def _alike(field: Column, literal: Any) -> tuple[Column, Column]:
    """The field as what it is compared with: a number where that is one, else its text."""
    match literal:
        case bool():
            return field, F.lit(str(literal).lower())
        case int() | float():
            return F.when(field.rlike(_NUMBER), field.cast("double")), F.lit(float(literal))
        case str():
            return field, F.lit(literal)
    raise ValueError(f"not a literal: {literal!r}")


def _value(path: Any) -> Column:
    """The text of a field of the body; null where there is none, or no JSON."""
    if not isinstance(path, list) or not path:
        raise ValueError(f"not a path: {path!r}")
    return F.get_json_object(F.col("body").cast("string"), "$" + "".join(map(_step, path)))


def _step(step: Any) -> str:
    if isinstance(step, int) and not isinstance(step, bool) and step >= 0:
        return f"[{step}]"
    if isinstance(step, str) and _NAME.match(step):
        return f"['{step}']"
    raise ValueError(f"not a field: {step!r}")
