"""The shards and the retry lane that a run claims from, the consumers that may get their messages, and how many each
may have in flight."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...domain.assignment import Team
from ...domain.limits import MAX_BYTES_UNDER_WAY, MAX_CALLS, MAX_SHARDS
from ...domain.message import Draft, host_of
from ...domain.push_limit import Claimed, guaranteed_of, in_flight_of
from ...domain.topic import CALLBACKS, Callback, Consumer, ConsumerKind, Group, Topic, lane_of
from ...modes import POLICIES
from ...ports.world import Blobs, Clock, Sender
from ..consume.claim import Claimer
from ..consume.claimant import ClaimedMessage
from ..consume.receive import LANE_SHARE, LAST_SHARE
from ..consume.settle import Settler
from ..core.catalog import Catalog
from ..core.secrets import SecretCipher
from ..core.wake import DispatchTask, Waker, worker_of, workers_of
from .health import SubscriberHealth

if TYPE_CHECKING:
    from ...store import Timers


Teams = Callable[[Topic, Group], Team]  # the owners of a group's shards, and its push consumers


@dataclass(kw_only=True, frozen=True)
class DispatchContext:
    """What a run works with."""

    catalog: Catalog
    claimer: Claimer
    settler: Settler
    sender: Sender
    secret_cipher: SecretCipher
    blobs: Blobs
    timers: Timers
    waker: Waker
    subscriber_health: SubscriberHealth
    teams: Teams
    clock: Clock
    threads: Callable[[], Executor]


class SourceLimits(NamedTuple):
    """How many messages of one source may be in flight: `guaranteed` always, `most` at the most. One consumer has an
    equal `part` (at least one batch), of which `guaranteed_part` is always free: otherwise, when other sources return
    their slots, no run would come back to this source, since each source has one task."""

    most: int
    guaranteed: int
    part: int
    guaranteed_part: int


def callback(group: Group, host: str, url: str = "") -> Callback:
    """A host as the consumer that gets a message at this URL. CALLBACKS stands for all hosts."""
    uid = host if host == CALLBACKS else f"{group.uid}@{host}"
    return Callback(group.topic, group.name, host, uid, group.created_ms, 0, ConsumerKind.URL, target=url)


class Sources:
    """The shards and the retry lane of one task: which consumers may have their messages, and how many may be in
    flight."""

    def __init__(
        self, topic: Topic, group: Group, task: DispatchTask, team: Team, partitions: Collection[str] = ()
    ) -> None:
        """`partitions`: only these shards, or the lane, by their partition keys, whichever worker has them by now;
        none: all of the task. `keys` are those of all its sources."""
        self.topic = topic
        self.group = group
        self.most = group.max_in_flight
        self._guaranteed = guaranteed_of(topic, group)
        self._workers = workers_of(topic, group)
        self.most_here = min(self.most, MAX_CALLS * group.batch_size)
        workers = self._workers
        # An earlier setting may have had more workers.
        worker = task.worker % workers
        self._shards = [
            shard
            for numbers in reversed(topic.classes)
            for place, shard in enumerate(numbers)
            if worker_of(shard, workers) == worker or (numbers[0] and place == worker % len(numbers))
        ]
        self._has_lane = worker == 0
        lane = str(lane_of(topic, group, task.consumer_uid).shard_key(0))
        shard_keys = {str(topic.shard_key(s)) for s in self._shards}
        self.keys = shard_keys.union([lane] if self._has_lane else [], partitions)
        if partitions:
            self._shards = [s for s in topic.shard_numbers if str(topic.shard_key(s)) in partitions]
            self._has_lane = lane in partitions
        owners = team.owners
        if task.consumer_uid:
            owners = [c for c in owners if c and c.uid == task.consumer_uid][:1] * len(topic.shard_numbers)
        policy = POLICIES[group.mode]
        # It claims where no push consumer does.
        self.callbacks = callback(group, CALLBACKS) if group.callbacks else None
        self._allows = team.allows
        called = {s: c for s, c in zip(topic.shard_numbers, owners, strict=False) if c and c.is_called}
        others = dict.fromkeys(topic.shard_numbers, self.callbacks) if self.callbacks else {}
        self._owners: dict[int, Consumer] = {**others, **called}
        self._is_shared = not policy.per_consumer and not policy.holds_back
        self._team = tuple(team.called)

    def in_turn(self, look: int, most: int, behind: Mapping[int, int] | None = None) -> Iterator[int | None]:
        """The lane, then the shards: the most urgent first, at each eighth look those of the last priority. Each
        priority begins `behind` the one that had messages last (by its first shard), so that busy shards have equal
        parts, however many empty ones are between them. If only few messages may be in flight, the lane mostly comes
        last: a message that failed before is a bad probe of a subscriber that may have recovered. So it does under a
        rate limit, where new messages would wait for all retries."""
        has_place = most >= LANE_SHARE and self.group.rate_limit is None
        lane_first = has_place or not look % LANE_SHARE
        if self._has_lane and lane_first:
            yield None
        for numbers in self.topic.classes[:: 1 if look % LAST_SHARE else -1]:
            shards = [shard for shard in self._shards if shard in numbers]
            start = bisect(shards, (behind or {}).get(numbers[0], -1))
            yield from (*shards[start:], *shards[:start])
        if self._has_lane and not lane_first:
            yield None

    @property
    def part(self) -> int:
        """The slots of this task, if the group's other tasks have as much to do: their runs mostly begin together."""
        return self.most // self._workers

    @property
    def few(self) -> int:
        """Fewer slots than this are too few for a claim of their own, if more may soon be free: 0 if there is no other
        task that could return any."""
        return self.part // 2 if self._workers > 1 else 0

    def limits(self, shard: int | None) -> SourceLimits:
        """How many messages of one source may be under way."""
        consumers = max(1, len(self.consumers_of(shard)))
        most = self.most if shard is not None else lane_share(self.most)
        part = max(-(-self.most // consumers), self.group.batch_size)
        return SourceLimits(most, self._guaranteed, part, -(-self._guaranteed // consumers))

    def consumers_of(self, shard: int | None) -> Sequence[Consumer]:
        """The consumers that claim from a source: in QUEUE all push consumers, which share its messages; else the owner
        of the shard."""
        called = (c for c in self._owners.values() if c is not self.callbacks)
        owner = next(called, self.callbacks) if shard is None else self._owner_of(shard)
        if owner is None:
            return ()
        return self._team if self._is_shared and owner is not self.callbacks else (owner,)

    def called_consumers(self) -> set[Consumer]:
        """All consumers that may get messages."""
        return {*(self._team if self._is_shared else self._owners.values())} | {
            *filter(None, [self.callbacks])
        }

    def called_for(self, shard: int | None, claimant: Consumer) -> set[Consumer]:
        """The consumers that may get the messages claimed by `claimant`."""
        is_any = shard is None and not self._is_shared
        return self.called_consumers() if is_any else {claimant, self.callbacks or claimant}

    def target(self, claimant: Consumer, claimed_message: ClaimedMessage) -> Consumer:
        """The consumer that gets a granted message: the host of its `callback_url`, its claimant or, in an ordered
        mode, the owner of its shard."""
        draft = claimed_message.message.draft
        if self.has_callback(draft):
            return callback(self.group, str(host_of(draft.callback_url)), str(draft.callback_url))
        return claimant if self._is_shared else self._owner_of(claimed_message.message.shard) or claimant

    def has_callback(self, draft: Draft) -> bool:
        """Is it sent to its `callback_url`? One that only another group allows is not; one that no group allows any
        more is, to become a dead letter."""
        host = host_of(draft.callback_url) if self.callbacks else None
        return host is not None and (host in (self.group.callbacks or ()) or not self._allows(host))

    def _owner_of(self, shard: int) -> Consumer | None:
        return self._owners.get(shard)


def lane_share(most: int) -> int:
    """How many of `most` messages in flight may be from the lane."""
    return max(1, most // LANE_SHARE)


_LOOK_MS = 1_000  # how long the counts of other runs are used, and who was busy is remembered


class Capacity:
    """The messages in flight, and the free slots of the group's `max_in_flight`.

    A run knows its own messages exactly. It learns those of the group's other runs by reading all the group's cursors
    (`read_other_runs`), and does so only when it makes a difference.
    """

    def __init__(self, context: DispatchContext, consumer_uid: str) -> None:
        self._context = context
        self._consumer_uid = consumer_uid
        self._by_consumer: Counter[str] = Counter()  # deliveries of this run in flight
        self._from_lane = self._from_last = 0
        self._bytes = 0  # of the bodies in flight
        self._others = 0  # slots of the group that other runs had at the last reading of its cursors
        self._others_by: Mapping[str, int] = {}  # of these, the slots of each consumer
        self._others_ms = 0
        # when a cursor was last seen busy, or its whole guarantee further than before
        self._busy_ms: dict[str, int] = {}
        self._claimed: Mapping[str, Claimed] = {}  # how far each cursor was
        self.is_limited = False  # other runs had a slot that this one could use
        # Another run may have found no free slot, ended, and left its source to those that had the slots (ADR 27).
        self.was_crowded = False
        self.circuits_ms: list[int] = []  # when consumers with an open circuit may be called again

    @property
    def under_way(self) -> int:
        """How many messages this run has sent that have no result yet."""
        return self._by_consumer.total()

    def count(self, consumer: Consumer, messages: Sequence[ClaimedMessage], sign: int) -> None:
        """Count the messages of a request: `sign` is 1 when it is sent, -1 when it has a result. Of a run, one message
        at a time is sent."""
        sent = messages[:1] if any(each.is_in_run for each in messages) else messages
        self._by_consumer[consumer.uid] += sign * len(sent)
        self._from_lane += sign * sum(each.receipt.entry is not None for each in sent)
        self._from_last += sign * sum(each.message.shard < MAX_SHARDS for each in sent)
        self._bytes += sign * sum(each.message.draft.size for each in messages)

    def see_circuits(self, topic: Topic, group: Group) -> None:
        """Note when consumers with an open circuit may be tried: they own no shards, so a run must start then."""
        consumers = self._context.catalog.consumers(topic, group)
        self.circuits_ms = [c.open_until_ms for c in consumers if c.is_called and c.open_until_ms]

    def pause_ms(self, sources: Sources, consumer: Consumer) -> int | None:
        """How long a callback's host is to be left alone, by its circuit; None: it may be called. Whoever else is
        called was asked before the claim (`room`)."""
        health, under_way = self._context.subscriber_health, self._by_consumer[consumer.uid]
        is_host = isinstance(consumer, Callback) and consumer.name in (sources.group.callbacks or ())
        if not is_host or under_way < health.allowance(consumer, sources.most):
            return None
        return health.open_ms(consumer)

    def read_other_runs(self, sources: Sources, new_leases: Counter[str] | None = None) -> int:
        """Read the group's cursors to learn what its other runs have in flight. Returns how many slots of the group are
        taken in all. `new_leases`: how many messages this run has just claimed, by the consumer's uid."""
        topic, group = sources.topic, sources.group
        now_ms = self._context.clock.now_ms()
        cursors = self._context.claimer.cursors(group, self._consumer_uid)
        leases = in_flight_of(topic, group, cursors, now_ms)
        own = self._by_consumer + (new_leases or Counter())
        claimed = {key: Claimed.of(cursor) for key, cursor in cursors.items()}
        many = max(1, leases.guaranteed)
        moved = {key for key, at in claimed.items() if at.beyond(self._claimed.get(key, at)) >= many}
        self._claimed = claimed
        self._busy_ms |= dict.fromkeys(leases.busy | moved, now_ms)
        busy_before = (key for key, at_ms in self._busy_ms.items() if 0 <= now_ms - at_ms <= _LOOK_MS)
        wanted = leases.slots_for_others(sources.keys, busy_before)
        self._others = max(0, leases.slots - own.total()) + wanted
        self._others_by = {uid: n - own[uid] for uid, n in leases.by_consumer.items()}
        self._others_ms = now_ms
        part = sources.most / max(1, len(sources.called_consumers()))
        self.was_crowded |= 2 * leases.slots >= part
        return leases.slots

    def is_to_look(self, sources: Sources) -> bool:
        """Are the group's cursors to be read again? Other runs had slots that this one could use, and have perhaps
        returned them: at the last reading they left it less than half a part, or it is long ago. Claims of a
        few messages cost as many writes as those of many."""
        is_old = not 0 <= self._context.clock.now_ms() - self._others_ms <= _LOOK_MS
        return self.is_limited and (is_old or sources.most - self._others < sources.few)

    def free(self, sources: Sources) -> int:
        """How many more messages may be in flight, as far as is known; an equal part before the first reading of the
        group's cursors."""
        others = self._others if self._others_ms else sources.most - sources.part
        return sources.most - others - self.under_way

    def allowance(self, sources: Sources) -> int:
        """The largest number of messages in flight that the health of any one consumer allows; 0 if all circuits are
        open."""
        allowance = self._context.subscriber_health.allowance
        return max((allowance(each, sources.most) for each in sources.consumers_of(None)), default=0)

    def room(self, sources: Sources, shard: int | None, consumer: Consumer) -> int:
        """How many more messages of a source (a shard; None: the retry lane) a consumer may have in flight now. 0 while
        the bodies in flight fill a function's memory: a run killed for its memory would meet the same bodies again when
        it is repeated."""
        if self._bytes >= MAX_BYTES_UNDER_WAY:
            return 0
        allowance = self._context.subscriber_health.allowance(consumer, sources.most)
        now_ms = self._context.clock.now_ms()
        if not allowance and not any(at_ms > now_ms for at_ms in self.circuits_ms):
            self.circuits_ms.append(now_ms + _LOOK_MS)  # it opened again since its registration was read
        limits = sources.limits(shard)
        share = max(limits.part - self._others_by.get(consumer.uid, 0), limits.guaranteed_part)
        self.is_limited |= share < limits.part
        own_room = min(allowance, share) - self._by_consumer[consumer.uid]
        room = min(sources.most_here - self.under_way, own_room)
        if shard is None:
            return min(room, lane_share(allowance) - self._from_lane)
        if shard >= MAX_SHARDS or sources.topic.priorities == 1:
            return room
        slots = min(sources.most_here, allowance, share)
        return min(room, slots - slots // LAST_SHARE - self._from_last)
