"""Secrets: their encryption where they are stored, each bound to its own row; and the stage's signing keys."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple, TypeVar

from ...domain.errors import ChangedMeanwhile, Refused, unavailable
from ...domain.limits import MAX_OVERLAPPING_SECRETS, ROTATION_OVERLAP
from ...domain.signing import KeyRing, Secret, derived, opened, rotated, sealed, sign, verified
from ...domain.times import MINUTE_MS
from ...domain.topic import Callback, Consumer, Group, Topic
from ...ports.world import Cipher, Clock, Random
from ...store import Control
from .expiring_cache import TtlCache

_KEPT_MS = 15 * MINUTE_MS  # how long a process may cache a decrypted secret
_MARK_CHARS = 32

# What KMS binds a ciphertext to: the purpose of a secret and its row. It cannot be decrypted under another context.
EncryptionContext = Mapping[str, str]

SIGNING_KEY: EncryptionContext = {"secret": "signing-key", "row": "stage/signing-key"}


def encryption_context_of(topic: Topic, group: Group, consumer: str) -> EncryptionContext:
    """The encryption context of a subscriber's secrets."""
    return {"secret": "subscriber", "row": f"{topic.uid}/{group.uid}/{consumer}"}


def header_context_of(topic: Topic, group: Group, consumer: str, url: str) -> EncryptionContext:
    """The encryption context of a subscriber's static headers: a function that may write the row cannot send them to
    another URL."""
    context = encryption_context_of(topic, group, consumer)
    return {**context, "row": f"{context['row']}/headers/{hashlib.sha256(url.encode()).hexdigest()}"}


def callback_context_of(topic: Topic, group: Group) -> EncryptionContext:
    """The encryption context of the secret that signs a group's callbacks."""
    return {"secret": "callback", "row": f"{topic.uid}/{group.uid}/callbacks"}


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
        """The consumer with its valid secrets and its headers decrypted, as a request needs them. Raises
        Unavailable."""
        if isinstance(consumer, Callback):
            return replace(consumer, secrets=self.host_secrets(topic, group, consumer.name, now_ms))
        context = encryption_context_of(topic, group, consumer.name)
        live = [secret for secret in consumer.secrets if secret.is_live(now_ms)]
        secrets = (Secret(self.decrypted(secret, context).hex(), secret.until_ms) for secret in live)
        context_of_headers = header_context_of(topic, group, consumer.name, consumer.target)
        headers = (Secret(self.decrypted(each, context_of_headers).hex()) for each in consumer.headers)
        return replace(consumer, secrets=tuple(secrets), headers=tuple(headers))

    def host_secrets(self, topic: Topic, group: Group, host: str, now_ms: int) -> tuple[Secret, ...]:
        """The valid secrets of callbacks to a host, the present one first. Raises Unavailable."""
        context = callback_context_of(topic, group)
        live = [secret for secret in group.secrets if secret.is_live(now_ms)]
        keys = [derived(self.decrypted(each, context), "callback", host) for each in live]
        return tuple(Secret(key.hex(), each.until_ms) for key, each in zip(keys, live, strict=True))


def _fingerprint(secret: bytes, context: EncryptionContext) -> str:
    return hashlib.sha256(f"{context['row']}\0".encode() + secret).hexdigest()[:_MARK_CHARS]


_Signing = TypeVar("_Signing", Consumer, Group)
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

    def __call__(self, row: _Signing) -> _Signing:
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


T = TypeVar("T")
_RING_KEPT_MS = 5 * MINUTE_MS  # how long this process caches the keys,
_LOOK_MS = 10_000  # or this, if a text comes that none of them has signed


class _Ring(NamedTuple):
    """The keys, each with when it ends, and when they were read."""

    read_ms: int
    keys: list[tuple[bytes, int | None]]


class SigningKeys:
    """Signs texts and verifies them. One per process; the keys are read at the first use."""

    def __init__(self, control: Control, secret_cipher: SecretCipher, clock: Clock, random: Random) -> None:
        self._control = control
        self._secret_cipher = secret_cipher
        self._clock = clock
        self._random = random
        self._ring: TtlCache[str, _Ring] = TtlCache(clock, _RING_KEPT_MS)

    def present(self) -> bytes:
        """The key that signs. Raises Unavailable."""
        return self.live()[0]

    def live(self) -> list[bytes]:
        """The present key, and the former ones that are still valid. Raises Unavailable."""
        return self._live_of(self._ring.get("") or self._load_keys())

    def _live_of(self, ring: _Ring) -> list[bytes]:
        now_ms = self._clock.now_ms()
        return [key for key, until_ms in ring.keys if until_ms is None or until_ms > now_ms]

    def first_fitting(self, open: Callable[[bytes], T | None]) -> T | None:
        """The result of `open` with the first key that fits. If none fits, the keys are read again: another process may
        have rotated them."""
        ring = self._ring.get("") or self._load_keys()
        keys = self._live_of(ring)
        for key in keys:
            if (value := open(key)) is not None:
                return value
        if self._clock.now_ms() - ring.read_ms < _LOOK_MS:
            return None
        others = (open(key) for key in self._live_of(self._load_keys()) if key not in keys)
        return next((value for value in others if value is not None), None)

    def sign(self, purpose: str, text: str) -> str:
        """Sign a text for one purpose."""
        return sign(self.present(), purpose, text)

    def verified(self, purpose: str, text: str) -> str | None:
        """The text that was signed for this purpose; None for any other."""
        return self.first_fitting(lambda key: verified(key, purpose, text))

    def seal(self, purpose: str, text: str) -> str:
        """Sign a text for one purpose so that who holds it cannot read it."""
        return sealed(self.present(), purpose, text)

    def opened(self, purpose: str, text: str) -> str | None:
        """The text that was sealed for this purpose; None for any other."""
        return self.first_fitting(lambda key: opened(key, purpose, text))

    def rotate(self, overlap_seconds: int) -> KeyRing:
        """Make a new present key. The one before stays valid for the overlap, older ones for no longer than that.
        Raises Refused, ChangedMeanwhile, Unavailable."""
        old = self._read_or_create_ring()
        now_ms = self._clock.now_ms()
        new = self._secret_cipher.encrypted(self._random.secret(), SIGNING_KEY)
        keys = rotated(old.keys, new, now_ms, now_ms + overlap_seconds * 1000)
        if len(keys) > MAX_OVERLAPPING_SECRETS + 1:
            raise Refused("TOO_MANY_SECRETS", "The key was rotated too often: wait until an overlap ends.")
        ring = KeyRing(keys)
        if not self._control.put_key_ring(ring, old) and not self._stands(ring):
            text = "The key was rotated meanwhile; look before you try again."
            raise ChangedMeanwhile("CHANGED_MEANWHILE", text)
        self._ring.drop("")
        self._load_keys()
        return ring

    def _stands(self, ring: KeyRing) -> bool:
        """Was it stored so? Where an answer was lost, the refusal that follows is of our own success."""
        row = self._control.key_ring()
        return row is not None and row.keys == ring.keys

    def _load_keys(self) -> _Ring:
        """The keys as stored. Another thread that read them before a rotation does not bring the former ones back."""
        with self._ring.calling("") as call:
            read_ms = self._clock.now_ms()
            live = [key for key in self._read_or_create_ring().keys if key.is_live(read_ms)]
            plain = [(self._secret_cipher.decrypted(key, SIGNING_KEY), key.until_ms) for key in live]
            return call.keep(_Ring(read_ms, plain))

    def _read_or_create_ring(self) -> KeyRing:
        """The stage's key ring; the first process creates it."""
        ring = self._control.key_ring()
        if ring is None:
            first = self._secret_cipher.encrypted(self._random.secret(), SIGNING_KEY)
            self._control.put_key_ring(KeyRing((first,)), None)
            ring = self._control.key_ring()
        if ring is None:
            raise unavailable()
        return ring
