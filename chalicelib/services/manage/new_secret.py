"""Gives a subscriber, or a group's callbacks, a new signing secret."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TypeVar

from ...domain.errors import Refused
from ...domain.limits import MAX_OVERLAPPING_SECRETS, ROTATION_OVERLAP
from ...domain.signing import Secret, rotated
from ...domain.topic import Consumer, Group
from ..core.secrets import EncryptionContext, SecretCipher

T = TypeVar("T", Consumer, Group)
OVERLAP_MS = ROTATION_OVERLAP // timedelta(milliseconds=1)


@dataclass(eq=False)
class NewSecret:
    """Makes a secret the present one of a consumer or group. Earlier ones end after the overlap, or at their own end.
    Raises Refused if too many would sign at once. Repeating it encrypts the secret only once."""

    secret_cipher: SecretCipher
    context: EncryptionContext
    secret: bytes = field(repr=False)
    now_ms: int
    overlap_ms: int = OVERLAP_MS

    def __call__(self, row: T) -> T:
        if self.signs(row):
            return row
        others = [old for old in row.secrets if not self._is_it(old)]
        secrets = rotated(others, self._encrypted, self.now_ms, self.now_ms + self.overlap_ms)
        if len(secrets) > MAX_OVERLAPPING_SECRETS + 1:
            text = "This secret was rotated too often: wait until the first of them ends."
            raise Refused("TOO_MANY_SECRETS", text)
        return replace(row, secrets=secrets)

    def signs(self, row: Consumer | Group) -> bool:
        """Is it the present secret?"""
        return any(self._is_it(secret) for secret in row.secrets[:1])

    def _is_it(self, row: Secret) -> bool:
        return self.secret_cipher.is_of(row, self.secret, self.context)

    @cached_property
    def _encrypted(self) -> Secret:
        return self.secret_cipher.encrypted(self.secret, self.context)
