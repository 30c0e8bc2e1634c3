"""A named request: sent again after a lost answer, it is known by what it wrote.

Nothing is stored beside its rows. The request id of each row it writes is made of its name and the row's place, so
whoever knows the name can tell which rows near the end of a shard are its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from .ids import REQUEST_ID_CHARS, base32
from .segment import Segment, ShardKey
from .sharding import shard_of

NAME = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_MARK_CHARS = 8  # 40 bits: and content has to agree, too
_CONTENT_CHARS = REQUEST_ID_CHARS - _MARK_CHARS


@dataclass(frozen=True, slots=True)
class Request:
    """A request to produce, by the name that its sender gave it. `window_ms` says how long ago it was sent first, if
    this is not the first time."""

    name: str
    window_ms: int | None = None

    def shard(self, shards: int) -> int:
        """Where what has no shard of its own goes, every time: what stands before the last "-" of the name says it, so
        one sender keeps to one shard."""
        return shard_of(self.name.rpartition("-")[0] or self.name, shards)

    def row_id(self, key: ShardKey, first: int, contents: Iterable[str]) -> str:
        """The request id of its row at this place. Rows with other contents have other ids."""
        return self._mark(key, first) + _digits("\0".join(contents), _CONTENT_CHARS)

    def wrote(self, key: ShardKey, segment: Segment) -> bool:
        """Is this row its own?"""
        return segment.request_id.startswith(self._mark(key, segment.first))

    def _mark(self, key: ShardKey, first: int) -> str:
        return _digits(f"{self.name}\0{key}\0{first}", _MARK_CHARS)


def _digits(text: str, chars: int) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return base32(int.from_bytes(digest, "big") >> (64 - 5 * chars)).zfill(chars)
