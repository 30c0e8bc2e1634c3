"""Texts that leave us and come back: receipts and page tokens, signed so that a changed byte shows."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass

from . import ids

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


def derived(key: bytes, purpose: str, text: str) -> bytes:
    """A 32-byte secret for one purpose and one thing, always the same, from which nobody learns the key."""
    return hmac.digest(key, f"{purpose}\0{text}".encode(), "sha256")


def _tag(key: bytes, purpose: str, payload: bytes) -> bytes:
    keyed = hashlib.blake2b(purpose.encode() + b"\0" + payload, key=key, digest_size=_TAG_BYTES)
    return keyed.digest()  # keyed BLAKE2 is a MAC (RFC 7693), in a third of HMAC's time


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a consumer shows to settle one delivery: the lease's token, the message and its place in the topic.

    `entry` is its offset in the retry lane, if it was leased from there; `before` attempts were made before that
    entry, `spent` of them in earlier lives. `last_attempt` is the number of the last one it has.
    """

    group_uid: str
    consumer_uid: str
    id: str
    shard: int
    offset: int
    token: str
    last_attempt: int
    claimed_ms: int = 0
    entry: int | None = None
    before: int = 0
    spent: int = 0

    @property
    def leased(self) -> int:
        """The offset that the lease holds."""
        return self.offset if self.entry is None else self.entry


def seal_receipt(key: bytes, r: Receipt) -> str:
    """The receipt as the consumer gets it."""
    place = "" if ids.parse_message_id(r.id) else f"@{r.shard}@{r.offset}"
    text = f"{r.group_uid}|{r.consumer_uid}|{r.id}{place}|{r.token}|{r.last_attempt}|{r.claimed_ms}"
    return seal(key, "receipt", text if r.entry is None else f"{text}|{r.entry}|{r.before}|{r.spent}")


def open_receipt(key: bytes, text: str) -> Receipt | None:
    """The receipt; None if it is not one of ours."""
    opened = open_sealed(key, "receipt", text)
    if opened is None:
        return None
    group_uid, consumer_uid, id, token, last_attempt, claimed_ms, *lane = opened.split("|")
    _, shard, offset = ids.parse_message_id(id) or id.split("@")
    id = id.partition("@")[0]
    numbers = map(int, (last_attempt, claimed_ms, *lane))
    return Receipt(group_uid, consumer_uid, id, int(shard), int(offset), token, *numbers)
