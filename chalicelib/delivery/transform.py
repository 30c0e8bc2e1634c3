"""A consumer's transform: a JMESPath expression that makes what is sent of a message, bounded in time and memory.

JMESPath itself has no bounds: `[@,@]|[@,@]|…` doubles with each step. So an expression is short, and its evaluation
has a budget: each visit of a node costs 1, what a function or a comparison reads or makes costs its size. Of long
evaluations a process does one at a time, with rests, so that other deliveries go on beside it.
"""

from __future__ import annotations

import math
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jmespath
from jmespath import exceptions, functions, visitor

from ..domain import strict_json
from ..domain.call_result import Attempt, CallResult, PushBatch, Verdict
from ..domain.message import JSON, body_fields
from ..domain.times import rfc3339

MAX_CHARS = 1024
MAX_NODES = 64
MAX_DEPTH = 16
MAX_VISITS = 100_000
_CHARS_A_VISIT = 64  # of a text that a function reads or makes
_SHORT = 250  # visits; after so many comes a rest
_REST_SECONDS = 0.000003  # for each visit
_SWITCH_SECONDS = 0.0005  # for which a thread then keeps the interpreter while another waits for it
_long, _never = threading.Lock(), threading.Event()

TOO_LARGE = "transform: the result is too large"
TOO_LONG = "transform: it takes too many steps"
IS_NULL = "transform: the result is null"
# What an attempt's error says. The library's own text would quote the message.
FAILED = "transform: a function got a value of the wrong type"


class TransformFailed(Exception):
    """There is nothing to send; the text is one of the sentences above."""


def refusal(expression: str) -> str | None:
    """Why a consumer may not have this expression, to follow its name in a sentence; None: it may."""
    if len(expression) > MAX_CHARS or expression.count("(") > MAX_NODES:
        return f"has more than {MAX_CHARS:,} characters, or more than {MAX_NODES} parentheses"
    try:
        level, nodes = [_parsed(expression)], list[Any]()
    except (exceptions.JMESPathError, RecursionError) as error:
        position = getattr(error, "lex_position", None)
        return "is not JMESPath" + (f": look at character {position + 1}" if position is not None else "")
    for _ in range(MAX_DEPTH):
        nodes += level
        level = [child for node in level for child in node["children"] if isinstance(child, dict)]
    if level or len(nodes) > MAX_NODES:
        return f"has more than {MAX_NODES} nodes, or is nested deeper than {MAX_DEPTH}"
    problems = (_misuse(node) for node in nodes if node["type"] == "function_expression")
    return next(filter(None, problems), None)


def _misuse(node: dict[str, Any]) -> str | None:
    """The library notices only at run time that a function is unknown or gets too few arguments."""
    spec, given = functions.Functions.FUNCTION_TABLE.get(node["value"]), len(node["children"])
    if spec is None:
        return "calls a function that JMESPath does not have"
    wanted, is_open = len(spec["signature"]), any(each.get("variadic") for each in spec["signature"])
    is_right = given == wanted or (is_open and given > wanted)
    return None if is_right else f"calls {node['value']} with {given} arguments instead of {wanted}"


def applied(expression: str | None, push_batch: PushBatch) -> list[Attempt | CallResult]:
    """The attempts with what is sent of their messages; the final result of each that has nothing to send."""
    made: list[Attempt | CallResult] = list(push_batch.attempts)
    for n, attempt in enumerate(push_batch.attempts if expression is not None else ()):
        try:
            text = apply(expression or "", push_batch, attempt)
        except TransformFailed as error:
            made[n] = CallResult(Verdict.REFUSED, str(error))
        else:
            draft = replace(attempt.message.draft, body=text, is_json=True, content_type=JSON)
            made[n] = replace(attempt, message=replace(attempt.message, draft=draft))
    return made


def apply(expression: str, push_batch: PushBatch, attempt: Attempt) -> bytes:
    """What is sent of a message, as JSON of at most the batch's `max_body_bytes`. Raises TransformFailed."""
    message, draft = attempt.message, attempt.message.draft
    most_bytes = push_batch.max_body_bytes
    value = {
        "id": message.id,
        "topic": push_batch.topic,
        "group": push_batch.group,
        "body": strict_json.parse(bytes(body_fields(draft).get("body", b"null"))),
        "headers": dict(draft.headers),
        "keys": list(draft.keys),
        "tag": draft.tag,
        "tenant": draft.tenant,
        "attempt": attempt.number,
        "accepted_at": rfc3339(message.first_accepted_ms),
    }
    try:
        with ExitStack() as alone:
            result = _Interpreter(most_bytes, alone).visit(_parsed(expression), value)
        if result is None:
            raise TransformFailed(IS_NULL)
        _weigh(result, most_bytes, TOO_LARGE)
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


def _weigh(value: Any, most: int, sentence: str, chars: int = 1) -> int:
    """The size of a value with all that is in it, as often as it is in it: that of its shortest text, or less. Raises
    TransformFailed if it is more than `most`."""
    weight, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        weight += 1 + (len(each) // chars if isinstance(each, str) else 0)
        if isinstance(each, (dict, list)):
            weight += len(each)
        if weight > most:
            raise TransformFailed(sentence)
        if isinstance(each, (dict, list)):
            waiting += [*each, *each.values()] if isinstance(each, dict) else each
        elif isinstance(each, float) and not math.isfinite(each):
            raise TransformFailed(FAILED)
    return weight


def _weight_at_top(value: Any) -> int:
    """What a function reads of an argument: of a list the texts in it, since sorting compares them."""
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else ()
    size = len(value) if isinstance(value, (list, dict)) else 1
    return size + sum(len(each) // _CHARS_A_VISIT for each in texts if isinstance(each, str))


class _Interpreter(visitor.TreeInterpreter):  # type: ignore[misc]
    """The library's interpreter, with a budget. `alone` ends with the evaluation."""

    def __init__(self, most_bytes: int, alone: ExitStack) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self._alone = alone
        self._left = MAX_VISITS
        self._rested = MAX_VISITS

    def visit(self, node: dict[str, Any], value: Any) -> Any:
        """What is read as a whole is evaluated first and paid for. Two values are compared to their depths, which may
        be the same ones many times over."""
        kind = node["type"]
        self._pay(_weight_at_top(value) if kind == "slice" else 1)
        if kind in ("comparator", "flatten", "function_expression"):
            values = [self.visit(child, value) for child in node["children"]]
            for each in values:
                if kind == "comparator" or node.get("value") in ("contains", "to_string"):
                    self._pay(_weigh(each, self._left, TOO_LONG, _CHARS_A_VISIT))
                elif kind == "flatten" and isinstance(each, list):
                    self._pay(sum(map(_weight_at_top, each)))
                else:
                    self._pay(_weight_at_top(each))
            if node.get("value") == "join" and isinstance(values[1], list):
                joints = len(values[1]) * len(str(values[0]))
                if joints + sum(len(text) for text in values[1] if isinstance(text, str)) > self._most_bytes:
                    raise TransformFailed(TOO_LARGE)
            node = {**node, "children": [{"type": "literal", "value": each} for each in values]}
        return super().visit(node, value)

    def _pay(self, cost: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise TransformFailed(TOO_LONG)
        if self._rested - self._left > _SHORT:
            if self._rested == MAX_VISITS:
                self._alone.enter_context(_long)
                sys.setswitchinterval(_SWITCH_SECONDS)
            _never.wait((self._rested - self._left) * _REST_SECONDS)
            self._rested = self._left
