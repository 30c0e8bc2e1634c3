"""Messages: those that all fields of the page's form ask for, as far as its read units reach; as JSON lines; and the
newest, as they come."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ...api import lists
from ...api.fields import taken
from ...api.http import check_group, check_name, invalid
from ...api.parse import whole_number
from ...domain import redact
from ...domain.limits import MAX_OFFSET
from ...domain.message import Draft, Message, body_fields
from ...domain.topic import Topic
from ...services.core.bodies import shown_body
from ...services.inspect.lookup import AnyMessage, Filters, status_before_log
from ...services.inspect.survey import GroupSurvey, TopicSurvey
from ..forms import whole_time
from ..visit import File, Page, Shown, Visit

_STATUSES = ("NEW", "RUNNING", "RETRYING", "DEAD", "SUCCESS", "CANCELLED")
_MOST_BYTES = 4_000_000  # Lambda answers with 6 MB at most
_NEWEST = 30
_PER_SHARD = 10
# The fields of the form. They are in the page's URL, and in the link to older messages.
FIELDS = ("status", "group", "tag", "tenant", "key", "text", "shard", "from", "to")
_LINES = 20
_LOCATED = ("RUNNING", "RETRYING", "DEAD")  # of these a survey knows shard and offset
_FOR_A_MESSAGE = 3  # read units that one may cost: its row, and if it is delayed its timer
_EXCERPT_CHARS = 160
MOST_GROUPS = 4


def messages(visit: Visit) -> Shown:
    """Messages, newest first, narrowed by what the URL says."""
    topic = visit.topic()
    selection = selection_of(visit, topic, _STATUSES)
    survey = selection.survey
    listed_messages, older = _read(visit, selection)
    model = {
        "survey": survey,
        "lines": lines(listed_messages, survey),
        "older": older,
        "statuses": _STATUSES,
        "shown_groups": [each.group.name for each in survey.groups[:MOST_GROUPS]],
    }
    return Page("messages.html", model)


def message_lines(visit: Visit) -> Shown:
    """The messages of a list as JSON lines, each with its body as long as all bodies together have 4 MB."""
    result = messages(visit)
    assert isinstance(result, Page)
    rows, room = [], _MOST_BYTES
    for line in result.model["lines"]:
        draft = line.draft
        if draft.size <= room:
            draft = shown_body(visit.deps.adapters.blobs, visit.topic(), line.message).draft
            room -= draft.size
        place = taken(line.message, "id", "shard", "offset") | {"statuses": dict(line.statuses)}
        rows.append(place | taken(draft, "keys", "tag", "size") | body_fields(draft))
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    name = f'attachment; filename="{visit.params["topic"]}.jsonl"'
    return File(lines, "application/x-ndjson", {"Content-Disposition": name})


def tail(visit: Visit) -> Shown:
    """The newest messages, again and again, with a mark where more came than are shown. It needs no group, and changes
    nothing."""
    topic = visit.topic()
    skipped, seen = _seen(visit.query.get("seen", ""))
    newest, ends = [], dict(seen)
    for shard in topic.shard_numbers:
        if not visit.has_units(2):
            break
        rows = visit.deps.adapters.log.read_back(topic.shard_key(shard), MAX_OFFSET, 2)
        end = max((row.end for row in rows), default=0)
        for row in rows:
            offsets = range(max(row.first, end - _PER_SHARD), row.end)
            newest += [each for offset in offsets if (each := row.message(shard, offset))]
        ends[shard] = max(end, ends.get(shard, 0))
    newest.sort(key=lambda each: (-each.accepted_ms, -each.offset))
    lines = [_line(topic, each, {}) for each in newest[:_NEWEST]]
    firsts = {**ends, **{line.message.shard: line.message.offset for line in lines}}
    gaps = {shard: firsts[shard] - end for shard, end in seen.items() if firsts[shard] > end}
    skipped += sum(gaps.values())
    model = {
        "lines": lines,
        "gaps": {(shard, firsts[shard]): number for shard, number in gaps.items()},
        "skipped": skipped,
        "seen": "~".join([str(skipped), *(f"{shard}.{end}" for shard, end in ends.items())]),
        "poll_seconds": 2,
    }
    return Page("tail.html", model)


def _seen(text: str) -> tuple[int, dict[int, int]]:
    """What the page before this one says: how many messages were not shown by then, and the end of each shard."""
    skipped, *pairs = text.split("~")
    ends: dict[int, int] = {}
    for shard, _, end in (pair.partition(".") for pair in pairs):
        if (number := whole_number(shard, 4)) is not None:
            ends[number] = whole_number(end, 15) or 0
    return whole_number(skipped, 15) or 0, ends


class Selection(NamedTuple):
    """What a list is limited to. `filters` have the tag, the shard and the times; status and group are compared with
    the survey, which costs no more reads."""

    topic: Topic
    survey: TopicSurvey
    fields: dict[str, str]
    filters: Filters
    group: GroupSurvey | None

    @property
    def status(self) -> str | None:
        return self.fields.get("status")

    def passes(self, message: AnyMessage) -> bool:
        """Has the message the text and the status?"""
        text = self.fields.get("text")
        has_text = not text or holds_text(redact.shown(self.topic, message.message).draft, text)
        return has_text and self._has_status(message)

    def _has_status(self, message: AnyMessage) -> bool:
        if not isinstance(message, Message):
            return self.group is None and self.status in (None, status_before_log(message))
        by_group = statuses(message, self.survey)
        if message.draft.cancelled:
            return self.group is None and self.status in (None, "CANCELLED")
        if self.group is None:
            return self.status is None or self.status in by_group.values()
        name = self.group.group.name
        return name in by_group and self.status in (None, by_group[name])


def selection_of(visit: Visit, topic: Topic, statuses: Sequence[str]) -> Selection:
    """What the URL asks for, as the interface checks it: raises Malformed, Refused, Forbidden or NotFound."""
    fields = {name: visit.query[name] for name in FIELDS if visit.query.get(name)}
    if fields.get("status") not in (None, *statuses):
        raise invalid("status", f"must be one of {', '.join(statuses)}")
    times = {name: whole_time(fields[name]) for name in ("from", "to") if name in fields}
    filters = lists.of_query(fields | times)
    lists.check_shard(topic, filters.shard)
    survey, group = _survey(visit, topic, filters.shard or 0, fields.get("group"))
    return Selection(topic=topic, survey=survey, fields=fields, filters=filters, group=group)


def _survey(
    visit: Visit, topic: Topic, first_shard: int, name: str | None
) -> tuple[TopicSurvey, GroupSurvey | None]:
    """The topic, and the group of this name in it, which is read even if there was no time for all groups."""
    surveyor = visit.deps.surveyor
    survey = surveyor.survey(topic, first_shard=first_shard, may_go_on=visit.may_go_on(10), ages=False)
    survey = survey.seen_by(visit.caller)
    if name is None:
        return survey, None
    check_name("group", name)
    check_group(visit.caller, name)
    group = next((each for each in survey.groups if each.group.name == name), None)
    if group is None:
        only = visit.deps.catalog.group(topic, name)
        (group,) = surveyor.survey(topic, first_shard=first_shard, only=only, ages=False).groups
        survey = replace(survey, groups=(*survey.groups, group))
    return survey, group


def _read(visit: Visit, selection: Selection) -> tuple[Sequence[Message], str | None]:
    """A page of messages, and the link to the next one (None: there are no more)."""
    topic = selection.topic
    purpose = lists.purpose("console-messages", [topic.uid], selection.fields, FIELDS)
    position = visit.position(purpose, "page")
    start = json.loads(position) if position else None
    next_start: Any
    if "key" in selection.fields:
        messages, next_start = _of_key(visit, selection, start)
    elif selection.group and selection.status in _LOCATED:
        messages, next_start = _at_locations(visit, selection, start)
    else:
        messages, next_start = _newest_first(visit, selection, start)
    if next_start is None:
        return messages, None
    page = visit.signed(purpose, json.dumps(next_start))
    return messages, visit.links.to("topics", topic.name, "messages", **selection.fields, page=page)


def _of_key(visit: Visit, selection: Selection, start: str | None) -> tuple[Sequence[Message], str | None]:
    """Messages with a key, also delayed and prepared ones."""
    messages: list[Message] = []
    key, position = selection.fields["key"][:256], start
    may_go_on = visit.may_go_on(_FOR_A_MESSAGE)
    read = partial(visit.deps.key_lookup.newest_first, selection.topic, key, selection.filters)
    while True:
        results, position = read(_LINES - len(messages), position, may_go_on=may_go_on)
        messages += [each.message for each in results if selection.passes(each)]
        if position is None or len(messages) == _LINES or not may_go_on():
            return messages, position


def _at_locations(
    visit: Visit, selection: Selection, start: Sequence[int] | None
) -> tuple[Sequence[Message], Sequence[int] | None]:
    """The messages at the shards and offsets that the survey has of this status; the highest offsets first."""
    assert selection.group
    assert selection.status
    reader, filters = visit.deps.reader, selection.filters
    messages: list[Message] = []
    last = tuple(start) if start else (0, MAX_OFFSET + 1)
    for shard, offset in selection.group.locations_of(selection.status):
        if (-offset, shard) <= (-last[1], last[0]) or filters.shard not in (None, shard):
            continue
        if len(messages) == _LINES or not visit.has_units(1):
            return messages, last
        message = reader.fetch(selection.topic.shard_key(shard), [offset], reader.recent())[offset].message
        last = (shard, offset)
        if not message or not filters.covers(message.accepted_ms):
            continue
        if filters.passes(shard, message.draft, lambda _: None) and selection.passes(message):
            messages.append(message)
    return messages, None


def _newest_first(
    visit: Visit, selection: Selection, start: dict[str, int] | None
) -> tuple[Sequence[Message], dict[int, int] | None]:
    """Messages from the tails back. Those of a status are found by looking at each."""
    shard = selection.filters.shard
    starts = {int(number): offset for number, offset in start.items()} if start else None
    next_offsets: dict[int, int] | None = starts or {
        each.shard: each.tail for each in selection.survey.shards if shard in (None, each.shard)
    }
    messages: list[Message] = []
    may_go_on = visit.may_go_on(2)
    read = partial(visit.deps.lookup.newest_first, selection.topic, selection.filters)
    while next_offsets and len(messages) < _LINES and may_go_on():
        rows, next_offsets = read(_LINES - len(messages), next_offsets, may_go_on=may_go_on)
        messages += filter(selection.passes, rows)
        if not rows:
            break
    return messages, next_offsets or None


class Line(NamedTuple):
    """A message in a list. `statuses` by group, as far as they were looked at."""

    message: Message
    excerpt: str
    statuses: Mapping[str, str]

    @property
    def draft(self) -> Draft:
        return self.message.draft


def lines(messages: Sequence[Message], survey: TopicSurvey) -> list[Line]:
    """The lines of messages in the log."""
    return [_line(survey.topic, each, statuses(each, survey)) for each in messages]


def _line(topic: Topic, message: Message, statuses: Mapping[str, str]) -> Line:
    seen = redact.shown(topic, message)
    return Line(seen, excerpt(seen.draft), statuses)


def statuses(message: Message, survey: TopicSurvey) -> dict[str, str]:
    """The status of a message for every group that is owed it, and wants it."""
    if message.draft.cancelled:
        return {}
    readers = (each for each in survey.groups if each.group.wants(message.draft))
    by_group = {each.group.name: each.status_of(message.shard, message.offset) for each in readers}
    return {name: status for name, status in by_group.items() if status}


def excerpt(draft: Draft) -> str:
    """The beginning of a body as text; of what is no text, nothing."""
    if not draft.has_body:
        return ""
    return text_of(draft.body[: _EXCERPT_CHARS * 4])[:_EXCERPT_CHARS]


def text_of(body: bytes) -> str:
    """Bytes as text, where they are; characters that would end a line are shown as spaces."""
    text = body.decode(errors="replace")
    return " ".join(text.split()) if "\x00" not in text else ""


def holds_text(draft: Draft, text: str) -> bool:
    """Is the text in the body, its keys or its headers?"""
    texts = (draft.body.decode(errors="replace"), *draft.keys, *draft.headers.values(), draft.tag or "")
    return any(text.lower() in each.lower() for each in texts)
