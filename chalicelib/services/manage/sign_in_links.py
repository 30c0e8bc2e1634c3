"""Links that sign a browser in, once and within a minute, for somebody who has a token in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...domain.errors import Unauthorized
from ...ports.world import Clock, Random
from ..core.signing_keys import SigningKeys

if TYPE_CHECKING:
    from ...store.tickets import Tickets


LAST_SECONDS = 60
_PURPOSE = "sign-in-link"
_ID_CHARS = 24


class SignInLinks:
    """Makes and redeems tickets. A ticket names a token and the fingerprint of its text, it does not contain it."""

    def __init__(self, *, tickets: Tickets, signing_keys: SigningKeys, clock: Clock, random: Random) -> None:
        self._tickets = tickets
        self._signing_keys = signing_keys
        self._clock = clock
        self._random = random

    def ticket(self, token_id: str, fingerprint: str) -> tuple[str, int]:
        """A ticket for a token, and when it ends, ms."""
        until_s = self._clock.now_ms() // 1000 + LAST_SECONDS
        content = f"{token_id} {until_s} {fingerprint} {self._random.id(_ID_CHARS)}"
        return self._signing_keys.sign(_PURPOSE, content), until_s * 1000

    def redeem(self, ticket: str) -> tuple[str, str]:
        """The token's id, and the fingerprint of the text that made the link. Raises Unauthorized if the ticket is
        invalid, has ended, or was used."""
        content = self._signing_keys.verified(_PURPOSE, ticket) if ticket.isascii() else None
        if content is None:
            raise _link_used()
        token_id, until_s, fingerprint, id = content.split(" ")
        now_ms = self._clock.now_ms()
        if now_ms >= int(until_s) * 1000 or not self._tickets.use(id, now_ms, int(until_s)):
            raise _link_used()
        return token_id, fingerprint


def _link_used() -> Unauthorized:
    return Unauthorized(
        "UNAUTHORIZED", "This link was used, or its minute is over: make another, or paste a token."
    )
