"""What is kept of a subscriber's answer to a failed attempt."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable

from ..domain.call_result import Answer

_MOST_BYTES = 500
_MOST_TYPE_CHARS = 100
_TEXT = re.compile(r"text/|.*\b(json|xml|x-www-form-urlencoded|problem)", re.IGNORECASE)
_CREDENTIALS = re.compile(r"\b(bearer|basic) +[^\s\"',;<]+", re.IGNORECASE)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PREFIX = re.compile(r"^(whsec_|v1,|(bearer|basic) +)", re.IGNORECASE)
HIDDEN, _REPLACEMENT = "•••", "\ufffd"


def kept(status: int | None, content_type: str, body: bytes, secrets: Iterable[str]) -> Answer | None:
    """The beginning of an answer that is text; None if it is not, or is empty. Echoed `secrets` (whole, and what
    follows their prefix) and credentials are hidden, control characters replaced."""
    if not body.strip() or not (_TEXT.match(content_type) or not content_type):
        return None
    text = without(body.decode(errors="replace"), secrets)
    text = _CREDENTIALS.sub(rf"\1 {HIDDEN}", text).replace("\r\n", "\n")
    cut = text.encode()[:_MOST_BYTES].decode(errors="ignore")
    return Answer(status, _clean(content_type)[:_MOST_TYPE_CHARS], _clean(cut))


def without(text: str, secrets: Iterable[str]) -> str:
    """A text without the secrets: whole or behind their prefix, as they are, in JSON or in HTML."""
    plain = {form for secret in secrets for form in (secret, _PREFIX.sub("", secret, count=1)) if form}
    forms = set(plain)
    for form in plain:
        in_json = json.dumps(form)[1:-1]
        forms |= {in_json, in_json.replace("/", "\\/"), html.escape(form)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def _clean(text: str) -> str:
    return _CONTROLS.sub(_REPLACEMENT, text)
