"""The stored assignment of a group, renewed when the consumers online have changed.

Every process that reads an assignment renews it if it no longer fits: on a registration or removal at once, otherwise
within the age of the caches. So a crashed consumer's shards move without waiting for a schedule, and an idle group
costs no write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...domain.assignment import EVERYONE, Assignment, Staffed, Target, Team, deal, is_idle, is_online
from ...domain.pull_share import Seat
from ...domain.topic import Consumer, ConsumerState, Group, Topic, cursor_key
from ...modes import POLICIES
from ...ports.world import Clock
from ...store import Control
from .catalog import CACHE_MS, Catalog
from .expiring_cache import TtlCache
from .positions import Positions

_TRIES = 8
_LOOK_MS = 60_000  # how often a process looks whether members that do not receive have a backlog


class Assignments:
    """Which consumer has which shards, with an epoch that rises with every change."""

    def __init__(self, control: Control, catalog: Catalog, positions: Positions, clock: Clock) -> None:
        self._control = control
        self._catalog = catalog
        self._clock = clock
        self._positions = positions
        self._stored: TtlCache[str, Assignment] = TtlCache(clock, CACHE_MS)
        self._behind: TtlCache[str, frozenset[str]] = TtlCache(clock, _LOOK_MS)

    def current(self, topic: Topic, group: Group) -> Assignment:
        """The group's assignment for the consumers that this process knows to be online (at most 3 s old)."""
        assignment = self._stored.get(group.uid) or self._read(topic, group)
        if assignment.fits(self._target(topic, group, self._catalog.consumers(topic, group), assignment)):
            return assignment
        return self._reassign(topic, group)

    def look_after(self, topic: Topic, staffed: Staffed) -> bool:
        """Renew the assignment of a group, just read, if it does not fit. True: it did not."""
        assignment = staffed.assignment or Assignment(0, _strategy(staffed.group))
        if assignment.fits(self._target(topic, staffed.group, staffed.consumers, assignment)):
            return False
        return self._reassign(topic, staffed.group).epoch > assignment.epoch

    def shards_for(self, topic: Topic, group: Group, consumer: Consumer) -> tuple[int, ...]:
        """The shards of a registered consumer; while it is not online, those that it would have."""
        if POLICIES[group.mode].per_consumer:
            return tuple(topic.shard_numbers)
        assignment = self.current(topic, group)
        if consumer.uid in assignment.members:
            return assignment.shards(consumer.uid, topic.shard_numbers)
        uids = (c.uid for c in self._catalog.consumers(topic, group))
        members = tuple(uid for uid in uids if uid in assignment.members or uid == consumer.uid)
        owners = deal(assignment.strategy, members, topic.shard_numbers)
        return replace(assignment, owners=owners).shards(consumer.uid, topic.shard_numbers)

    def team(self, topic: Topic, group: Group) -> Team:
        """For push: the consumer that has each shard (in a broadcast, all that are ACTIVE), and the push consumers.

        If no consumer is online because of open circuits, the team has the consumers that will have the shards, so that
        the run knows when to try again.
        """
        assignment, consumers = self.current(topic, group), self._catalog.consumers(topic, group)
        active = [c for c in consumers if c.state == ConsumerState.ACTIVE]
        pushed_to = [c for c in active if c.is_called]
        if assignment.strategy == EVERYONE:
            return Team(list(active), pushed_to)
        by_uid = {c.uid: c for c in consumers}
        # Those whose circuits are open leave the shards to callbacks meanwhile.
        uids = [] if group.callbacks else [c.uid for c in pushed_to]
        owner_uids = assignment.owners or deal(assignment.strategy, uids, topic.shard_numbers)
        owners = [by_uid.get(uid) for uid in owner_uids]
        called = [c for c in pushed_to if c.uid in assignment.members] or pushed_to
        return Team(owners, called, partial(self._catalog.allows_callback, topic))

    def seat(self, topic: Topic, group: Group, uid: str, asked_count: int) -> Seat | None:
        """A consumer's seat among the pull consumers online, in a mode that shares messages; None if it is the only
        one. `asked_count`: how many messages it can take in this call."""
        policy = POLICIES[group.mode]
        if not uid or policy.per_consumer or policy.holds_back:
            return None
        assignment = self.current(topic, group)
        called_uids = {c.uid for c in self._catalog.consumers(topic, group) if c.is_called}
        pull_uids = [member for member in assignment.members if member not in called_uids]
        if uid not in pull_uids or len(pull_uids) < 2:
            return None
        return Seat(assignment.epoch, pull_uids.index(uid), len(pull_uids), asked_count)

    def name_and_rank(self, topic: Topic, group: Group, uid: str) -> tuple[str, int | None, int]:
        """A consumer's name, rank and total, for traces; an empty name for a caller that is not registered."""
        if not uid:
            return "", None, 0
        name = self._catalog.consumer_names(topic, group).get(uid, "")
        assignment = self.current(topic, group)
        return name, assignment.rank(uid), len(assignment.members)

    def _reassign(self, topic: Topic, group: Group) -> Assignment:
        """The assignment that fits. The difference may come from an old cached view, so everything is read again before
        a write; the row first, since its epoch guards the later reads."""
        for _ in range(_TRIES):
            assignment = self._read(topic, group)
            target = self._stored_target(topic, group, assignment)
            if target is None or assignment.fits(target):
                break
            new = target.dealt(assignment.epoch + 1, self._clock.now_ms())
            with self._stored.calling(group.uid) as call:
                if self._control.put_assignment(topic, group, new):
                    return call.replace(new)
        return assignment

    def _read(self, topic: Topic, group: Group) -> Assignment:
        with self._stored.calling(group.uid) as call:
            row = self._control.assignment(topic, group)
            return call.keep(row or Assignment(0, _strategy(group)))

    def _stored_target(self, topic: Topic, group: Group, assignment: Assignment) -> Target | None:
        """The assignment that fits the stored consumers; None if the group is gone."""
        self._catalog.forget(topic, group)
        now = self._control.topic(topic.name)
        here = self._control.group(now, group.name) if now else None
        if now is None or here is None or here.uid != group.uid:
            return None
        return self._target(now, here, self._catalog.consumers(now, here), assignment)

    def _target(self, topic: Topic, group: Group, consumers: Sequence[Consumer], held: Assignment) -> Target:
        """The assignment that the group should have. `held`: the one that it has."""
        now_ms = self._clock.now_ms()
        online = [consumer for consumer in consumers if is_online(consumer, now_ms)]
        members = tuple(consumer.uid for consumer in online)
        idle: tuple[str, ...] = ()
        if POLICIES[group.mode].holds_back and len(online) > 1:
            idle = self._idle(topic, group, [c.uid for c in online if is_idle(c, now_ms)], held)
        idle = idle if len(idle) < len(members) else ()
        return Target(_strategy(group), members, idle, topic.shard_numbers)

    def _idle(self, topic: Topic, group: Group, uids: Sequence[str], held: Assignment) -> tuple[str, ...]:
        """Those of the members that do not receive who get no shards: their shards have a backlog, or had one when they
        lost them."""
        behind = self._behind.get(group.uid) if uids else frozenset[str]()
        if behind is None:
            held_by = {uid: held.shards(uid, topic.shard_numbers) for uid in uids}
            keys = {uid: [cursor_key(topic, group, shard) for shard in held_by[uid]] for uid in uids}
            behind = frozenset(uid for uid in uids if any(map(self._positions.has_backlog, keys[uid])))
            self._behind.put(group.uid, behind)
        return tuple(uid for uid in uids if uid in behind or uid in held.idle)


def _strategy(group: Group) -> str:
    return EVERYONE if POLICIES[group.mode].per_consumer else group.assignment
