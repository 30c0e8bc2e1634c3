"""Texts that leave us and come back: receipts and page tokens, signed so that a changed byte shows."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

_TAG_BYTES = 12


def seal(key: bytes, purpose: str, text: str) -> str:
    """Sign `text` for one purpose and make it URL-safe."""
    payload = text.encode()
    return base64.urlsafe_b64encode(_tag(key, purpose, payload) + payload).rstrip(b"=").decode()


def open_sealed(key: bytes, purpose: str, sealed: str) -> str | None:
    """The text that was sealed for this purpose; None if one byte of it was changed."""
    try:
        raw = base64.b64decode(sealed + "=" * (-len(sealed) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    tag, payload = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(key, purpose, payload)):
        return None
    canonical = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()  # the last character has spare bits
    return payload.decode() if canonical == sealed else None


def _tag(key: bytes, purpose: str, payload: bytes) -> bytes:
    keyed = hashlib.blake2b(purpose.encode() + b"\0" + payload, key=key, digest_size=_TAG_BYTES)
    return keyed.digest()  # keyed BLAKE2 is a MAC (RFC 7693), in a third of HMAC's time


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a consumer shows to settle one delivery: the lease's token and the offset it was granted."""

    group_uid: str
    consumer_uid: str
    shard: int
    offset: int
    token: str
    max_attempts: int


def seal_receipt(key: bytes, receipt: Receipt) -> str:
    """The receipt as the consumer gets it."""
    fields = (receipt.group_uid, receipt.consumer_uid, receipt.shard, receipt.offset, receipt.token)
    return seal(key, "receipt", "|".join(map(str, (*fields, receipt.max_attempts))))


def open_receipt(key: bytes, text: str) -> Receipt | None:
    """The receipt; None if it is not one of ours."""
    opened = open_sealed(key, "receipt", text)
    if opened is None:
        return None
    group_uid, consumer_uid, shard, offset, token, max_attempts = opened.split("|")
    return Receipt(group_uid, consumer_uid, int(shard), int(offset), token, int(max_attempts))
