"""Many dead letters at once: fixed by a patch, and as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import msgspec

from ...api.resources.dead_letters import dead_letter_view
from ...domain import strict_json
from ...domain.errors import Malformed
from ...domain.message import holds_json
from ...domain.record import DeadLetter, FailureFilter
from ...domain.strict_json import merged
from ...domain.topic import Group, Topic
from ...services.core.bodies import shown_body
from .. import forms
from ..visit import File, Page, Shown, Visit
from .dead_letters import DiffLine, diff, letter_filter, link_filters, read_letters

_MOST_SHOWN = 3
_MOST_LINES = 1_000
_MOST_BYTES = 4_000_000  # Lambda answers with 6 MB at most
_PAGE = 50
_BODY = frozenset({"body", "body_base64", "undecodable"})


def many_letters(visit: Visit) -> Shown:
    """A form for a patch. A POST shows what it would change, before anything happens."""
    visit.check_may_read()
    topic, group = visit.group()
    letters, next_start = read_letters(visit, topic, group)
    patch = visit.form.get("patch", "")
    preview, merge, problem = None, None, None
    if patch.strip():
        try:
            preview = patch_preview(_with_bodies(visit, topic, letters), patch.encode(), _MOST_SHOWN)
            fields = {"topic": topic.name, "group": group.name, "patch": patch, "ids": preview.ids}
            merge = forms.of({"call": "merge_dead_letters", **fields}).action
        except Malformed as error:
            problem = error.detail
    model = {
        "topic": topic,
        "group": group,
        "number": len(letters),
        "more": next_start is not None or "after" in visit.query,
        "following": next_start,
        "filter": link_filters(visit),
        "patch": patch,
        "preview": preview,
        "merge": merge,
        "problem": problem,
    }
    return Page("many_letters.html", model, 200 if problem is None else 400)


def _with_bodies(visit: Visit, topic: Topic, letters: list[DeadLetter]) -> list[DeadLetter]:
    blobs = visit.deps.adapters.blobs
    return [replace(letter, message=shown_body(blobs, topic, letter.message)) for letter in letters]


def letter_lines(visit: Visit) -> Shown:
    """Dead letters as JSON lines: up to 1,000 of them, or 4 MB. One that is larger than that by itself is without its
    body. It costs what it reads."""
    visit.check_may_read()
    topic, group = visit.group()
    wanted = letter_filter(visit)
    names = visit.deps.catalog.consumer_names(topic, group)
    lines: list[bytes] = []
    room = _MOST_BYTES
    for letter in islice(_letters(visit, topic, group, wanted), _MOST_LINES):
        line = _line_of(visit, topic, letter, names)
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
    name = f'attachment; filename="{topic.name}-{group.name}-dead-letters.jsonl"'
    return File(b"".join(lines), "application/x-ndjson", {"Content-Disposition": name})


def _letters(visit: Visit, topic: Topic, group: Group, wanted: FailureFilter) -> Iterator[DeadLetter]:
    after: str | None = None
    while True:
        rows = visit.deps.adapters.records.dead(topic, group, after, _PAGE)
        yield from (letter for _, letter in rows if wanted.matches(letter.to_filter))
        if len(rows) < _PAGE:
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


@dataclass(frozen=True, slots=True)
class PatchPreview:
    """The effect of a patch on dead letters: the diffs of the first that change, by message id; how many there
    are, and their ids as a form sends them."""

    diffs: Mapping[str, Sequence[DiffLine]]
    changed: int
    no_json: int
    ids: str


def patch_preview(letters: Sequence[DeadLetter], patch: bytes, most_shown: int) -> PatchPreview:
    """What a JSON merge patch would change in these letters. Malformed for what is no JSON object."""
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
        before, after = merged(draft.body, b"{}"), merged(draft.body, patch)
        if before != after:
            changed_ids.append(letter.message.id)
            if len(diffs) < most_shown:
                diffs[letter.message.id] = diff(_pretty(before), _pretty(after))
    return PatchPreview(diffs, len(changed_ids), no_json, " ".join(changed_ids))


def _pretty(body: bytes) -> str:
    return msgspec.json.format(body, indent=2).decode()
