"""How many messages one run may have in flight: at each consumer, from the retry lane, and in view of the group's other
runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ...domain.limits import MAX_BYTES_UNDER_WAY
from ...domain.push_limit import Claimed, in_flight_of
from ...domain.topic import Consumer, Group, Topic
from ...ports.world import Clock
from ..consume.claim import Claimer
from ..consume.claimant import ClaimedMessage
from ..core.catalog import Catalog
from .health import SubscriberHealth
from .sources import Sources, lane_share

_LOOK_MS = 1_000  # how long the counts of other runs are used, and who was busy is remembered


class Capacity:
    """The messages in flight, and the free slots of the group's `max_in_flight`.

    A run knows its own messages exactly. It learns those of the group's other runs by reading all the group's cursors
    (`read_other_runs`), and does so only when it makes a difference.
    """

    def __init__(
        self,
        *,
        catalog: Catalog,
        claimer: Claimer,
        health: SubscriberHealth,
        clock: Clock,
        consumer_uid: str,
    ) -> None:
        self._catalog = catalog
        self._claimer = claimer
        self._health = health
        self._clock = clock
        self._consumer_uid = consumer_uid
        self._by_consumer: Counter[str] = Counter()  # deliveries of this run in flight
        self._from_lane = 0
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
        """Count the messages of a request: `sign` is 1 when it is sent, -1 when it has a result."""
        self._by_consumer[consumer.uid] += sign * len(messages)
        self._from_lane += sign * sum(each.receipt.entry is not None for each in messages)
        self._bytes += sign * sum(each.message.draft.size for each in messages)

    def see_circuits(self, topic: Topic, group: Group) -> None:
        """Note when consumers with an open circuit may be tried: they own no shards, so a run must start then."""
        consumers = self._catalog.consumers(topic, group)
        self.circuits_ms = [c.open_until_ms for c in consumers if c.is_called and c.open_until_ms]

    def read_other_runs(self, sources: Sources, new_leases: Counter[str] | None = None) -> int:
        """Read the group's cursors to learn what its other runs have in flight. Returns how many slots of the group are
        taken in all. `new_leases`: how many messages this run has just claimed, by the consumer's uid."""
        topic, group = sources.topic, sources.group
        now_ms = self._clock.now_ms()
        cursors = self._claimer.cursors(group, self._consumer_uid)
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
        is_old = not 0 <= self._clock.now_ms() - self._others_ms <= _LOOK_MS
        return self.is_limited and (is_old or sources.most - self._others < sources.few)

    def free(self, sources: Sources) -> int:
        """How many more messages may be in flight, as far as is known; an equal part before the first reading of the
        group's cursors."""
        others = self._others if self._others_ms else sources.most - sources.part
        return sources.most - others - self.under_way

    def allowance(self, sources: Sources) -> int:
        """The largest number of messages in flight that the health of any one consumer allows; 0 if all circuits are
        open."""
        allowances = [self._health.allowance(c, sources.most) for c in sources.consumers_of(None)]
        return max(allowances, default=0)

    def room(self, sources: Sources, shard: int | None, consumer: Consumer) -> int:
        """How many more messages of a source (a shard; None: the retry lane) a consumer may have in flight now. None
        while the bodies in flight are as many as a function's memory holds: whoever repeats a run that was killed for
        its memory would meet the same bodies again."""
        if self._bytes >= MAX_BYTES_UNDER_WAY:
            return 0
        allowance = self._health.allowance(consumer, sources.most)
        now_ms = self._clock.now_ms()
        if not allowance and not any(at_ms > now_ms for at_ms in self.circuits_ms):
            self.circuits_ms.append(now_ms + _LOOK_MS)  # it opened again since its registration was read
        limits = sources.limits(shard)
        share = max(limits.part - self._others_by.get(consumer.uid, 0), limits.guaranteed_part)
        self.is_limited |= share < limits.part
        room = min(
            sources.most_here - self.under_way, min(allowance, share) - self._by_consumer[consumer.uid]
        )
        return room if shard is not None else min(room, lane_share(allowance) - self._from_lane)
