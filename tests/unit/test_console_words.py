"""The console speaks Chinese as far as it speaks English: phrase by phrase, with the same values in them."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from chalicelib import console
from chalicelib.api.http import convert, invalid
from chalicelib.api.problems import PATTERNS
from chalicelib.api.settings import TopicBody
from chalicelib.console.chinese import PHRASES
from chalicelib.console.chinese_errors import ERRORS
from chalicelib.console.words import error_text, issue
from chalicelib.domain.errors import Forbidden, Issue, Malformed

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
    assert error_text(error, "en") == error.detail
    assert error_text(error, "zh") == f"令牌缺少所需的权限: {error.detail}"
    assert error_text(Forbidden("UNHEARD_OF", "Something new."), "zh") == "Something new."


@pytest.mark.parametrize(
    "body",
    [
        {"shards": 0},
        {"shards": 10**9},
        {"shards": "many"},
        {"mode": "fast"},
        {"retry": {"ladder": []}},
        {"retry": {"jitter": 2.5}},
        {"colour": 1},
    ],
)
def test_what_is_wrong_with_a_field_is_told_in_chinese(body: dict[str, object]) -> None:
    with pytest.raises(Malformed) as refusal:
        convert(body, TopicBody)
    (wrong,) = refusal.value.issues
    assert re.search(r"[\u4e00-\u9fff]", issue(wrong, "zh"))
    assert "Expected" not in error_text(refusal.value, "zh")
    assert wrong.path in error_text(refusal.value, "zh")
    assert issue(wrong, "en") == wrong.issue


def test_every_pattern_of_a_field_is_told_in_chinese_and_the_unknown_as_the_api_tells_it() -> None:
    assert [words for words in PATTERNS.values() if issue(Issue("x", words), "zh") == words] == []
    assert error_text(invalid("moon", "is full"), "zh") == "有字段不正确, 请改正: moon: is full"
