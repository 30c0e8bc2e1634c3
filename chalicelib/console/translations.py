"""The pages' texts in the reader's language: `locale/<language>/LC_MESSAGES/console.po`, as gettext has it.

The English text is the key; what has no translation is shown in English. A new text in a template needs its entry
there: the tests name those that are missing.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from ..domain.errors import HeadraceError, Issue

LANGUAGES = ("en", "zh")
_FOLDER = Path(__file__).parent / "locale"
_LINE = re.compile(r'(?:(msg\w+(?:\[0\])?) )?(".*")')
_PLACEHOLDER = re.compile(r"%\\?\((\w+)\\?\)s")
# Translations by context (texts of pages have none) and English text.
Catalog = dict[tuple[str, str], str]


@cache
def catalog(language: str) -> Catalog:
    """The translations of a language; English needs none."""
    return {} if language == "en" else read(_FOLDER / language / "LC_MESSAGES" / "console.po")


def read(path: Path) -> Catalog:
    """The entries of a .po file, in its order. Entries are separated by empty lines."""
    translations: Catalog = {}
    for entry in path.read_text(encoding="utf-8").split("\n\n"):
        fields: defaultdict[str, str] = defaultdict(str)
        name = ""
        for keyword, text in (match.groups() for match in map(_LINE.fullmatch, entry.splitlines()) if match):
            name = keyword or name
            fields[name] += json.loads(text)
        translations[fields["msgctxt"], fields["msgid"]] = fields["msgstr"] or fields["msgstr[0]"]
    return translations


def text_of(language: str, english: str, context: str = "") -> str:
    """A text in a language."""
    return catalog(language).get((context, english), english)


def text_of_number(language: str, one: str, many: str, number: object) -> str:
    """A text with a number in it, which may be formatted. Chinese has no plural."""
    return catalog(language).get(("", one)) or (one if str(number) == "1" else many)


def error_text(error: HeadraceError, language: str) -> str:
    """What an error says, by its code; that of the API where there is no translation."""
    translation = catalog(language).get(("error", error.code))
    if translation is None:
        return error.detail
    issues = "; ".join(f"{issue.path}: {issue_text(issue, language)}" for issue in error.issues)
    return translation % {"detail": issues if error.code == "VALIDATION" and issues else error.detail}


def issue_text(issue: Issue, language: str) -> str:
    """What is wrong with a field; as the API says it where there is no translation. An issue is a sentence with values
    in it: the first text of the catalog that fits has them as placeholders."""
    for pattern, translation in _issues(language):
        if match := pattern.fullmatch(issue.issue):
            values = match.groupdict()
            return translation % {name: text_of(language, values[name], "kind") for name in values}
    return issue.issue


@cache
def _issues(language: str) -> list[tuple[re.Pattern[str], str]]:
    def pattern(match: re.Match[str]) -> str:
        value = r"\w+" if match[1] == "kind" else ".*?"
        return f"(?P<{match[1]}>{value})"

    return [
        (re.compile(_PLACEHOLDER.sub(pattern, re.escape(english)), re.DOTALL), translation)
        for (context, english), translation in catalog(language).items()
        if context == "issue"
    ]
