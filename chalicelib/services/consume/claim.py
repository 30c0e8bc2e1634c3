"""Claiming: the mode's policy chooses from one shard (or the retry lane), one conditional write grants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...domain import cursor_size, notice
from ...domain import cursor_transitions as transitions
from ...domain.cursor import PULLED, RUN, Cursor, Disposition, Result
from ...domain.cursor_write import Change, change
from ...domain.errors import Unavailable
from ...domain.ids import base32
from ...domain.limits import MAX_ANSWER_BYTES
from ...domain.message import Message
from ...domain.notice import Events
from ...domain.record import Record
from ...domain.status import Because
from ...domain.timer import Timer
from ...domain.topic import CursorKey, Group, Topic, cursor_key
from ...domain.trace import AttemptOutcome, TraceEntry
from ...ports.world import Clock, Random
from ..core.attempt_log import AttemptLog
from ..core.cursor_store import CursorSnapshot, CursorStore
from ..core.log_reader import LogReader
from ..core.rate_limiter import RateLimits
from .claim_choice import ClaimPlan
from .claim_plan import ClaimPlanner
from .claimant import Claim, Claimant, ClaimedMessage
from .settle import Acks
from .tenants import RecentTenants

_UNWANTED_WRITES = 100  # per shard and call: writes that settle or skip messages and deliver none
Registered = Callable[[Topic, Group, str], bool]  # is the consumer with this uid registered at this moment?


@dataclass(kw_only=True, frozen=True, slots=True)
class Claimer:
    """Claims from one cursor at a time. `on_timers_stored` is called with new timers."""

    states: CursorStore
    reader: LogReader
    attempt_log: AttemptLog
    rate_limits: RateLimits
    events: Callable[[], Events | None]
    on_timers_stored: Callable[[Sequence[Timer]], None]
    is_registered: Registered
    recent_tenants: RecentTenants
    clock: Clock
    random: Random

    def preload(self, topic: Topic, group: Group, consumer_uid: str, shards: Iterable[int | None]) -> None:
        """Before claims from these shards (None: the retry lane): read their cursors in one query, if that pays."""
        keys = dict.fromkeys(cursor_key(topic, group, shard, consumer_uid) for shard in shards)
        self.states.preload(list(keys), len(topic.shard_numbers) + 1)

    def has_changed(self, key: CursorKey) -> bool:
        """Has another process changed a cursor since it was last read? Reads it again."""
        before = self.states.last(key)
        return self.states.read(key) != before

    def dues_ms(self, key: CursorKey, lease_seconds: int) -> list[int]:
        """The times, also past ones, at which a cursor may have something to claim, as last read: when waiting messages
        are due, when unsettled leases of up to `lease_seconds` (the longest of the caller's consumers) lapse, and when
        a hole in the log may be skipped."""
        cursor = self.states.last(key).cursor
        until_ms = self.clock.now_ms() + lease_seconds * 1000
        ends = [lease.deadline_ms for lease in cursor.leases.values() if lease.deadline_ms <= until_ms]
        closes_ms = self.reader.closes_ms(key.shard)
        return [*ends, *(span.due_ms for span in cursor.waiting), *([closes_ms] if closes_ms else ())]

    def rotation(self, claimant: Claimant, shard: int | None) -> int:
        """A rotation number that rises with each claim from one cursor, in whichever process; as last read. With
        waiting messages it includes the epoch, since messages that were given back do not move `next` but should go
        to another consumer."""
        cursor = self.states.last(claimant.key(shard)).cursor
        return cursor.next // claimant.batch + (cursor.epoch if cursor.waiting else 0)

    def in_flight(self, claimant: Claimant, shard: int | None) -> int:
        """How many messages one cursor has leased that count for the claimant, as last read."""
        return claimant.in_flight(self.states.last(claimant.key(shard)).cursor)

    def has_lapsed(self, claimant: Claimant, shard: int | None) -> bool:
        """Does a message wait whose last lease ended, as far as is known without a read?"""
        state = self.states.seen(claimant.key(shard))
        waiting = transitions.lapse(state.cursor, self.clock.now_ms()).waiting if state else ()
        return any(span.has_lapsed for span in waiting)

    def is_drained(self, claimant: Claimant, shard: int | None) -> bool:
        """Had the log nothing behind the cursor when it was last read for a claim, and does nothing wait in the
        cursor?"""
        key = claimant.key(shard)
        cursor = self.states.last(key).cursor
        return not cursor.waiting and self.reader.is_end(key.shard, cursor.next)

    def looks_elsewhere(self, claimant: Claimant, shard: int | None) -> bool:
        """Do claims from one cursor, as last read, count what others have leased of their keys?"""
        if not claimant.group.key_concurrency or shard is None:
            return bool(claimant.group.key_concurrency)
        return bool(self.states.last(claimant.key(shard)).cursor.in_lane)

    def cursors(self, group: Group, consumer_uid: str) -> dict[str, Cursor]:
        """All cursors of a group (in a broadcast: of a consumer) as stored, by the log's partition key."""
        return self.states.cursors.of_owner(group.uid, consumer_uid, consistent=True)

    def claim(
        self,
        claimant: Claimant,
        shard: int | None,
        most: int,
        most_bytes: int = MAX_ANSWER_BYTES,
        acks: Acks | None = None,
    ) -> Claim | None:
        """One claim on one shard, or on the retry lane (None); None after a lost race. `most_bytes` bounds the size of
        an answer of several messages. Of `acks`, one lease may be settled by the claim's write."""
        key, most = claimant.key(shard), self.rate_limits.most(claimant.group, most)
        for _ in range(_UNWANTED_WRITES):
            state = self.states.last(key)
            if state.cursor.is_closed:
                return Claim()
            cursor = acks.within(key, state) if acks else state.cursor
            now_ms = self.clock.now_ms()
            planner = self._planner(claimant, shard, now_ms, looks=shard is None or cursor.in_lane == 1)
            token = self._token(claimant, state.cursor)
            plan, after = planner.plan_that_fits(cursor, most, most_bytes, token)
            if not (plan.granted_count or plan.selection.settled or plan.selection.passed_over):
                return Claim(because=plan.because)
            if not state.exists and not self._may_begin(claimant):
                return Claim()
            if fills_until_ms := _fills_ms(claimant, shard, plan, most, now_ms):
                return Claim(fills_until_ms=fills_until_ms)
            permits = self.rate_limits.permits(claimant.group, plan.granted_count)
            if permits < plan.granted_count:
                if not permits:
                    return Claim(because=Because.RATE_LIMITED)
                plan, after = planner.plan_within(permits, cursor, most_bytes, token)
                self.rate_limits.put_back(claimant.group, permits - plan.granted_count)
            if not self._write(claimant, key, state, after, plan.dead, token):
                self.rate_limits.put_back(claimant.group, plan.granted_count)
                return None
            if acks:
                acks.note_written()
            self._note_lapsed(claimant, shard, cursor, plan, now_ms)
            if plan.granted_count:
                messages = planner.granted(plan, token)
                if shard is None:
                    messages = self._beside_shards(claimant, after, messages)
                claim = Claim(messages=messages, in_flight=claimant.in_flight(after), is_alone=plan.is_alone)
                return replace(claim, has_tenants=plan.has_tenants, because=Because.KEYS_WAIT)
        return Claim(has_left_off=True)

    def _token(self, claimant: Claimant, cursor: Cursor) -> str:
        """The token of the next lease from a cursor."""
        token = f"{base32(cursor.epoch + 1)}.{claimant.mark or self.random.id(4)}"
        token += "" if claimant.is_called else PULLED
        return token + (f".{claimant.lease_seconds}{RUN}" if claimant.run else "")

    def held(self, claimant: Claimant) -> list[ClaimedMessage]:
        """The messages of the leases that an earlier try of the claimant's receive made, as they were granted: one
        consistent query, and the log where it is not cached."""
        cursors = self.cursors(claimant.group, claimant.consumer_uid)
        now_ms, messages = self.clock.now_ms(), list[ClaimedMessage]()
        for shard in (*claimant.topic.shard_numbers, None):
            cursor = cursors.get(str(claimant.key(shard).shard), Cursor())
            for lease in cursor.leases.values():
                is_ours = lease.token.split(".")[1].removesuffix(PULLED) == claimant.mark
                if is_ours and lease.deadline_ms > now_ms:
                    began_ms = lease.deadline_ms - claimant.lease_seconds * 1000
                    held = self._planner(claimant, shard, began_ms).held(cursor, lease)
                    messages += held if shard is not None else self._beside_shards(claimant, cursor, held)
        return messages

    def _beside_shards(
        self, claimant: Claimant, lane: Cursor, messages: Sequence[ClaimedMessage]
    ) -> list[ClaimedMessage]:
        """Of the messages that a claim of the lane granted, those that may be in flight beside what their shards have
        leased of their keys: from now on claims there look at the lane. The others are given back untried."""
        most, in_lane = claimant.group.key_concurrency, transitions.leased_counts(lane)
        keyed = [each for each in messages if most and each.unit]
        in_shards = {n: self._beside_lane(claimant.key(n)) for n in {each.message.shard for each in keyed}}
        excess: list[Result] = []
        for each in keyed:
            if in_lane[each.unit] + in_shards[each.message.shard][each.unit] > (most or 0):
                in_lane[each.unit] -= 1
                excess.append(Result(each.receipt.leased_offset, Disposition.RELEASED))
        if excess:
            token = keyed[0].receipt.token
            self.states.update(
                claimant.key(None),
                lambda state: change(state.cursor, transitions.settle(state.cursor, token, excess)[0]),
            )
            self.rate_limits.put_back(claimant.group, len(excess))
        returned = {result.offset for result in excess}
        return [each for each in messages if each.receipt.leased_offset not in returned]

    def _beside_lane(self, key: CursorKey) -> Counter[str]:
        """How many messages of each unit a shard has leased, when its claims begin to look at the lane."""

        def looks(state: CursorSnapshot) -> Change | None:
            cursor = state.cursor
            return None if cursor.is_closed else change(cursor, transitions.beside_lane(cursor))

        state = self.states.update(key, looks)
        cursor = state.cursor if state else Cursor()
        return transitions.leased_counts(transitions.lapse(cursor, self.clock.now_ms()))

    def _planner(
        self, claimant: Claimant, shard: int | None, now_ms: int, *, looks: bool = False
    ) -> ClaimPlanner:
        """`looks`: it counts what the lane, or the shards of a lane's messages, have leased of each key, too."""
        return ClaimPlanner(
            reader=self.reader,
            claimant=claimant,
            shard=shard,
            recent_tenants=self.recent_tenants,
            leased_in=lambda n: self._leased_in(claimant.key(n), now_ms) if looks else Counter(),
            now_ms=now_ms,
        )

    def _leased_in(self, key: CursorKey, now_ms: int) -> Counter[str]:
        """How many messages of each unit a shard's cursor has leased: one read."""
        return transitions.leased_counts(transitions.lapse(self.states.read(key).cursor, now_ms))

    def settle_unwanted(self, claimant: Claimant, shard: int, has_time: Callable[[], bool]) -> None:
        """For the schedule `sweep`: settle the next unclaimed messages of a shard up to the first that the group
        gets."""
        key = claimant.key(shard)
        while has_time():
            state = self.states.last(key)
            planner = self._planner(claimant, shard, self.clock.now_ms())
            selection = planner.plan_unwanted(state.cursor)
            if not selection.settled or (not state.exists and not self._may_begin(claimant)):
                return
            after = transitions.claim(state.cursor, selection, "", "", 0)
            self.states.write_after(key, state, after)

    def _write(
        self,
        claimant: Claimant,
        key: CursorKey,
        state: CursorSnapshot,
        after: Cursor,
        dead_records: Sequence[Record],
        token: str,
    ) -> bool:
        """Write a claim, and what is told of its dead letters; False where it lost a race. If the write's answer was
        lost, the cursor is read again: otherwise the granted messages would be stuck until the lease ends. A try of the
        same receive elsewhere may have made a lease of that token: then it has other contents, or is the same for the
        caller, too."""
        group = claimant.group
        told = [notice.without_needless_body(group, record) for record in dead_records]
        timers = notice.timers(claimant.topic, group, told, self.events)
        try:
            if self.states.write_after(key, state, after, dead_records, timers) is None:
                return False
        except Unavailable:
            ours = after.leases.get(token)
            if ours is None or self.states.read(key).cursor.leases.get(token) != ours:
                raise
        self.on_timers_stored(timers)
        return True

    def expire(self, claimant: Claimant, shard: int | None, has_time: Callable[[], bool]) -> int:
        """For the schedule `expire`: settle as dead letters, on a shard or in the retry lane (None), the unleased
        messages that are past their retention (their rows are about to expire), have expired, or have no attempts
        left. Returns how many; `has_time` is called after each write, and between reads."""
        key = claimant.key(shard)
        count = 0
        while True:
            state = self.states.last(key)
            now_ms = self.clock.now_ms()
            plan = self._planner(claimant, shard, now_ms).plan_expiry(state.cursor, has_time)
            if not plan.selection.settled:
                return count
            after = transitions.claim(plan.cursor, plan.selection, "", "", 0)
            if plan.selection.passed_over and not cursor_size.has_room_for_claim(plan.cursor, after, 0):
                return count  # the cursor is full: the next run continues
            if self._write(claimant, key, state, after, plan.dead, ""):
                count += len(plan.dead)
                self._note_lapsed(claimant, shard, state.cursor, plan, now_ms, is_ranked=False)
            if not has_time():
                return count

    def _may_begin(self, claimant: Claimant) -> bool:
        """May a cursor be created? When a broadcast's consumer leaves, its cursors are deleted; a process that has
        not noticed must not start them again at the first message."""
        uid = claimant.consumer_uid
        return not uid or self.is_registered(claimant.topic, claimant.group, uid)

    def _note_lapsed(
        self,
        claimant: Claimant,
        shard: int | None,
        cursor: Cursor,
        plan: ClaimPlan,
        now_ms: int,
        *,
        is_ranked: bool = True,
    ) -> None:
        """Trace attempts that were not settled in time. They ended at their lease's deadline; the write that takes the
        leases out of the cursor notes them."""
        for lease in cursor.leases.values():
            if lease.deadline_ms > now_ms:
                continue
            lapsed = (_lapsed_attempt(shard, *each, plan.messages) for each in lease.begun().items())
            self.attempt_log.note(
                claimant.topic,
                claimant.group,
                owner_uid=lease.owner,
                consumer_uid=claimant.consumer_uid,
                row_id=lease.token,
                started_ms=lease.deadline_ms,
                attempts=[each for each in lapsed if each],
                is_ranked=is_ranked,
            )


def _fills_ms(claimant: Claimant, shard: int | None, plan: ClaimPlan, most: int, now_ms: int) -> int | None:
    """Until when the messages of a plan wait for a full batch, if they do: new ones, if there is room for all of it."""
    spans, batch = plan.selection.granted, claimant.batch
    room = min(most, claimant.room(claimant.in_flight(plan.cursor)))
    is_new = shard is not None and all(span.attempt == 1 for span in spans)
    if not (claimant.batch_wait_ms and spans and is_new) or not sum(s.count for s in spans) < batch <= room:
        return None
    oldest_ms = min(plan.messages[offset].accepted_ms for span in spans for offset in span.offsets())
    until_ms = oldest_ms + claimant.batch_wait_ms
    return until_ms if until_ms > now_ms else None


def _lapsed_attempt(
    shard: int | None, offset: int, attempt: int, messages: Mapping[int, Message]
) -> tuple[int, TraceEntry] | None:
    """The attempt, by the shard and offset of its message; None for a lane's entry that this claim did not read."""
    if shard is not None:
        return shard, TraceEntry(offset, attempt, AttemptOutcome.LAPSED)
    message = messages.get(offset)
    origin = message.draft.origin if message else None
    if origin is None:
        return None
    return origin.shard, TraceEntry(origin.offset, origin.attempts + attempt, AttemptOutcome.LAPSED)
