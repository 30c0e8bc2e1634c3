"""How a subscriber verifies signatures, in four languages: files that pages show and tests run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "verify"
LANGUAGES = {"python": "Python", "javascript": "JavaScript", "go": "Go", "java": "Java"}


@cache
def verification_snippets() -> dict[str, str]:
    """The code by the language's name. Nothing in it is secret."""
    return {name: (_FOLDER / f"{file}.txt").read_text() for file, name in LANGUAGES.items()}
