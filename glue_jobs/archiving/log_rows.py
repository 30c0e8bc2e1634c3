"""Rows of the log table, decoded into lines of the journal (chalicelib/store/layout.py, docs/journal.md).

A second reading of the format, on purpose: it shares no code with the service that writes it, and a fixture holds both
to the same lines.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from glue_jobs.common.schemas import LATEST_MS

MOST_OFFSETS = 10_000
"""Of a row; the service writes far fewer."""
_NUMBERS = {"v", "shard", "offset", "edition", "accepted_ms", "attempt", "started_ms", "duration_ms"}
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_DECODER = json.JSONDecoder()
Item = Mapping[str, Mapping[str, Any]]


def time_of(item: Item) -> int:
    """When a row's messages were accepted, or its attempts began, in ms. Raises ValueError where it is none that they
    can have."""
    at_ms = int(item["a"]["N"])
    if not 0 <= at_ms < LATEST_MS:
        raise ValueError(f"its time is {at_ms} ms")
    return at_ms


def lines_of(item: Item) -> Iterator[tuple[str, str, str]]:
    """Day, hour and line of each offset of a row, in boto3's form."""
    accepted_ms = time_of(item)
    for line in _lines(item, accepted_ms):
        yield encode_line(line, accepted_ms)


def encode_line(line: Mapping[str, Any], at_ms: int) -> tuple[str, str, str]:
    """Day, hour and text of a line. Raises ValueError where a field is of another type than it should be."""
    for name, value in line.items():
        if not _is_sound(name, value):
            raise ValueError(f"{name} is {value!r:.80}")
    day, hour = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H").split()
    return day, hour, json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _is_sound(name: str, value: Any) -> bool:
    if name in _NUMBERS:
        return type(value) is int
    if name == "keys":
        return isinstance(value, list) and all(isinstance(key, str) for key in value)
    if name == "headers":
        return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    return isinstance(value, str)


def _lines(item: Item, accepted_ms: int) -> Iterator[dict[str, Any]]:
    topic, _, life_and_shard = item["s"]["S"].partition(":")
    topic_uid, _, shard = life_and_shard.rpartition("/")
    first, count = int(item["o"]["N"]), int(item["n"]["N"])
    if not 0 < count <= MOST_OFFSETS:
        raise ValueError(f"{count} offsets")
    wires = wires_of(item)
    for number in range(count):
        line = {
            "v": 1,
            "topic": topic,
            "topic_uid": topic_uid,
            "shard": int(shard),
            "offset": first + number,
            "edition": int(item["e"]["N"]) if "e" in item else 0,
            "accepted_ms": accepted_ms,
        }
        if not wires:
            yield {**line, "void": "tombstone"}
            continue
        own = json.loads(wires[number].get("n", "null"))
        id_ = own or f"{item['r']['S']}-{_base32(int(shard))}-{_base32(first + number)}"
        yield {**line, "id": id_, **_content(wires[number])}


def wires_of(item: Item) -> list[dict[str, str]]:
    """The messages of a row as they are stored: the text of each field, by its short name. A tombstone has none."""
    return list(_wires(plain(item["m"]))) if "m" in item else []


def plain(payload: Mapping[str, Any]) -> str:
    """The text in an attribute, which may be compressed."""
    if "S" in payload:
        return str(payload["S"])
    return zlib.decompress(bytes(payload["B"])).decode()


def _content(wire: Mapping[str, str]) -> dict[str, Any]:
    if wire.get("q") == "true":
        return {"void": "cancelled"}
    fields = {
        "tag": json.loads(wire.get("g", "null")),
        "tenant": json.loads(wire.get("tn", "null")),
        "keys": json.loads(wire.get("k", "[]")),
        "ordering_key": json.loads(wire.get("o", "null")),
        "headers": json.loads(wire.get("h", "{}")),
        "content_type": json.loads(wire.get("c", '"application/json"')),
        "body": wire.get("b") or json.loads(wire.get("t", "null")),
        "body_base64": json.loads(wire.get("x", "null")),
        "body_blob": json.loads(wire.get("u", "null")),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _wires(array: str) -> Iterator[dict[str, str]]:
    """The objects of an array, each value as the text it is: a body must not change by being read."""
    at = 1
    while array[at] != "]":
        fields: dict[str, str] = {}
        at += array[at] == ","
        while array[at] != "}":
            name, colon = _DECODER.raw_decode(array, at + 1)
            _, end = _DECODER.raw_decode(array, colon + 1)
            fields[name] = array[colon + 1 : end]
            at = end
        yield fields
        at += 1


def number_of(text: str) -> int:
    """A number as it is written in an id."""
    return reduce(lambda number, digit: number * 32 + _ALPHABET.index(digit), text, 0)


def _base32(number: int) -> str:
    digits = _ALPHABET[number & 31]
    while number := number >> 5:
        digits = _ALPHABET[number & 31] + digits
    return digits
