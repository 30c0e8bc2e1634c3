"""Access tokens: `hr_<id>_<secret><checksum>`. Only a hash of the secret is stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib

from ...domain.errors import NotFound, Unauthorized
from ...domain.ids import base32
from ...domain.topic import Caller, Token
from ...ports.control import Control
from ...ports.world import Clock, Random
from ..core.expiring_cache import TtlCache

SCOPES = ("produce", "consume", "admin")
_CACHE_MS = 15_000  # with the gateway's 30 s, a revocation is felt within a minute
_ID_CHARS = 12
_SECRET_CHARS = 52  # 260 random bits
_CHECKSUM_CHARS = 7
_TOKEN = re.compile(r"hr_([0-9A-Za-z]{1,64})_([0-9A-Za-z_-]{8,256})\Z")


class Tokens:
    """Makes, checks and revokes tokens."""

    def __init__(self, control: Control, clock: Clock, chance: Random) -> None:
        self._control = control
        self._clock = clock
        self._chance = chance
        self._known: TtlCache[str, Token] = TtlCache(clock, _CACHE_MS)

    def create(
        self,
        name: str,
        scopes: tuple[str, ...],
        topics: tuple[str, ...] = ("*",),
        expires_in_days: int | None = None,
    ) -> tuple[Token, str]:
        """A new token and its text, which is not kept."""
        now_ms = self._clock.now_ms()
        expires_ms = now_ms + expires_in_days * 86_400_000 if expires_in_days else None
        token_id = self._chance.id(_ID_CHARS)
        secret = self._chance.id(_SECRET_CHARS)
        secret += checksum(token_id, secret)
        token = Token(token_id, name, _hash(secret), scopes, topics, now_ms, expires_ms)
        self._control.put_token(token)
        return token, f"hr_{token_id}_{secret}"

    def authenticate(self, text: str) -> Caller:
        """Who holds this token. The same Unauthorized for every reason not to say."""
        match = _TOKEN.match(text)
        token = self._find(match[1]) if match else None
        secret = match[2] if match else ""
        good = hmac.compare_digest(_hash(secret), token.secret_hash if token else _hash("nobody's"))
        if (
            not token
            or not good
            or (token.expires_ms is not None and token.expires_ms <= self._clock.now_ms())
        ):
            raise Unauthorized("UNAUTHORIZED", "A valid token is needed: Authorization: Bearer hr_…")
        return Caller(token.id, frozenset(token.scopes), token.topics)

    def holder(self, token_id: str) -> Token:
        """The token with this id as it stands at this moment; Unauthorized where it was revoked or has expired."""
        token = self._control.token(token_id)
        if token is None or (token.expires_ms is not None and token.expires_ms <= self._clock.now_ms()):
            raise Unauthorized("UNAUTHORIZED", "The token was revoked, or has expired.")
        return token

    def _find(self, token_id: str) -> Token | None:
        held = self._known.get(token_id)
        if held is not None:  # not put again: a token in constant use must grow old too
            return held
        token = self._control.token(token_id)
        return self._known.put(token_id, token) if token else None

    def revoke(self, token_id: str) -> None:
        """Make a token worthless, here at once and everywhere within a minute."""
        self._known.drop(token_id)
        if not self._control.delete_token(token_id):
            raise NotFound("TOKEN_NOT_FOUND", "There is no token with this id.")

    def name(self, token_id: str) -> str | None:
        """What a token is called; None where it was revoked."""
        token = self._control.token(token_id)
        return token.name if token else None

    def listed(self, after: str | None, limit: int) -> list[Token]:
        """Tokens by id."""
        return self._control.tokens(after, limit)

    def ensure_admin(self, text: str | None) -> str | None:
        """With a text: make exactly this token valid as admin (ValueError if it is malformed). Without: make
        the first admin token; None where there are tokens already."""
        if text is None:
            if self._control.tokens(None, 1):
                return None
            return self.create("first admin", SCOPES)[1]
        match = _TOKEN.match(text)
        if not match:
            raise ValueError(
                "HEADRACE_TOKEN must look like hr_<id>_<secret>: an id of letters and digits, "
                "a secret of 8 to 256 letters, digits, '-' or '_'"
            )
        self._control.put_token(
            Token(match[1], "HEADRACE_TOKEN", _hash(match[2]), SCOPES, ("*",), self._clock.now_ms())
        )
        self._known.drop(match[1])
        return text


def checksum(token_id: str, secret: str) -> str:
    """Lets a secret scanner (or a person) tell a real token from a mistyped one, without asking us."""
    return base32(zlib.crc32(f"{token_id}_{secret}".encode())).rjust(_CHECKSUM_CHARS, "0")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
