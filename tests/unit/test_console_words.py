"""The console speaks Chinese as far as it speaks English: phrase by phrase, with the same values in them."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

from chalicelib import console
from chalicelib.console.chinese import PHRASES

TEMPLATES = sorted((Path(str(console.__file__)).parent / "templates").glob("*.html"))
_SAID = re.compile(r"""_\(\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')""")


def said() -> set[str]:
    """Every phrase of the templates."""
    return {double or single for path in TEMPLATES for double, single in _SAID.findall(path.read_text())}


def values(phrase: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(phrase) if name}


def test_every_phrase_has_its_translation_and_no_translation_is_left_over() -> None:
    assert said() == PHRASES.keys()


def test_a_translation_holds_the_same_values() -> None:
    assert {english for english, chinese in PHRASES.items() if values(english) != values(chinese)} == set()
