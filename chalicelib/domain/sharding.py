"""Which shard a message goes to, and which messages it is ordered with."""

from __future__ import annotations

import base64
import hashlib


def shard_of(ordering_key: str, shards: int) -> int:
    """`hash(ordering_key) mod shards`, the same in every process and release."""
    digest = hashlib.blake2b(ordering_key.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % shards


def first_shard(topic_uid: str, shards: int) -> int:
    """The shard where appends without a key begin: the same for all processes, so that single messages lie in one shard
    and are shared by its consumers, whichever process stores them. A writer that meets conflicts there moves to another
    shard."""
    return shard_of(topic_uid, shards)


def order_unit(ordering_key: str | None, shard: int | None) -> str | None:
    """The unit of order of a delayed message: its key, or its shard; None if it has neither."""
    if ordering_key is not None:
        return f"key {ordering_key}"
    return None if shard is None else f"shard {shard}"


def unit_of(ordering_key: str | None, tenant: str | None) -> str:
    """The short name of a message's unit of order in a cursor, the tenant's if it has one: "-" for the shard itself.

    24 bits in four characters: two keys of one shard that share a name wait for each other, which is slower
    but never wrong.
    """
    if ordering_key is None and tenant is None:
        return "-"
    name = ordering_key if tenant is None else f"{tenant}\0{ordering_key or ''}"
    digest = hashlib.blake2b(str(name).encode(), digest_size=3).digest()
    return base64.urlsafe_b64encode(digest).decode()
