"""The list of messages with a business key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...domain.append import KeyEntry
from ...domain.errors import Conflict, NotFound, Unreadable
from ...domain.limits import DEFAULT_PAGE, MAX_ANSWER_BYTES
from ...domain.message import Message
from ...domain.topic import Topic
from ...ports.world import Clock
from ...store import Keys
from .lookup import MOST_LISTING_MS, AnyMessage, BeforeLog, Filters, Lookup, passes_before_log
from .statuses import TopicStatuses

_ENTRIES_PER_PAGE = 512  # what one page looks at, at most; a sparse filter goes on with the next page


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Finds messages by key. The cost does not grow with the topic."""

    # `on_skip` is called for each unreadable row that the list skips.
    keys: Keys
    lookup: Lookup
    clock: Clock
    on_skip: Callable[[Unreadable], object]

    def newest_first(
        self,
        topic: Topic,
        key: str,
        filters: Filters,
        limit: int,
        before: str | None,
        topic_statuses: TopicStatuses | None = None,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> tuple[list[AnyMessage], str | None]:
        """Up to `limit` messages with the key, newest first, and the next position (None: the end). A delayed message
        is sorted by its first due time, a prepared one by its time of preparation. Reading stops after eight seconds,
        and when `may_go_on()` is False."""
        ends_ms = self.clock.now_ms() + MOST_LISTING_MS
        topic_statuses = topic_statuses or self.lookup.statuses.of_topic(topic)
        messages: list[AnyMessage] = []
        weight = 0
        rows = max(limit, DEFAULT_PAGE)
        for _ in range(0, _ENTRIES_PER_PAGE, rows):
            entries = self.keys.newest(topic.uid, key, filters.from_ms, filters.to_ms, before, rows)
            for entry in entries:
                if not may_go_on():
                    return messages, before or ""
                message = self._message(topic_statuses, entry, filters)
                produced = message.message if isinstance(message, BeforeLog) else message
                weight += produced.draft.weight if produced else 0
                if messages and weight > MAX_ANSWER_BYTES:
                    return messages, before
                before = entry.sort_key
                if message:
                    messages.append(message)
                if len(messages) == limit or self.clock.now_ms() >= ends_ms:
                    return messages, before
            if len(entries) < rows:
                return messages, None
        return messages, before

    def _message(self, topic_statuses: TopicStatuses, entry: KeyEntry, filters: Filters) -> AnyMessage | None:
        """The entry's message if it is wanted. None also for one that never was stored, has expired, or cannot be
        read."""
        try:
            message = self.lookup.find(topic_statuses.topic, entry.message_id)
        except (NotFound, Conflict):
            return None
        except Unreadable as error:
            self.on_skip(error)
            return None
        if isinstance(message, Message):
            if not message.draft.id and message.accepted_ms != entry.accepted_ms:
                return None  # of another try of a named request, at the same offset
            passes = filters.passes(message.shard, message.draft, partial(topic_statuses.status, message))
        else:
            passes = passes_before_log(message, filters)
        return message if passes else None
