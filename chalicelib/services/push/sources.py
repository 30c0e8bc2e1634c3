"""The shards and the retry lane that a run claims from, and the consumers that may get their messages."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ...domain.assignment import Team
from ...domain.limits import MAX_CALLS
from ...domain.push_limit import guaranteed_of
from ...domain.topic import Consumer, Group, Topic, lane_of
from ...modes import POLICIES
from ..consume.claimant import ClaimedMessage
from ..consume.receive import LANE_SHARE
from ..core.wake import DispatchTask, workers_of


class SourceLimits(NamedTuple):
    """How many messages of one source may be in flight: `guaranteed` always, `most` at the most. One consumer has an
    equal `part` (at least one batch), of which `guaranteed_part` is always free: otherwise, when other sources return
    their slots, no run would come back to this source, since each source has one task."""

    most: int
    guaranteed: int
    part: int
    guaranteed_part: int


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
        self._shards: Sequence[int] = range(worker, topic.shards, workers)
        self._has_lane = worker == 0
        lane = str(lane_of(topic, group, task.consumer_uid).shard_key(0))
        self.keys = {str(topic.shard_key(s)) for s in self._shards}.union(
            [lane] if self._has_lane else [], partitions
        )
        if partitions:
            self._shards = [s for s in range(topic.shards) if str(topic.shard_key(s)) in partitions]
            self._has_lane = lane in partitions
        owners = team.owners
        if task.consumer_uid:
            owners = [next((c for c in owners if c and c.uid == task.consumer_uid), None)] * topic.shards
        self._owners = [c if c and c.is_called else None for c in owners]
        policy = POLICIES[group.mode]
        self._is_shared = not policy.per_consumer and not policy.holds_back
        self._team = tuple(team.called)

    def in_turn(self, look: int, most: int, behind: int = -1) -> Iterator[int | None]:
        """The lane, then the shards, beginning behind one: the one that had messages last, so that busy shards have
        equal parts, whatever empty ones stand between them. If only few messages may be in flight, the lane mostly
        comes last: a message that failed before is a bad probe of a subscriber that may have recovered."""
        lane_first = most >= LANE_SHARE or not look % LANE_SHARE
        start = bisect(self._shards, behind)
        if self._has_lane and lane_first:
            yield None
        yield from (*self._shards[start:], *self._shards[:start])
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
        owner = next((c for c in self._owners if c), None) if shard is None else self._owner_of(shard)
        if owner is None:
            return ()
        return self._team if self._is_shared else (owner,)

    def called_consumers(self) -> set[Consumer]:
        """All consumers that may get messages."""
        return set(self._team if self._is_shared else filter(None, self._owners))

    def called_for(self, shard: int | None, claimant: Consumer) -> set[Consumer]:
        """The consumers that may get the messages claimed by `claimant`."""
        return self.called_consumers() if shard is None and not self._is_shared else {claimant}

    def target(self, claimant: Consumer, claimed_message: ClaimedMessage) -> Consumer:
        """The consumer that gets a granted message: its claimant or, in an ordered mode, the owner of its shard."""
        return claimant if self._is_shared else self._owner_of(claimed_message.message.shard) or claimant

    def _owner_of(self, shard: int) -> Consumer | None:
        return self._owners[shard] if shard < len(self._owners) else None


def lane_share(most: int) -> int:
    """How many of `most` messages in flight may be from the lane."""
    return max(1, most // LANE_SHARE)
