"""Strict JSON at the door, the compact texts that are stored, and JSON merge patches (RFC 7386) on them."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import msgspec

from ..domain.strict_json import dump, parse

__all__ = ["compact", "dump", "exact", "load", "merged", "parse"]

_INEXACT = re.compile(rb"[0-9][.eE]|-0")  # perhaps a number that a float would change
_EXACT = msgspec.json.Encoder(decimal_format="number")


def compact(text: bytes, value: Any) -> bytes:
    """The compact text of a value whose checked JSON text this is; its numbers keep every digit."""
    if not _INEXACT.search(text):
        return dump(value)
    return exact(load(text))


def load(text: bytes) -> Any:
    """The value of a checked JSON text, its numbers to the digit."""
    return json.loads(text, parse_float=Decimal, parse_int=_int)


def exact(value: Any) -> bytes:
    """The compact text of such a value."""
    return _EXACT.encode(value)


def _int(text: str) -> int | Decimal:
    return Decimal(text) if text == "-0" else int(text)


def merged(text: bytes, patch: bytes) -> bytes:
    """The compact text of a JSON value that a patch was applied to. Both are checked JSON texts."""
    return exact(_merged(load(text), load(patch)))


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result
