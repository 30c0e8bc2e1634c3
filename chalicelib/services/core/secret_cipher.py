"""Encryption of stored secrets, each bound to its own row; decrypted only for signing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace

from ...domain.errors import unavailable
from ...domain.secret import Secret
from ...domain.topic import Consumer, Group, Topic
from ...ports.world import Cipher, Clock
from .expiring_cache import TtlCache

_KEPT_MS = 15 * 60_000  # how long a process may cache a decrypted secret
_MARK_CHARS = 32

Place = Mapping[str, str]
"""The purpose of a secret and its row. The ciphertext cannot be decrypted for another place."""

SIGNING_KEY: Place = {"secret": "signing-key", "row": "stage/signing-key"}


def place_of(topic: Topic, group: Group, consumer: str) -> Place:
    """The place of a subscriber's secrets."""
    return {"secret": "subscriber", "row": f"{topic.uid}/{group.uid}/{consumer}"}


class SecretCipher:
    """Encrypts and decrypts the secrets of rows."""

    def __init__(self, cipher: Cipher | None, clock: Clock) -> None:
        """Without a cipher (in-memory stores) secrets are not encrypted."""
        self._cipher = cipher
        self._decrypted: TtlCache[tuple[str, str], bytes] = TtlCache(clock, _KEPT_MS)

    def encrypted(self, secret: bytes, place: Place) -> Secret:
        """A secret as it may be stored. Raises Unavailable."""
        if self._cipher is None:
            return Secret(secret.hex())
        ciphertext = base64.b64encode(self._cipher.encrypt(secret, place)).decode()
        return Secret(ciphertext=ciphertext, fingerprint=_fingerprint(secret, place))

    def is_encrypted(self, secret: Secret) -> bool:
        """Is a stored secret as it should be stored here?"""
        return self._cipher is None or bool(secret.ciphertext)

    def upgraded(self, secret: Secret, place: Place) -> Secret:
        """A stored secret; encrypted, if an earlier release stored it as it is. Raises Unavailable."""
        if self.is_encrypted(secret):
            return secret
        return replace(self.encrypted(bytes.fromhex(secret.hex), place), until_ms=secret.until_ms)

    def decrypted(self, secret: Secret, place: Place) -> bytes:
        """A stored secret, decrypted. Raises Unavailable, also if it belongs to another place."""
        if not secret.ciphertext:
            return bytes.fromhex(secret.hex)
        plaintext = self._decrypted.get((secret.ciphertext, place["row"]))
        if plaintext is not None:
            return plaintext
        if self._cipher is None:
            raise unavailable("What is stored is encrypted, and this process has no key for it.")
        plain = self._cipher.decrypt(base64.b64decode(secret.ciphertext), place)
        return self._decrypted.put((secret.ciphertext, place["row"]), plain)

    def is_of(self, row: Secret, secret: bytes, place: Place) -> bool:
        """Is `secret` the stored one? Nothing is decrypted."""
        return row.fingerprint == _fingerprint(secret, place) if row.ciphertext else row.hex == secret.hex()

    def with_plain_secrets(self, topic: Topic, group: Group, consumer: Consumer, now_ms: int) -> Consumer:
        """The consumer with its valid secrets decrypted, as signing needs them. Raises Unavailable."""
        place = place_of(topic, group, consumer.name)
        live = [secret for secret in consumer.secrets if secret.is_live(now_ms)]
        secrets = (Secret(self.decrypted(secret, place).hex(), secret.until_ms) for secret in live)
        return replace(consumer, secrets=tuple(secrets))


def _fingerprint(secret: bytes, place: Place) -> str:
    return hashlib.sha256(f"{place['row']}\0".encode() + secret).hexdigest()[:_MARK_CHARS]
