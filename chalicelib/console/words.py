"""The console's words in the reader's language. English is the key: what has no translation is shown in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def speaker(tongue: str) -> Callable[..., str]:
    """`_("{n} messages", n=3)` in a language."""
    phrases: dict[str, str] = {}
    if tongue == "zh":
        from .chinese import PHRASES

        phrases = PHRASES

    def say(text: str, **values: Any) -> str:
        phrase = phrases.get(text, text)
        return phrase.format(**values) if values else phrase

    return say
