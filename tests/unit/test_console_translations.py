"""The console speaks Chinese as far as it speaks English: text by text, with the same values in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chalicelib.api.http import convert, invalid
from chalicelib.api.problems import PATTERNS
from chalicelib.api.settings import TopicBody
from chalicelib.console import templating, translations
from chalicelib.console.forms import GROUP_ROWS, TOPIC_ROWS
from chalicelib.console.translations import error_text, issue_text
from chalicelib.domain.attention import RULES
from chalicelib.domain.errors import Forbidden, Issue, Malformed

DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
CHINESE = translations.catalog("zh")
PO = Path(translations.__file__).parent / "locale" / "zh" / "LC_MESSAGES" / "console.po"


def texts_of_templates() -> set[str]:
    """Every text that a template has translated, labels and meanings of settings, and states that need attention."""
    environment = templating.environment()
    names = environment.list_templates()
    assert environment.loader
    sources = [environment.loader.get_source(environment, name)[0] for name in names]
    calls = [call for source in sources for call in environment.extract_translations(source)]  # type: ignore[attr-defined]
    found = {texts if isinstance(texts, str) or not texts else texts[0] for _, _, texts in calls}
    labels = {text for row in (*TOPIC_ROWS, *GROUP_ROWS) for text in (row.label, row.plain_help)}
    states = {text for rule in RULES.values() for text in (rule.what, rule.to_do)}
    return found - {None} | labels | states  # None: a text that is no constant, such as a setting's label


def texts_of(context: str) -> dict[str, str]:
    return {english: chinese for (of, english), chinese in CHINESE.items() if of == context and english}


def values(text: str) -> set[str]:
    return set(re.findall(r"%\((\w+)\)s", text))


def test_every_text_has_its_translation_and_no_translation_is_left_over() -> None:
    assert texts_of_templates() == texts_of("").keys()
    assert "" not in CHINESE.values()
    assert PO.read_text().count("msgid ") == len(CHINESE), "a text has two entries"


def test_a_translation_holds_the_same_values() -> None:
    assert {text for text, chinese in texts_of("").items() if values(text) != values(chinese)} == set()
    assert {
        text for text, chinese in texts_of("issue").items() if not values(text) >= values(chinese)
    } == set()
    assert set().union(*map(values, texts_of("error").values())) == {"detail"}


def test_a_number_is_one_or_many_in_english_and_has_no_plural_in_chinese() -> None:
    texts = ("%(num)s message", "%(num)s messages")
    assert [translations.text_of_number("en", *texts, number) for number in (1, "1", "1+", 2)] == [
        *texts[:1] * 2,
        *texts[1:] * 2,
    ]
    assert translations.text_of_number("zh", *texts, 1) == "%(num)s 条消息"


def test_every_error_of_the_documentation_is_said_in_chinese_and_in_english_as_the_api_tells_it() -> None:
    rows = [line.split("|")[2] for line in DOCUMENTED.read_text().splitlines() if re.match(r"\| \d", line)]
    assert {code for cell in rows for code in re.findall(r"`([A-Z_]+)`", cell)} == texts_of("error").keys()
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
def test_what_is_wrong_with_a_field_is_said_in_chinese(body: dict[str, object]) -> None:
    with pytest.raises(Malformed) as refusal:
        convert(body, TopicBody)
    (wrong,) = refusal.value.issues
    assert re.search(r"[\u4e00-\u9fff]", issue_text(wrong, "zh"))
    assert "Expected" not in error_text(refusal.value, "zh")
    assert wrong.path in error_text(refusal.value, "zh")
    assert issue_text(wrong, "en") == wrong.issue


def test_every_pattern_of_a_field_is_said_in_chinese_and_the_unknown_as_the_api_tells_it() -> None:
    assert [words for words in PATTERNS.values() if issue_text(Issue("x", words), "zh") == words] == []
    assert error_text(invalid("moon", "is full"), "zh") == "有字段不正确, 请改正: moon: is full"
