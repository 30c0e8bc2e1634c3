"""Who is signed in: a signed cookie that names a token and never holds it. The token is read again at each
request, so that revoking it ends the session at once."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from ..domain.errors import Forbidden, Unauthorized
from ..domain.signing import derived, verified
from ..domain.topic import Caller, Token
from ..wiring import Deps
from .translations import LANGUAGES

LASTS_SECONDS = 8 * 3600
_COOKIE = "console"
_CSRF_CHARS = 32


class Session(NamedTuple):
    """A token at work. `csrf` goes with each form: only our own pages know it."""

    token: Token
    csrf: str

    @property
    def caller(self) -> Caller:
        return Caller.with_token(self.token)


def begin(deps: Deps, text: str, *, secure: bool) -> str:
    """The `Set-Cookie` of a new session, for a token's text. Raises Unauthorized."""
    try:
        caller = deps.tokens.authenticate(text)
    except Unauthorized:
        deps.refusals.note(deps.tokens.claimed_id(text), "POST", "/console/sign-in")
        raise
    return _cookie(deps, caller.token_id, deps.tokens.fingerprint_of(text), secure=secure)


def begin_by_link(deps: Deps, ticket: str, *, secure: bool) -> str:
    """The `Set-Cookie` of a new session, for a link's ticket. Raises Unauthorized."""
    token_id, fingerprint = deps.sign_in_links.redeem(ticket)
    deps.tokens.holder(token_id, fingerprint)
    return _cookie(deps, token_id, fingerprint, secure=secure)


def end(*, secure: bool) -> str:
    """The `Set-Cookie` that ends a session."""
    return _set_cookie_text(secure, "", 0)


def of(deps: Deps, headers: Mapping[str, str], *, secure: bool) -> Session:
    """The session that a request belongs to. Raises Unauthorized."""
    cookie = _cookies(headers).get(_name(secure), "")
    content = _verified_token(deps, _COOKIE, cookie) if cookie else None
    if content is None:
        raise Unauthorized("UNAUTHORIZED", "Sign in with a token.")
    csrf = deps.signing_keys.first_fitting(partial(_csrf, cookie)) or ""
    return Session(deps.tokens.holder(*content), csrf)


def _csrf(cookie: str, key: bytes) -> str | None:
    """What a session's forms hold: made of its cookie, with the key that signed that."""
    is_signed = verified(key, _COOKIE, cookie) is not None
    return derived(key, "console-csrf", cookie).hex()[:_CSRF_CHARS] if is_signed else None


def is_secure(deps: Deps, headers: Mapping[str, str]) -> bool:
    """Is the page served over TLS? A deployed stage always is. A local run is not, and a browser would not send it the
    cookie of a page that is: only there the cookie goes without `Secure` and the prefix that demands it."""
    return bool(deps.adapters.stage) or headers.get("x-forwarded-proto", "").lower() == "https"


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Did a page of another site lead here?"""
    return headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def check_origin(headers: Mapping[str, str]) -> None:
    """Raises Forbidden for a form sent by another site. A client that sends neither header is not a browser."""
    origin = headers.get("origin")
    is_of_other = origin is not None and _host_of(origin) != headers.get("host", "")
    if is_of_other or is_foreign(headers):
        raise Forbidden("FOREIGN_ORIGIN", "This form was sent from another site.")


def _host_of(origin: str) -> str | None:
    """Its host and port; None if it is no URL."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def check_csrf(session: Session, text: str) -> None:
    """Raises Forbidden for a form that no page of this session sent."""
    if not hmac.compare_digest(session.csrf.encode(), text.encode()):
        words = "This form belongs to an earlier session: send it from a page of this one."
        raise Forbidden("FORM_EXPIRED", words)


def language_of(headers: Mapping[str, str]) -> str:
    """The language that was chosen, else the first of ours that the browser asks for."""
    choice = _cookies(headers).get("headrace-lang")
    if choice in LANGUAGES:
        return choice
    for part in headers.get("accept-language", "").lower().split(","):
        if (language := part.strip()[:2]) in LANGUAGES:
            return language
    return "en"


def choose_language(language: str) -> str:
    """The `Set-Cookie` of a choice of language."""
    return f"headrace-lang={language}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict"


def _cookie(deps: Deps, token_id: str, fingerprint: str, *, secure: bool) -> str:
    content = f"{token_id} {_now_s(deps) + LASTS_SECONDS} {fingerprint} {deps.adapters.random.id(12)}"
    return _set_cookie_text(secure, deps.signing_keys.sign(_COOKIE, content), LASTS_SECONDS)


def _set_cookie_text(secure: bool, value: str, seconds: int) -> str:
    lock = "; Secure" if secure else ""
    return f"{_name(secure)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{lock}"


def _name(secure: bool) -> str:
    return "__Host-headrace" if secure else "headrace"


def _verified_token(deps: Deps, purpose: str, text: str) -> tuple[str, str] | None:
    """The token's id in what was signed, and the fingerprint of its text, while its time is not over."""
    content = deps.signing_keys.verified(purpose, text) if text.isascii() else None
    if content is None:
        return None
    token_id, until_s, fingerprint = content.split(" ")[:3]
    return (token_id, fingerprint) if _now_s(deps) < int(until_s) else None


def _now_s(deps: Deps) -> int:
    return deps.adapters.clock.now_ms() // 1000


def _cookies(headers: Mapping[str, str]) -> dict[str, str]:
    """The request's cookies. Those of other sites on this host (another port, say) come with them, and may be
    anything."""
    pairs = (pair.partition("=") for pair in headers.get("cookie", "").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}
