"""DynamoDB's attribute values: which are valid, how large they are, how they sort.

An attribute value is `{type: content}`, as boto3 gives and takes it: `{"S": "text"}`, `{"N": "12"}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from .errors import invalid, unknown

Value = dict[str, Any]
Item = dict[str, Value]

ITEM_LIMIT = 400 * 1024
_ROUNDED, _EXACT = Context(prec=38), Context(prec=38, traps=[Inexact, InvalidOperation])
_PLAIN = re.compile(r"(?:0|-?[1-9][0-9]{0,37})\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z", re.ASCII)
_HIGHEST = b"\xff"


def stored_item(item: Mapping[str, Value]) -> tuple[Item, int]:
    """An item as it is stored, its numbers in one form, and its size in bytes. Raises Refused."""
    stored, size = stored_members(item)
    if size > ITEM_LIMIT:
        raise invalid("Item size has exceeded the maximum allowed size")
    return stored, size


def stored_members(members: Mapping[str, Value]) -> tuple[Item, int]:
    """The members of an item or a map as they are stored, and their size with their names. Raises Refused."""
    stored: Item = {}
    size = 0
    for name, value in members.items():
        stored[name], bytes_ = stored_value(value)
        size += len(name.encode()) + bytes_
    return stored, size


def stored_value(value: Value) -> tuple[Value, int]:
    """A value as it is stored, and its size without its name. Raises Refused."""
    if not isinstance(value, dict) or len(value) != 1:
        raise invalid("Supplied AttributeValue is empty, must contain exactly one of the supported datatypes")
    ((kind, content),) = value.items()
    if kind == "S" and isinstance(content, str):
        return value, len(content) if content.isascii() else len(content.encode())
    if kind == "N" and isinstance(content, str):
        text = number_text(content)
        return (value if text is content else {"N": text}), _number_size(text)
    if kind == "B" and isinstance(content, bytes | bytearray):
        return {"B": bytes(content)}, len(content)
    if kind in ("BOOL", "NULL") and isinstance(content, bool):
        return value, 1
    if kind == "M":
        members, size = stored_members(content)
        return {"M": members}, 3 + len(members) + size
    if kind == "L":
        values = [stored_value(each) for each in content]
        return {"L": [each for each, _ in values]}, 3 + sum(1 + size for _, size in values)
    raise unknown(f"attribute values of type {kind}")


def number_text(text: str) -> str:
    """A number in DynamoDB's one form: 38 digits at most, no exponent, no zeros without a meaning. Raises Refused."""
    if _PLAIN.match(text):
        return text
    if not _NUMBER.match(text):
        raise invalid(f"The parameter cannot be converted to a numeric value: {text}")
    try:
        return _text(_EXACT.create_decimal(text))
    except ArithmeticError:
        raise invalid("Attempting to store more than 38 significant digits in a Number") from None


def sum_of(left: str, right: str) -> str:
    """left + right."""
    return _text(_ROUNDED.add(Decimal(left), Decimal(right)))


def _text(number: Decimal) -> str:
    return f"{_ROUNDED.normalize(number):f}" if number else "0"


def _number_size(text: str) -> int:
    """A byte for each pair of digits, counted from the decimal point, without pairs of zeros at the ends; one more, and
    one for the sign."""
    digits = text.lstrip("-")
    whole, _, fraction = digits.partition(".")
    if fraction:
        fraction += "0" * (len(fraction) % 2)
        zeros = 0 if whole.strip("0") else len(fraction) - len(fraction.lstrip("0"))
        pairs = (len(whole.lstrip("0")) + 1) // 2 + len(fraction) // 2 - zeros // 2
    else:
        zeros = len(whole) - len(whole.rstrip("0"))
        pairs = (len(whole) + 1) // 2 - zeros // 2 if zeros < len(whole) else 0
    return 1 + pairs + text.startswith("-")


def comparable(value: Value) -> Any:
    """What values of one type compare by."""
    ((kind, content),) = value.items()
    return Decimal(content) if kind == "N" else content


def key_bytes(value: Value | None, kind: str, name: str, *, is_hash: bool) -> bytes:
    """A key attribute as bytes, which sort as DynamoDB sorts the values. Raises Refused."""
    if value is None:
        raise invalid(f"Missing the key {name} in the item")
    found = next(iter(value), "")
    if found != kind:
        raise invalid(f"Type mismatch for key {name} expected: {kind} actual: {found}")
    if kind == "N":
        return _number_key(value["N"])
    content: bytes = value["S"].encode() if kind == "S" else bytes(value["B"])
    if not content:
        what = "string" if kind == "S" else "binary"
        raise invalid(
            f"The AttributeValue for a key attribute cannot contain an empty {what} value. Key: {name}"
        )
    which, most = ("hashkey", 2048) if is_hash else ("rangekey", 1024)
    if len(content) > most:
        raise invalid(f"Size of {which} has exceeded the maximum size limit of{most} bytes")
    return content


def _number_key(text: str) -> bytes:
    """Sign, magnitude, digits; of a negative number each byte's complement."""
    sign, digits, exponent = Decimal(text).as_tuple()
    if not any(digits):
        return b"\x80"
    assert isinstance(exponent, int), "stored numbers are finite"
    magnitude = len(digits) + exponent + 0x4000
    body = magnitude.to_bytes(2, "big") + bytes(digit + 1 for digit in digits).rstrip(b"\x01")
    if sign:
        return b"\x7f" + bytes(0xFF - byte for byte in body) + _HIGHEST
    return b"\x81" + body


def behind_prefix(prefix: bytes) -> bytes | None:
    """The first bytes that sort behind all that begin with `prefix`; None: nothing does."""
    stem = prefix.rstrip(_HIGHEST)
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
