"""The console's words in the reader's language. English is the key: what has no translation is shown in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..domain.errors import HeadraceError, Issue

OF_ONE = {
    "after {n} attempts": "after {n} attempt",
    "and {n} consumers more": "and {n} consumer more",
    "{n} are due later.": "{n} is due later.",
    "{n} are left.": "{n} is left.",
    "{n} are passed over": "{n} is passed over",
    "{n} attempts": "{n} attempt",
    "{n} dead letters": "{n} dead letter",
    "{n} dead letters are on their way again.": "{n} dead letter is on its way again.",
    "{n} dead letters have their new bodies.": "{n} dead letter has its new body.",
    "{n} hold no JSON, and stay as they are.": "{n} holds no JSON, and stays as it is.",
    "{n} large bodies were not there": "{n} large body was not there",
    "{n} leases are void": "{n} lease is void",
    "{n} messages": "{n} message",
    "{n} messages at most": "{n} message at most",
    "{n} messages changed.": "{n} message changed.",
    "{n} messages come again": "{n} message comes again",
    "{n} more groups are in the call.": "{n} more group is in the call.",
    "{n} more groups are not counted here.": "{n} more group is not counted here.",
    "{n} objects could not be read": "{n} object could not be read",
    "{n} read units": "{n} read unit",
}
"""English phrases of one thing."""


def speaker(tongue: str) -> Callable[..., str]:
    """`_("{n} messages", n=3)` in a language."""
    phrases: dict[str, str] = {}
    if tongue == "zh":
        from .chinese import PHRASES

        phrases = PHRASES

    def say(text: str, **values: Any) -> str:
        phrase = phrases.get(text) or (OF_ONE.get(text, text) if str(values.get("n")) == "1" else text)
        return phrase.format(**values) if values else phrase

    return say


def error_text(error: HeadraceError, tongue: str) -> str:
    """An error's sentence in a language; that of the API where there is none."""
    if tongue == "zh":
        from .chinese_errors import ERRORS

        issues = "; ".join(f"{each.path}: {issue(each, tongue)}" for each in error.issues)
        detail = issues if error.code == "VALIDATION" and issues else error.detail
        return ERRORS.get(error.code, "{detail}").replace("{detail}", detail)
    return error.detail


def issue(issue: Issue, tongue: str) -> str:
    """What is wrong with a field, in a language; as the API says it where there are no words for it."""
    if tongue == "zh":
        from .chinese_issues import ISSUES

        for pattern, phrase in ISSUES:
            if match := re.fullmatch(pattern, issue.issue, re.DOTALL):
                return match.expand(phrase)
    return issue.issue
