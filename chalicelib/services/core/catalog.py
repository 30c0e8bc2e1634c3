"""Topics, groups and consumers by name, cached for a moment; NotFound says which one is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...domain.errors import NotFound, Refused, Unreadable
from ...domain.topic import Consumer, Group, Topic
from ...domain.unreadable import PassOver, leave_out
from ...modes import POLICIES
from ...ports.world import Clock
from .expiring_cache import TtlCache

if TYPE_CHECKING:
    from ...store.control import Control


CACHE_MS = 3_000  # DMQ's servers refresh topics and clients every 3 s
_LOOK_AGAIN_MS = 1_000  # how often calls that a topic refuses read it at most

_Consumers = tuple[list[Consumer], list[str]]
"""The consumers whose rows can be read, and what is wrong with the other rows."""


class Catalog:
    """Reads of control data. Absence is not cached, so a new topic is found at once. A deleted one may be found for
    CACHE_MS more, and a deletion waits so long: see Admin."""

    def __init__(self, control: Control, clock: Clock) -> None:
        self.control = control
        self._topics: TtlCache[str, Topic] = TtlCache(clock, CACHE_MS)
        self._looked_again: TtlCache[str, bool] = TtlCache(clock, _LOOK_AGAIN_MS)
        self._groups: TtlCache[tuple[str, str], Group] = TtlCache(clock, CACHE_MS)
        self._consumers: TtlCache[str, _Consumers] = TtlCache(clock, CACHE_MS)

    def topic(self, name: str, *, consistent: bool = False) -> Topic:
        """The topic, or NotFound. `consistent`: read consistently, for a change."""
        hit = None if consistent else self._topics.get(name)
        if hit is not None:
            return hit
        with self._topics.calling(name) as call:
            topic = self.control.topic(name)
            if topic is None:
                raise NotFound(
                    "TOPIC_NOT_FOUND", f"There is no topic {name!r}. Create it with PUT /v1/topics/{name}."
                )
            return call.keep(topic)

    def topic_for(self, name: str, fits: Callable[[Topic], bool]) -> Topic:
        """The topic, or NotFound, for a call that it refuses unless it `fits`: the cached one, or else as it is stored.
        For refused calls it is read once a second at most, so one may still be refused for a second after a change."""
        topic = self.topic(name)
        if fits(topic) or self._looked_again.get(name):
            return topic
        self._looked_again.put(name, True)
        return self.topic(name, consistent=True)

    def group(self, topic: Topic, name: str, *, consistent: bool = False) -> Group:
        """The topic's group, or NotFound. `consistent`: as for a topic; what is asked next about its consumers is read
        from the store, too."""
        key = (topic.uid, name)
        hit = None if consistent else self._groups.get(key)
        if hit is not None:
            return hit
        with self._groups.calling(key) as call:
            group = self.control.group(topic, name)
            if consistent and group is not None:
                self._consumers.drop(group.uid)
            if group is None:
                raise NotFound(
                    "GROUP_NOT_FOUND",
                    f"Topic {topic.name!r} has no group {name!r}. "
                    f"Create it with PUT /v1/topics/{topic.name}/groups/{name}.",
                )
            return call.keep(group)

    def groups(self, topic: Topic, pass_over: PassOver | None = None) -> list[Group]:
        """All groups of the topic, by name. Raises Unreadable where one cannot be read, unless it is passed over."""
        return self.control.groups(topic, pass_over)

    def consumers(self, topic: Topic, group: Group) -> list[Consumer]:
        """All registered consumers of the group, by name. Raises Unreadable where a row cannot be read."""
        consumers, unreadable_rows = self._read_consumers(topic, group)
        if unreadable_rows:
            raise Unreadable("UNAVAILABLE", unreadable_rows[0])
        return consumers

    def readable_consumers(
        self, topic: Topic, group: Group, pass_over: PassOver = leave_out
    ) -> Sequence[Consumer]:
        """The consumers whose rows can be read. To decide that a consumer has left, use `consumers` instead: an
        unreadable row may be of a later release."""
        consumers, unreadable_rows = self._read_consumers(topic, group)
        for row in unreadable_rows:
            pass_over(row)
        return consumers

    def consumer_names(self, topic: Topic, group: Group) -> Mapping[str, str]:
        """The names of the consumers by uid; one whose row cannot be read has none."""
        return {consumer.uid: consumer.name for consumer in self.readable_consumers(topic, group)}

    def _read_consumers(self, topic: Topic, group: Group) -> _Consumers:
        entry = self._consumers.get(group.uid)
        if entry is None:
            unreadable_rows: list[str] = []
            with self._consumers.calling(group.uid) as call:
                consumers = self.control.consumers(topic, group, unreadable_rows.append)
                entry = call.keep((consumers, unreadable_rows))
        return entry

    def cursor_owners(self, topic: Topic, group: Group) -> list[str]:
        """The owners of the group's cursors: "" for the group or, in a broadcast, each consumer's uid."""
        if not POLICIES[group.mode].per_consumer:
            return [""]
        return [c.uid for c in self.consumers(topic, group)]

    def has_hidden_cursors(self, topic: Topic, group: Group) -> bool:
        """Is a row of a broadcast's consumer unreadable, so that not all cursors are known? Then `cursor_owners` raises
        Unreadable, and counts of all groups leave this group out."""
        return POLICIES[group.mode].per_consumer and bool(self._read_consumers(topic, group)[1])

    def consumer(self, topic: Topic, group: Group, name: str) -> Consumer:
        """The group's consumer, or NotFound."""
        for consistent in (False, True):
            if consistent:
                self._consumers.drop(group.uid)
            for consumer in self.readable_consumers(topic, group):
                if consumer.name == name:
                    return consumer
        if self._read_consumers(topic, group)[1]:  # is it not there, or can its row not be read?
            newcomer = self.control.consumer(topic, group, name)
            if newcomer is not None:
                return newcomer
        raise NotFound(
            "CONSUMER_NOT_FOUND",
            f"Group {group.name!r} has no consumer {name!r}. Register it with "
            f"PUT /v1/topics/{topic.name}/groups/{group.name}/consumers/{name}.",
        )

    def is_registered(self, topic: Topic, group: Group, uid: str) -> bool:
        """Is the consumer registered at this moment? Raises Unreadable if its row may be an unreadable one."""
        self._consumers.drop(group.uid)
        if any(consumer.uid == uid for consumer in self.readable_consumers(topic, group)):
            return True
        return any(consumer.uid == uid for consumer in self.consumers(topic, group))

    def forget(self, topic: Topic, group: Group | None = None) -> None:
        """Drop a topic or a group from the cache, after a change."""
        self._topics.drop(topic.name)
        if group:
            self._groups.drop((topic.uid, group.name))
            self._consumers.drop(group.uid)


def broadcast_needs_consumer() -> Refused:
    """The error of a receive from a broadcast group without a consumer's name."""
    return Refused(
        "CONSUMER_REQUIRED",
        "This group is a broadcast: say which registered consumer receives, in `consumer`.",
    )
