"""Dead letters: edit, redrive, delete; and the next attempt of a waiting message at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

from ...domain import cursor_transitions as transitions
from ...domain import cursor_write
from ...domain.cursor import OffsetState, offset_state
from ...domain.errors import Conflict, HeadraceError, Unavailable, unavailable
from ...domain.message import JSON, DeadReason, Draft
from ...domain.record import DeadLetter, Record
from ...domain.status import Status
from ...domain.timer import Timer
from ...domain.times import DAY_MS
from ...domain.topic import CursorKey, Group, Topic, cursor_key, lane_of
from ...domain.trace import AttemptOutcome, TraceEntry
from ...ports.world import Clock
from ...store import Records, Timers
from ..consume import retry_lane
from ..core.attempt_log import AttemptLog
from ..core.catalog import Catalog
from ..core.cursor_store import CursorSnapshot, CursorStore
from ..core.wake import Waker
from ..inspect.letter_lookup import LetterLookup
from ..inspect.statuses import Statuses
from ..produce.drafts import check_size
from ..produce.producer import Producer

_T = TypeVar("_T")
_R = TypeVar("_R")
_LETTERS = 100  # read at once
_TIMERS_PER_WRITE = 30  # a transaction takes 100 actions
_BYTES_PER_WRITE = 1_000_000  # and 4 MB, those of deleted rows included


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetters:
    """Edits, discards and redrives them. A redrive moves the dead letter to the retry lane in one transaction,
    so it happens once, however often it is called. `on_filled` is called with the retry lanes that got an entry."""

    catalog: Catalog
    letter_lookup: LetterLookup
    statuses: Statuses
    records: Records
    timers: Timers
    attempt_log: AttemptLog
    states: CursorStore
    producer: Producer
    waker: Waker
    clock: Clock
    on_filled: Callable[[CursorKey], None]

    def edit(self, topic: Topic, group: Group, letter: DeadLetter, body: bytes, by: str = "") -> DeadLetter:
        """Replace a dead letter's JSON body; a redrive then delivers the new one. `by` is the token's id. Raises
        TooLarge."""
        draft = replace(letter.message.draft, body=body, is_json=True, content_type=JSON)
        body = self.producer.unmasked(topic, letter.message, draft)
        check_size(topic, body)
        draft = self.producer.offload(topic, replace(draft, body=body, blob=None, blob_bytes=0))
        new = replace(letter, message=replace(letter.message, draft=draft), edited=True)
        if not self.records.edit(new):
            raise _letter_changed()
        self._note(topic, group, letter, AttemptOutcome.EDITED, by)
        return replace(new, version=letter.version + 1)

    def edit_all(self, topic: Topic, group: Group, message_id: str, body: bytes, by: str) -> list[DeadLetter]:
        """Edit a message's dead letter, in a broadcast that of each consumer, and return those that were edited. A dead
        letter that another call has just changed keeps that change. Raises NotFound, TooLarge, and Conflict if none was
        edited."""
        letters = self.letter_lookup.find(topic, group, message_id)
        edited_letters, error = _one_by_one(letters, lambda x: self.edit(topic, group, x, body, by))
        if error:
            raise error
        return edited_letters

    def discard(self, topic: Topic, group: Group, letter: DeadLetter, by: str = "") -> DeadLetter:
        """Delete a dead letter, and return it; its delivery stays DEAD. `by` is the token's id."""
        if not self.records.discard(letter):
            raise _letter_changed()
        self._note(topic, group, letter, AttemptOutcome.DELETED, by)
        return letter

    def discard_all(self, topic: Topic, group: Group, message_id: str, by: str = "") -> None:
        """Delete a message's dead letter, in a broadcast that of each consumer. Raises NotFound, Conflict if none was
        deleted, and Unavailable if some of them are left."""
        letters = self.letter_lookup.find(topic, group, message_id)
        deletions, error = _one_by_one(letters, lambda x: self.discard(topic, group, x, by))
        if error:
            raise error
        if len(deletions) < len(letters) and self.letter_lookup.letters(topic, group, message_id):
            raise unavailable("Somebody else edited some of the dead letters just now; try again.")

    def discard_many(self, topic: Topic, group: Group, letters: Sequence[DeadLetter], by: str = "") -> int:
        """Delete dead letters, without those that another call has just changed; how many. Their deliveries stay
        DEAD."""
        gone: dict[str, list[DeadLetter]] = {}
        try:
            for letter in letters:
                if self.records.discard(letter):
                    gone.setdefault(letter.key.consumer_uid, []).append(letter)
        finally:
            for uid, own in gone.items():
                what = AttemptOutcome.DELETED
                entries = [(x.key.shard.shard, TraceEntry(x.offset, x.attempts, what, 0, by)) for x in own]
                self.attempt_log.note_by_hand(topic, group, uid, what, entries)
        return sum(map(len, gone.values()))

    def end_old(self, topic: Topic, group: Group, has_time: Callable[[], bool]) -> int:
        """Delete the dead letters that are older than the topic keeps them, as far as there is time; how many. Their
        deliveries stay DEAD; no trace row says so, since the setting does."""
        until_ms = self.clock.now_ms() - (topic.dead_letter_days or 0) * DAY_MS
        count, after = 0, None
        while has_time():
            rows = self.records.dead(topic, group, after, _LETTERS)
            count += sum(letter.at_ms <= until_ms and self.records.discard(letter) for _, letter in rows)
            if len(rows) < _LETTERS:
                break
            after = rows[-1][0]
        return count

    def _note(self, topic: Topic, group: Group, letter: DeadLetter, what: str, by: str) -> None:
        """Nothing else remembers it: one write."""
        key, entry = letter.key, TraceEntry(letter.offset, letter.attempts, what, detail=by)
        row_name, entries = f"{what}.{letter.version}", [(key.shard.shard, entry)]
        self.attempt_log.note_by_hand(topic, group, key.consumer_uid, row_name, entries)

    def redrive(self, topic: Topic, group: Group, letters: Sequence[DeadLetter], by: str = "") -> int:
        """Send dead letters again, each with as many attempts as the first time. Returns how many were sent, without
        those that another call sent first. Skipped: dead letters of a broadcast's removed consumer, and unreadable ones
        without a new body."""
        count = self._send_again(topic, group, letters, by)
        if count:
            self.waker.wake_group(topic, group)
        return count

    def _send_again(self, topic: Topic, group: Group, letters: Sequence[DeadLetter], by: str) -> int:
        """Send dead letters again, in the order of the log, without waking their groups."""
        count = 0
        owners = set(self.catalog.cursor_owners(topic, group))
        by_owner: dict[str, list[DeadLetter]] = {}
        for letter in sorted(letters, key=lambda each: (each.key.shard.shard, each.offset)):
            if letter.key.consumer_uid in owners and not _is_unreadable(letter):
                by_owner.setdefault(letter.key.consumer_uid, []).append(letter)
        for uid, members in by_owner.items():
            now_ms = self.clock.now_ms()  # before any consumer can claim them
            moves = [(x, _entry_of(x)) for x in members]
            messages = self.producer.move(lane_of(topic, group, uid), moves)
            self.on_filled(cursor_key(topic, group, None, uid))
            moved_letters = [x for x, message in zip(members, messages, strict=True) if message]
            self._note_redriven(topic, group, uid, moved_letters, now_ms, by)
            count += len(moved_letters)
        return count

    def redrive_later(
        self, topic: Topic, group: Group, letters: Sequence[DeadLetter], due: Callable[[int], int], by: str
    ) -> int:
        """Send dead letters again, the n-th of those that are sent at `due(n)`: until then each waits as a timer, as a
        retry does. Returns how many, as `redrive`."""
        owners = set(self.catalog.cursor_owners(topic, group))
        rest = [x for x in letters if x.key.consumer_uid in owners and not _is_unreadable(x)]
        count, now_ms = 0, self.clock.now_ms()
        while rest:
            part = _that_fit(rest)
            moves = [(x, _timer(topic, group, x, max(now_ms, due(count + n)))) for n, x in enumerate(part)]
            if gone := self.timers.send_later(moves, now_ms):
                rest = [x for place, x in enumerate(rest) if place not in gone]
                continue
            self.waker.wake_movers([timer for _, timer in moves])
            for uid in dict.fromkeys(x.key.consumer_uid for x in part):
                members = [x for x in part if x.key.consumer_uid == uid]
                self._note_redriven(topic, group, uid, members, now_ms, by)
            count, rest = count + len(part), rest[len(part) :]
        return count

    def _note_redriven(
        self, topic: Topic, group: Group, uid: str, letters: Sequence[DeadLetter], now_ms: int, by: str
    ) -> None:
        entries = [(x.key.shard.shard, entry) for x in letters for entry in _redrive_entries(x, now_ms, by)]
        self.attempt_log.note_by_hand(topic, group, uid, "redrive", entries, now_ms)

    def retry_now(self, topic: Topic, group: Group, message_id: str, by: str = "") -> None:
        """Make the next attempt of a RETRYING or DEAD delivery now, in a broadcast of each that can be tried. Raises
        Conflict if there is nothing to try."""
        attempts, error = _one_by_one(
            self.letter_lookup.locations(topic, group, message_id),
            lambda place: self._retry_delivery_now(topic, group, *place, message_id, by),
        )
        if attempts:
            self.waker.wake_group(topic, group)
        if error:
            raise error
        if not attempts:
            raise self._nothing_to_try(topic, group, message_id)

    def _nothing_to_try(self, topic: Topic, group: Group, message_id: str) -> Conflict:
        if any(map(_is_unreadable, self.letter_lookup.letters(topic, group, message_id))):
            text = "What is left of the message cannot be read: give its dead letter a body first."
            return Conflict("UNDECODABLE", text)
        locations = self.letter_lookup.locations(topic, group, message_id)
        records = [self.records.get(key, offset) for key, offset in locations]
        if any(record and record.status == Status.DEAD for record in records):
            text = f"The message is DEAD for group {group.name!r} and stays it: its dead letter was deleted"
            return Conflict("DEAD_LETTER_GONE", f"{text}, or its content had expired. Publish it anew.")
        text = f"The message is neither RETRYING nor DEAD for group {group.name!r}."
        return Conflict("NOTHING_TO_RETRY", text)

    def _retry_delivery_now(
        self, topic: Topic, group: Group, key: CursorKey, offset: int, message_id: str, by: str
    ) -> bool:
        letter = self.records.dead_letter(key, offset)
        if letter and letter.message.id == message_id:
            return self._send_again(topic, group, [letter], by) > 0
        record = self.records.get(key, offset)
        if record and record.status == Status.RETRYING and record.next_ms is not None:
            is_due = self._retry_timer_now(topic, group, key, record)
        else:
            is_due = self._make_due(key, offset)
        if is_due:
            attempts, what = record.attempts if record else 0, AttemptOutcome.RETRIED
            entries = [(key.shard.shard, TraceEntry(offset, attempts, what, detail=by))]
            self.attempt_log.note_by_hand(topic, group, key.consumer_uid, what, entries)
        return is_due

    def _retry_timer_now(self, topic: Topic, group: Group, key: CursorKey, record: Record) -> bool:
        """Take the timer to the lane now; what is no timer any more is in the lane already, where it may be running, or
        wait since it could not be attempted."""
        lane = cursor_key(topic, group, None, key.consumer_uid)
        timer = self.statuses.retry_timer(group, key, record)
        if timer and timer.draft:
            self.producer.move(lane_of(topic, group, key.consumer_uid), [(timer, timer.draft)])
        else:
            entry = self.statuses.lane_entry(topic, group, key, record.offset)
            if entry and entry.is_running:
                return False
            if entry:
                self._make_due(lane, entry.offset)
        self.on_filled(lane)
        return True

    def _make_due(self, key: CursorKey, offset: int) -> bool:
        """A message that waits in the cursor becomes due, if it is not; what a lease held that has run out is due.
        Answers whether the message waits for another attempt."""

        def attempt(state: CursorSnapshot) -> cursor_write.Change | None:
            after = transitions.retry_now(state.cursor, offset)
            return cursor_write.change(state.cursor, after) if after else None

        self.states.read(key)
        if self.states.update(key, attempt) is not None:
            return True
        cursor = transitions.lapse(self.states.last(key).cursor, self.clock.now_ms())
        return offset_state(cursor, offset)[0] is OffsetState.RETRYING


def _one_by_one(places: Iterable[_T], act: Callable[[_T], _R]) -> tuple[list[_R], HeadraceError | None]:
    """Perform an action at each place. Returns the results, and the error to answer with. A refusal means that nothing
    happened (I20), so it is the answer only if no place succeeded. An unknown outcome is the answer at once: the store
    is busy, and gets no more calls."""
    results: list[_R] = []
    errors: list[HeadraceError] = []
    for place in places:
        try:
            if result := act(place):
                results.append(result)
        except HeadraceError as error:
            if isinstance(error, Unavailable):
                return results, error
            errors.append(error)
    return results, None if results or not errors else errors[0]


def _is_unreadable(letter: DeadLetter) -> bool:
    return letter.message.draft.dead_reason == DeadReason.UNDECODABLE and not letter.edited


def _entry_of(letter: DeadLetter) -> Draft:
    """The lane's entry: the whole message, since its row may expire; without an expiry, since it was asked for now."""
    attempts = letter.attempts
    entry = retry_lane.entry_of(letter.message, attempts, attempts_before_redrive=attempts, whole=True)
    return replace(entry, expires_ms=None)


def _that_fit(letters: Sequence[DeadLetter]) -> Sequence[DeadLetter]:
    """The first dead letters that one transaction can replace."""
    sizes = accumulate(letter.message.draft.weight for letter in letters[:_TIMERS_PER_WRITE])
    return letters[: max(1, sum(size <= _BYTES_PER_WRITE for size in sizes))]


def _timer(topic: Topic, group: Group, letter: DeadLetter, due_ms: int) -> Timer:
    """The timer of a redrive, as of a retry after the attempts that the dead letter had."""
    return retry_lane.timer_of(topic, group, letter.key.consumer_uid, _entry_of(letter), due_ms)


def _redrive_entries(letter: DeadLetter, now_ms: int, by: str) -> Iterator[TraceEntry]:
    """The trace entries of a redrive, and of the burial that it ends: a delivery's record has only the present state.
    The burial of a REJECTED dead letter is in the trace already: an attempt ended with it."""
    if letter.reason != DeadReason.REJECTED:
        ago_ms = max(0, now_ms - letter.at_ms)
        yield TraceEntry(letter.offset, letter.attempts, AttemptOutcome.BURIED, ago_ms, letter.reason)
    yield TraceEntry(letter.offset, letter.attempts, AttemptOutcome.REDRIVEN, detail=by)


def _letter_changed() -> Conflict:
    text = "Somebody else edited, redrove or deleted it just now; look again."
    return Conflict("DEAD_LETTER_CHANGED", text)
