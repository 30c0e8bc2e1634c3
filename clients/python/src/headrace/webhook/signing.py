"""Signatures by Standard Webhooks (standardwebhooks.com)."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping, Sequence

TOLERANCE_SECONDS = 300
WHAT_A_SECRET_IS = (
    "A secret is whsec_ and 24 to 64 bytes in base64: copy it from the answer to the consumer's registration, "
    "or rotate the consumer's secret."
)


class SignatureError(Exception):
    """The request is not signed by one of the secrets, or not just now."""


def verify(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    now: float,
    tolerance: float = TOLERANCE_SECONDS,
) -> str:
    """The `webhook-id` of a request that is signed by one of the secrets (`whsec_…`), at most `tolerance` seconds from
    `now` (seconds since 1970). `headers` by lower-case names, `body` as received, not parsed. Raises SignatureError;
    ValueError for what is no secret."""
    try:
        id, at, signatures = (headers[f"webhook-{part}"] for part in ("id", "timestamp", "signature"))
        age = now - int(at)
    except (KeyError, ValueError, OverflowError):
        raise SignatureError("The request has no signature.") from None
    if abs(age) > tolerance:
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
    """The bytes of a secret. ValueError for what is none: with an empty or short key others could sign, too."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        raise ValueError(f"This secret is not base64. {WHAT_A_SECRET_IS}") from None
    if not 24 <= len(key) <= 64:
        raise ValueError(f"This secret has {len(key)} bytes. {WHAT_A_SECRET_IS}")
    return key
