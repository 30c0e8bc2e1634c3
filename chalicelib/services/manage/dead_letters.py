"""Dead letters: list, edit, redrive, delete; and the next attempt of a waiting message at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import TypeVar

from ...domain import cursor_transitions as transitions
from ...domain import cursor_write, ids, ranges
from ...domain.cursor import OffsetState, offset_state
from ...domain.errors import Conflict, HeadraceError, NotFound, Unavailable, Unreadable, unavailable
from ...domain.limits import MAX_CONSUMERS, MAX_SHARDS
from ...domain.message import JSON, DeadReason, Draft
from ...domain.record import DeadLetter, Record
from ...domain.status import Status
from ...domain.times import SECOND_MS
from ...domain.topic import CursorKey, Group, Topic, cursor_key, lane_of
from ...domain.trace import AttemptOutcome, TraceEntry
from ...modes import POLICIES
from ...ports.records import Records
from ...ports.world import Clock
from ..consume import retry_lane
from ..core.attempt_log import AttemptLog
from ..core.catalog import Catalog
from ..core.cursor_store import CursorSnapshot, CursorStore
from ..core.wake import Waker
from ..inspect.lookup import MOST_LISTING_MS, Lookup
from ..produce.producer import Producer, check_size

_T = TypeVar("_T")
_R = TypeVar("_R")
_PAGE = 100
_PAGES = 10  # what one page of a filtered list reads at most
_FEW_IDS = 10
_REDRIVE_MS = 15 * SECOND_MS  # of one call; API Gateway waits 29 s for an answer


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters: all if no field is set. `since_ms`: dead since this time or later. `ids`: of these
    messages."""

    reason: str | None = None
    tag: str | None = None
    key: str | None = None
    since_ms: int | None = None
    ids: Set[str] | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Does the dead letter have every property that is set?"""
        draft = letter.message.draft
        return (
            self.reason in (None, letter.reason)
            and self.tag in (None, draft.tag)
            and (self.key is None or self.key in draft.keys)
            and (self.since_ms is None or letter.at_ms >= self.since_ms)
            and (self.ids is None or letter.message.id in self.ids)
        )


class RedriveOutcome(StrEnum):
    """What became of a dead letter since it was sent again."""

    PENDING = "on its way"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class DeadLetters:
    """Lists, edits, discards and redrives them. A redrive moves the dead letter to the retry lane in one transaction,
    so it happens once, however often it is called."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        lookup: Lookup,
        records: Records,
        attempt_log: AttemptLog,
        states: CursorStore,
        producer: Producer,
        waker: Waker,
        clock: Clock,
        on_filled: Callable[[CursorKey], None],
    ) -> None:
        """`on_filled` is told of retry lanes into which something was put."""
        self._catalog = catalog
        self._lookup = lookup
        self._records = records
        self._attempt_log = attempt_log
        self._states = states
        self._producer = producer
        self._waker = waker
        self._clock = clock
        self._on_filled = on_filled

    def page(
        self,
        topic: Topic,
        group: Group,
        letter_filter: DeadLetterFilter,
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
            rows = self._records.dead(topic, group, after, rows_per_read)
            for after, letter in rows:
                if letter_filter.matches(letter):
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
        per_consumer = POLICIES[group.mode].per_consumer
        letters = (self._of_all_consumers if per_consumer else self.letters)(topic, group, message_id)
        if not letters:
            raise NotFound(
                "DEAD_LETTER_NOT_FOUND", f"Group {group.name!r} has no dead letter with this message id."
            )
        return letters

    def letters(self, topic: Topic, group: Group, message_id: str) -> list[DeadLetter]:
        """The same of those consumers that are there, or nothing."""
        locations = list(self._locations(topic, group, message_id))
        if not locations:
            return self._without_location(topic, group, message_id)
        return [
            letter
            for key, offset in locations
            if (letter := self._records.dead_letter(key, offset)) and letter.message.id == message_id
        ]

    def _of_all_consumers(self, topic: Topic, group: Group, message_id: str) -> list[DeadLetter]:
        """The same in a broadcast, also of consumers that have left, in one read."""
        location = self._location_of(topic, message_id)
        if location is None or location[0] >= MAX_SHARDS:
            return self._without_location(topic, group, message_id)
        shard, offset = location
        letters = self._records.all_letters_at(group.uid, topic.shard_key(shard), offset)
        places = {uid: place for place, uid in enumerate(self._catalog.cursor_owners(topic, group))}
        return sorted(
            (each for each in letters if each.message.id == message_id),
            key=lambda letter: places.get(letter.key.consumer_uid, MAX_CONSUMERS),
        )

    def _without_location(self, topic: Topic, group: Group, message_id: str) -> list[DeadLetter]:
        """The dead letters of a message that was delayed and whose row has expired: only the letters themselves have
        its id then. Only the group's first thousand letters are searched."""
        if not _is_delayed(message_id):
            return []
        return self.page(topic, group, DeadLetterFilter(ids={message_id}), None, _PAGE * _PAGES)[0]

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
            for offset, letter in self._records.letters_between(key, start, end - 1).items()
        }
        candidates = ((id, letters.get(location)) for id, there in locations.items() for location in there)
        return [letter for id, letter in candidates if letter and letter.message.id == id]

    def _places_of_delayed(
        self, topic: Topic, group: Group, message_ids: Sequence[str]
    ) -> Mapping[str, tuple[int, int]]:
        """Shard and offset of those of these delayed messages that have dead letters. The log tells one with some
        thirty reads, and a page of letters many: few are looked for in the log first, many among the letters. Raises
        Unavailable if there is no time for some."""
        begun_ms = self._clock.now_ms()
        are_few = len(message_ids) <= _FEW_IDS
        places: dict[str, tuple[int, int]] = {}
        if not are_few:
            places, are_all = self._among_letters(
                topic, group, set(message_ids), len(message_ids), begun_ms + MOST_LISTING_MS // 2
            )
            if are_all:
                return places
        for id in [id for id in message_ids if id not in places]:
            if self._clock.now_ms() >= begun_ms + MOST_LISTING_MS:
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
        for _ in range(pages):
            letters, after = self.page(
                topic,
                group,
                DeadLetterFilter(ids=message_ids - places.keys()),
                after,
                _PAGE * _PAGES,
                may_go_on=lambda: self._clock.now_ms() < until_ms,
            )
            places |= {letter.message.id: (letter.message.shard, letter.offset) for letter in letters}
            if after is None or len(places) == len(message_ids):
                return places, True
            if self._clock.now_ms() >= until_ms:
                break
        return places, False

    def _locations(self, topic: Topic, group: Group, message_id: str) -> Iterator[tuple[CursorKey, int]]:
        if location := self._location_of(topic, message_id):
            yield from self._keys_at(topic, group, location)

    def _keys_at(
        self, topic: Topic, group: Group, location: tuple[int, int]
    ) -> Iterator[tuple[CursorKey, int]]:
        shard, offset = location
        if shard < MAX_SHARDS:  # `topic` may be of before it grew
            for uid in self._catalog.cursor_owners(topic, group):
                yield cursor_key(topic, group, shard, uid), offset

    def _location_of(self, topic: Topic, message_id: str) -> tuple[int, int] | None:
        """Shard and offset: most ids tell them, that of a message that was delayed must be looked up."""
        parts = ids.parse_message_id(message_id)
        if parts:
            return parts[1], parts[2]
        try:
            message = self._lookup.message(topic, message_id)
        except (NotFound, Conflict, Unreadable):  # the group's letters tell it, too
            return None
        return message.shard, message.offset

    def edit(self, topic: Topic, group: Group, letter: DeadLetter, body: bytes, by: str = "") -> DeadLetter:
        """Replace a dead letter's JSON body; a redrive then delivers the new one. `by` is the token's id. Raises
        TooLarge."""
        check_size(topic, body)
        draft = replace(
            letter.message.draft, body=body, is_json=True, content_type=JSON, blob=None, blob_bytes=0
        )
        draft = self._producer.offload(topic, draft)
        new = replace(letter, message=replace(letter.message, draft=draft), edited=True)
        if not self._records.edit(new):
            raise _letter_changed()
        self._note(topic, group, letter, AttemptOutcome.EDITED, by)
        return replace(new, version=letter.version + 1)

    def edit_all(
        self, topic: Topic, group: Group, message_id: str, body: bytes, by: str = ""
    ) -> list[DeadLetter]:
        """Edit a message's dead letter, in a broadcast that of each consumer, and return those that were edited; one
        that somebody else changed just now stays as that one left it. Raises NotFound, TooLarge, and Conflict if none
        was edited."""
        letters = self.find(topic, group, message_id)
        edited_letters, error = _one_by_one(letters, lambda x: self.edit(topic, group, x, body, by))
        if error:
            raise error
        return edited_letters

    def discard(self, topic: Topic, group: Group, letter: DeadLetter, by: str = "") -> None:
        """Delete a dead letter; its delivery stays DEAD. `by` is the token's id."""
        if not self._records.discard(letter):
            raise _letter_changed()
        self._note(topic, group, letter, AttemptOutcome.DELETED, by)

    def discard_all(self, topic: Topic, group: Group, message_id: str, by: str = "") -> None:
        """Delete a message's dead letter, in a broadcast that of each consumer. Raises NotFound, Conflict if none was
        deleted, and Unavailable if some of them are left."""

        def discard(letter: DeadLetter) -> bool:
            self.discard(topic, group, letter, by)
            return True

        letters = self.find(topic, group, message_id)
        deletions, error = _one_by_one(letters, discard)
        if error:
            raise error
        if len(deletions) < len(letters) and self._of_all_consumers(topic, group, message_id):
            raise unavailable("Somebody else edited some of the dead letters just now; try again.")

    def _note(self, topic: Topic, group: Group, letter: DeadLetter, what: str, by: str) -> None:
        """Nothing else remembers it: one write."""
        now_ms = self._clock.now_ms()
        attempts = [(letter.key.shard.shard, TraceEntry(letter.offset, letter.attempts, what, detail=by))]
        row_id = f"{what.lower()}.{letter.version}.{now_ms}"
        self._attempt_log.note(
            topic,
            group,
            owner_uid="",
            consumer_uid=letter.key.consumer_uid,
            row_id=row_id,
            started_ms=now_ms,
            attempts=attempts,
        )

    def redrive(self, topic: Topic, group: Group, letters: Sequence[DeadLetter], by: str = "") -> int:
        """Send dead letters again, each with as many attempts as the first time. Returns how many were sent; those
        that another call sent first are not counted. Not sent: letters of a broadcast's consumer that was removed,
        and unreadable ones that nobody has given a body."""
        count = self._send_again(topic, group, letters, by)
        if count:
            self._waker.wake_group(topic, group)
        return count

    def _send_again(self, topic: Topic, group: Group, letters: Sequence[DeadLetter], by: str) -> int:
        """The same, and nobody is woken."""
        count = 0
        owners = set(self._catalog.cursor_owners(topic, group))
        by_owner: dict[str, list[DeadLetter]] = {}
        for letter in letters:
            if letter.key.consumer_uid in owners and not _is_unreadable(letter):
                by_owner.setdefault(letter.key.consumer_uid, []).append(letter)
        for uid, members in by_owner.items():
            now_ms = self._clock.now_ms()  # before anybody can take them up
            moves = [(x, _entry_of(x)) for x in members]
            messages = self._producer.move(lane_of(topic, group, uid), moves)
            self._on_filled(cursor_key(topic, group, None, uid))
            moved_letters = [x for x, message in zip(members, messages, strict=True) if message]
            self._attempt_log.note(
                topic,
                group,
                owner_uid="",
                consumer_uid=uid,
                row_id=f"redrive.{now_ms}",
                started_ms=now_ms,
                attempts=[
                    (x.key.shard.shard, entry)
                    for x in moved_letters
                    for entry in _redrive_entries(x, now_ms, by)
                ],
            )
            count += len(moved_letters)
        return count

    def redrive_matching(
        self,
        topic: Topic,
        group: Group,
        letter_filter: DeadLetterFilter,
        limit: int,
        by: str = "",
        *,
        after: str | None = None,
    ) -> tuple[int, str | None]:
        """Send up to `limit` matching dead letters behind a position again, page by page. Returns how many were sent,
        and where to go on if time ended before the limit or the last letter: of very many perhaps few match."""
        count, until_ms = 0, self._clock.now_ms() + _REDRIVE_MS
        while count < limit:
            letters, after = self.page(topic, group, letter_filter, after, min(_PAGE, limit - count))
            count += self.redrive(topic, group, letters, by)
            if after is None or self._clock.now_ms() >= until_ms:
                break
        return count, after if count < limit else None

    def outcome_of_redrive(self, topic: Topic, group: Group, message_id: str) -> RedriveOutcome:
        """The outcome of a redriven message (in a broadcast: the worst). One that failed once counts as failed, even
        if it will be tried again."""
        locations = self._locations(topic, group, message_id)
        outcomes = {_outcome(self._records.get(key, offset)) for key, offset in locations}
        worst = (each for each in (RedriveOutcome.FAILED, RedriveOutcome.PENDING) if each in outcomes)
        return next(worst, RedriveOutcome.SUCCEEDED if outcomes else RedriveOutcome.PENDING)

    def retry_now(self, topic: Topic, group: Group, message_id: str, by: str = "") -> None:
        """Make the next attempt of a RETRYING or DEAD delivery now, in a broadcast of each that can be tried. Raises
        Conflict if there is nothing to try."""
        attempts, error = _one_by_one(
            self._locations(topic, group, message_id),
            lambda place: self._retry_delivery_now(topic, group, *place, message_id, by),
        )
        if attempts:
            self._waker.wake_group(topic, group)
        if error:
            raise error
        if not attempts:
            raise self._nothing_to_try(topic, group, message_id)

    def _nothing_to_try(self, topic: Topic, group: Group, message_id: str) -> Conflict:
        if any(map(_is_unreadable, self.letters(topic, group, message_id))):
            return Conflict(
                "UNDECODABLE",
                "What is left of the message cannot be read: give its dead letter a body first.",
            )
        locations = self._locations(topic, group, message_id)
        records = [self._records.get(key, offset) for key, offset in locations]
        if any(record and record.status == Status.DEAD for record in records):
            return Conflict(
                "DEAD_LETTER_GONE",
                f"The message is DEAD for group {group.name!r} and stays it: its dead letter was deleted, or its "
                "content had expired. Publish it anew.",
            )
        return Conflict(
            "NOTHING_TO_RETRY", f"The message is neither RETRYING nor DEAD for group {group.name!r}."
        )

    def _retry_delivery_now(
        self, topic: Topic, group: Group, key: CursorKey, offset: int, message_id: str, by: str
    ) -> bool:
        letter = self._records.dead_letter(key, offset)
        if letter and letter.message.id == message_id:
            return self._send_again(topic, group, [letter], by) > 0
        record = self._records.get(key, offset)
        if record and record.status == Status.RETRYING and record.next_ms is not None:
            return self._retry_timer_now(topic, group, key, record)
        return self._make_due(key, offset)

    def _retry_timer_now(self, topic: Topic, group: Group, key: CursorKey, record: Record) -> bool:
        """Take the timer to the lane now; what is no timer any more is in the lane already, where it may be running, or
        wait since it could not be attempted."""
        lane = cursor_key(topic, group, None, key.consumer_uid)
        timer = self._lookup.statuses.retry_timer(group, key, record)
        if timer and timer.draft:
            self._producer.move(lane_of(topic, group, key.consumer_uid), [(timer, timer.draft)])
        else:
            entry = self._lookup.statuses.lane_entry(topic, group, key, record.offset)
            if entry and entry.lease:
                return False
            if entry:
                self._make_due(lane, entry.offset)
        self._on_filled(lane)
        return True

    def _make_due(self, key: CursorKey, offset: int) -> bool:
        """A message that waits in the cursor becomes due, if it is not; what a lease held that has run out is due.
        Answers whether the message waits for another attempt."""

        def attempt(state: CursorSnapshot) -> cursor_write.Change | None:
            after = transitions.retry_now(state.cursor, offset)
            return cursor_write.change(state.cursor, after) if after else None

        self._states.read(key)
        if self._states.update(key, attempt) is not None:
            return True
        cursor = transitions.lapse(self._states.last(key).cursor, self._clock.now_ms())
        return offset_state(cursor, offset)[0] is OffsetState.RETRYING


def _one_by_one(places: Iterable[_T], act: Callable[[_T], _R]) -> tuple[list[_R], HeadraceError | None]:
    """What was done, of an act at each of these places, whatever refused it at the others; and the error to answer
    with. A refusal says that nothing happened (I20): it is the answer only where nothing was done anywhere. An outcome
    that is not known is the answer at once: the store is busy, and is asked no more."""
    results: list[_R] = []
    errors: list[HeadraceError] = []
    for place in places:
        try:
            if result := act(place):
                results.append(result)
        except HeadraceError as error:
            if isinstance(error, Unavailable) and not isinstance(error, Unreadable):
                return results, error
            errors.append(error)
    return results, None if results or not errors else errors[0]


def _outcome(record: Record | None) -> RedriveOutcome:
    if record is None:
        return RedriveOutcome.PENDING
    if record.status == Status.SUCCESS:
        return RedriveOutcome.SUCCEEDED
    return (
        RedriveOutcome.FAILED
        if record.status == Status.DEAD or record.attempts > record.attempts_before_redrive
        else RedriveOutcome.PENDING
    )


def _is_delayed(message_id: str) -> bool:
    """Is it the id of a message that was delayed, or in a transaction? It does not say where that is in the log."""
    return bool(ids.parse_timed_id(message_id) or ids.parse_half_id(message_id))


def _is_unreadable(letter: DeadLetter) -> bool:
    return letter.message.draft.dead_reason == DeadReason.UNDECODABLE and not letter.edited


def _entry_of(letter: DeadLetter) -> Draft:
    """What goes into the lane: the whole message, for its row may go; without an expiry, for somebody wants it now."""
    attempts = letter.attempts
    entry = retry_lane.entry_of(letter.message, attempts, attempts_before_redrive=attempts, whole=True)
    return replace(entry, expires_ms=None)


def _redrive_entries(letter: DeadLetter, now_ms: int, by: str) -> Iterator[TraceEntry]:
    """What the trace keeps of a redrive, and of the burial that it ends: a delivery's record tells of its present state
    only. A REJECTED letter's burial is in the trace: an attempt ended with it."""
    if letter.reason != DeadReason.REJECTED:
        ago_ms = max(0, now_ms - letter.at_ms)
        yield TraceEntry(letter.offset, letter.attempts, AttemptOutcome.BURIED, ago_ms, letter.reason)
    yield TraceEntry(letter.offset, letter.attempts, AttemptOutcome.REDRIVEN, detail=by)


def _letter_changed() -> Conflict:
    return Conflict(
        "DEAD_LETTER_CHANGED", "Somebody else edited, redrove or deleted it just now; look again."
    )
