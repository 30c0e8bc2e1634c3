"""Dead letters of a group, by what went wrong; one, to be fixed and sent again; many, fixed by a patch, and as JSON
lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import chain, islice, takewhile
from typing import Any, NamedTuple

import msgspec

from ...api import lists
from ...api.resources.dead_letters import dead_letter_view
from ...domain import strict_json
from ...domain.errors import Malformed
from ...domain.message import Message, holds_json
from ...domain.record import DeadLetter, Failure, FailureFilter
from ...domain.topic import Group, Topic
from ...services.core.bodies import shown_body
from .. import forms
from ..visit import File, Page, Shown, Visit
from .message import body_as, editable_body

# Failures, and None where there are more; dead letters, and where the next begin.
Failures = Iterator[Failure | None]
_Letters = tuple[list[DeadLetter], str | None]
_ROWS = 20
_PAGE = 100
_LEFT = 7  # so much is left, when another page of rows is read
_FEW = 10
# So long a page counts that was asked to count all.
LONGEST_MS = 10_000
_MOST_COUNTED = 1_000
_MOST_ERROR_CHARS = 200
_PURPOSE = "console-letters:"
_MOST_DIFF_LINES = 400
_MOST_AROUND = 200
_MOST_DIFFS = 3
_MOST_LINES = 1_000
_MOST_BYTES = 4_000_000  # Lambda answers with 6 MB at most
_LINES_AT_ONCE = 50
_BODY = frozenset({"body", "body_base64", "undecodable"})
# A number, UUID or hash in an error: errors that differ in it alone have one cause.
_ID = re.compile(r"\b[0-9a-fA-F-]*\d[0-9a-fA-F-]{3,}\b")
# What is shown in its place.
_ANY = "…"


def dead_letters(visit: Visit) -> Shown:
    """The first dead letters, or those behind a position; and what went wrong with these and more of them."""
    topic, group = visit.group()
    begun_units = visit.units.reads
    letters, position = _letters(visit, topic, group, _start(visit, group))
    is_all = "all" in visit.query
    rest = _rest(visit, topic, group, position, visit.units.reads - begun_units)
    found = tally(chain((letter.to_filter for letter in letters), rest))
    model = {
        "letters": letters,
        "found": found,
        "more": not found.is_whole or "after" in visit.query,
        "names": visit.deps.catalog.consumer_names(topic, group),
        "following": _sign(visit, group, position),
        "filter": link_filters(visit),
        "units_of_all": round((visit.units.reads - begun_units) * _MOST_COUNTED / max(1, found.number)),
        "is_all": is_all,
        "poll_seconds": 0 if is_all else 4 if found.is_whole else 20,
    }
    return Page("dead_letters.html", model)


def _rest(visit: Visit, topic: Topic, group: Group, after: str | None, units: float) -> Failures:
    """The dead letters behind the page's: as far as a page may read, where a read costs so many units; or 1,000 in all,
    where the URL asks for that."""
    number, is_all, until_ms = _ROWS, "all" in visit.query, visit.now_ms + LONGEST_MS
    while after is not None:
        may_go_on = visit.now_ms < until_ms if is_all else visit.has_units(units + 2)
        if number >= _MOST_COUNTED or not may_go_on:
            yield None
            return
        before = visit.units.reads
        letters, after = _letters(visit, topic, group, after, is_all)
        units = max(units, visit.units.reads - before)
        number += len(letters)
        yield from (letter.to_filter for letter in letters)


def link_filters(visit: Visit) -> dict[str, str]:
    """The filters in the URL, for links to the same dead letters and for actions on them."""
    filters = {name: visit.query[name] for name in lists.LETTER_FILTERS if visit.query.get(name)}
    return filters | {name: forms.whole_time(filters[name]) for name in ("since", "until") if name in filters}


def letter_filter(visit: Visit) -> FailureFilter:
    """The same for the service. Raises Malformed."""
    return lists.letter_filter(link_filters(visit))


def _letters(visit: Visit, topic: Topic, group: Group, after: str | None, is_all: bool = False) -> _Letters:
    most, how = (_PAGE, {}) if is_all else (_ROWS, {"may_go_on": visit.may_go_on(_LEFT)})
    which, page = letter_filter(visit), visit.deps.letter_lookup.page
    return page(topic, group, which, after, most, rows_per_read=most, **how)


def _start(visit: Visit, group: Group) -> str | None:
    return visit.position(f"{_PURPOSE}{group.uid}")


def _sign(visit: Visit, group: Group, position: str | None) -> str | None:
    return visit.signed(f"{_PURPOSE}{group.uid}", position)


def dead_letter(visit: Visit) -> Shown:
    """One dead letter, with a form to edit it. A POST shows what the edit would change, before anything happens."""
    deps = visit.deps
    topic, group = visit.group()
    letter = deps.letter_lookup.find(topic, group, visit.params["id"])[0]
    message: Message = shown_body(deps.adapters.blobs, topic, letter.message)
    body, draft = body_as(message.draft, "pretty"), visit.form.get("body")
    problem, edit = None, None
    if draft is not None:
        try:
            strict_json.parse(draft.strip().encode())
            edit = forms.of({**visit.params, "call": "edit_dead_letter", "body": draft}).action
        except Malformed as error:
            problem = error.detail
    model = {
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


def many_letters(visit: Visit) -> Shown:
    """A form for a patch. A POST shows what it would change, before anything happens."""
    topic, group = visit.group()
    letters, position = _letters(visit, topic, group, _start(visit, group))
    patch = visit.form.get("patch", "")
    preview, merge, problem = None, None, None
    if patch.strip():
        try:
            blobs = visit.deps.adapters.blobs
            whole = [replace(letter, message=shown_body(blobs, topic, letter.message)) for letter in letters]
            preview = patch_preview(whole, patch.encode(), _MOST_DIFFS)
            fields = {"topic": topic.name, "group": group.name, "patch": patch, "ids": preview["ids"]}
            merge = forms.of({"call": "merge_dead_letters", **fields}).action
        except Malformed as error:
            problem = error.detail
    model = {
        "number": len(letters),
        "more": position is not None or "after" in visit.query,
        "following": _sign(visit, group, position),
        "filter": link_filters(visit),
        "patch": patch,
        "preview": preview,
        "merge": merge,
        "problem": problem,
    }
    return Page("many_letters.html", model, 200 if problem is None else 400)


def letter_lines(visit: Visit) -> Shown:
    """Dead letters as JSON lines: up to 1,000 of them, or 4 MB. One that is larger than that by itself is without its
    body. It costs what it reads."""
    topic, group = visit.group()
    wanted = letter_filter(visit)
    names = visit.deps.catalog.consumer_names(topic, group)
    lines: list[bytes] = []
    room = _MOST_BYTES
    for letter in islice(_all_letters(visit, topic, group, wanted), _MOST_LINES):
        line = _line_of(visit, topic, letter, names)
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    name = f'attachment; filename="{topic.name}-{group.name}-dead-letters.jsonl"'
    return File(b"".join(lines), "application/x-ndjson", {"Content-Disposition": name})


def _all_letters(visit: Visit, topic: Topic, group: Group, wanted: FailureFilter) -> Iterator[DeadLetter]:
    after: str | None = None
    while True:
        rows = visit.deps.adapters.records.dead(topic, group, after, _LINES_AT_ONCE)
        yield from (letter for _, letter in rows if wanted.matches(letter.to_filter))
        if len(rows) < _LINES_AT_ONCE:
            return
        after = rows[-1][0]


def _line_of(visit: Visit, topic: Topic, letter: DeadLetter, names: Mapping[str, str]) -> bytes:
    """The dead letter as the interface shows it; without its body if no file has room for it."""
    draft = letter.message.draft
    text_bytes = draft.size if draft.is_json else draft.size * 4 // 3
    if text_bytes <= _MOST_BYTES:
        message = shown_body(visit.deps.adapters.blobs, topic, letter.message)
        line = msgspec.json.encode(dead_letter_view(letter, message, names)) + b"\n"
        if len(line) <= _MOST_BYTES:
            return line
    view = dead_letter_view(letter, letter.message, names)
    return msgspec.json.encode({name: value for name, value in view.items() if name not in _BODY}) + b"\n"


def patch_preview(letters: Sequence[DeadLetter], patch: bytes, most_shown: int) -> dict[str, Any]:
    """What a JSON merge patch would change in these letters: the diffs of the first that change, by message id; how
    many there are, and their ids as a form sends them. Malformed for what is no JSON object."""
    if not isinstance(strict_json.parse(patch), dict):
        raise Malformed("VALIDATION", 'A patch is an object, such as {"customer": null}.')
    diffs: dict[str, Sequence[DiffLine]] = {}
    changed_ids: list[str] = []
    no_json = 0
    for letter in letters:
        draft = letter.message.draft
        if not (draft.has_body and holds_json(draft)):
            no_json += 1
            continue
        before, after = strict_json.merged(draft.body, b"{}"), strict_json.merged(draft.body, patch)
        if before != after:
            changed_ids.append(letter.message.id)
            if len(diffs) < most_shown:
                diffs[letter.message.id] = diff(_pretty(before), _pretty(after))
    ids = " ".join(changed_ids)
    return {"diffs": diffs, "changed": len(changed_ids), "no_json": no_json, "ids": ids}


def _pretty(body: bytes) -> str:
    return msgspec.json.format(body, indent=2).decode()


@dataclass(slots=True)
class Cause:
    """Failures that have the reason and the error in common, apart from the numbers and ids in it."""

    reason: str | None
    error: str | None
    id: str
    first_ms: int
    last_ms: int
    number: int = 0
    tags: set[str] = field(default_factory=set)

    @property
    def filter(self) -> dict[str, str]:
        """The filter that has them: the longest part of the error that all of them have."""
        part = max(_ID.sub(_ANY, self.error or "").split(_ANY), key=len)[:_MOST_ERROR_CHARS].strip()
        return {name: text for name, text in (("reason", self.reason), ("error", part)) if text}


class Tally(NamedTuple):
    """How many failures there are (`is_whole`: no more than that), their causes, the most frequent first, and the first
    of them."""

    number: int
    is_whole: bool
    causes: Sequence[Cause]
    first: Sequence[Failure]


def tally(failures: Iterable[Failure | None]) -> Tally:
    """Count them; None says that there are more."""
    by_cause: dict[tuple[str | None, str], Cause] = {}
    first: list[Failure] = []
    number, is_whole = 0, True
    for each in failures:
        if each is None:
            is_whole = False
            break
        number += 1
        first += [each] if number <= _FEW else []
        error = (each.error or "").strip()
        fresh = Cause(each.reason, error, each.id, each.at_ms, each.at_ms)
        pattern = _ID.sub(_ANY, error)
        cause = by_cause.setdefault((each.reason, pattern), fresh)
        cause.error = error if cause.error == error else pattern
        cause.number += 1
        cause.first_ms, cause.last_ms = min(cause.first_ms, each.at_ms), max(cause.last_ms, each.at_ms)
        if each.draft and each.draft.tag:
            cause.tags.add(each.draft.tag)
    return Tally(number, is_whole, sorted(by_cause.values(), key=lambda cause: -cause.number), first)


class DiffLine(NamedTuple):
    """A line that stays (" "), goes ("-") or comes ("+")."""

    sign: str
    text: str


# Lines that are not shown.
_CUT = DiffLine(" ", "…")


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
