"""Secrets that something is signed with, as rows hold them: a present one, and former ones that are still good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret as hex; or encrypted as `ciphertext` (base64), with a `mark` by which the same secret is known again.
    `until_ms` ends it (None: it is the present one)."""

    hex: str = ""
    until_ms: int | None = None
    ciphertext: str = ""
    mark: str = ""

    def is_live(self, now_ms: int) -> bool:
        """Is it good now?"""
        return self.until_ms is None or self.until_ms > now_ms


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The stage's signing keys: the present one, then those before it."""

    keys: tuple[Secret, ...]
    version: int = 0


def rotated(secrets: Sequence[Secret], new: Secret, now_ms: int, until_ms: int) -> tuple[Secret, ...]:
    """`new` as the present one, before those that are still good: until `until_ms`, or until they would have ended
    anyway."""
    former = [replace(old, until_ms=min(old.until_ms or until_ms, until_ms)) for old in secrets]
    return (replace(new, until_ms=None), *(old for old in former if old.is_live(now_ms)))
