"""Dead letters of a group: grouped by what went wrong; one, to be fixed and sent again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile

from ...api import lists
from ...domain import strict_json
from ...domain.errors import Malformed
from ...domain.message import Message
from ...domain.record import DeadLetter, FailureFilter
from ...domain.topic import Group, Topic
from ...services.core.bodies import with_body
from .. import forms
from ..visit import Page, Shown, Visit
from .message import body_as, editable_body

_ROWS = 20
_LEFT = 7  # so much is left, when another page of rows is read
_MOST_COUNTED = 50
_MOST_DIFF_LINES = 400
_MOST_AROUND = 200
_ID = re.compile(r"\b[0-9a-fA-F-]*\d[0-9a-fA-F-]{3,}\b")
"""A number, UUID or hash in an error: errors that differ in it alone are of one kind."""


def dead_letters(visit: Visit) -> Shown:
    """The first dead letters, or those behind a position."""
    visit.check_may_read()
    topic, group = visit.group()
    letters, next_start = read_letters(visit, topic, group)
    links = link_filters(visit)
    count, more = len(letters), next_start is not None or "after" in visit.query
    if more and not links and visit.has_read_units(6):
        count = visit.deps.adapters.records.count_dead(topic.uid, group.uid, _MOST_COUNTED)
        more = count >= _MOST_COUNTED
    model = {
        "topic": topic,
        "group": group,
        "letters": letters,
        "kinds": kinds(letters),
        "names": visit.deps.catalog.consumer_names(topic, group),
        "following": next_start,
        "counted": count,
        "more": more,
        "filter": links,
    }
    return Page("dead_letters.html", model)


def link_filters(visit: Visit) -> dict[str, str]:
    """The filters in the URL, for links to the same dead letters and for their redrive."""
    return {name: visit.query[name] for name in lists.LETTER_FILTERS if visit.query.get(name)}


def letter_filter(visit: Visit) -> FailureFilter:
    """The same for the service. Raises Malformed."""
    return lists.letter_filter(link_filters(visit))


def read_letters(
    visit: Visit, topic: Topic, group: Group, most: int = _ROWS
) -> tuple[list[DeadLetter], str | None]:
    """The matching dead letters, and where the next page begins."""
    purpose = f"console-letters:{group.uid}"
    after = visit.deps.signing_keys.verified(purpose, visit.query.get("after", "")) or None
    letters, position = visit.deps.letter_lookup.page(
        topic,
        group,
        letter_filter(visit),
        after,
        most,
        rows_per_read=_ROWS,
        may_go_on=lambda: visit.has_read_units(_LEFT),
    )
    return letters, visit.deps.signing_keys.sign(purpose, position) if position is not None else None


def dead_letter(visit: Visit) -> Shown:
    """One dead letter, with a form to edit it."""
    return _letter(visit, None)


def preview_edit(visit: Visit) -> Shown:
    """What an edit would change, before anything happens."""
    return _letter(visit, visit.form.get("body", ""))


def _letter(visit: Visit, draft: str | None) -> Shown:
    visit.check_may_read()
    deps = visit.deps
    topic, group = visit.group()
    letter = deps.letter_lookup.find(topic, group, visit.params["id"])[0]
    message: Message = with_body(deps.adapters.blobs, letter.message)
    body = body_as(message.draft, "pretty")
    problem, edit = None, None
    if draft is not None:
        try:
            strict_json.parse(draft.strip().encode())
            edit = forms.of({**visit.params, "call": "edit_dead_letter", "body": draft}).action
        except Malformed as error:
            problem = error.detail
    model = {
        "topic": topic,
        "group": group,
        "letter": letter,
        "message": message,
        "body": body,
        "editable": editable_body(message.draft),
        "draft": draft,
        "problem": problem,
        "edit": edit,
        "diff": diff(body, draft) if draft is not None and problem is None else None,
        "names": deps.catalog.consumer_names(topic, group),
    }
    return Page("dead_letter.html", model, 200 if problem is None else 400)


@dataclass(frozen=True, slots=True)
class Kind:
    """Dead letters that have reason, error and tag in common."""

    reason: str
    error: str | None
    tag: str | None
    letters: Sequence[DeadLetter]

    @property
    def first_ms(self) -> int:
        return min(letter.at_ms for letter in self.letters)

    @property
    def last_ms(self) -> int:
        return max(letter.at_ms for letter in self.letters)

    @property
    def ids(self) -> str:
        """Their message ids, as a form sends them."""
        return " ".join(letter.message.id for letter in self.letters)


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line that stays (" "), goes ("-") or comes ("+")."""

    sign: str
    text: str


_CUT = DiffLine(" ", "…")
"""Lines that are not shown."""


def kinds(letters: Sequence[DeadLetter]) -> list[Kind]:
    """The kinds of these dead letters, the most frequent first."""
    by_kind: dict[tuple[str, str, str | None], list[DeadLetter]] = {}
    for letter in letters:
        key = letter.reason, _ID.sub("…", letter.failure or ""), letter.message.draft.tag
        by_kind.setdefault(key, []).append(letter)
    found = (Kind(reason, members[0].failure, tag, members) for (reason, _, tag), members in by_kind.items())
    return sorted(found, key=lambda kind: -len(kind.letters))


def diff(before: str, after: str) -> list[DiffLine]:
    """What changes between two texts, line by line. Of what stays only so many lines are shown before and behind it."""
    old, new = before.splitlines(), after.splitlines()
    start = _in_common(old, new)
    end = _in_common(old[start:][::-1], new[start:][::-1])
    first, last = max(0, start - _MOST_AROUND), len(old) - max(0, end - _MOST_AROUND)
    head, tail = old[first:start], old[len(old) - end : last]
    return [
        *([_CUT] if first else []),
        *(DiffLine(" ", text) for text in head),
        *_changes(old[start : len(old) - end], new[start : len(new) - end]),
        *(DiffLine(" ", text) for text in tail),
        *([_CUT] if last < len(old) else []),
    ]


def _in_common(one: Sequence[str], other: Sequence[str]) -> int:
    """With how many equal lines they begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _changes(old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    """Line by line. Very many take too long to be matched: the first that go, and the first that come."""
    if max(len(old), len(new)) > _MOST_DIFF_LINES:
        gone, come = old[: _MOST_DIFF_LINES // 2], new[: _MOST_DIFF_LINES // 2]
        return [*(DiffLine("-", text) for text in gone), *(DiffLine("+", text) for text in come), _CUT]
    lines: list[DiffLine] = []
    for what, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            lines += [DiffLine(" ", text) for text in old[a:b]]
        else:
            lines += [DiffLine("-", text) for text in old[a:b]]
            lines += [DiffLine("+", text) for text in new[c:d]]
    return lines
