"""Dead letters: grouped by what went wrong, and what an edit would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile

import msgspec

from ...api import strict
from ...api.strict import merged
from ...domain.errors import Malformed
from ...domain.message import holds_json
from ...domain.record import DeadLetter

_MOST_DIFF_LINES = 400
_MOST_AROUND = 200


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
    """The kinds of these letters, the most frequent first."""
    by_kind: dict[tuple[str, str | None, str | None], list[DeadLetter]] = {}
    for letter in letters:
        key = letter.reason, letter.last_error, letter.message.draft.tag
        by_kind.setdefault(key, []).append(letter)
    return sorted(
        (Kind(*key, members) for key, members in by_kind.items()), key=lambda kind: -len(kind.letters)
    )


@dataclass(frozen=True, slots=True)
class PatchPreview:
    """What a patch would do to letters: the diffs of the first that change, by message id; how many there
    are, and their ids as a form sends them."""

    diffs: Mapping[str, Sequence[DiffLine]]
    changed: int
    no_json: int
    ids: str


def patch_preview(letters: Sequence[DeadLetter], patch: bytes, most_shown: int) -> PatchPreview:
    """What a JSON merge patch would change in these letters. Malformed for what is no JSON object."""
    if not isinstance(strict.parse(patch), dict):
        raise Malformed("VALIDATION", 'A patch is an object, such as {"customer": null}.')
    diffs: dict[str, Sequence[DiffLine]] = {}
    changed_ids: list[str] = []
    no_json = 0
    for letter in letters:
        draft = letter.message.draft
        if not (draft.has_body and holds_json(draft)):
            no_json += 1
            continue
        before, after = merged(draft.body, b"{}"), merged(draft.body, patch)
        if before != after:
            changed_ids.append(letter.message.id)
            if len(diffs) < most_shown:
                diffs[letter.message.id] = diff(_pretty(before), _pretty(after))
    return PatchPreview(diffs, len(changed_ids), no_json, " ".join(changed_ids))


def _pretty(body: bytes) -> str:
    return msgspec.json.format(body, indent=2).decode()


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
