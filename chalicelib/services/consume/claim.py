"""Claiming: the mode's policy chooses from one shard (or the retry lane), one conditional write grants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import itemgetter

from ...domain import cursor_size, cursor_write, ranges, sharing
from ...domain import cursor_transitions as transitions
from ...domain.cursor import Cursor, Selection
from ...domain.errors import Unavailable
from ...domain.ids import base32
from ...domain.limits import MAX_ANSWER_BYTES, MAX_PASSED_OVER, MAX_RECEIVE
from ...domain.message import DeadReason, Draft, Message, expired
from ...domain.record import Record
from ...domain.sharding import unit_of
from ...domain.sharing import Round, Seat
from ...domain.signing import Receipt
from ...domain.spans import Span
from ...domain.status import Status
from ...domain.topic import CursorKey, Group, Mode, Topic, cursor_key, matches
from ...domain.trace import Tried
from ...modes import POLICIES, Candidate, ClaimVerdict, Policy
from ...ports.world import Clock, Random
from ..core.attempt_log import AttemptLog
from ..core.cursor_store import CursorSnapshot, CursorStore
from ..core.log_reader import Freshness, LogReader, Slot
from . import retry_queue

_UNWANTED_WRITES = 100  # per shard and call: writes that only settle what nobody wants
_DEAD_PER_WRITE = 45  # a transaction takes 100 actions: the cursor, and two for each dead letter
_DEAD_BYTES_PER_WRITE = 2_000_000  # a transaction takes 4 MB
_LOOKAHEAD = 1_000

Registered = Callable[[Topic, Group, str], bool]
"""Is the consumer with this uid registered at this moment?"""
_BURIED_AT_ONCE = 200
_AFTER_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Delivery:
    """One granted message: what the consumer gets, and what it must show to settle it."""

    message: Message
    attempt: int
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims, for what group, under which settings. `most_in_flight` bounds what one cursor has leased: `sure` in
    any case, more only while there are `spare` places. It takes one of so many equal `parts` of what is there, in
    multiples of `batch`; where it has a `seat`, what those beside it leave."""

    topic: Topic
    group: Group
    lease_seconds: int
    owner: str = ""
    consumer_uid: str = ""
    most_in_flight: int = 1 << 30
    sure: int = 1 << 30
    spare: int = 0
    parts: int = 1
    batch: int = 1
    seat: Seat | None = None

    def key(self, shard: int | None) -> CursorKey:
        """The cursor on a shard, or on the retry lane (None)."""
        return cursor_key(self.topic, self.group, shard, self.consumer_uid)

    def policy(self, shard: int | None) -> Policy:
        """The mode's policy. What is in the lane has lost its place, so nothing orders it."""
        return POLICIES[self.group.mode if shard is not None else Mode.QUEUE]

    def room(self, in_flight: int) -> int:
        """How many more one cursor may have leased that has so many."""
        return max(0, min(self.most_in_flight - in_flight, max(self.sure - in_flight, self.spare)))

    @property
    def claimants(self) -> int:
        """Among how many what is there is shared out."""
        return self.seat.total if self.seat else self.parts

    def part(self, share: Round | None, available: int, most: int, now_ms: int) -> int:
        """How many to take of what is there."""
        if self.seat:
            return min(most, sharing.room(share, self.seat, available, now_ms))
        batches = -(-available // (self.parts * self.batch))
        return min(most, batches * self.batch)

    def last_attempt(self, draft: Draft) -> int:
        """The number of the last attempt a message has; a redriven one has as many again."""
        spent = draft.origin.spent if draft.origin else 0
        return spent + (draft.max_attempts or (self.group.retry or self.topic.retry).max_attempts)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one claim would do."""

    selection: Selection
    cursor: Cursor  # with overdue leases returned
    messages: dict[int, Message]
    dead: tuple[Record, ...]
    available: int = 0  # of what was looked at, what could have been granted


class Claimer:
    """Claims from one cursor at a time."""

    def __init__(
        self,
        states: CursorStore,
        reader: LogReader,
        attempt_log: AttemptLog,
        is_registered: Registered,
        clock: Clock,
        random: Random,
    ) -> None:
        self._states = states
        self._is_registered = is_registered
        self._reader = reader
        self._attempt_log = attempt_log
        self._clock = clock
        self._random = random

    def expect(self, last: Mapping[str, int]) -> None:
        """Believe no read that ends before the last row of a shard (by the log's partition key)."""
        self._reader.expect(last)

    def look_again(self, key: CursorKey) -> None:
        """Read a cursor as it stands: who was at it may have set it back."""
        self._states.read(key)

    def dues_ms(self, key: CursorKey, lease_seconds: int) -> list[int]:
        """When what waits in a cursor is due, when leases of so many seconds end if nobody settles them, and when what
        stands behind a hole may be had; as last seen."""
        cursor = self._states.last(key).cursor
        until_ms = self._clock.now_ms() + lease_seconds * 1000
        ends = [lease.deadline_ms for lease in cursor.leases.values() if lease.deadline_ms <= until_ms]
        closes_ms = self._reader.closes_ms(key.shard)
        return [*ends, *(span.due_ms for span in cursor.waiting), *([closes_ms] if closes_ms else ())]

    def turn(self, claimant: Claimant, shard: int | None) -> int:
        """A number that goes on with what is claimed from one cursor, whoever claims it; as last seen. What was given
        back doesn't move the frontier, and is to meet somebody else, too."""
        cursor = self._states.last(claimant.key(shard)).cursor
        return cursor.next // claimant.batch + (cursor.epoch if cursor.waiting else 0)

    def in_flight(self, claimant: Claimant, shard: int | None) -> int:
        """How many messages one cursor has leased, as last seen."""
        return self._states.last(claimant.key(shard)).cursor.in_flight

    def cursors(self, group: Group, consumer_uid: str) -> dict[str, Cursor]:
        """All cursors of a group (in a broadcast: of a consumer) as stored, by the log's partition key."""
        return self._states.cursors.of_owner(group.uid, consumer_uid, consistent=True)

    def claim(
        self, claimant: Claimant, shard: int | None, most: int, most_bytes: int = MAX_ANSWER_BYTES
    ) -> list[Delivery] | None:
        """One claim on one shard, or on the retry lane (None): what it granted, [] where there is nothing, None
        where it lost a race.

        `most_bytes` bounds what they take in the answer; an answer's first message may be larger.
        """
        key = claimant.key(shard)
        for _ in range(_UNWANTED_WRITES):
            state = self._states.last(key)
            if state.cursor.is_closed:
                return []
            now_ms = self._clock.now_ms()
            one = _Claim(self._reader, claimant, shard, key, now_ms)
            token = f"{base32(state.cursor.epoch + 1)}.{self._random.id(4)}"
            plan, after = one.plan_that_fits(state.cursor, most, most_bytes, token)
            if not plan.selection.granted and not plan.selection.settled:
                return []
            if not state.exists and not self._may_begin(claimant):
                return []
            if not self._wrote(key, state, _change(state, after), plan.dead, token):
                return None
            self._note_lapsed(claimant, shard, state.cursor, plan, now_ms)
            if plan.selection.granted:
                return [
                    one.delivery(token, span.attempt, offset, plan.messages[offset])
                    for span in plan.selection.granted
                    for offset in span.offsets()
                ]
        return []  # so far only what nobody wants, and that is settled: the next call goes on behind it

    def _wrote(
        self,
        key: CursorKey,
        state: CursorSnapshot,
        change: cursor_write.Change,
        dead: Sequence[Record],
        token: str,
    ) -> bool:
        """Write a claim; False where it lost a race. Of one whose answer was lost the cursor tells: what it granted
        would be nobody's until its lease ends."""
        try:
            return self._states.write(key, state, change, dead) is not None
        except Unavailable:
            if token not in self._states.read(key).cursor.leases:
                raise
            return True

    def bury(self, claimant: Claimant, shard: int | None, has_time: Callable[[], bool]) -> int:
        """Settle as dead letters, on a shard or in the retry lane (None), what is past its retention and nobody has
        under way: its rows are about to go. How many; `has_time` is asked after each write."""
        key = claimant.key(shard)
        buried = 0
        while True:
            state = self._states.last(key)
            now_ms = self._clock.now_ms()
            plan = _Claim(self._reader, claimant, shard, key, now_ms).plan_burial(state.cursor)
            if not plan.selection.settled:
                return buried
            after = transitions.claim(plan.cursor, plan.selection, "", "", 0)
            if plan.selection.passed_over and not cursor_size.has_room(plan.cursor, after, granted=0):
                return buried  # the cursor is full: when less waits in it
            if self._states.write(key, state, _change(state, after), plan.dead) is not None:
                buried += len(plan.dead)
            if not has_time():
                return buried

    def _may_begin(self, claimant: Claimant) -> bool:
        """May a cursor be made? The cursors of a broadcast's consumer went when it left: one who has not heard of that
        must not begin again at the first message."""
        uid = claimant.consumer_uid
        return not uid or self._is_registered(claimant.topic, claimant.group, uid)

    def _note_lapsed(
        self, claimant: Claimant, shard: int | None, cursor: Cursor, plan: _Plan, now_ms: int
    ) -> None:
        """Attempts that nobody settled in time end with the claim that takes their leases over."""
        for lease in cursor.leases.values():
            if lease.deadline_ms > now_ms:
                continue
            tried = [
                _lapsed(shard, offset, attempt, plan.messages) for offset, attempt in lease.attempts().items()
            ]
            who = (lease.owner, claimant.consumer_uid)
            lapses = [each for each in tried if each]
            self._attempt_log.note(
                claimant.topic, claimant.group, who, lease.token, lease.deadline_ms, lapses
            )


def _lapsed(
    shard: int | None, offset: int, attempt: int, messages: Mapping[int, Message]
) -> tuple[int, Tried] | None:
    """The attempt by its message's place; None for a lane's entry that this claim had no need to read."""
    if shard is not None:
        return shard, Tried(offset, attempt, "LAPSED")
    message = messages.get(offset)
    if message is None:
        return None
    return message.shard, Tried(message.offset, _before(message.draft) + attempt, "LAPSED")


class _Claim:
    """One look at a cursor and its log."""

    def __init__(
        self,
        reader: LogReader,
        claimant: Claimant,
        shard: int | None,
        key: CursorKey,
        now_ms: int,
    ) -> None:
        self._reader = reader
        self._claimant = claimant
        self._policy = claimant.policy(shard)
        self._shard = shard
        self._key = key
        self._now_ms = now_ms

    def plan_that_fits(self, cursor: Cursor, most: int, most_bytes: int, token: str) -> tuple[_Plan, Cursor]:
        """A plan, and the cursor after it; of less, where the cursor has no room for all of it."""
        deadline_ms = self._now_ms + self._claimant.lease_seconds * 1000
        while True:
            plan = self.plan(cursor, most, most_bytes)
            granted = sum(span.count for span in plan.selection.granted)
            after = transitions.claim(plan.cursor, plan.selection, token, self._claimant.owner, deadline_ms)
            if seat := self._claimant.seat:
                left = plan.available - granted
                after = replace(after, round=sharing.after(cursor.round, seat, granted, left, self._now_ms))
            if not granted or cursor_size.has_room(plan.cursor, after, granted):
                return plan, after
            most = granted // 2

    def plan(self, cursor: Cursor, most: int, most_bytes: int) -> _Plan:
        """Read what could be claimed and let the policy choose, looking further where much is passed over."""
        current = transitions.expire(cursor, self._now_ms)
        room = 0 if cursor_size.is_full(current) else self._claimant.room(current.in_flight)
        mine = min(most, room)
        most = min(mine * self._claimant.claimants, room)
        spans = transitions.returned(current, self._now_ms) if most else ()
        due = sorted(((offset, span) for span in spans for offset in span.offsets()), key=itemgetter(0))
        due = due if self._policy.reads_units else due[:most]
        trust = self._trust(cursor)
        rows = self._reader.fetch(self._key.shard, (offset for offset, _ in due), trust)
        slots = self._meant(rows.values(), trust)
        by_offset = {slot.offset: slot for slot in slots if not slot.newer}
        back = [self._candidate(by_offset[offset], span) for offset, span in due if offset in by_offset]
        want = min(most, MAX_RECEIVE)
        if not self._policy.reads_units:
            want = max(0, want - len(due))
        while True:
            ahead = self._ahead(current, want, trust) if want else []
            fresh = [self._candidate(slot, None) for slot in ahead]
            returned, fresh, dead = _within_bounds(back, fresh, most_bytes)
            selection = self._policy.select(current, returned, fresh, most, self._now_ms)
            granted = sum(s.count for s in selection.granted)
            if granted >= most or len(ahead) < want or want >= _LOOKAHEAD or not want:
                break
            want = min(_LOOKAHEAD, want * 2)
        if granted and self._claimant.claimants > 1:
            part = self._claimant.part(cursor.round, granted, mine, self._now_ms)
            selection = self._policy.select(current, returned, fresh, part, self._now_ms)
        messages = {s.offset: s.message for s in (*slots, *ahead) if s.message}
        return self._plan(ahead, current, selection, messages, dead, granted)

    def plan_burial(self, cursor: Cursor) -> _Plan:
        """What is expired, exhausted or past its retention, among what waits and from `next` on; nothing is granted.
        What was stored before it and is kept for longer, under another setting, is passed over."""
        current = transitions.expire(cursor, self._now_ms)
        waiting = sorted(((o, span) for span in current.waiting for o in span.offsets()), key=itemgetter(0))
        trust = self._trust(cursor)
        rows = self._reader.fetch(self._key.shard, (offset for offset, _ in waiting), trust)
        slots = {slot.offset: slot for slot in self._meant(rows.values(), trust)}
        back = [self._candidate(slots[offset], span) for offset, span in waiting if not slots[offset].newer]
        ahead = self._ahead(current, _BURIED_AT_ONCE, trust)
        fresh = [self._candidate(slot, None) for slot in ahead]
        staying = [c for c in fresh if not _is_settled(c)][: MAX_PASSED_OVER + 1]
        end = staying[-1].offset if len(staying) > MAX_PASSED_OVER else _AFTER_ALL
        returned, fallen, dead = _within_bounds(
            [c for c in back if _is_settled(c)],
            [c for c in fresh if _is_settled(c) and c.offset < end],
            MAX_ANSWER_BYTES,
        )
        selection = self._policy.select(current, returned, fallen, 1, self._now_ms)
        passed = [Span(c.offset, 1, c.attempt, c.unit) for c in staying if c.offset < selection.next]
        selection = replace(selection, passed_over=tuple(passed))
        messages = {s.offset: s.message for s in (*slots.values(), *ahead) if s.message}
        return self._plan(ahead, current, selection, messages, dead)

    def _plan(
        self,
        ahead: list[Slot],
        current: Cursor,
        selection: Selection,
        messages: dict[int, Message],
        dead: Sequence[Candidate],
        available: int = 0,
    ) -> _Plan:
        records = self._records(dead, selection, messages)
        counted = replace(selection, skipped=ranges.total(selection.settled) - len(records))
        return _Plan(self._with_hint(ahead, current, counted), current, messages, records, available)

    def _ahead(self, current: Cursor, want: int, trust: Freshness) -> list[Slot]:
        slots = self._reader.fresh(self._key.shard, current.next, current.segment_at, want, trust)
        return list(takewhile(lambda slot: not slot.newer, self._meant(slots, trust)))

    def _trust(self, cursor: Cursor) -> Freshness:
        """Which copies of messages will do: a lane's cursor has no notes, and needs none."""
        return self._reader.trust(self._claimant.group, self._claimant.consumer_uid, cursor.amended)

    def _meant(self, slots: Iterable[Slot], trust: Freshness) -> list[Slot]:
        """What a lane's entries stand for, kept as long as the entries are; a topic's messages as they are."""
        if self._shard is not None:
            return list(slots)
        return [self._meant_by(slot, trust) for slot in slots]

    def _meant_by(self, slot: Slot, trust: Freshness) -> Slot:
        if slot.message is None:
            return slot
        message = retry_queue.meant(self._reader, self._claimant.topic, slot.message, trust)
        return replace(slot, message=message, newer=message is None)

    def _with_hint(self, ahead: list[Slot], cursor: Cursor, selection: Selection) -> Selection:
        if selection.next <= cursor.next:
            return selection
        return replace(selection, segment_at=self._reader.segment_at(self._key.shard, ahead, selection.next))

    def _candidate(self, slot: Slot, span: Span | None) -> Candidate:
        """What the message shows: deliver it, or settle it without a delivery."""
        attempt = span.attempt if span else 1
        if slot.message is None:
            return Candidate(slot.offset, slot.count, attempt, span.unit if span else "", ClaimVerdict.SETTLE)
        draft = slot.message.draft
        unit = unit_of(draft.ordering_key) if self._policy.reads_units else ""
        group = self._claimant.group
        is_owed = (
            draft.origin is not None or draft.dead == DeadReason.UNDECODABLE or matches(group.tags, draft.tag)
        )
        is_owed = is_owed and not draft.cancelled and draft.only in (None, group.uid)
        exhausted = _before(draft) + attempt > self._claimant.last_attempt(draft)
        dead = exhausted or draft.dead is not None or self._is_over(slot.message)
        verdict = ClaimVerdict.DELIVER if is_owed and not dead else ClaimVerdict.SETTLE
        return Candidate(slot.offset, 1, attempt, unit, verdict, is_owed and dead, draft.weight)

    def _is_over(self, message: Message) -> bool:
        in_lane = self._shard is None
        ends_ms = message.ends_ms if in_lane else self._claimant.topic.keeps_until_ms(message)
        return ends_ms <= self._now_ms or expired(message.draft, self._now_ms)

    def delivery(self, token: str, attempt: int, offset: int, message: Message) -> Delivery:
        """What the claim's holder gets for one leased offset."""
        origin = message.draft.origin
        receipt = Receipt(
            self._key.group_uid,
            self._key.consumer_uid,
            message.id,
            message.shard,
            message.offset,
            token,
            self._claimant.last_attempt(message.draft),
            self._now_ms,
            *((offset, origin.attempts, origin.spent) if origin else ()),
        )
        return Delivery(message, _before(message.draft) + attempt, receipt)

    def _records(
        self, dead: Sequence[Candidate], selection: Selection, messages: dict[int, Message]
    ) -> tuple[Record, ...]:
        """A DEAD record for each delivery that the claim buries."""
        return tuple(
            self._record(candidate, messages[candidate.offset])
            for candidate in dead
            if ranges.contains(selection.settled, candidate.offset)
        )

    def _record(self, candidate: Candidate, message: Message) -> Record:
        origin = message.draft.origin
        place = cursor_key(
            self._claimant.topic, self._claimant.group, message.shard, self._claimant.consumer_uid
        )
        return Record(
            message.shard,
            message.offset,
            Status.DEAD,
            _before(message.draft) + candidate.attempt - 1,
            self._now_ms,
            self._key.consumer_uid,
            message.draft.dead
            or (DeadReason.EXPIRED if self._is_over(message) else DeadReason.ATTEMPTS_EXHAUSTED),
            spent=origin.spent if origin else 0,
            of=place if origin else None,
            message=retry_queue.content(message),
        )


def _is_settled(candidate: Candidate) -> bool:
    return candidate.verdict is ClaimVerdict.SETTLE


def _before(draft: Draft) -> int:
    """How many attempts were made before the one the cursor calls its first."""
    return draft.origin.attempts if draft.origin else 0


def _change(state: CursorSnapshot, after: Cursor) -> cursor_write.Change:
    """What to write: the whole item where none is stored yet."""
    return (
        cursor_write.change(state.cursor, after)
        if state.exists
        else cursor_write.replacement(state.cursor, after)
    )


def _within_bounds(
    back: Sequence[Candidate], fresh: Sequence[Candidate], most_bytes: int
) -> tuple[list[Candidate], list[Candidate], list[Candidate]]:
    """Cut the candidates so that one answer can hold them and one transaction bury the dead among them."""
    kept: list[Candidate] = []
    dead: list[Candidate] = []
    size = buried = 0
    for candidate in (*back, *fresh):
        size += candidate.size
        if size > most_bytes and (kept or most_bytes < MAX_ANSWER_BYTES):
            break
        if candidate.dead:
            buried += candidate.size
            if len(dead) == _DEAD_PER_WRITE or (dead and buried > _DEAD_BYTES_PER_WRITE):
                break
            dead.append(candidate)
        kept.append(candidate)
    return kept[: len(back)], kept[len(back) :], dead
