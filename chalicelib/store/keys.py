"""Business keys on DynamoDB (layout: table `keys`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ..domain.append import KeyEntry
from .attributes import Item, attributes, known_int, rows, text
from .dynamo import TableAccess
from .layout import FORMAT, key_home


class Keys(TableAccess, table="keys"):
    """Which messages have a business key: one write unit for an entry, one query for the newest."""

    def note(self, entries: Sequence[KeyEntry]) -> None:
        """Store entries, one write unit each. Harmless to repeat."""
        self._dynamo.put(self._table, [_item(entry) for entry in entries])

    def newest(
        self, topic_uid: str, key: str, from_ms: int | None, to_ms: int | None, before: str | None, limit: int
    ) -> list[KeyEntry]:
        """The last entries of a key from the position `before` back, newest first; both times belong to the range.
        Fewer than `limit` only at the end; read consistently."""
        first, last = marks(from_ms, to_ms)
        if first > last:
            return []
        home = key_home(topic_uid, key)
        start = {"ExclusiveStartKey": {"k": text(home), "o": text(before)}} if before else {}
        request = rows(self._table, "k = :k AND o BETWEEN :first AND :last", k=home, first=first, last=last)
        how = {"ScanIndexForward": False, "ConsistentRead": True, "Limit": limit, **start}
        items = self._dynamo.query(**request, **how)
        return [_entry(topic_uid, key, item) for item in islice(items, limit)]


def marks(from_ms: int | None, to_ms: int | None) -> tuple[str, str]:
    """A time range as sort keys, from and to; the first is the higher one if the range is empty."""
    return f"{max(0, from_ms or 0):015d}", "~" if to_ms is None else f"{to_ms:015d}#~"


def _item(entry: KeyEntry) -> Item:
    home = key_home(entry.topic_uid, entry.key)
    return attributes(k=home, o=entry.sort_key, x=entry.expires_s, v=int(FORMAT))


def _entry(topic_uid: str, key: str, item: Item) -> KeyEntry:
    accepted_ms, _, message_id = item["o"]["S"].partition("#")
    return KeyEntry(topic_uid, key, message_id, int(accepted_ms), known_int(item, "x"))
