"""Signed texts that clients send back (receipts, page tokens): any change is detected. Who holds a sealed one
cannot read it, either."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, replace

_TAG_BYTES = 12


def sign(key: bytes, purpose: str, text: str) -> str:
    """Sign `text` for one purpose and make it URL-safe."""
    payload = text.encode()
    return _encoded(_tag(key, purpose, payload) + payload)


def verified(key: bytes, purpose: str, text: str) -> str | None:
    """The text that was signed for this purpose; None if any byte was changed."""
    raw = _decoded(text)
    tag, payload = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
    return payload.decode() if hmac.compare_digest(tag, _tag(key, purpose, payload)) else None


def sealed(key: bytes, purpose: str, text: str) -> str:
    """The same as `sign`, but without the key nothing of the text can be read except its length."""
    payload = text.encode()
    tag = _tag(key, purpose, payload)
    return _encoded(tag + _masked(key, tag, payload))


def opened(key: bytes, purpose: str, text: str) -> str | None:
    """The text that was sealed for this purpose; None if any byte was changed."""
    raw = _decoded(text)
    tag, payload = raw[:_TAG_BYTES], _masked(key, raw[:_TAG_BYTES], raw[_TAG_BYTES:])
    return payload.decode() if hmac.compare_digest(tag, _tag(key, purpose, payload)) else None


def derived(key: bytes, purpose: str, text: str) -> bytes:
    """A 32-byte secret for one purpose and one text, always the same; the key cannot be computed from it."""
    return hmac.digest(key, f"{purpose}\0{text}".encode(), "sha256")


def _tag(key: bytes, purpose: str, payload: bytes) -> bytes:
    digest = hashlib.blake2b(purpose.encode() + b"\0" + payload, key=key, digest_size=_TAG_BYTES)
    return digest.digest()  # keyed BLAKE2 is a MAC (RFC 7693), in a third of HMAC's time


def _masked(key: bytes, tag: bytes, payload: bytes) -> bytes:
    """The payload under a mask, and out of it again. No other payload has this mask, since the tag chooses it: the form
    of RFC 5297."""
    mask = hashlib.shake_256(derived(key, "mask", tag.hex())).digest(len(payload))
    return bytes(a ^ b for a, b in zip(payload, mask, strict=True))


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """The bytes that are encoded so; none for any other text."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
    return raw if _encoded(raw) == text else b""  # the last character has spare bits


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret as hex; or encrypted as `ciphertext` (base64) with a `fingerprint`, a hash that is the same for
    the same secret. It is valid until `until_ms` (None: it is the present one)."""

    hex: str = ""
    until_ms: int | None = None
    ciphertext: str = ""
    fingerprint: str = ""

    def is_live(self, now_ms: int) -> bool:
        """Is it valid now?"""
        return self.until_ms is None or self.until_ms > now_ms


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The stage's signing keys: the present one, then those before it."""

    keys: tuple[Secret, ...]
    version: int = 0


def rotated(secrets: Sequence[Secret], new: Secret, now_ms: int, until_ms: int) -> tuple[Secret, ...]:
    """`new` as the present secret, followed by those that are still valid: until `until_ms`, or until their own earlier
    end."""
    former = [replace(old, until_ms=min(old.until_ms or until_ms, until_ms)) for old in secrets]
    return (replace(new, until_ms=None), *(old for old in former if old.is_live(now_ms)))
