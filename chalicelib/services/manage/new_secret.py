"""Gives a subscriber a new signing secret."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property

from ...domain.errors import Refused
from ...domain.limits import MAX_OVERLAPPING_SECRETS, ROTATION_OVERLAP
from ...domain.signing import Secret, rotated
from ...domain.topic import Consumer
from ..core.secrets import EncryptionContext, SecretCipher

OVERLAP_MS = ROTATION_OVERLAP // timedelta(milliseconds=1)


@dataclass(eq=False)
class NewSecret:
    """Makes a secret the consumer's present one. Earlier ones end after the overlap, or at their own end. Raises
    Refused if too many would sign at once. Repeating it encrypts the secret only once."""

    secret_cipher: SecretCipher
    context: EncryptionContext
    secret: bytes = field(repr=False)
    now_ms: int
    overlap_ms: int = OVERLAP_MS

    def __call__(self, consumer: Consumer) -> Consumer:
        if self.signs(consumer):
            return consumer
        others = [old for old in consumer.secrets if not self._is_it(old)]
        secrets = rotated(others, self._encrypted, self.now_ms, self.now_ms + self.overlap_ms)
        if len(secrets) > MAX_OVERLAPPING_SECRETS + 1:
            text = "This secret was rotated too often: wait until the first of them ends."
            raise Refused("TOO_MANY_SECRETS", text)
        return replace(consumer, secrets=secrets)

    def signs(self, consumer: Consumer) -> bool:
        """Is it the consumer's present secret?"""
        return any(self._is_it(secret) for secret in consumer.secrets[:1])

    def _is_it(self, row: Secret) -> bool:
        return self.secret_cipher.is_of(row, self.secret, self.context)

    @cached_property
    def _encrypted(self) -> Secret:
        return self.secret_cipher.encrypted(self.secret, self.context)
