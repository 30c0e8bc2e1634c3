"""Encryption of stored secrets, each bound to its own row; decrypted only for signing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace

from ...domain.errors import unavailable
from ...domain.secret import Secret
from ...domain.times import MINUTE_MS
from ...domain.topic import Consumer, Group, Topic
from ...ports.world import Cipher, Clock
from .expiring_cache import TtlCache

_KEPT_MS = 15 * MINUTE_MS  # how long a process may cache a decrypted secret
_MARK_CHARS = 32

EncryptionContext = Mapping[str, str]
"""What KMS binds a ciphertext to: the purpose of a secret and its row. It cannot be decrypted under another context."""

SIGNING_KEY: EncryptionContext = {"secret": "signing-key", "row": "stage/signing-key"}


def encryption_context_of(topic: Topic, group: Group, consumer: str) -> EncryptionContext:
    """The encryption context of a subscriber's secrets."""
    return {"secret": "subscriber", "row": f"{topic.uid}/{group.uid}/{consumer}"}


class SecretCipher:
    """Encrypts and decrypts the secrets of rows."""

    def __init__(self, cipher: Cipher | None, clock: Clock) -> None:
        """Without a cipher (where nothing is kept) secrets are not encrypted."""
        self._cipher = cipher
        self._decrypted: TtlCache[tuple[str, str], bytes] = TtlCache(clock, _KEPT_MS)

    def encrypted(self, secret: bytes, context: EncryptionContext) -> Secret:
        """A secret as it may be stored. Raises Unavailable."""
        if self._cipher is None:
            return Secret(secret.hex())
        ciphertext = base64.b64encode(self._cipher.encrypt(secret, context)).decode()
        return Secret(ciphertext=ciphertext, fingerprint=_fingerprint(secret, context))

    def decrypted(self, secret: Secret, context: EncryptionContext) -> bytes:
        """A stored secret, decrypted. Raises Unavailable, also if it was encrypted under another context. Where
        secrets are encrypted, one in clear is refused: a function that may write the row, but not encrypt, could have
        stored its own."""
        if self._cipher is None and not secret.ciphertext:
            return bytes.fromhex(secret.hex)
        plaintext = self._decrypted.get((secret.ciphertext, context["row"]))
        if plaintext is not None:
            return plaintext
        if self._cipher is None:
            raise unavailable("What is stored is encrypted, and this process has no key for it.")
        if not secret.ciphertext:
            raise unavailable("A stored secret is not encrypted. Rotate it.")
        plain = self._cipher.decrypt(base64.b64decode(secret.ciphertext), context)
        return self._decrypted.put((secret.ciphertext, context["row"]), plain)

    def is_of(self, row: Secret, secret: bytes, context: EncryptionContext) -> bool:
        """Is `secret` the stored one? Nothing is decrypted."""
        return row.fingerprint == _fingerprint(secret, context) if row.ciphertext else row.hex == secret.hex()

    def with_plain_secrets(self, topic: Topic, group: Group, consumer: Consumer, now_ms: int) -> Consumer:
        """The consumer with its valid secrets decrypted, as signing needs them. Raises Unavailable."""
        context = encryption_context_of(topic, group, consumer.name)
        live = [secret for secret in consumer.secrets if secret.is_live(now_ms)]
        secrets = (Secret(self.decrypted(secret, context).hex(), secret.until_ms) for secret in live)
        return replace(consumer, secrets=tuple(secrets))


def _fingerprint(secret: bytes, context: EncryptionContext) -> str:
    return hashlib.sha256(f"{context['row']}\0".encode() + secret).hexdigest()[:_MARK_CHARS]
