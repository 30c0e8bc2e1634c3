"""The stage's signing keys: receipts, page tokens, sessions of the console and checks are signed with the present one;
signatures of former keys are valid until those expire."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ...domain.errors import ChangedMeanwhile, Refused, unavailable
from ...domain.limits import MAX_OVERLAPPING_SECRETS
from ...domain.secret import KeyRing, rotated
from ...domain.signing import opened, sealed, sign, verified
from ...domain.times import MINUTE_MS
from ...ports.world import Clock, Random
from .expiring_cache import TtlCache
from .secret_cipher import SIGNING_KEY, SecretCipher

if TYPE_CHECKING:
    from ...store.control import Control


T = TypeVar("T")
_KEPT_MS = 5 * MINUTE_MS  # how long this process caches the keys,
_LOOK_MS = 10_000  # or this, if a text comes that none of them has signed


class _Ring(NamedTuple):
    """The keys, each with when it ends, and when they were read."""

    read_ms: int
    keys: list[tuple[bytes, int | None]]


class SigningKeys:
    """Signs texts and verifies them. One per process; the keys are read at the first use."""

    def __init__(
        self, *, control: Control, secret_cipher: SecretCipher, clock: Clock, random: Random
    ) -> None:
        self._control = control
        self._secret_cipher = secret_cipher
        self._clock = clock
        self._random = random
        self._ring: TtlCache[str, _Ring] = TtlCache(clock, _KEPT_MS)

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
            raise ChangedMeanwhile(
                "CHANGED_MEANWHILE", "The key was rotated meanwhile; look before you try again."
            )
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
            keys = self._read_or_create_ring().keys
            plain = [
                (self._secret_cipher.decrypted(key, SIGNING_KEY), key.until_ms)
                for key in keys
                if key.is_live(read_ms)
            ]
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
