"""Where a message is for each group, and a check that it is in exactly one place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice

from ...domain.cursor import OffsetState, offset_state
from ...domain.message import Message
from ...domain.record import Record
from ...domain.segment import ShardKey
from ...domain.status import OVER, Status
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...store import Log, Records
from ..core.catalog import Catalog
from .statuses import DeliveryStatus, Statuses, TopicStatuses

_LOOKS = 4  # what moves during a look is found at the next one
_ROWS = 64
_MOST = 2_048  # rows of a retry lane
Spot = tuple[int, int]  # a shard, and an offset in it


class Place(StrEnum):
    """What a delivery waits in, or that it is over."""

    LOG = "log"  # no group has claimed it
    CURSOR = "cursor"  # it keeps its place there, until its unit is free or its time has come
    LEASE = "lease"
    TIMER = "timer"
    LANE = "retry lane"
    LETTER = "dead letter"
    SETTLED = "settled"  # consumed, or passed over; or dead without a letter any more
    UNKNOWN = "unknown"  # its retry lane is too long to look through


@dataclass(kw_only=True, frozen=True, slots=True)
class MessageFate:
    """A group's delivery of a message (in a broadcast: one for each consumer) and where it is. `older`: the statuses,
    RETRYING or DEAD, of deliveries that began before a seek and are still open."""

    status: DeliveryStatus
    places: tuple[Place, ...]
    older: tuple[str, ...]
    adds_up: bool


@dataclass(frozen=True, slots=True)
class Fates:
    """A message's fate in the groups that are owed it, and the names of the others: they `skipped` it, for they began
    behind it, were moved there by a seek, or are broadcasts whose consumers, if any, all began behind it."""

    owed: Mapping[str, MessageFate] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Has every group come to an end with the message? Without groups, none has."""
        has_groups = bool(self.owed or self.skipped)
        return has_groups and all(fate.status.status in OVER for fate in self.owed.values())

    @property
    def adds_up(self) -> bool:
        """Is it in one place for each group?"""
        return all(fate.adds_up for fate in self.owed.values())

    def of_groups(self, may_use_group: Callable[[str], bool]) -> Fates:
        """The part that a caller may see. Whether it `is_complete` and `adds_up` is that of the whole, as a message's
        status is."""
        owed = {name: fate for name, fate in self.owed.items() if may_use_group(name)}
        return Fates(owed, tuple(filter(may_use_group, self.skipped)))


@dataclass(kw_only=True, frozen=True, slots=True)
class FateReader:
    """Reads only; nothing here changes anything."""

    catalog: Catalog
    statuses: Statuses
    records: Records
    log: Log

    def of(self, topic: Topic, message: Message) -> Fates:
        """The fate of a message in the log, for every group."""
        fates = {group.name: self.of_group(topic, group, message) for group in self.catalog.groups(topic)}
        fate_by_group = {name: fate for name, fate in fates.items() if fate}
        return Fates(fate_by_group, tuple(name for name in fates if name not in fate_by_group))

    def of_group(self, topic: Topic, group: Group, message: Message, rows: int = _MOST) -> MessageFate | None:
        """The same for one group; None if the group does not get it. Reads a limited number of rows of a retry
        lane."""
        fate = None
        for _ in range(_LOOKS):
            fate = self._look(topic, group, message, rows)
            if fate is None or fate.adds_up:
                break
        return fate

    def _look(self, topic: Topic, group: Group, message: Message, most_rows: int) -> MessageFate | None:
        """The group's part as it is seen at once; what moves meanwhile may be seen nowhere."""
        seen = self.statuses.of_topic(topic)
        status = seen.delivery(group, message)
        if status is None:
            return None
        where = [
            self._whereabouts(seen, group, key, message.offset, most_rows)
            for key in self.catalog.cursor_keys(topic, group, message.shard)
            if offset_state(seen.cursor(key), message.offset)[0] is not OffsetState.NOT_OWED
        ]
        places = tuple(dict.fromkeys(place for place, _ in where if place))
        older = tuple(dict.fromkeys(older for _, older in where if older))
        adds_up = all(place for place, _ in where)
        return MessageFate(status=status, places=places, older=older, adds_up=adds_up)

    def _whereabouts(
        self, seen: TopicStatuses, group: Group, key: CursorKey, offset: int, most_rows: int
    ) -> tuple[Place | None, str | None]:
        """The place of one delivery, None if it was seen nowhere; and the status, RETRYING or DEAD, of a delivery that
        began before a seek and is still open."""
        state, span = offset_state(seen.cursor(key), offset)
        record = seen.records.get(key, offset)
        if state is OffsetState.SETTLED:
            return self.place_after_cursor(seen.topic, group, key, record, most_rows), None
        older = self._older_status(key, record) if record else None
        if state is OffsetState.RUNNING:
            return Place.LEASE, older
        return Place.CURSOR if span else Place.LOG, older

    def _older_status(self, key: CursorKey, record: Record) -> str | None:
        """What a delivery from before a seek is, if its record says that it left the cursor, and is not over."""
        if record.status == Status.DEAD:
            return record.status if self.records.dead_letter(key, record.offset) else None
        return record.status if record.status == Status.RETRYING and record.next_ms is not None else None

    def place_after_cursor(
        self, topic: Topic, group: Group, key: CursorKey, record: Record | None, most_rows: int = _MOST
    ) -> Place | None:
        """Where a delivery is that has left its cursor; None if it was seen nowhere. Reads a limited number of rows of
        a retry lane."""
        if record is None or record.status in (Status.SUCCESS, Status.SKIPPED) or record.waited_in_cursor:
            return Place.SETTLED
        if record.status == Status.DEAD:
            letter = self.records.dead_letter(key, record.offset)
            return Place.LETTER if letter else Place.SETTLED
        if self.statuses.retry_timer(group, key, record):
            return Place.TIMER
        return self._in_lane(topic, group, key, record.offset, most_rows)

    def _in_lane(self, topic: Topic, group: Group, key: CursorKey, offset: int, rows: int) -> Place | None:
        """Is an entry for this place in the retry lane, and not settled there? The lane's cursor has those that were
        claimed, its log the others."""
        lane = cursor_key(topic, group, None, key.consumer_uid)
        first = self.statuses.cursor(lane).next
        if entry := self.statuses.lane_entry(topic, group, key, offset):
            return Place.LEASE if entry.is_running else Place.LANE
        place = key.shard.shard, offset
        found, is_sure = entry_ahead(self.log, lane.shard, first, place, rows)
        if found is not None:
            return Place.LANE
        return None if is_sure else Place.UNKNOWN


def entry_ahead(log: Log, lane: ShardKey, first: int, place: Spot, most_rows: int) -> tuple[int | None, bool]:
    """The offset, from `first` on, of the retry lane's entry for a place (shard and offset) of its topic; and whether
    so many rows were enough to know."""
    page = min(_ROWS, most_rows)
    for offsets, is_end in islice(lane_ahead(log, lane, first, page), most_rows // page):
        if place in offsets or is_end:
            return offsets.get(place), True
    return None, False


def lane_ahead(log: Log, lane: ShardKey, first: int, page: int) -> Iterator[tuple[Mapping[Spot, int], bool]]:
    """The entries of a retry lane from `first` on, some rows at a time: the offset of the first entry for each place
    of its topic, and whether these are the last rows."""
    behind = log.read_back(lane, first, 1, consistent=True)
    at, is_end = behind[0].first if behind else 0, False  # a row may begin before `first`, and end after it
    while not is_end:
        rows = log.read(lane, at, page, consistent=True)
        offsets: dict[Spot, int] = {}
        for message in (row.message(0, n) for row in rows for n in range(max(row.first, first), row.end)):
            if message and (origin := message.draft.origin):
                offsets.setdefault((origin.shard, origin.offset), message.offset)
        at, is_end = rows[-1].end if rows else at, rows.is_end
        yield offsets, is_end
