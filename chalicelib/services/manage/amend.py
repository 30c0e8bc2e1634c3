"""Edits and cancels messages in the log that no group has claimed.

The row and the cursors of all groups change in one transaction. So a claim that read the old row fails, because its
cursor's epoch has changed; a later claim finds the offset among the cursor's amended ones and reads the row again.
Afterwards the groups are listed once more, to find one that was created meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...domain import cursor_transitions as transitions
from ...domain.append import Pack, Successor
from ...domain.cursor import Cursor
from ...domain.errors import Conflict, NotFound, Refused, TooLarge, changed_meanwhile, unavailable
from ...domain.limits import BLOB_THRESHOLD_BYTES, MAX_AMENDED_BYTES, MAX_AMENDED_CURSORS
from ...domain.message import Act, DeadReason, Draft, Message, with_acts
from ...domain.segment import Segment
from ...domain.topic import CursorKey, Topic, cursor_key
from ...ports.world import Clock
from ...store import Control, Cursors, Log, Records
from ..core.log_reader import LogReader
from ..produce.delayed import already_due
from ..produce.drafts import check_size
from ..produce.producer import Producer

_TRIES = 32  # each lost to another editor, or to a claim of the very message

# How the draft is rewritten, and what is stored beside it.
Change = tuple[Callable[[Draft], Draft], Successor | None]
IsToldOf = Callable[[str], bool]  # may a refusal name this group to the caller?


def _of_all(group: str) -> bool:
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Amender:
    """Changes messages where they stand."""

    control: Control
    log: Log
    cursors: Cursors
    records: Records
    producer: Producer
    reader: LogReader
    clock: Clock

    def amend(
        self,
        topic: Topic,
        message: Message,
        changes: Mapping[str, Any],
        by: str = "",
        is_told_of: IsToldOf = _of_all,
    ) -> Message:
        """Change fields of the draft. Returns the message as stored. `by` is the token's id. Raises Conflict (a group
        has claimed it, it was cancelled, or it is due already), Refused (it never waited for a time), TooLarge,
        NotFound."""
        if "body" in changes:
            body = self.producer.unmasked(topic, message, replace(message.draft, **changes))
            changes = {**changes, "body": body}
            check_size(topic, changes["body"])
        if message.draft.cancelled:  # for good, also where groups have passed it over since
            raise Conflict("MESSAGE_CANCELLED", "The message was cancelled; publish a new one.")
        if "due_ms" in changes:
            for key, group in self._keys(topic, message.shard, is_told_of).items():
                self._unclaimed_cursor(key, group, message.offset)
            if message.draft.due_ms is not None:
                raise already_due()
            raise Refused("NOT_DELAYED", "The message is in the log already: it waits for no time.")
        now_ms = self.clock.now_ms()

        def rewrite(draft: Draft) -> Draft:
            if draft.cancelled:
                raise Conflict("MESSAGE_CANCELLED", "The message was cancelled; publish a new one.")
            if draft.dead_reason == DeadReason.UNDECODABLE:
                raise Conflict("UNDECODABLE", "The stored message cannot be read; publish a new one.")
            return replace(with_acts(draft, Act("EDITED", now_ms, by)), **changes, changed_ms=now_ms)

        return self._rewrite(topic, message, (rewrite, None), is_told_of)

    def cancel(
        self,
        topic: Topic,
        message: Message,
        by: str = "",
        is_told_of: IsToldOf = _of_all,
        successor: Successor | None = None,
    ) -> None:
        """Cancel the message, so that no group gets it. Safe to repeat. `by` is the token's id. Raises Conflict if a
        group has claimed it; with a `successor`, to be stored with it, also if it was cancelled."""
        _, current = self._find(topic, message)
        act = Act("CANCELLED", self.clock.now_ms(), by)

        def rewrite(draft: Draft) -> Draft:
            if draft.cancelled and successor:
                raise Conflict("MESSAGE_CANCELLED", "The message was cancelled.")
            return replace(with_acts(draft, act), cancelled=True, changed_ms=act.at_ms)

        if successor or not current.draft.cancelled:
            self._rewrite(topic, message, (rewrite, successor), is_told_of)

    def _rewrite(self, topic: Topic, message: Message, change: Change, is_told_of: IsToldOf) -> Message:
        """Rewrite the message and note it in the cursors of all groups; repeat until no group is missing."""
        keys_told: frozenset[CursorKey] = frozenset()
        new_message: Message | None = None
        for _ in range(_TRIES):
            keys = self._keys(topic, message.shard, is_told_of)
            if new_message and keys.keys() <= keys_told:
                return new_message
            try:
                new = self._try(topic, message, keys, change)
            except Conflict as conflict:
                if new_message is None:
                    raise
                raise unavailable("A new group was faster; look at the message again.") from conflict
            if new:
                new_message, keys_told, change = new, frozenset(keys), (change[0], None)
        if new_message:
            raise unavailable("Others keep changing messages of this shard; try again.")
        raise changed_meanwhile("message")

    def _try(
        self, topic: Topic, message: Message, keys: Mapping[CursorKey, str | None], change: Change
    ) -> Message | None:
        """Rewrite the message under the cursors of these keys; None where something changed meanwhile."""
        cursors = {key: self._unclaimed_cursor(key, group, message.offset) for key, group in keys.items()}
        row, current = self._find(topic, message)
        rewrite, successor = change
        new, pack = self._next_edition(topic, row, message.offset - row.first, rewrite(current.draft))
        shard = topic.shard_key(message.shard)
        if not self.log.amend(shard, row, pack, message.offset, cursors, successor):
            return None
        self.reader.keep(shard, new)
        return new.message(message.shard, message.offset)

    def _keys(self, topic: Topic, shard: int, is_told_of: IsToldOf) -> dict[CursorKey, str | None]:
        """Every cursor that may claim from the shard, with its group's name if the caller may see it (those first)."""
        keys: dict[CursorKey, str | None] = {}
        for group in sorted(self.control.groups(topic), key=lambda group: not is_told_of(group.name)):
            name = group.name if is_told_of(group.name) else None
            owners = self.control.cursor_owners(topic, group)
            keys |= {cursor_key(topic, group, shard, uid): name for uid in owners}
        if len(keys) > MAX_AMENDED_CURSORS:
            limit = f"a message can be changed in the log while there are at most {MAX_AMENDED_CURSORS}."
            text = f"{len(keys)} groups and broadcast consumers read this shard; {limit}"
            raise Conflict("TOO_MANY_READERS", text)
        return keys

    def _unclaimed_cursor(self, key: CursorKey, group: str | None, offset: int) -> Cursor | None:
        """The cursor as stored, if it has claimed the offset neither now nor, sought elsewhere since, with a retry
        or a dead letter left of it."""
        cursor = self.cursors.get(key, consistent=True)
        if cursor is None:
            return None
        record = cursor.epoch and self.records.get(key, offset)
        if record or transitions.amend(cursor, offset) is None:
            claimer = "Another group" if group is None else f"Group {group!r}"
            text = f"{claimer} has claimed the message, or passed it over: it can be changed no more."
            raise Conflict("ALREADY_CLAIMED", text)
        return cursor

    def _find(self, topic: Topic, message: Message) -> tuple[Segment, Message]:
        """The row that holds the message, and the message, as they stand."""
        rows = self.log.read_back(topic.shard_key(message.shard), message.offset, 1, consistent=True)
        if rows and message.offset < rows[0].end:
            candidate = rows[0].message(message.shard, message.offset)
            if candidate and candidate.id == message.id:
                return rows[0], candidate
        raise NotFound("MESSAGE_NOT_FOUND", f"Topic {topic.name!r} has this message no more; it has expired.")

    def _next_edition(self, topic: Topic, row: Segment, index: int, draft: Draft) -> tuple[Segment, Pack]:
        """The row's next edition. A body that does not fit goes to the blob store, even a small one."""
        for above in (BLOB_THRESHOLD_BYTES, 0):
            stored_draft = self.producer.offload(topic, draft, above)
            drafts = (*row.drafts[:index], stored_draft, *row.drafts[index + 1 :])
            pack = self.log.pack(drafts, whole=True)
            if pack.size <= MAX_AMENDED_BYTES:
                return replace(row, drafts=drafts, edition=row.edition + 1), pack
        sizes = f"together they would have {pack.size} bytes, and {MAX_AMENDED_BYTES} is the most."
        raise TooLarge("SEGMENT_FULL", f"The message is stored in one row with others; {sizes}")
