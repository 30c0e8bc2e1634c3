"""Standard Webhooks (standardwebhooks.com): secrets and signatures of what we send."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Sequence

_PREFIX = "whsec_"
_MIN_BYTES, _MAX_BYTES = 24, 64


def parse_secret(text: str) -> bytes | str:
    """The bytes of a `whsec_` secret, or what is wrong with it."""
    wrong = f"must be {_PREFIX} and {_MIN_BYTES} to {_MAX_BYTES} bytes in base64"
    if not text.startswith(_PREFIX) or len(text) > 2 * _MAX_BYTES:
        return wrong
    try:
        secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return wrong
    fits = _MIN_BYTES <= len(secret) <= _MAX_BYTES and format_secret(secret) == text
    if fits and len(set(secret)) == 1:
        return "must be random: `whsec_$(openssl rand -base64 32)`"
    return secret if fits else wrong


def format_secret(secret: bytes) -> str:
    """A secret as its owner gets it."""
    return _PREFIX + base64.b64encode(secret).decode()


def sign(secrets: Sequence[bytes], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of a request: a signature by each secret. `timestamp` is in seconds since 1970."""
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_signature(secret, id, timestamp, body) for secret in secrets),
    }


def verify(secrets: Sequence[bytes], id: str, timestamp: int, body: bytes, signatures: str) -> bool:
    """Is one of the signatures by one of the secrets? Whether the timestamp is recent is the caller's to say."""
    candidates = [signature.encode() for signature in signatures.split(" ")]
    own_signatures = [_signature(secret, id, timestamp, body).encode() for secret in secrets]
    return any(hmac.compare_digest(one, other) for one in own_signatures for other in candidates)


def _signature(secret: bytes, id: str, timestamp: int, body: bytes) -> str:
    digest = hmac.digest(secret, f"{id}.{timestamp}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(digest).decode()
