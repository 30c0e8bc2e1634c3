"""Which dedup ids were used, always as part of another row's transaction, and which links that sign in, on DynamoDB
(layout: table `dedup`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..domain.append import DedupEntry
from .attributes import Item, attributes, known_int, known_text, number, text
from .dynamo import Cancelled, Dynamo, TableAccess, write_of
from .layout import FORMAT, dedup_key


def dedup_put(table: str, entry: DedupEntry) -> dict[str, Any]:
    """The transaction's action that remembers a dedup id, unless it was used within its window: by another message than
    the one whose entry this replaces."""
    # TTL removes rows late: a window that has passed is as good as no row.
    condition, known = "attribute_not_exists(d) OR e <= :ms", {":ms": number(entry.accepted_ms)}
    if entry.instead_of:
        condition, known = f"{condition} OR i = :i", {**known, ":i": text(entry.instead_of)}
    content = attributes(h=entry.content_hash, i=entry.message_id, a=entry.accepted_ms)
    ends = attributes(e=entry.ends_ms, x=entry.expires_s, v=int(FORMAT))
    item = {**dedup_key(entry.topic_uid, entry.dedup_id), **content, **ends}
    return {"Put": write_of(table, item=item, condition=condition, known=known, shows_old=True)}


def dedup_entry(topic_uid: str, dedup_id: str, item: Item) -> DedupEntry:
    """The stored entry of a dedup id. A damaged row gives what is readable: the id must not be stored a second time."""
    content, message_id = (known_text(item, name) or "" for name in "hi")
    accepted_ms, ends_ms = (known_int(item, name) for name in "ae")
    return DedupEntry(topic_uid, dedup_id, content, message_id, accepted_ms, ends_ms)


def used_entries(entries: Sequence[DedupEntry], items: Sequence[Item | None]) -> tuple[DedupEntry, ...]:
    """The stored entries of those ids whose actions a cancelled transaction refused. `items` are the rows that stood in
    the way, in the order of `entries`; None where none did."""
    used = ((entry, item) for entry, item in zip(entries, items, strict=False) if item)
    return tuple(dedup_entry(entry.topic_uid, entry.dedup_id, item) for entry, item in used)


def store_with(
    dynamo: Dynamo, entries: Sequence[DedupEntry], actions: Sequence[dict[str, Any]]
) -> tuple[DedupEntry, ...]:
    """Carry out actions in one transaction with dedup ids. Returns the entries of ids that were used before; then
    nothing is stored."""
    puts = [dedup_put(dynamo.tables.dedup, entry) for entry in entries]
    try:
        dynamo.call("transact_write_items", TransactItems=[*puts, *actions])
    except Cancelled as error:
        return used_entries(entries, error.items)
    return ()


_TICKETS = "ticket#"  # no topic's uid begins so


class Tickets(TableAccess, table="dedup"):
    """Which tickets were used: a write unit for each use."""

    def use(self, ticket_id: str, now_ms: int, until_s: int) -> bool:
        """Use a ticket, which is worth nothing after `until_s`. False: it was used before. A caller that
        lost the answer does not know which, and needs another ticket."""
        item = attributes(d=_TICKETS + ticket_id, a=now_ms, x=until_s, v=int(FORMAT))
        write = write_of(self._table, item=item, condition="attribute_not_exists(d)")
        return self._dynamo.write_if("put_item", **write)
