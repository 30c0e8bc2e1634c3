"""The stage's signing key."""

from typing import TypedDict

from ...domain.secret import KeyRing
from .common import Time, at


class SigningKeyView(TypedDict):
    """When the present key was made, and when each earlier key becomes invalid."""

    rotated_at: Time
    former_until: list[Time]


def view(ring: KeyRing, now_ms: int) -> SigningKeyView:
    """A key that was just rotated; nobody sees the key itself."""
    ends = [key.until_ms for key in ring.keys[1:] if key.until_ms is not None]
    return {"rotated_at": at(now_ms), "former_until": [at(until_ms) for until_ms in ends]}
