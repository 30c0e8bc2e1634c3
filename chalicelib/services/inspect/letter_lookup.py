"""Finds dead letters: page by page, or by the ids of messages; and what became of those that were sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from ...domain import ids, ranges
from ...domain.errors import Conflict, NotFound, unavailable
from ...domain.limits import MAX_CONSUMERS, SHARD_NUMBERS
from ...domain.record import DeadLetter, FailureFilter, Record
from ...domain.status import Status
from ...domain.topic import CursorKey, Group, Topic
from ...ports.world import Clock
from ...store import Records
from ..core.catalog import Catalog
from .lookup import MOST_LISTING_MS, Lookup

_PAGE = 100
_PAGES = 10  # what one page of a filtered list reads at most
_FEW_IDS = 10


class RedriveOutcome(StrEnum):
    """What became of a dead letter since it was sent again."""

    PENDING = "on its way"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(kw_only=True, frozen=True, slots=True)
class LetterLookup:
    """Finds dead letters: page by page with a filter, or by the ids of messages."""

    catalog: Catalog
    lookup: Lookup
    records: Records
    clock: Clock

    def page(
        self,
        topic: Topic,
        group: Group,
        letter_filter: FailureFilter,
        after: str | None,
        limit: int,
        *,
        rows_per_read: int = _PAGE,
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> tuple[list[DeadLetter], str | None]:
        """Up to `limit` dead letters, by shard and offset, and the next position (None: the end). Before a read after
        the first, `may_go_on` is asked."""
        letters: list[DeadLetter] = []
        for _ in range(_PAGES):
            rows = self.records.dead(topic, group, after, rows_per_read)
            for after, letter in rows:
                if letter_filter.matches(letter.to_filter):
                    letters.append(letter)
                if len(letters) == limit:
                    return letters, after
            if len(rows) < rows_per_read:
                return letters, None
            if not may_go_on():
                break
        return letters, after

    def find(self, topic: Topic, group: Group, message_id: str) -> list[DeadLetter]:
        """The dead letter of a message (in a broadcast there may be one for each consumer, those that have left come
        last). Raises NotFound."""
        letters = self.letters(topic, group, message_id)
        if not letters:
            text = f"Group {group.name!r} has no dead letter with this message id."
            raise NotFound("DEAD_LETTER_NOT_FOUND", text)
        return letters

    def letters(self, topic: Topic, group: Group, message_id: str) -> list[DeadLetter]:
        """The same, or nothing. One read, if the id says where the message is."""
        location = self._location_of(topic, message_id)
        if location is None or location[0] >= SHARD_NUMBERS:  # `topic` may be of before it grew
            # Of a delayed message whose row has expired, only the letters have the id: the first thousand are searched.
            only = FailureFilter(ids={message_id})
            return self.page(topic, group, only, None, _PAGE * _PAGES)[0] if _is_delayed(message_id) else []
        shard, offset = location
        letters = self.records.letters_at(group.uid, topic.shard_key(shard), offset)
        places = {uid: place for place, uid in enumerate(self.catalog.cursor_owners(topic, group))}
        return sorted(
            (each for each in letters if each.message.id == message_id),
            key=lambda letter: places.get(letter.key.consumer_uid, MAX_CONSUMERS),
        )

    def letters_of(self, topic: Topic, group: Group, message_ids: Iterable[str]) -> list[DeadLetter]:
        """The dead letters of these messages, in their order; neighbours are read together. Raises Unavailable if there
        are too many among them that were delayed to be found in eight seconds."""
        asked_ids = list(message_ids)
        delayed_ids = dict.fromkeys(filter(_is_delayed, asked_ids))
        places = self._places_of_delayed(topic, group, [*delayed_ids])
        locations = {
            id: list(self._keys_at(topic, group, place))
            for id in asked_ids
            if (place := places.get(id) if id in delayed_ids else self._location_of(topic, id))
        }
        by_key: dict[CursorKey, list[int]] = {}
        for key, offset in chain.from_iterable(locations.values()):
            by_key.setdefault(key, []).append(offset)
        letters = {
            (key, offset): letter
            for key, offsets in by_key.items()
            for start, end in ranges.normalise((offset, offset + 1) for offset in offsets)
            for offset, letter in self.records.letters_between(key, start, end - 1).items()
        }
        candidates = ((id, letters.get(location)) for id, there in locations.items() for location in there)
        return [letter for id, letter in candidates if letter and letter.message.id == id]

    def _places_of_delayed(
        self, topic: Topic, group: Group, message_ids: Sequence[str]
    ) -> Mapping[str, tuple[int, int]]:
        """Shard and offset of those of these delayed messages that have dead letters. To find one message in the log
        takes some thirty reads; a page of dead letters has many. So few are looked for in the log first, many among
        the dead letters. Raises Unavailable if there is no time for some."""
        begun_ms = self.clock.now_ms()
        are_few = len(message_ids) <= _FEW_IDS
        places: dict[str, tuple[int, int]] = {}
        if not are_few:
            bounds = len(message_ids), begun_ms + MOST_LISTING_MS // 2
            places, are_all = self._among_letters(topic, group, set(message_ids), *bounds)
            if are_all:
                return places
        for id in [id for id in message_ids if id not in places]:
            if self.clock.now_ms() >= begun_ms + MOST_LISTING_MS:
                raise unavailable("To find so many delayed messages takes too long; name fewer in one call.")
            if place := self._location_of(topic, id):
                places[id] = place
        if are_few and len(places) < len(message_ids):
            ids_left = set(message_ids) - places.keys()
            places |= self._among_letters(topic, group, ids_left, 1, begun_ms + MOST_LISTING_MS)[0]
        return places

    def _among_letters(
        self, topic: Topic, group: Group, message_ids: Set[str], pages: int, until_ms: int
    ) -> tuple[dict[str, tuple[int, int]], bool]:
        """Shard and offset of those of these messages whose letters are among the group's first `pages` thousand, as
        far as there is time; and whether no other has a letter."""
        places: dict[str, tuple[int, int]] = {}
        after = None

        def has_time() -> bool:
            return self.clock.now_ms() < until_ms

        for _ in range(pages):
            only = FailureFilter(ids=message_ids - places.keys())
            letters, after = self.page(topic, group, only, after, _PAGE * _PAGES, may_go_on=has_time)
            places |= {letter.message.id: (letter.message.shard, letter.offset) for letter in letters}
            if after is None or len(places) == len(message_ids):
                return places, True
            if not has_time():
                break
        return places, False

    def locations(self, topic: Topic, group: Group, message_id: str) -> Iterator[tuple[CursorKey, int]]:
        """Cursor and offset of a message for each consumer that is there, or nothing if the log does not have it."""
        if location := self._location_of(topic, message_id):
            yield from self._keys_at(topic, group, location)

    def _keys_at(self, topic: Topic, group: Group, place: tuple[int, int]) -> Iterator[tuple[CursorKey, int]]:
        shard, offset = place
        if shard < SHARD_NUMBERS:  # `topic` may be of before it grew
            for key in self.catalog.cursor_keys(topic, group, shard):
                yield key, offset

    def _location_of(self, topic: Topic, message_id: str) -> tuple[int, int] | None:
        """Shard and offset: most ids contain them; for a delayed message they are looked up."""
        parts = ids.parse_message_id(message_id)
        if parts:
            return parts[1], parts[2]
        try:
            message = self.lookup.message(topic, message_id)
        except (NotFound, Conflict):  # the group's dead letters have it, too
            return None
        return message.shard, message.offset

    def outcome_of_redrive(self, topic: Topic, group: Group, message_id: str) -> RedriveOutcome:
        """The outcome of a redriven message (in a broadcast: the worst). One that failed once counts as failed, even
        if it will be tried again."""
        locations = self.locations(topic, group, message_id)
        outcomes = {_outcome(self.records.get(key, offset)) for key, offset in locations}
        worst = (each for each in (RedriveOutcome.FAILED, RedriveOutcome.PENDING) if each in outcomes)
        return next(worst, RedriveOutcome.SUCCEEDED if outcomes else RedriveOutcome.PENDING)


def _outcome(record: Record | None) -> RedriveOutcome:
    if record is None:
        return RedriveOutcome.PENDING
    if record.status == Status.SUCCESS:
        return RedriveOutcome.SUCCEEDED
    has_failed = record.status == Status.DEAD or record.attempts > record.attempts_before_redrive
    return RedriveOutcome.FAILED if has_failed else RedriveOutcome.PENDING


def _is_delayed(message_id: str) -> bool:
    """Is it the id of a message that was delayed, or in a transaction? It does not say where that is in the log."""
    return bool(ids.parse_timed_id(message_id) or ids.parse_half_id(message_id))
