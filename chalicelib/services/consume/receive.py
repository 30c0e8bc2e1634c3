"""Pulling: a caller receives from its shards, and a bounded share from the retry lane."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

from ...domain.call_result import CallResult
from ...domain.errors import HeadraceError, Unavailable
from ...domain.limits import MAX_ANSWER_BYTES, MAX_SHARDS
from ...domain.message import Message
from ...domain.status import Because, first_reason
from ...domain.topic import Consumer, CursorKey, Group, Topic
from ...modes import POLICIES
from ...ports.world import Blobs, Clock, Random
from ..core.assignments import Assignments
from ..core.bodies import with_bodies
from ..core.catalog import Catalog, broadcast_needs_consumer
from ..core.expiring_cache import BoundedCache, TtlCache
from .claim import Claimer
from .claimant import Claim, Claimant, ClaimedMessage, Received
from .decision import decision_after
from .settle import Acks, Settler

LAST_SHARE = 8  # one message in so many is of the last priority, if there are any
LANE_SHARE = 4  # new messages come first: the lane gets one slot in so many while there are any
_FEW_SHARDS = 11  # one read unit mostly holds their cursors and the lane's; of more, the first has enough
_LOST_RACES = 10  # per shard and call; the rest is left to the next receive
_FAULTS = 2  # of different shards, in one pass: then the store itself has a fault
_LAST_SOURCE_MS = 60_000  # how long a consumer begins with the shard that had messages last
_STAY = 4  # one receive in so many starts at a random shard
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 1.0  # each look costs half a read unit per shard

_BUSY = Claim()

# A shard, or None for the retry lane, and how many messages the answer may have after it: an urgent shard leaves room
# for the last priority, and comes again.
_Source = tuple[int | None, int]


@dataclass(kw_only=True, eq=False)
class Receiver:
    """Claims for pull consumers. `empty_lanes` are retry lanes that gave nothing a moment ago, and why: they are
    skipped for a moment. `is_ending` is True while this process shuts down: it then stops waiting for messages.
    `is_caller_gone`: the caller of this thread has closed its connection: nothing is claimed for it."""

    catalog: Catalog
    assignments: Assignments
    claimer: Claimer
    settler: Settler
    blobs: Blobs
    clock: Clock
    random: Random
    empty_lanes: TtlCache[CursorKey, Because]
    is_ending: Callable[[], bool]
    is_caller_gone: Callable[[], bool]

    def __post_init__(self) -> None:
        self._last_sources: TtlCache[str, int] = TtlCache(self.clock, _LAST_SOURCE_MS)
        self._turns: BoundedCache[str, cycle[bool]] = BoundedCache()  # by group: the last priority's
        # where the last message had a tenant: which shard of its priority comes first next time
        self._next_shards: TtlCache[tuple[str, int], int] = TtlCache(self.clock, _LAST_SOURCE_MS)
        self._locks: BoundedCache[CursorKey, threading.Lock] = BoundedCache()

    def receive(
        self,
        topic: Topic,
        group: Group,
        consumer: Consumer | None,
        most: int,
        wait_seconds: float,
        lease_seconds: int,
        mark: str = "",
        *,
        is_run: bool = False,
        may_be_repeat: bool = False,
        instance: str | None = None,
        acks: Acks | None = None,
    ) -> Received:
        """Settle the `acks`, then claim up to `most` messages, waiting up to `wait_seconds` for the first. A receive
        with a `mark` (see `lease_mark`) that may be a repeat gets what an earlier try has claimed; as that may still
        wait, it is looked for each time. `is_run`: the messages of one ordering key, in order.
        Without acks it raises NotFound if the topic or the group is deleted meanwhile, and Conflict if another instance
        of the consumer takes over from this `instance`; Unavailable if nothing came and a shard could not be read."""
        if POLICIES[group.mode].per_consumer and consumer is None:
            raise broadcast_needs_consumer()
        acks = acks or self.settler.acks(topic, group, ())
        until_ms = self.clock.monotonic_ms() + int(wait_seconds * 1000)
        pause = _FIRST_PAUSE_SECONDS
        while not self.is_caller_gone():
            claimant = self._claimant(topic, group, consumer, most, lease_seconds, mark)
            claimant = replace(claimant, run=most if is_run else 0)
            held: Sequence[ClaimedMessage] = ()
            if mark and may_be_repeat:
                acks.settle()  # what they end does not come again
                held = self.claimer.held(claimant)[:most]
            shards = self.shards_for(topic, group, consumer)
            received = Received(held) if held else self._from_shards(claimant, shards, most, acks)
            acks.settle()
            received = Received(self._load_bodies(topic, group, received), received.because)
            seconds_left = (until_ms - self.clock.monotonic_ms()) / 1000
            if received or seconds_left <= 0 or self.is_ending():
                return received
            until_free = (self.claimer.rate_limits.free_ms(group) - self.clock.now_ms()) / 1000
            seconds = until_free if until_free > 0 else pause
            self.clock.sleep(min(seconds, _LONGEST_PAUSE_SECONDS, seconds_left))
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS) if until_free <= 0 else pause
            now = self._now(topic, group, consumer, instance, acks)
            if now is None:
                break
            topic, group, consumer = now
        acks.settle()
        return Received()

    def _now(
        self, topic: Topic, group: Group, consumer: Consumer | None, instance: str | None, acks: Acks
    ) -> tuple[Topic, Group, Consumer | None] | None:
        """All as it is after a pause: the topic may have more shards, and the group may be paused or resumed. None if
        the group was created again, perhaps in another mode: the next call uses that one."""
        try:
            topic = self.catalog.topic(topic.name)
            current_group = self.catalog.group(topic, group.name)
            if current_group.uid != group.uid:
                return None
            if consumer is not None and instance is not None:
                consumer = self.catalog.consumer(topic, group, consumer.name).with_instance(instance, "")
        except HeadraceError:
            if acks.answers:
                return None  # an error would say that nothing was acknowledged
            raise
        return topic, current_group, consumer

    def _claimant(
        self, topic: Topic, group: Group, consumer: Consumer | None, most: int, lease_seconds: int, mark: str
    ) -> Claimant:
        """Who claims; with others that pull, it leaves them their part of a shard's messages."""
        uid, is_paused = consumer.uid if consumer else "", group.is_paused(self.clock.now_ms())
        return Claimant(
            topic=topic,
            group=group,
            lease_seconds=lease_seconds,
            owner=uid,
            is_called=consumer is not None and consumer.is_called,
            consumer_uid=uid if POLICIES[group.mode].per_consumer else "",
            seat=None if is_paused else self.assignments.seat(topic, group, uid, most),
            mark=mark,
        )

    def _load_bodies(
        self, topic: Topic, group: Group, claimed_messages: Sequence[ClaimedMessage]
    ) -> list[ClaimedMessage]:
        """The messages with their bodies. A message whose body cannot be read is settled instead, even if another one
        fails."""
        messages = with_bodies(self.blobs, self.clock, [each.message for each in claimed_messages])
        now_ms = self.clock.now_ms()
        decisions = {
            claimed_message.receipt: decision_after(topic, group, claimed_message, outcome, now_ms)
            for claimed_message, outcome in zip(claimed_messages, messages, strict=True)
            if isinstance(outcome, CallResult)
        }
        if decisions:
            self.settler.settle(topic, group, list(decisions), lambda receipt, _: decisions[receipt])
        return [
            each if message is each.message else replace(each, message=message)
            for each, message in zip(claimed_messages, messages, strict=True)
            if isinstance(message, Message)
        ]

    def shards_for(self, topic: Topic, group: Group, consumer: Consumer | None) -> tuple[int, ...]:
        """The shards a caller receives from: its own by assignment, or all if it is not registered."""
        if group.is_paused(self.clock.now_ms()):
            return ()
        if consumer is None:
            return tuple(topic.shard_numbers)
        return self.assignments.shards_for(topic, group, consumer)

    def _from_shards(self, claimant: Claimant, shards: Sequence[int], most: int, acks: Acks) -> Received:
        """Claim from the sources in turn; again at the end where a race was lost or another thread was claiming."""
        if claimant.group.is_paused(self.clock.now_ms()):
            return Received(because=Because.PAUSED)
        if self.claimer.rate_limits.free_ms(claimant.group):
            return Received(because=Because.RATE_LIMITED)
        if not (shards or self._foreign_shards(claimant, shards, claimant.topic.shard_numbers)):
            return Received(because=Because.NOT_OWNER)
        preload = partial(self.claimer.preload, claimant.topic, claimant.group, claimant.consumer_uid)
        sources = self._sources_of(claimant, shards, most)
        if is_preloaded := len(claimant.topic.shard_numbers) <= _FEW_SHARDS:
            preload(shard for shard, _ in sources)
        queue = deque((*source, 0, False) for source in self._lapsed_first(claimant, sources))
        acks.settle({claimant.key(shard) for shard, *_ in queue})
        shards_tried = 0
        claimed_messages, faults = list[ClaimedMessage](), list[Unavailable]()
        reasons = {self.empty_lanes.get(claimant.key(None)) or Because.EMPTY}
        size = 0
        while queue and len(claimed_messages) < most and size < MAX_ANSWER_BYTES and len(faults) < _FAULTS:
            if not is_preloaded and shards_tried:
                is_preloaded = True
                preload(shard for shard, *_ in queue)
            shard, limit, losses, was_busy = queue.popleft()
            if (count := limit - len(claimed_messages)) <= 0:
                queue += [(shard, most, losses, was_busy)] if shard is not None else []
                continue
            shards_tried += shard is not None
            try:
                claim = self._claim(claimant, shard, count, MAX_ANSWER_BYTES - size, acks, waits=was_busy)
            except Unavailable as error:
                faults.append(error)  # what the other shards granted belongs to the caller now
                continue
            if claim is _BUSY:
                queue.append((shard, limit, losses, True))
                continue
            reasons.add(claim.because if claim else Because.IN_FLIGHT)  # others took what was there
            if claim is None:
                queue += [(shard, limit, losses + 1, was_busy)] if losses < _LOST_RACES else []
                continue
            if claim.messages and shard is not None:
                self._note_source(claimant.group.uid + claimant.owner, shard, claim)
                queue += [(shard, most, losses, was_busy)] if len(claim.messages) == count else []
            claimed_messages += claim.messages
            size += sum(each.message.draft.weight for each in claim.messages)
            has_run = claimant.run and claim.messages
            if claim.is_alone or has_run or self.claimer.rate_limits.free_ms(claimant.group):
                break
        if faults and not claimed_messages:
            raise faults[0]
        return Received(claimed_messages, first_reason(reasons))

    def _sources_of(self, claimant: Claimant, shards: Sequence[int], most: int) -> list[_Source]:
        """The shards and the lane in the order to try them."""
        sources: list[_Source] = []
        for numbers in claimant.topic.classes:
            mine = [shard for shard in shards if shard in numbers]
            start = self._start(claimant, mine)
            own = self._in_turn(claimant, (*mine[start:], *mine[:start]))
            room = most - most // LAST_SHARE if numbers[0] else most
            sources += [(s, room) for s in (*own, *self._foreign_shards(claimant, own, numbers))]
        if most < LAST_SHARE and claimant.topic.priorities > 1 and self._is_turn_of_last(claimant.group):
            sources.sort(key=lambda source: (source[0] or 0) // MAX_SHARDS)
        if self.empty_lanes.get(claimant.key(None)):
            return sources
        has_place = most >= LANE_SHARE and claimant.group.rate_limit is None
        first = has_place or not self.random.below(LANE_SHARE)
        lane: list[_Source] = [(None, max(1, most // LANE_SHARE))] if first else []
        return [*lane, *sources, (None, most)]

    def _is_turn_of_last(self, group: Group) -> bool:
        """Does this claim of few messages begin with the last priority? Each eighth in this process does; where more
        are claimed, an eighth of them is kept for it."""
        return next(self._turns.of(group.uid, lambda: cycle([False] * (LAST_SHARE - 1) + [True])))

    def _lapsed_first(self, claimant: Claimant, sources: Sequence[_Source]) -> Sequence[_Source]:
        """First those with a message whose lease ended: it comes alone. As far as is known without a read."""
        return sorted(sources, key=lambda source: not self.claimer.has_lapsed(claimant, source[0]))

    def _foreign_shards(self, claimant: Claimant, own: Sequence[int], shards: Sequence[int]) -> Sequence[int]:
        """Of these shards the other consumers', from the next one on: a QUEUE shares messages, not shards, so a
        consumer whose shards are empty tries these."""
        policy = claimant.policy
        if not claimant.owner or policy.per_consumer or policy.holds_back:
            return ()
        first = shards.index(own[0]) if own and own[0] in shards else 0
        return [shard for shard in (*shards[first:], *shards[:first]) if shard not in own]

    def _claim(
        self, claimant: Claimant, shard: int | None, most: int, most_bytes: int, acks: Acks, *, waits: bool
    ) -> Claim | None:
        """One claim; _BUSY while another thread claims from the same source, unless it `waits` for it. Notes a retry
        lane that has nothing, unless something was put there meanwhile."""
        lock = self._locks.of(claimant.key(shard), threading.Lock)
        if not lock.acquire(blocking=waits):
            return _BUSY
        if claimant.run:
            claimant, most = replace(claimant, run=most), 1
        try:
            if shard is not None:
                return self.claimer.claim(claimant, shard, most, most_bytes, acks)
            with self.empty_lanes.calling(claimant.key(None)) as call:
                claim = self.claimer.claim(replace(claimant, seat=None), None, most, most_bytes)
                passing = {Because.RATE_LIMITED, *([Because.KEYS_WAIT] if claimant.policy.of_key else [])}
                is_known = claim and claim.because not in passing
                if claim and is_known and not claim.messages and not claim.has_left_off:
                    call.keep(claim.because)
                return claim
        finally:
            lock.release()

    def _note_source(self, who: str, shard: int, claim: Claim) -> None:
        self._last_sources.put(who, shard)
        turn = who, shard // MAX_SHARDS
        if not claim.has_tenants:
            self._next_shards.drop(turn)
        elif self._next_shards.get(turn) is None:
            self._next_shards.put(turn, shard)

    def _in_turn(self, claimant: Claimant, own: Sequence[int]) -> Sequence[int]:
        """Where messages have tenants, each receive begins with the next shard: a busy one would hide the others."""
        if not own:
            return own
        turn = claimant.group.uid + claimant.owner, own[0] // MAX_SHARDS
        last = self._next_shards.get(turn)
        if last is None:
            return own
        shard = self._next_shards.put(turn, min(own, key=lambda each: (each <= last, each)))
        return sorted(own, key=lambda each: each != shard)

    def _start(self, claimant: Claimant, shards: Sequence[int]) -> int:
        """Mostly the shard that had messages last time (the others may be empty, and a look costs a read); sometimes a
        random one, so that a busy shard does not hide the others."""
        if not shards:
            return 0
        last_source = self._last_sources.get(claimant.group.uid + claimant.owner)
        if last_source in shards and self.random.below(_STAY):
            return shards.index(last_source)
        return self.random.below(len(shards))
