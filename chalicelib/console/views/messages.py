"""Messages in a list: one line each, with how far the groups are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...domain.message import Draft, Message
from ...services.inspect.survey import TopicSurvey

_EXCERPT_CHARS = 160
MOST_GROUPS = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A message in a list. `statuses` by group, as far as they were looked at."""

    message: Message
    excerpt: str
    statuses: Mapping[str, str]

    @property
    def draft(self) -> Draft:
        return self.message.draft


def lines(messages: Sequence[Message], survey: TopicSurvey) -> list[Line]:
    """The lines of messages in the log."""
    return [Line(each, excerpt(each.draft), statuses(each, survey)) for each in messages]


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
    needle = text.lower()
    if needle in draft.body.decode(errors="replace").lower():
        return True
    return any(needle in each.lower() for each in (*draft.keys, *draft.headers.values(), draft.tag or ""))
