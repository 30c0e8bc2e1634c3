"""A consumer's transform: a JMESPath expression that makes what is sent of a message, bounded in time and memory.

JMESPath itself has no bounds: `[@,@]|[@,@]|…` doubles with each step. So an expression is short, and its evaluation
has a budget: each visit of a node costs 1, what a function or a comparison reads or makes costs its size.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jmespath
from jmespath import exceptions, functions, visitor

from ..domain import strict_json
from ..domain.call_result import Attempt, CallResult, PushBatch, Verdict
from ..domain.message import JSON, body_fields
from .events import rfc3339

MAX_CHARS = 1024
MAX_NODES = 64
MAX_DEPTH = 16
MAX_VISITS = 100_000
_CHARS_A_VISIT = 64  # of a text that a function reads or makes

TOO_LARGE = "transform: the result is too large"
TOO_LONG = "transform: it takes too many steps"
IS_NULL = "transform: the result is null"
FAILED = "transform: a function got a value of the wrong type"
"""What an attempt's error says. The library's own text would quote the message."""


class TransformFailed(Exception):
    """There is nothing to send; the text is one of the sentences above."""


def refusal(expression: str) -> str | None:
    """Why a consumer may not have this expression, to follow its name in a sentence; None: it may."""
    if len(expression) > MAX_CHARS:
        return f"has more than {MAX_CHARS:,} characters"
    if expression.count("(") > MAX_NODES:
        return "is nested too deep"
    try:
        tree = _parsed(expression)
    except RecursionError:
        return "is nested too deep"
    except exceptions.JMESPathError as error:
        position = getattr(error, "lex_position", None)
        return "is not JMESPath" if position is None else f"is not JMESPath: look at character {position + 1}"
    nodes, level = 0, [tree]
    for depth in range(1, MAX_NODES + 1):
        nodes += len(level)
        if nodes > MAX_NODES or depth > MAX_DEPTH:
            return f"has more than {MAX_NODES} nodes, or is nested deeper than {MAX_DEPTH}"
        for node in level:
            if node["type"] == "function_expression" and (problem := _misuse(node)):
                return problem
        level = [child for node in level for child in node.get("children", ()) if isinstance(child, dict)]
        if not level:
            break
    return None


def applied(expression: str | None, push_batch: PushBatch) -> list[Attempt | CallResult]:
    """The attempts with what is sent of their messages; the final result of each that has nothing to send."""
    if expression is None:
        return list(push_batch.attempts)
    made: list[Attempt | CallResult] = []
    for attempt in push_batch.attempts:
        try:
            text = apply(expression, push_batch.topic, push_batch.group, attempt, push_batch.max_body_bytes)
        except TransformFailed as error:
            made.append(CallResult(Verdict.REFUSED, str(error)))
            continue
        draft = replace(attempt.message.draft, body=text, is_json=True, content_type=JSON)
        made.append(replace(attempt, message=replace(attempt.message, draft=draft)))
    return made


def apply(expression: str, topic: str, group: str, attempt: Attempt, most_bytes: int) -> bytes:
    """What is sent of a message, as JSON of at most so many bytes. Raises TransformFailed."""
    message, draft = attempt.message, attempt.message.draft
    body = body_fields(draft).get("body")
    value = {
        "id": message.id,
        "topic": topic,
        "group": group,
        "body": None if body is None else strict_json.parse(bytes(body)),
        "headers": dict(draft.headers),
        "keys": list(draft.keys),
        "tag": draft.tag,
        "attempt": attempt.number,
        "accepted_at": rfc3339(message.first_accepted_ms),
    }
    try:
        result = _Interpreter(most_bytes).visit(_parsed(expression), value)
        if isinstance(result, visitor._Expression):
            raise TransformFailed(FAILED)
        if result is None:
            raise TransformFailed(IS_NULL)
        _Budget(most_bytes, TOO_LARGE).pay_whole(result)
        text = strict_json.dump(result)
    except (exceptions.JMESPathError, ArithmeticError, TypeError, ValueError, RecursionError):
        raise TransformFailed(FAILED) from None
    if len(text) > most_bytes:
        raise TransformFailed(TOO_LARGE)
    return text


@lru_cache(maxsize=256)
def _parsed(expression: str) -> dict[str, Any]:
    tree: dict[str, Any] = jmespath.compile(expression).parsed
    return tree


def _misuse(node: dict[str, Any]) -> str | None:
    """The library notices only at run time that a function is unknown or gets too few arguments."""
    spec = functions.Functions.FUNCTION_TABLE.get(node["value"])
    if spec is None:
        return "calls a function that JMESPath does not have"
    arguments, given = spec["signature"], len(node["children"])
    is_open = bool(arguments and arguments[-1].get("variadic"))
    is_right = given >= len(arguments) if is_open else given == len(arguments)
    return None if is_right else f"calls {node['value']} with {given} arguments instead of {len(arguments)}"


class _Budget:
    """What may still be spent."""

    def __init__(self, left: int, sentence: str) -> None:
        self._left = left
        self._sentence = sentence

    def pay(self, cost: int) -> None:
        """Raises TransformFailed if it is too much."""
        self._left -= cost
        if self._left < 0:
            raise TransformFailed(self._sentence)

    def pay_whole(self, value: Any, chars: int = 1) -> None:
        """Pay for a value with all that is in it, as often as it is in it: the shortest text of it, or less."""
        waiting = deque([value])
        while waiting:
            each = waiting.pop()
            if isinstance(each, str):
                self.pay(1 + len(each) // chars)
            elif isinstance(each, dict):
                self.pay(1 + len(each))
                waiting.extend(each)
                waiting.extend(each.values())
            elif isinstance(each, list):
                self.pay(1 + len(each))
                waiting.extend(each)
            else:
                self.pay(1)
                if isinstance(each, float) and not math.isfinite(each):
                    raise TransformFailed(FAILED)


class _Interpreter(visitor.TreeInterpreter):  # type: ignore[misc]
    """The library's interpreter, with a budget."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self._budget = _Budget(MAX_VISITS, TOO_LONG)

    def visit(self, node: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        self._budget.pay(1)
        return super().visit(node, *args, **kwargs)

    def visit_flatten(self, node: dict[str, Any], value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if isinstance(base, list):
            self._budget.pay(sum(len(each) if isinstance(each, list) else 1 for each in base))
            base = [part for each in base for part in (each if isinstance(each, list) else [each])]
        return base if isinstance(base, list) else None

    def visit_slice(self, node: dict[str, Any], value: Any) -> Any:
        self._budget.pay(len(value) if isinstance(value, list) else 1)
        return super().visit_slice(node, value)

    def visit_comparator(self, node: dict[str, Any], value: Any) -> Any:
        """Two values are compared to their depths, which may be the same ones many times over."""
        sides = [self.visit(child, value) for child in node["children"]]
        for side in sides:
            self._budget.pay_whole(side, _CHARS_A_VISIT)
        literals = [{"type": "literal", "value": side, "children": []} for side in sides]
        return super().visit_comparator({**node, "children": literals}, value)

    def visit_function_expression(self, node: dict[str, Any], value: Any) -> Any:
        name, arguments = node["value"], [self.visit(child, value) for child in node["children"]]
        for argument in arguments:
            if name in ("contains", "to_string"):
                self._budget.pay_whole(argument, _CHARS_A_VISIT)
            elif isinstance(argument, (str, list, dict)):
                self._budget.pay(_size(argument))
        if name == "join" and isinstance(arguments[1], list):
            chars = [len(each) + len(arguments[0]) for each in arguments[1] if isinstance(each, str)]
            if sum(chars) > self._most_bytes:
                raise TransformFailed(TOO_LARGE)
        return self._functions.call_function(name, arguments)


def _size(value: str | list[Any] | dict[str, Any]) -> int:
    """What a function pays for an argument: sorting a list costs more than its length, and compares whole texts."""
    if isinstance(value, str):
        return 1 + len(value) // _CHARS_A_VISIT
    return 1 + len(value) + sum(len(each) // _CHARS_A_VISIT for each in value if isinstance(each, str))
