"""How messages and attempts are written inside a row: a JSON array, compressed where that is smaller. And the one
decoder of rows (`decoded`), which says which row cannot be read."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from ..domain import strict_json
from ..domain.append import Pack
from ..domain.call_result import Answer
from ..domain.errors import Unreadable
from ..domain.limits import COMPRESS_ABOVE_BYTES, MAX_RECEIVE, MAX_SEGMENT_BYTES
from ..domain.message import JSON, Act, DeadReason, Draft, Firing, Origin
from ..domain.trace import TraceEntry
from .attributes import Item
from .layout import CONTROL_FORMAT, FORMAT, KEYS

T = TypeVar("T")
_COMPRESSION_LEVEL = 3
_MOST_RAW_BYTES = 200_000  # base64 of them fits a dead letter
# What it may raise to read a row that is not as it was written. (msgspec's errors are ValueErrors.)
_DAMAGE = (AttributeError, LookupError, TypeError, ValueError, zlib.error)


def decoded(table: str, item: Item, decode: Callable[[Item], T]) -> T:
    """What `decode` makes of a row of this table (its name in layout.KEYS). Raises Unreadable if the row is damaged, or
    has a newer format."""
    newest = CONTROL_FORMAT if table == "control" else int(FORMAT)
    try:
        if "v" not in item or int(item["v"]["N"]) <= newest:
            return decode(item)
    except _DAMAGE as error:
        raise Unreadable(table, _key(table, item)) from error
    raise Unreadable(table, _key(table, item))


def _key(table: str, item: Item) -> str:
    return " ".join(str(item.get(name, {}).get(kind, "?")) for name, kind in KEYS[table].items())


def _as(name: str, default: Any = None) -> Any:
    return msgspec.field(name=name, default=default)


class Wire(msgspec.Struct, omit_defaults=True):
    """One message as stored, under short names. Its body is in one of `b` (JSON value), `t` (text), `x` (base64), or
    the blob. All fields but these, `i`, `m` and `sf` are a draft's."""

    b: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    t: str | None = None
    x: str | None = None
    i: tuple[Any, ...] | None = None  # the fields of its Origin
    m: tuple[tuple[Any, ...], ...] = ()  # what was done to it: the fields of each Act
    sf: tuple[Any, ...] | None = None  # the fields of its Firing
    blob: str | None = _as("u")
    blob_bytes: int = _as("s", 0)
    content_type: str = _as("c", JSON)
    is_json: bool = _as("j", True)
    keys: tuple[str, ...] = _as("k", ())
    tag: str | None = _as("g")
    ordering_key: str | None = _as("o")
    headers: dict[str, str] = _as("h", {})
    expires_ms: int | None = _as("e")
    max_attempts: int | None = _as("a")
    ladder: tuple[int, ...] | None = _as("w")
    jitter: float | None = _as("f")
    steps_from: str | None = _as("wf")
    id: str | None = _as("n")
    dead_reason: str | None = _as("d")
    changed_ms: int | None = _as("y")
    cancelled: bool = _as("q", False)
    target_group_uid: str | None = _as("r")
    accepted_ms: int | None = _as("z")
    due_ms: int | None = _as("l")
    by: str = _as("p", "")
    sent_ms: int | None = _as("v")
    job: str | None = _as("jb")
    redact: tuple[str, ...] = _as("rp", ())
    priority: int | None = _as("pr")
    callback_url: str | None = _as("cu")
    tenant: str | None = _as("tn")


_SAME = Wire.__struct_fields__[6:]
_same_values = attrgetter(*_SAME)


class _Run(msgspec.Struct, array_like=True):
    """Neighbours with one result."""

    start: int
    count: int
    attempt: int
    outcome: str
    duration_ms: int
    detail: str
    answer: Answer | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Wire])
_runs = msgspec.json.Decoder(list[_Run])
_answer = msgspec.json.Decoder(Answer)
_result = attrgetter("attempt", "outcome", "duration_ms", "detail", "answer")  # what a run stores of an entry


def encode(draft: Draft) -> bytes:
    """One message as JSON."""
    fields: dict[str, Any] = dict(zip(_SAME, _same_values(draft), strict=True)) | _body(draft)
    fields["headers"] = dict(draft.headers)
    fields["i"] = astuple(draft.origin) if draft.origin else None
    fields["sf"] = astuple(draft.firing) if draft.firing else None
    return _encoder.encode(Wire(**fields, m=tuple(map(astuple, draft.acts))))


def _body(draft: Draft) -> dict[str, Any]:
    if draft.blob or (draft.origin and not draft.origin.whole):
        return {}
    if draft.is_json:
        return {"b": msgspec.Raw(draft.body)}
    try:
        readable = draft.body.decode()
    except UnicodeDecodeError:
        return {"x": base64.b64encode(draft.body).decode()}
    if len(_encoder.encode(readable)) > len(draft.body) * 4 // 3:  # escapes cost more than base64
        return {"x": base64.b64encode(draft.body).decode()}
    return {"t": readable}


def _draft(wire: Wire) -> Draft:
    body = b""
    origin = _from_tuple(Origin, wire.i) if wire.i else None
    if isinstance(wire.b, msgspec.Raw):
        body = bytes(wire.b)
    elif wire.t is not None:
        body = wire.t.encode()
    elif wire.x is not None:
        body = base64.b64decode(wire.x, validate=True)
    elif wire.blob is None and (origin is None or origin.whole):
        raise ValueError("no body")
    acts = tuple(_from_tuple(Act, values) for values in wire.m)
    same = dict(zip(_SAME, _same_values(wire), strict=True))
    firing = _from_tuple(Firing, wire.sf) if wire.sf else None
    return Draft(body=body, origin=origin, acts=acts, firing=firing, **same)


def pack(drafts: Sequence[Draft], *, whole: bool = False) -> Pack:
    """Encode the first of the drafts, as many as fit one segment (at least one; with `whole`, all of them)."""
    parts: list[bytes] = []
    size = 0
    for draft in drafts:
        text = encode(draft)
        size += len(text) + 1
        if parts and size > MAX_SEGMENT_BYTES and not whole:
            break
        parts.append(text)
    packed_drafts = tuple(drafts[: len(parts)])
    plain = b"[" + b",".join(parts) + b"]"
    payload = _smaller(plain)
    return Pack(packed_drafts, payload, len(payload) if isinstance(payload, bytes) else len(plain))


def unpack(payload: bytes | str) -> tuple[Draft, ...]:
    """The drafts of a stored payload; for `decoded` to call."""
    return tuple(_draft(wire) for wire in _decoder.decode(_decompressed(payload)))


def messages(payload: bytes | str | None, count: int) -> tuple[Draft, ...]:
    """The drafts of a payload that has `count`. If it cannot be read, all of them are UNDECODABLE: each becomes a dead
    letter, and the first has the stored bytes as its body."""
    try:
        drafts = unpack(payload or "")
    except _DAMAGE:
        drafts = ()
    return drafts if len(drafts) == count else (_undecodable(payload), *(count - 1) * (_undecodable(None),))


def _undecodable(payload: object) -> Draft:
    raw = payload if isinstance(payload, bytes) else str(payload or "").encode()
    kind = "application/octet-stream"
    return Draft(raw[:_MOST_RAW_BYTES], is_json=False, content_type=kind, dead_reason=DeadReason.UNDECODABLE)


def _from_tuple(kind: type[T], values: Sequence[Any]) -> T:
    """The inverse of `astuple`."""
    names = (each.name for each in fields(kind))  # type: ignore[arg-type]
    return strict_json.converted(dict(zip(names, values, strict=False)), kind)


def pack_entries(attempts: Sequence[TraceEntry]) -> bytes | str:
    """Encode attempts in order of offset; neighbours with the same result are one run."""
    runs = []
    for (_, *result), run in groupby(enumerate(attempts), lambda nt: (nt[1].offset - nt[0], *_result(nt[1]))):
        members = [t for _, t in run]
        start = members[0].offset - attempts[0].offset
        runs.append((start, len(members), *(result if result[-1] else result[:-1])))
    return _smaller(_encoder.encode(runs))


def unpack_entries(payload: bytes | str, first: int) -> tuple[TraceEntry, ...]:
    """The attempts of a stored payload whose first offset is `first`; for `decoded` to call."""
    runs = _runs.decode(_decompressed(payload))
    if sum(max(0, run.count) for run in runs) > 10 * MAX_RECEIVE:
        raise ValueError("no row covers so many attempts")
    starts = ((first + run.start, run) for run in runs)
    return tuple(TraceEntry(start + n, *_result(run)) for start, run in starts for n in range(run.count))


def encode_answer(answer: Answer | None) -> str | None:
    """A subscriber's answer as a record has it."""
    return _encoder.encode(answer).decode() if answer else None


def answer_of(stored: str | None) -> Answer | None:
    """The answer in a record; for `decoded` to call."""
    return _answer.decode(stored) if stored else None


def _smaller(plain: bytes) -> bytes | str:
    """The text, or its compressed form if that is shorter."""
    if len(plain) > COMPRESS_ABOVE_BYTES:
        compressed_text = zlib.compress(plain, _COMPRESSION_LEVEL)
        if len(compressed_text) < len(plain):
            return compressed_text
    return plain.decode()


def _decompressed(payload: bytes | str) -> bytes | str:
    return zlib.decompress(payload) if isinstance(payload, bytes) else payload
