"""From the journal's objects to columns. What is not as the service writes it is left to Spark, which is lenient."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from glue_jobs.archiving.engine import Unusual
from glue_jobs.common.bucket import Entry
from glue_jobs.common.manifest import TooNew
from glue_jobs.common.schemas import DELIVERIES, JOURNAL_VERSION, MESSAGES

_AT_ONCE = 300_000  # bytes of compressed objects that are read together: their lines fit a processor's cache
_MOST_BYTES = 1 << 30  # of lines in them
_READERS = 8  # objects that are under way at once
_HEADERS = b'"headers":{'
_PLACE = ("topic", "topic_uid", "shard", "offset")

Pairs = list[tuple[str, str | None]]
HEADERS = pa.map_(pa.string(), pa.string())
_text, _int, _long = pa.string(), pa.int32(), pa.int64()
LINES = {
    MESSAGES: pa.schema(
        {
            "v": _int,
            "topic": _text,
            "topic_uid": _text,
            "shard": _int,
            "offset": _long,
            "id": _text,
            "edition": _long,
            "accepted_ms": _long,
            "tag": _text,
            "keys": pa.list_(_text),
            "ordering_key": _text,
            "headers": pa.struct([]),  # Arrow has no maps in JSON: it tells whether there are headers
            "content_type": _text,
            "body": _text,
            "body_base64": _text,
            "body_blob": _text,
            "void": _text,
        }
    ),
    DELIVERIES: pa.schema(
        {
            "v": _int,
            "topic": _text,
            "topic_uid": _text,
            "group": _text,
            "group_uid": _text,
            "shard": _int,
            "offset": _long,
            "attempt": _int,
            "consumer": _text,
            "consumer_uid": _text,
            "started_ms": _long,
            "duration_ms": _long,
            "outcome": _text,
            "detail": _text,
            "trace": _text,
        }
    ),
}
"""The journal's lines as Arrow reads them (common/schemas.py has them as Spark does)."""


@contextmanager
def only_usual() -> Iterator[None]:
    """What Arrow can't make sense of is Unusual."""
    try:
        yield
    except (pa.ArrowException, EOFError, zlib.error, gzip.BadGzipFile, binascii.Error, UnicodeError) as error:
        raise Unusual(str(error).partition("\n")[0]) from error


def batches(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The objects in groups that are worth a task."""
    groups: list[list[Entry]] = []
    size = _AT_ONCE
    for entry in entries:
        if size + entry.size > _AT_ONCE:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += entry.size
    return groups


def read(table: str, day: str, entries: Iterable[Entry], get: Callable[[str], bytes | None]) -> pa.Table:
    """The lines of some objects. Raises Unusual, TooNew."""
    with only_usual():
        text = _text_of([entry.name for entry in entries], get)
        lines = _parse(text, LINES[table])
        if (pc.max(lines["v"]).as_py() or 0) > JOURNAL_VERSION:
            raise TooNew(f"The journal of {day} was written by a newer Headrace: update the jobs.")
        if any(lines[name].null_count for name in _PLACE):
            raise Unusual("A line does not say where it belongs.")
        return _message_lines(lines, text) if table == MESSAGES else lines


def _text_of(names: Sequence[str], get: Callable[[str], bytes | None]) -> bytes:
    with ThreadPoolExecutor(min(_READERS, len(names))) as readers:
        contents = list(readers.map(get, names))
    parts, size = [], 0
    for name, content in zip(names, contents, strict=True):
        if content is None:
            raise Unusual(f"{name} went meanwhile.")
        part = gzip.decompress(content)
        parts.append(part if part.endswith(b"\n") or not part else part + b"\n")
        size += len(part)
        if size > _MOST_BYTES:
            raise Unusual(f"{name} holds too much for one look.")
    return b"".join(parts)


def _parse(text: bytes, schema: pa.Schema) -> pa.Table:
    if not text:
        return schema.empty_table()
    if not text.isascii():
        text.decode()
    count = text.count(b"\n")
    # by a null before all objects Arrow's process dies
    if text.startswith(b"{") + text.count(b"\n{") != count:
        raise Unusual("A line of the journal is no object of JSON.")
    lines = pyarrow.json.read_json(
        pa.BufferReader(text),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if lines.num_rows != count:
        raise Unusual("A line of the journal is not one line of JSON.")
    return lines


def _message_lines(lines: pa.Table, text: bytes) -> pa.Table:
    """With headers as maps, and bodies as bytes."""
    headers = _headers(lines, text)
    body = lines["body"].combine_chunks().cast(pa.binary())
    base64_bodies = lines["body_base64"].combine_chunks()
    if base64_bodies.null_count < len(base64_bodies):
        body = pc.coalesce(body, _decode_base64(base64_bodies))
    bare = lines.drop_columns(["v", "body_base64"])
    bare = bare.set_column(bare.schema.get_field_index("headers"), "headers", headers)
    return bare.set_column(bare.schema.get_field_index("body"), "body", body)


def _decode_base64(texts: pa.Array) -> pa.Array:
    values = (None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist())
    return pa.array(values, pa.binary())


def _headers(lines: pa.Table, text: bytes) -> pa.Array:
    """The headers of each line, none where it has none."""
    has_headers = lines["headers"].is_valid().to_numpy()
    pieces = text.split(_HEADERS)
    is_plain = len(pieces) - 1 == text.count(b'"headers"') == int(has_headers.sum()) and _belong(
        pieces, has_headers, text
    )
    values: list[Pairs] = [[]]
    codes = _codes(pieces[1:], values) if is_plain else _codes_one_by_one(text, values)
    places = np.zeros(lines.num_rows, np.int64)
    places[has_headers] = codes
    return pa.array(values, HEADERS).take(pa.array(places))


def _codes(pieces: Sequence[bytes], values: list[Pairs]) -> list[int]:
    """Where the headers, with whose first name each piece begins, stand in `values`, to which they are added."""
    places: dict[bytes, int] = {}
    codes = []
    for piece in pieces:
        short = piece[: piece.find(b"}") + 1]
        code = places.get(short)
        if code is None:
            code = len(values)
            try:
                values.append(_usual_headers(json.loads(b"{" + short, object_pairs_hook=list)))
                places[short] = code
            except ValueError:  # a brace within a value
                line = "{" + piece.partition(b"\n")[0].decode()
                values.append(_usual_headers(json.JSONDecoder(object_pairs_hook=list).raw_decode(line)[0]))
        codes.append(code)
    return codes


def _codes_one_by_one(text: bytes, values: list[Pairs]) -> list[int]:
    """The same for lines that somebody else wrote."""
    first = len(values)
    for line in text.split(b"\n"):
        fields = dict(json.loads(line, object_pairs_hook=list)) if line.strip() else {}
        if fields.get("headers") is not None:
            values.append(_usual_headers(fields["headers"]))
    return list(range(first, len(values)))


def _belong(pieces: Sequence[bytes], has_headers: npt.NDArray[np.bool_], text: bytes) -> bool:
    """Do the headers that stand in the text belong to the lines that have some?"""
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))[:-1] + len(_HEADERS)
    line_ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    rows = np.searchsorted(line_ends, np.cumsum(lengths) - len(_HEADERS))
    return np.array_equal(rows, np.flatnonzero(has_headers))


def _usual_headers(pairs: Any) -> Pairs:
    names = [name for name, _ in pairs]
    if len({*names}) < len(names) or not all(value is None or isinstance(value, str) for _, value in pairs):
        raise Unusual("A header's value is no text, or its name comes twice.")
    return list(pairs)
