"""Which shard a message goes to, and what its order is kept with."""

from __future__ import annotations

import base64
import hashlib


def shard_of(ordering_key: str, shards: int) -> int:
    """`hash(ordering_key) mod shards`, the same in every process and release."""
    digest = hashlib.blake2b(ordering_key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards


def first_shard(topic_uid: str, shards: int) -> int:
    """Where whoever has no keys begins to append: all processes at the same shard, so that single messages lie in one
    line, and go round its consumers, whichever process stores them. Who meets others there goes elsewhere."""
    return shard_of(topic_uid, shards)


def line_of(ordering_key: str | None, shard: int | None) -> str | None:
    """What a waiting message keeps its order with: its key, or its shard; None where it has neither."""
    if ordering_key is not None:
        return f"key {ordering_key}"
    return None if shard is None else f"shard {shard}"


def unit_of(ordering_key: str | None) -> str:
    """The short name of a message's unit of order in a cursor: "-" for the shard itself.

    24 bits in four characters: two keys of one shard that share a name wait for each other, which is slower
    but never wrong.
    """
    if ordering_key is None:
        return "-"
    digest = hashlib.blake2b(ordering_key.encode(), digest_size=3).digest()
    return base64.urlsafe_b64encode(digest).decode()
