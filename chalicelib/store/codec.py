"""How messages and attempts are written inside a row: a JSON array, compressed where that is smaller."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from dataclasses import astuple, replace
from itertools import groupby
from typing import Any

import msgspec

from ..domain.limits import COMPRESS_ABOVE_BYTES, MAX_SEGMENT_BYTES
from ..domain.message import JSON, Act, Draft, Origin
from ..domain.trace import Tried
from ..ports import Pack

_COMPRESSION_LEVEL = 3


class Wire(msgspec.Struct, omit_defaults=True):
    """One message as stored. Its body stands in one of `b` (JSON value), `t` (text), `x` (base64), `u` (blob)."""

    b: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    t: str | None = None
    x: str | None = None
    u: str | None = None
    s: int = 0  # bytes of the blob
    c: str = JSON
    j: bool = True  # the body is a JSON value
    k: tuple[str, ...] = ()
    g: str | None = None
    o: str | None = None
    h: dict[str, str] = {}
    e: int | None = None
    a: int | None = None
    w: tuple[int, ...] | None = None  # its own ladder
    f: float | None = None  # and jitter
    i: tuple[Any, ...] | None = None  # the fields of its Origin
    n: str | None = None  # its own id
    d: str | None = None  # why it is a dead letter from the start
    y: int | None = None  # when it was changed in the log
    q: bool = False  # cancelled
    r: str | None = None  # uid of the one group that gets it
    z: int | None = None  # when it was accepted, where that was before its row
    l: int | None = None  # noqa: E741 - when it was due
    p: str = ""  # id of the token it was produced with, where its row does not tell
    m: tuple[tuple[Any, ...], ...] = ()  # what was done to it: the fields of each Act


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Wire])
_runs = msgspec.json.Decoder(list[tuple[int, int, int, str, int, str]])


def encode(draft: Draft) -> bytes:
    """One message as JSON."""
    return _encoder.encode(
        Wire(
            **_body(draft),
            u=draft.blob,
            s=draft.blob_bytes,
            c=draft.content_type,
            j=draft.is_json,
            k=draft.keys,
            g=draft.tag,
            o=draft.ordering_key,
            h=dict(draft.headers),
            e=draft.expires_ms,
            a=draft.max_attempts,
            w=draft.ladder,
            f=draft.jitter,
            i=astuple(draft.origin) if draft.origin else None,
            n=draft.id,
            d=draft.dead,
            y=draft.changed_ms,
            q=draft.cancelled,
            r=draft.only,
            z=draft.accepted_ms,
            l=draft.due_ms,
            p=draft.by,
            m=tuple(astuple(act) for act in draft.acts),
        )
    )


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
    if isinstance(wire.b, msgspec.Raw):
        body = bytes(wire.b)
    elif wire.t is not None:
        body = wire.t.encode()
    elif wire.x is not None:
        body = base64.b64decode(wire.x)
    return Draft(
        body=body,
        is_json=wire.j,
        content_type=wire.c,
        keys=wire.k,
        tag=wire.g,
        ordering_key=wire.o,
        headers=wire.h,
        expires_ms=wire.e,
        max_attempts=wire.a,
        ladder=wire.w,
        jitter=wire.f,
        blob=wire.u,
        blob_bytes=wire.s,
        origin=Origin(*wire.i) if wire.i else None,
        id=wire.n,
        dead=wire.d,
        changed_ms=wire.y,
        cancelled=wire.q,
        only=wire.r,
        accepted_ms=wire.z,
        due_ms=wire.l,
        by=wire.p,
        acts=tuple(Act(*fields) for fields in wire.m),
    )


def pack(drafts: Sequence[Draft], *, whole: bool = False) -> Pack:
    """Encode the first of the drafts, as many as fit one segment (at least one; with `whole`, all of them)."""
    encoded: list[bytes] = []
    size = 0
    for draft in drafts:
        text = encode(draft)
        size += len(text) + 1
        if encoded and size > MAX_SEGMENT_BYTES and not whole:
            break
        encoded.append(text)
    held = tuple(drafts[: len(encoded)])
    plain = b"[" + b",".join(encoded) + b"]"
    payload = _smaller(plain)
    return Pack(held, payload, len(payload) if isinstance(payload, bytes) else len(plain))


def unpack(payload: bytes | str) -> tuple[Draft, ...]:
    """The drafts of a stored payload."""
    return tuple(_draft(wire) for wire in _decoder.decode(_plain(payload)))


def stored(draft: Draft) -> Draft:
    """The draft as a row gives it back."""
    return unpack(pack([draft]).payload)[0]


def pack_tried(tried: Sequence[Tried]) -> bytes | str:
    """Encode attempts, whose offsets rise: neighbours that ended alike as one run."""
    runs = []
    for alike, run in groupby(enumerate(tried), lambda nt: replace(nt[1], offset=nt[1].offset - nt[0])):
        members = [t for _, t in run]
        start = members[0].offset - tried[0].offset
        runs.append((start, len(members), *astuple(alike)[1:]))
    return _smaller(_encoder.encode(runs))


def unpack_tried(payload: bytes | str, first: int) -> tuple[Tried, ...]:
    """The attempts of a stored payload whose first offset is `first`."""
    return tuple(
        Tried(offset, attempt, outcome, duration_ms, detail)
        for start, count, attempt, outcome, duration_ms, detail in _runs.decode(_plain(payload))
        for offset in range(first + start, first + start + count)
    )


def _smaller(plain: bytes) -> bytes | str:
    """The text, or what it compresses to where that is shorter."""
    if len(plain) > COMPRESS_ABOVE_BYTES:
        packed = zlib.compress(plain, _COMPRESSION_LEVEL)
        if len(packed) < len(plain):
            return packed
    return plain.decode()


def _plain(payload: bytes | str) -> bytes | str:
    return zlib.decompress(payload) if isinstance(payload, bytes) else payload
