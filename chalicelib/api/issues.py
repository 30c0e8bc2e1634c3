"""What is wrong with a request, in our words and with its path; never with the value that caused it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..domain.errors import Issue
from ..domain.limits import MAX_HEADER_NAME_CHARS
from . import requests

_WHERE = re.compile(r"(.*) - at `(?:key` in `)?\$?\.?(.*)`\Z", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value '.*'\Z", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`\Z", re.DOTALL)
_STEP = re.compile(r"[^.\[]+|\[")
_MAX_NAME_CHARS = 64
PATTERNS = {
    requests.NAME: "must match [A-Za-z0-9][A-Za-z0-9._-]{0,127}",
    requests.TEXT: "must not be blank, and have no control characters",
    requests.TAG: "must have no spaces, no control characters and no |",
    requests.HEADER_NAME: f"names must have 1 to {MAX_HEADER_NAME_CHARS} letters, digits or !#$%&'*+.^_`~-",
    requests.HEADER_VALUE: "must have no line breaks and no other control characters",
    requests.TOPIC_PATTERN: "must have 1 to 128 letters, digits, ., _ or -, and * for any number of them",
    requests.MEDIA_TYPE: "must have printable ASCII characters only",
}
_UNMATCHED = {f"Expected `str` matching regex {pattern!r}": words for pattern, words in PATTERNS.items()}


def issue_of(text: str, kind: type, at: str = "") -> Issue:
    """The issue that a msgspec error tells of, in a value that should be of this type and stands at `at`."""
    match = _WHERE.match(text)
    reason, path = (match[1], match[2]) if match else (text, "")
    if extra := _UNKNOWN.match(reason):
        path, reason = _dotted_path(path, extra[1][:_MAX_NAME_CHARS]), "unknown field"
    elif lack := _MISSING.match(reason):
        path, reason = _dotted_path(path, lack[1]), "is missing"
    elif _VALUE.match(reason):
        reason = f"must be one of {', '.join(map(str, _choices(kind, path)))}"
    return Issue(_dotted_path(at, path), _UNMATCHED.get(reason, reason))


def _dotted_path(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _choices(kind: type, path: str) -> list[Any]:
    """The values that the field at a path may have, where they are fixed."""
    from msgspec import inspect  # only refusals need it

    def flat(kinds: list[inspect.Type]) -> Iterator[inspect.Type]:
        for one in kinds:
            yield from flat(list(one.types)) if isinstance(one, inspect.UnionType) else [one]

    def inner(of: inspect.Type, step: str) -> list[inspect.Type]:
        if isinstance(of, inspect.StructType):
            return [field.type for field in of.fields if field.encode_name == step]
        return [of.item_type] if isinstance(of, inspect.ListType) and step == "[" else []

    kinds = [inspect.type_info(kind)]
    for step in _STEP.findall(re.sub(r"\[.*?\]", "[", path)):
        kinds = [below for of in flat(kinds) for below in inner(of, step)]
    return [value for of in flat(kinds) if isinstance(of, inspect.LiteralType) for value in of.values]
