"""The list of a business key's messages."""

from __future__ import annotations

from ..domain.errors import NotFound
from ..domain.limits import DEFAULT_PAGE, MAX_ANSWER_BYTES
from ..domain.message import Message
from ..domain.topic import Topic
from ..ports import KeyEntry, Keys
from .lookup import Filters, Lookup

_ENTRIES_PER_PAGE = 512  # what one page looks at, at most; a sparse filter goes on with the next page


class KeyLookup:
    """Finds messages by key, at a cost that does not grow with the topic."""

    def __init__(self, keys: Keys, lookup: Lookup) -> None:
        self._keys = keys
        self._lookup = lookup

    def newest_first(
        self, topic: Topic, key: str, filters: Filters, limit: int, before: str | None
    ) -> tuple[list[Message], str | None]:
        """Up to `limit` messages with the key, newest first, and the mark to go on from (None: the end)."""
        found: list[Message] = []
        weight = 0
        rows = max(limit, DEFAULT_PAGE)
        for _ in range(0, _ENTRIES_PER_PAGE, rows):
            entries = self._keys.newest(topic.uid, key, filters.from_ms, filters.to_ms, before, rows)
            for entry in entries:
                message = self._message(topic, entry, filters)
                weight += message.draft.weight if message else 0
                if found and weight > MAX_ANSWER_BYTES:
                    return found, before
                before = entry.mark
                if message:
                    found.append(message)
                if len(found) == limit:
                    return found, before
            if len(entries) < rows:
                return found, None
        return found, before

    def _message(self, topic: Topic, entry: KeyEntry, filters: Filters) -> Message | None:
        """The entry's message if it is wanted. None also for one that never was stored, or has expired."""
        try:
            message = self._lookup.message(topic, entry.message_id)
        except NotFound:
            return None
        return message if self._lookup.passes(topic, filters, message) else None
