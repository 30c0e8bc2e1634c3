"""Signing secrets as rows hold them: the present one, and former ones that are still valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


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
