"""The console speaks Chinese as far as it speaks English: phrase by phrase, with the same values in them."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

from chalicelib import console
from chalicelib.console.chinese import PHRASES
from chalicelib.console.chinese_errors import ERRORS
from chalicelib.console.words import told
from chalicelib.domain.errors import Forbidden

DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
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


def test_every_error_of_the_documentation_is_told_in_chinese_and_in_english_as_the_api_tells_it() -> None:
    rows = [line.split("|")[2] for line in DOCUMENTED.read_text().splitlines() if re.match(r"\| \d", line)]
    assert {code for cell in rows for code in re.findall(r"`([A-Z_]+)`", cell)} == ERRORS.keys()
    error = Forbidden("SCOPE_MISSING", "This call needs {braces} and the scope 'admin'.")
    assert told(error, "en") == error.detail
    assert told(error, "zh") == f"令牌缺少所需的权限: {error.detail}"
    assert told(Forbidden("UNHEARD_OF", "Something new."), "zh") == "Something new."
