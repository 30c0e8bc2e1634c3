"""Is a request signed, as Standard Webhooks want it?"""

from __future__ import annotations

from collections.abc import Mapping

from chalicelib.delivery import webhooks


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """By this secret? `headers` by lower-case names."""
    raw = webhooks.parse_secret(secret)
    assert isinstance(raw, bytes)
    arguments = headers["webhook-id"], int(headers["webhook-timestamp"]), body, headers["webhook-signature"]
    return webhooks.verify([raw], *arguments)
