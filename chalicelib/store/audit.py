"""The audit trail on DynamoDB (layout: table `audit`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..domain.audit import AuditEntry, month_of, months_back
from ..domain.limits import AUDIT_DAYS
from ..domain.times import DAY_SECONDS
from .attributes import Fields, Item, attributes, known_text, rows
from .dynamo import TableAccess
from .layout import FORMAT

_PAGE = 100
_TEXTS = Fields("token_id:b token_name:n method:m path:p object:o result:r topic:t source:f")


class Audit(TableAccess, table="audit"):
    """What was done, for AUDIT_DAYS: a write unit for each entry. Entries are never changed."""

    def add(self, entry: AuditEntry) -> None:
        """Store an entry. Harmless to repeat."""
        self._dynamo.put(self._table, [_item(entry)])

    def entries(self, from_ms: int, to_ms: int, before: str | None) -> Iterator[AuditEntry]:
        """Entries from a time on and before another, the newest first; only those before a key."""
        start, end = f"{from_ms:015d}", f"{to_ms:015d}"
        if before is not None:
            end, to_ms = min(end, before), min(to_ms, int(before.partition("#")[0]))
        if start > end:  # DynamoDB refuses to look there
            return
        for month in months_back(from_ms, to_ms):
            where = "d = :d AND k BETWEEN :start AND :end"
            request = rows(self._table, where, d=month, start=start, end=end)
            items = self._dynamo.query(**request, ScanIndexForward=False, Limit=_PAGE)
            yield from (_entry(item) for item in items if item["k"]["S"] < end)


def _item(entry: AuditEntry) -> Item:
    expires_s = entry.at_ms // 1000 + AUDIT_DAYS * DAY_SECONDS
    place = attributes(d=month_of(entry.at_ms), k=entry.key, x=expires_s, v=int(FORMAT))
    return {**_TEXTS.packed(entry), **attributes(a=entry.at_ms, q=entry.request_id), **place}


def _entry(item: Item) -> AuditEntry:
    """The entry of a row. Of a damaged one what can be read, and its key: what was done must not vanish."""
    at_ms, _, request_id = item["k"]["S"].partition("#")
    texts: dict[str, Any] = {field: known_text(item, name) for field, name in _TEXTS.texts.items()}
    others = {field: value or "" for field, value in texts.items() if field not in ("topic", "source")}
    return AuditEntry(at_ms=int(at_ms), request_id=request_id, **(texts | others))
