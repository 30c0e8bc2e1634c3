"""Claiming messages for a group: the mode's policy chooses, one conditional write grants."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..domain import cursor as algebra
from ..domain import ranges
from ..domain.cursor import Cursor, Selection, Span
from ..domain.ids import base32
from ..domain.limits import MAX_ANSWER_BYTES, MAX_CURSOR_ENTRIES, MAX_RECEIVE
from ..domain.message import Message, expired
from ..domain.sharding import unit_of
from ..domain.topic import Consumer, CursorKey, Group, Topic, cursor_key, matches
from ..modes import POLICIES, Candidate, Policy, Verdict
from ..ports import Chance, Clock, Record
from .assignment import Assignments
from .cache import Aging
from .catalog import broadcast_needs_consumer
from .cursor_state import CursorStates, State
from .reader import Reader, Slot

_UNWANTED_WRITES = 100  # per shard and call: writes that only settle what nobody wants
_LOST_RACES = 10  # per shard and call; then the next poll's turn
_DEAD_PER_WRITE = 45  # a transaction takes 100 actions: the cursor, and two for each dead letter
_LOOKAHEAD = 1_000
_GIVING_MS = 60_000
_STAY = 4  # one receive in so many begins at a random shard
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0  # each look costs half a read unit per shard


@dataclass(frozen=True, slots=True)
class Delivery:
    """One granted message: what the consumer gets, and what it must show to settle it."""

    message: Message
    attempt: int
    key: CursorKey
    token: str
    max_attempts: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one claim would do."""

    selection: Selection
    cursor: Cursor  # with overdue leases returned
    slots: dict[int, Slot]
    dead: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims, for what group, under which settings."""

    topic: Topic
    group: Group
    policy: Policy
    lease_seconds: int
    owner: str = ""
    consumer_uid: str = ""

    @property
    def max_attempts(self) -> int:
        return (self.group.retry or self.topic.retry).max_attempts


class Receiver:
    """Claims for pull consumers (and, one road further, for deliveries)."""

    def __init__(
        self, assignments: Assignments, states: CursorStates, reader: Reader, clock: Clock, chance: Chance
    ) -> None:
        self._assignments = assignments
        self._states = states
        self._reader = reader
        self._clock = clock
        self._chance = chance
        self._giving: Aging[str, int] = Aging(clock, _GIVING_MS)
        self._turns: defaultdict[CursorKey, threading.Lock] = defaultdict(threading.Lock)

    def receive(
        self,
        topic: Topic,
        group: Group,
        consumer: Consumer | None,
        most: int,
        wait_seconds: float,
        lease_seconds: int,
    ) -> list[Delivery]:
        """Up to `most` deliveries, waiting up to `wait_seconds` for the first."""
        policy = POLICIES[group.mode]
        if policy.per_consumer and consumer is None:
            raise broadcast_needs_consumer()
        uid = consumer.uid if consumer else ""
        claimant = Claimant(topic, group, policy, lease_seconds, uid, uid if policy.per_consumer else "")
        until_ms = self._clock.now_ms() + int(wait_seconds * 1000)
        pause = _FIRST_PAUSE_SECONDS
        while True:
            deliveries = self._from_shards(claimant, self.shards_for(topic, group, consumer), most)
            left = (until_ms - self._clock.now_ms()) / 1000
            if deliveries or left <= 0:
                return deliveries
            self._clock.sleep(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)

    def shards_for(self, topic: Topic, group: Group, consumer: Consumer | None) -> tuple[int, ...]:
        """The shards a caller receives from: its own by assignment, all where it is not registered."""
        if group.paused:
            return ()
        if consumer is None:
            return tuple(range(topic.shards))
        return self._assignments.shards_for(topic, group, consumer)

    def _from_shards(self, claimant: Claimant, shards: Sequence[int], most: int) -> list[Delivery]:
        """Go round the shards; one that another thread is claiming from, or a lost race, comes again at the end
        of the round. A process's threads need not race each other: they take turns on a cursor."""
        if not shards:
            return []
        start = self._start(claimant, shards)
        queue = deque((shard, 0, False) for shard in (*shards[start:], *shards[:start]))
        got: list[Delivery] = []
        size = 0
        while queue and len(got) < most and size < MAX_ANSWER_BYTES:
            shard, lost, passed_by = queue.popleft()
            turn = self._turns[cursor_key(claimant.topic, claimant.group, shard, claimant.consumer_uid)]
            if not turn.acquire(blocking=passed_by):
                queue.append((shard, lost, True))
                continue
            try:
                granted = self.claim(claimant, shard, most - len(got), MAX_ANSWER_BYTES - size)
            finally:
                turn.release()
            if granted is None:
                if lost < _LOST_RACES:
                    queue.append((shard, lost + 1, passed_by))
                continue
            if granted:
                self._giving.put(claimant.group.uid + claimant.owner, shard)
            got += granted
            size += sum(d.message.draft.weight for d in granted)
        return got

    def _start(self, claimant: Claimant, shards: Sequence[int]) -> int:
        """Mostly the shard that gave something last (the others may be empty, and looking costs a read); now
        and then a random one, so that none is forgotten behind a busy one."""
        giving = self._giving.get(claimant.group.uid + claimant.owner)
        if giving in shards and self._chance.below(_STAY):
            return shards.index(giving)
        return self._chance.below(len(shards))

    def claim(
        self, claimant: Claimant, shard: int, most: int, most_bytes: int = MAX_ANSWER_BYTES
    ) -> list[Delivery] | None:
        """One claim on one shard: what it granted, [] where there is nothing, None where it lost a race.

        `most_bytes` bounds what they take in the answer; an answer's first message may be larger.
        """
        key = cursor_key(claimant.topic, claimant.group, shard, claimant.consumer_uid)
        for _ in range(_UNWANTED_WRITES):
            state = self._states.last(key)
            now_ms = self._clock.now_ms()
            plan = self._plan(claimant, key, state.cursor, most, most_bytes, now_ms)
            if not plan.selection.granted and not plan.selection.settled:
                return []
            token = f"{base32(state.cursor.epoch + 1)}.{self._chance.id(4)}"
            deadline_ms = now_ms + claimant.lease_seconds * 1000
            after = algebra.claim(plan.cursor, plan.selection, token, claimant.owner, deadline_ms)
            if self._states.write(key, state, _change(state, after), plan.dead) is None:
                return None
            if plan.selection.granted:
                return [
                    _delivery(claimant, key, token, span.attempt, plan.slots[offset])
                    for span in plan.selection.granted
                    for offset in range(span.start, span.end)
                ]
        return []  # so far only what nobody wants, and that is settled: the next call goes on behind it

    def _plan(
        self, claimant: Claimant, key: CursorKey, known: Cursor, most: int, most_bytes: int, now_ms: int
    ) -> _Plan:
        """Read what could be claimed and let the policy choose, looking further where much is passed over."""
        current = algebra.expire(known, now_ms)
        spans = algebra.returned(current, now_ms)
        due = [(offset, span) for span in spans for offset in range(span.start, span.end)]
        due = due if claimant.policy.reads_units else due[:most]
        slots = self._reader.fetch(key.shard, (offset for offset, _ in due))
        back = [self._candidate(claimant, slots[offset], span, now_ms) for offset, span in due]
        room = algebra.joined(current).entries < MAX_CURSOR_ENTRIES
        want = min(most, MAX_RECEIVE) if room else 0
        if not claimant.policy.reads_units:
            want = max(0, want - len(due))
        while True:
            ahead = self._reader.fresh(key.shard, current.next, current.segment_at, want) if want else []
            fresh = [self._candidate(claimant, slot, None, now_ms) for slot in ahead]
            returned, fresh, dead = _within_bounds(back, fresh, most_bytes)
            selection = claimant.policy.select(current, returned, fresh, most, now_ms)
            granted = sum(s.count for s in selection.granted)
            if granted >= most or len(ahead) < want or want >= _LOOKAHEAD or not want:
                break
            want = min(_LOOKAHEAD, want * 2)
        by_offset = {**slots, **{slot.offset: slot for slot in ahead}}
        return _Plan(
            self._with_hint(key, ahead, current, selection),
            current,
            by_offset,
            _records(claimant, key, dead, selection, by_offset, now_ms),
        )

    def _with_hint(
        self, key: CursorKey, ahead: list[Slot], cursor: Cursor, selection: Selection
    ) -> Selection:
        if selection.next <= cursor.next:
            return selection
        segment_at = self._reader.segment_at(key.shard, ahead, selection.next)
        return Selection(
            selection.granted, selection.passed_over, selection.settled, selection.next, segment_at
        )

    def _candidate(self, claimant: Claimant, slot: Slot, span: Span | None, now_ms: int) -> Candidate:
        """What the message shows: deliver it, or settle it without a delivery."""
        attempt = span.attempt if span else 1
        if slot.message is None:
            return Candidate(slot.offset, slot.count, attempt, span.unit if span else "", Verdict.SETTLE)
        draft = slot.message.draft
        unit = unit_of(draft.ordering_key) if claimant.policy.reads_units else ""
        wanted = matches(claimant.group.tags, draft.tag)
        dead = expired(draft, now_ms) or attempt > (draft.max_attempts or claimant.max_attempts)
        verdict = Verdict.DELIVER if wanted and not dead else Verdict.SETTLE
        return Candidate(slot.offset, 1, attempt, unit, verdict, wanted and dead, draft.weight)


def _change(state: State, after: Cursor) -> algebra.Change:
    """What to write: the whole item where none is stored yet."""
    return algebra.change(state.cursor, after) if state.exists else algebra.replacement(state.cursor, after)


def _within_bounds(
    back: Sequence[Candidate], fresh: Sequence[Candidate], most_bytes: int
) -> tuple[list[Candidate], list[Candidate], list[Candidate]]:
    """Cut the candidates so that one answer can hold them and one transaction bury the dead among them."""
    kept: list[Candidate] = []
    dead: list[Candidate] = []
    size = 0
    for candidate in (*back, *fresh):
        size += candidate.size
        if size > most_bytes and (kept or most_bytes < MAX_ANSWER_BYTES):
            break
        if candidate.dead:
            if len(dead) == _DEAD_PER_WRITE:
                break
            dead.append(candidate)
        kept.append(candidate)
    return kept[: len(back)], kept[len(back) :], dead


def _records(
    claimant: Claimant,
    key: CursorKey,
    dead: Sequence[Candidate],
    selection: Selection,
    slots: dict[int, Slot],
    now_ms: int,
) -> tuple[Record, ...]:
    """A DEAD record for each delivery that the claim buries."""
    records = []
    for candidate in dead:
        message = slots[candidate.offset].message
        if message and ranges.contains(selection.settled, candidate.offset):
            reason = "EXPIRED" if expired(message.draft, now_ms) else "ATTEMPTS_EXHAUSTED"
            records.append(
                Record(
                    key.shard.shard,
                    candidate.offset,
                    "DEAD",
                    candidate.attempt - 1,
                    now_ms,
                    key.consumer_uid,
                    reason,
                )
            )
    return tuple(records)


def _delivery(claimant: Claimant, key: CursorKey, token: str, attempt: int, slot: Slot) -> Delivery:
    assert slot.message is not None
    most = slot.message.draft.max_attempts or claimant.max_attempts
    return Delivery(slot.message, attempt, key, token, most)
