"""Access: tokens (`hr_<id>_<secret><checksum>`, of which only a hash is stored), links that sign a browser in, and the
count of refused calls."""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...domain.audit import AuditEntry
from ...domain.errors import ChangedMeanwhile, Forbidden, HeadraceError, NotFound, Refused, Unauthorized
from ...domain.ids import base32
from ...domain.limits import MAX_OVERLAPPING_SECRETS
from ...domain.times import DAY_MS, HOUR_MS
from ...domain.topic import IAM, Caller, Consumer, FormerHash, Scope, Token
from ...ports.world import Clock, Random
from ...store import Audit, Control, Tickets
from ..core.catalog import Catalog
from ..core.expiring_cache import TtlCache
from ..core.secrets import SigningKeys
from ..produce.schedules import Schedules
from .registry import Registry

SCOPES = tuple(Scope)
_CACHE_MS = 10_000  # with the gateway's 20 s, a revocation is felt within 30 s
_USE_MS = HOUR_MS  # how coarsely the last use is known: a write an hour, process and token
_ID_CHARS = 12
_SECRET_CHARS = 52  # 260 random bits
_CHECKSUM_CHARS = 7
_FINGERPRINT_CHARS = 16
_TOKEN = re.compile(r"hr_([0-9A-Za-z]{1,64})_([0-9A-Za-z_-]{8,256})\Z")


class Tokens:
    """Makes, checks and revokes tokens."""

    def __init__(self, control: Control, clock: Clock, random: Random, *, checked: bool = False) -> None:
        """`checked`: all tokens were made here, so one whose checksum is wrong is none, without asking the store."""
        self._control = control
        self._clock = clock
        self._random = random
        self._checked = checked
        self._known: TtlCache[str, Token] = TtlCache(clock, _CACHE_MS)
        self._noted: TtlCache[str, bool] = TtlCache(clock, _USE_MS)

    def create(
        self,
        name: str,
        scopes: tuple[str, ...],
        topics: tuple[str, ...] = ("*",),
        expires_in_days: int | None = None,
        *,
        maker: Caller | None = None,
        **limits: Any,
    ) -> tuple[Token, str]:
        """A new token, and its text, which is not stored; `limits` are fields of Token. Raises Forbidden if it would be
        allowed more than its maker's token (None: the operator makes it)."""
        now_ms = self._clock.now_ms()
        expires_ms = now_ms + expires_in_days * DAY_MS if expires_in_days else None
        token_id = self._random.id(_ID_CHARS)
        secret = self._secret(token_id)
        for each in ("most_urgent", "tenant") if maker else ():
            if limits.get(each) is None:
                limits[each] = getattr(maker, each)
        token = Token(token_id, name, _hash(secret), scopes, topics, now_ms, expires_ms, **limits)
        _check_maker(maker, token)
        self._control.put_token(token, None)
        return token, f"hr_{token_id}_{secret}"

    def rotate(self, token_id: str, overlap_seconds: int, maker: Caller | None) -> tuple[Token, str]:
        """A new text for a token; earlier ones are valid until the overlap ends. Raises NotFound, or Forbidden if the
        token is allowed more than the caller's."""
        old = self._control.token(token_id)
        if old is None:
            raise _not_found()
        _check_maker(maker, old)
        now_ms = self._clock.now_ms()
        secret = self._secret(token_id)
        until_ms = now_ms + overlap_seconds * 1000
        former = [*old.former, FormerHash(old.secret_hash, until_ms)]
        former = [replace(each, until_ms=min(each.until_ms, until_ms)) for each in former]
        former = [each for each in former if each.until_ms > now_ms]
        if len(former) > MAX_OVERLAPPING_SECRETS:
            raise Refused("TOO_MANY_SECRETS", "The token was rotated too often: wait until an overlap ends.")
        new = replace(old, secret_hash=_hash(secret), former=tuple(former))
        if not self._control.put_token(new, old) and not self._stands(new):
            raise ChangedMeanwhile("CHANGED_MEANWHILE", "The token was changed meanwhile; try again.")
        self._known.drop(token_id)
        return new, f"hr_{token_id}_{secret}"

    def _stands(self, new: Token) -> bool:
        """Was the token stored so? Where an answer was lost, the refusal that follows is of our own success, and its
        text is shown now or never."""
        row = self._control.token(new.id)
        return row is not None and row.secret_hash == new.secret_hash

    def _secret(self, token_id: str) -> str:
        secret = self._random.id(_SECRET_CHARS)
        return secret + checksum(token_id, secret)

    def authenticate(self, text: str) -> Caller:
        """The token with this text. Raises Unauthorized, always with the same detail."""
        token_id, secret = self._parts(text)
        token = self._find(token_id, _hash(secret)) if token_id else None
        if not token:
            raise Unauthorized("UNAUTHORIZED", "A valid token is needed: Authorization: Bearer hr_…")
        self._note_use(token.id)
        return Caller.with_token(token)

    def claimed_id(self, text: str) -> str:
        """The token id in a text; empty if its form or checksum is wrong."""
        return self._parts(text)[0]

    def _parts(self, text: str) -> tuple[str, str]:
        """The id and the secret in a text; empty if its form or checksum is wrong."""
        match = _TOKEN.match(text)
        token_id, secret = match.groups() if match else ("", "")
        body, tail = secret[:-_CHECKSUM_CHARS], secret[-_CHECKSUM_CHARS:]
        is_plausible = not self._checked or tail == checksum(token_id, body)
        return (token_id, secret) if is_plausible else ("", "")

    def _is_good(self, token: Token, secret_hash: str) -> bool:
        return any(hmac.compare_digest(secret_hash, each) for each in self._hashes(token))

    def _hashes(self, token: Token) -> list[str]:
        """The hashes of a token's secrets that are valid now; none if it has expired."""
        now_ms = self._clock.now_ms()
        if token.expires_ms is not None and token.expires_ms <= now_ms:
            return []
        return [token.secret_hash, *(each.secret_hash for each in token.former if each.until_ms > now_ms)]

    def _note_use(self, token_id: str) -> None:
        if self._noted.get(token_id):
            return
        self._noted.put(token_id, True)
        with suppress(HeadraceError):  # a call is not refused because its time could not be stored
            self._control.note_use(token_id, self._clock.now_ms())

    def fingerprint_of(self, text: str) -> str:
        """A short hash of the token's text, which differs from those of its earlier and later texts. Raises
        Unauthorized."""
        self.authenticate(text)
        return _hash(self._parts(text)[1])[:_FINGERPRINT_CHARS]

    def holder(self, token_id: str, fingerprint: str | None = None) -> Token:
        """The token with this id, read consistently. Raises Unauthorized if it was revoked, has expired, or its text
        has changed since the fingerprint."""
        token = self._control.token(token_id)
        hashes = self._hashes(token) if token else []
        if token is None or not hashes:
            raise Unauthorized("UNAUTHORIZED", "The token was revoked, or has expired.")
        if fingerprint is not None and fingerprint not in [each[:_FINGERPRINT_CHARS] for each in hashes]:
            raise Unauthorized("UNAUTHORIZED", "The token was rotated: sign in with the new one.")
        return token

    def _find(self, token_id: str, secret_hash: str) -> Token | None:
        """The token, if this is a valid secret of it. A cached token never leads to a refusal: another process may have
        rotated it."""
        hit = self._known.get(token_id)
        if hit is not None and self._is_good(hit, secret_hash):
            return hit  # not put again: a token in constant use must grow old too
        with self._known.calling(token_id) as call:
            token = self._control.token(token_id)
            if token is None or not self._is_good(token, secret_hash):
                return None
            return call.keep(token)

    def revoke(self, token_id: str) -> None:
        """Make a token invalid: at once in this process, within 30 seconds in all."""
        try:
            if not self._control.delete_token(token_id):
                raise _not_found()
        finally:
            self._known.drop(token_id)  # afterwards: who came meanwhile has cached it again

    def name(self, token_id: str) -> str | None:
        """A token's name; None if it was revoked. A caller without a token is named by its role or user."""
        if token_id.startswith(IAM):
            return token_id.removeprefix(IAM)
        token = self._control.token(token_id)
        return token.name if token else None

    def with_last_use(self, after: str | None, limit: int) -> list[tuple[Token, int | None]]:
        """Tokens by id, each with the time of its last use, ms, to the hour; None if it was never used."""
        tokens = self._control.tokens(after, limit)
        uses = self._control.uses(tokens[0].id, tokens[-1].id) if tokens else {}
        return [(token, uses.get(token.id)) for token in tokens]

    def ensure_admin(self, text: str | None, keep: Callable[[str], object] = lambda text: None) -> str | None:
        """With a text: make this token a valid admin token (ValueError if it is malformed). Without: make the first
        admin token, after `keep` has its text; None if there are tokens already. Raises what `keep` raises."""
        name = "HEADRACE_TOKEN"
        if text is None:
            if self._control.tokens(None, 1):
                return None
            name, token_id = "first admin", self._random.id(_ID_CHARS)
            text = f"hr_{token_id}_{self._secret(token_id)}"
            keep(text)  # once it is valid, no further first token is made
        match = _TOKEN.match(text)
        if not match:
            raise ValueError(
                "The token (--token, HEADRACE_TOKEN) must look like hr_<id>_<secret>: an id of letters and digits, "
                "a secret of 8 to 256 letters, digits, '-' or '_'"
            )
        token = Token(match[1], name, _hash(match[2]), SCOPES, created_ms=self._clock.now_ms())
        while not self._control.put_token(token, self._control.token(token.id)):
            pass  # another process has just begun with it
        self._known.drop(match[1])
        return text


def _check_maker(maker: Caller | None, token: Token) -> None:
    if maker and maker.rate_limit is not None and maker.token_id != token.id:
        text = "Your token has a rate_limit, and makes no others: each would have calls of its own."
        raise Forbidden("TOO_MUCH", text)
    excess = maker.excess(token) if maker else None
    if excess == "time":
        raise Forbidden("TOO_MUCH", "Your token ends before this one would: give fewer expires_in_days.")
    if maker and excess == "tenant":
        text = f"Your token, and those that it makes, are for the tenant {maker.tenant!r}."
        raise Forbidden("TENANT_FORBIDDEN", text)
    if excess:
        raise Forbidden("TOO_MUCH", f"Your token has not all the {excess} of this one.")


def _not_found() -> NotFound:
    return NotFound("TOKEN_NOT_FOUND", "There is no token with this id.")


def checksum(token_id: str, secret: str) -> str:
    """Lets a secret scanner (or a person) tell a real token from a mistyped one, without asking us."""
    return base32(zlib.crc32(f"{token_id}_{secret}".encode())).rjust(_CHECKSUM_CHARS, "0")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """What goes on without the token that it was made with: schedules and push consumers."""

    control: Control
    catalog: Catalog
    registry: Registry
    schedules: Schedules

    def by(self, token_id: str) -> tuple[list[str], list[Consumer]]:
        """The names of the schedules, and the consumers. Reads all schedules, and the consumers of all topics."""
        topics = self.control.topics_behind(None)
        rows = (row for topic in topics for row in self.control.all_consumers(topic))
        consumers = [row for row in rows if row.is_called and row.instance_by == token_id]
        return [each.name for each in self.schedules.all() if each.made_by == token_id], consumers

    def stop(self, token_id: str) -> None:
        """Pause these schedules, and remove these consumers."""
        names, consumers = self.by(token_id)
        for name in names:
            with suppress(NotFound):
                self.schedules.set_paused(name, True, lambda topic: None)
        for consumer in consumers:
            with suppress(NotFound):
                topic = self.catalog.topic(consumer.topic)
                self.registry.unregister(topic, self.catalog.group(topic, consumer.group), consumer)


_REQUEST_ID_CHARS = 20
_PATH_CHARS = 200
NOBODY = "nobody"


class Refusals:
    """Writes an entry for the first call of an hour, the tenth, the hundredth and so on: a million calls leave seven
    entries. Each process counts its own."""

    def __init__(self, audit: Audit, clock: Clock, random: Random) -> None:
        self._audit = audit
        self._clock = clock
        self._random = random
        self._lock = threading.Lock()
        self._hour = 0
        self._count = 0

    def note(self, token_id: str, method: str, path: str, source: str | None = None) -> None:
        """Count one call. `token_id` is the id in the token's text, empty if it has not the form of a token. An entry
        that cannot be stored is left out."""
        now_ms = self._clock.now_ms()
        with self._lock:
            if now_ms // HOUR_MS != self._hour:
                self._hour, self._count = now_ms // HOUR_MS, 0
            self._count += 1
            count = self._count
        if count != 10 ** (len(str(count)) - 1):
            return
        entry = AuditEntry(
            at_ms=now_ms,
            token_id=token_id,
            token_name=NOBODY,
            method=method,
            path=path[:_PATH_CHARS],
            object=f"token {token_id or '?'}, refusal {count:,} of this hour",
            result="UNAUTHORIZED",
            request_id=self._random.id(_REQUEST_ID_CHARS),
            source=source,
        )
        with suppress(HeadraceError):
            self._audit.add(entry)


LAST_SECONDS = 60
_PURPOSE = "sign-in-link"
_LINK_ID_CHARS = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class SignInLinks:
    """Makes and redeems tickets. A ticket names a token and the fingerprint of its text, it does not contain it."""

    tickets: Tickets
    signing_keys: SigningKeys
    clock: Clock
    random: Random

    def ticket(self, token_id: str, fingerprint: str) -> tuple[str, int]:
        """A ticket for a token, and when it ends, ms."""
        until_s = self.clock.now_ms() // 1000 + LAST_SECONDS
        content = f"{token_id} {until_s} {fingerprint} {self.random.id(_LINK_ID_CHARS)}"
        return self.signing_keys.sign(_PURPOSE, content), until_s * 1000

    def redeem(self, ticket: str) -> tuple[str, str]:
        """The token's id, and the fingerprint of the text that made the link. Raises Unauthorized if the ticket is
        invalid, has ended, or was used."""
        content = self.signing_keys.verified(_PURPOSE, ticket) if ticket.isascii() else None
        if content is None:
            raise _link_used()
        token_id, until_s, fingerprint, id = content.split(" ")
        now_ms = self.clock.now_ms()
        if now_ms >= int(until_s) * 1000 or not self.tickets.use(id, now_ms, int(until_s)):
            raise _link_used()
        return token_id, fingerprint


def _link_used() -> Unauthorized:
    text = "This link was used, or its minute is over: make another, or paste a token."
    return Unauthorized("UNAUTHORIZED", text)
