"""A named request: when it is sent again after a lost answer, the rows of its first try are recognised.

Nothing is stored but its rows. The request id of each row is computed from the request's name and the row's offset, so
that the rows of a name can be recognised near the end of a shard.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from .ids import REQUEST_ID_CHARS, base32
from .limits import RESEND_SLACK_MS
from .segment import Segment, ShardKey
from .sharding import shard_of

SLACK_MS = RESEND_SLACK_MS
NAME = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_PREFIX_CHARS = 8  # 40 bits; the content has to agree, too
_CONTENT_CHARS = REQUEST_ID_CHARS - _PREFIX_CHARS


@dataclass(frozen=True, slots=True)
class Request:
    """A produce request with the name that its sender gave it. `since_ms` is set when it is sent again: when, by
    the service's clock, it may have been sent first."""

    name: str
    since_ms: int | None = None

    def may_have_stored(self, accepted_ms: int) -> bool:
        """May an earlier try of it have stored a message that was accepted then?"""
        return self.since_ms is not None and accepted_ms >= self.since_ms - SLACK_MS

    def shard(self, shards: int) -> int:
        """The shard of its messages without an ordering key, the same at every try: a hash of the name up to its last
        "-", so that one sender uses one shard."""
        return shard_of(self.name.rpartition("-")[0] or self.name, shards)

    def row_id(self, key: ShardKey, first: int, contents: Iterable[str]) -> str:
        """The request id of its row at this offset. It depends on the contents, too."""
        return self._prefix(key, first) + _digits("\0".join(contents), _CONTENT_CHARS)

    def wrote(self, key: ShardKey, segment: Segment) -> bool:
        """Was this row written by the request?"""
        return segment.request_id.startswith(self._prefix(key, segment.first))

    def _prefix(self, key: ShardKey, first: int) -> str:
        return _digits(f"{self.name}\0{key}\0{first}", _PREFIX_CHARS)


def _digits(text: str, chars: int) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return base32(int.from_bytes(digest, "big") >> (64 - 5 * chars)).zfill(chars)
