"""JSON: a strict parser, which refuses what other parsers tolerate and says why; values of a type, by msgspec; the
compact texts that are stored, and JSON merge patches (RFC 7386) on them."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from threading import Lock
from typing import Any, NoReturn, TypeVar

import msgspec

from .errors import Malformed
from .limits import MAX_EXPONENT, MAX_JSON_DEPTH

# Possessive, and matches an unterminated string, too: else such a body would take quadratic time.
_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_INEXACT = re.compile(rb"[0-9][.eE]|-0")  # perhaps a number that a float would change
_EXACT = msgspec.json.Encoder(decimal_format="number")
_LAST_EXACT = 2**53  # of a float's whole numbers
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse(raw: bytes) -> Any:
    """The value of a JSON text.

    Malformed for: no UTF-8, a byte order mark, nesting over 32, a key twice, NaN or infinities, lone
    surrogates, numbers out of reach, anything behind the value. RFC 8259, read strictly.
    A whole number is an int however it is written: 10.0 and 1e1 are 10.
    """
    if raw.startswith(b"\xef\xbb\xbf"):
        _refuse("The body begins with a byte order mark; send plain UTF-8.")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        _refuse("The body is not UTF-8.")
    if _is_too_deep(raw):
        _refuse(f"The JSON is nested deeper than {MAX_JSON_DEPTH} levels.")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except json.JSONDecodeError as error:
        _refuse(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.")
    except ValueError:  # Python refuses integers of more than 4,300 digits
        _refuse("A number in the body is too long.")
    if _SURROGATE.search(raw):
        _check_surrogates(value)
    return value


def dump(value: Any) -> bytes:
    """The compact UTF-8 text of a JSON value."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _is_too_deep(raw: bytes) -> bool:
    if raw.count(b"[") + raw.count(b"{") <= MAX_JSON_DEPTH:
        return False
    depth = 0
    for match in _STRUCTURE.finditer(raw):
        token = match[0]
        if token in b"[{":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                return True
        elif token in b"]}":
            depth -= 1
    return False


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        _refuse("An object in the body has the same key twice.")
    return members


def _constant(_: str) -> NoReturn:
    _refuse("NaN and infinities are not JSON.")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        _refuse("A number in the body is too large.")
    if number == 0.0 and not _is_near(text):
        _refuse(f"A number in the body has an exponent below -{MAX_EXPONENT:,} or above {MAX_EXPONENT:,}.")
    return int(number) if number.is_integer() and abs(number) <= _LAST_EXACT else number


def _is_near(text: str) -> bool:
    """Can every parser read this number, which is zero or too small for a float? Exact parsers fail at some
    exponent."""
    try:
        return abs(Decimal(text).adjusted()) <= MAX_EXPONENT
    except InvalidOperation:
        return False


def _check_surrogates(value: Any) -> None:
    try:
        dump(value)
    except UnicodeEncodeError:
        _refuse("A string in the body has half a surrogate pair.")


def _refuse(detail: str) -> NoReturn:
    raise Malformed("INVALID_JSON", detail)


_T = TypeVar("_T")
_used: set[Any] = set()
_first_use = Lock()


def decoded(raw: bytes | str, kind: type[_T]) -> _T:
    """JSON text as a value of this type. Raises msgspec.DecodeError, of which ValidationError is one."""
    _know(kind)
    return msgspec.json.decode(raw, type=kind)


def member(raw: bytes, name: str) -> bytes:
    """The text of a member of the JSON object that a checked text is: its numbers exactly as they stand there."""
    return bytes(decoded(raw, dict[str, msgspec.Raw])[name])


def converted(value: object, kind: type[_T]) -> _T:
    """A parsed JSON value as one of this type. Raises msgspec.ValidationError."""
    _know(kind)
    return msgspec.convert(value, kind)


def _know(kind: type[Any]) -> None:
    try:
        if kind in _used:
            return
    except TypeError:  # it has no hash: seldom, and decoded again each time
        pass
    with _first_use:
        msgspec.json.Decoder(kind)
        with suppress(TypeError):
            _used.add(kind)


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
