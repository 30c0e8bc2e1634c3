"""Signatures by Standard Webhooks (standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence

TOLERANCE_SECONDS = 300


class SignatureError(Exception):
    """The request is not signed by one of the secrets, or not just now."""


def verify(secrets: str | Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> str:
    """The `webhook-id` of a request that is signed by one of the secrets (`whsec_…`), at most five minutes from `now`
    (seconds since 1970). `headers` by lower-case names, `body` as received, not parsed. Raises SignatureError."""
    try:
        id, at, signatures = (headers[f"webhook-{part}"] for part in ("id", "timestamp", "signature"))
        age = now - int(at)
    except (KeyError, ValueError, OverflowError):
        raise SignatureError("The request has no signature.") from None
    if abs(age) > TOLERANCE_SECONDS:
        raise SignatureError("The signature is too old, or from the future.")
    candidates = [signature.encode() for signature in signatures.split(" ")]
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        expected_signature = _signature(secret, id, at, body).encode()
        if any(hmac.compare_digest(expected_signature, candidate) for candidate in candidates):
            return id
    raise SignatureError("The signature is by no known secret.")


def sign(secret: str, id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of a request. `timestamp` is in seconds since 1970. ValueError for what is no secret."""
    at = str(timestamp)
    return {
        "webhook-id": id,
        "webhook-timestamp": at,
        "webhook-signature": _signature(secret, id, at, body),
    }


def _signature(secret: str, id: str, at: str, body: bytes) -> str:
    digest = hmac.digest(key_of(secret), f"{id}.{at}.".encode() + body, "sha256")
    return "v1," + base64.b64encode(digest).decode()


def key_of(secret: str) -> bytes:
    """The bytes of a secret. ValueError for what is none."""
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(
            "A secret is whsec_ and base64, as the consumer's registration answered it."
        ) from None
