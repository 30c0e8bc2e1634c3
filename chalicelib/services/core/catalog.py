"""Topics, groups and consumers by name, cached for a moment; NotFound says which one is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from ...domain.assignment import is_silent
from ...domain.errors import NotFound, Refused
from ...domain.notice import Events
from ...domain.times import MINUTE_MS
from ...domain.topic import CALLBACKS, Consumer, ConsumerState, CursorKey, Group, Offline, Topic, cursor_key
from ...modes import POLICIES
from ...ports.world import Clock
from ...store import Control
from .expiring_cache import TtlCache

CACHE_MS = 3_000  # DMQ's servers refresh topics and clients every 3 s
_LOOK_AGAIN_MS = 1_000  # how often calls that a topic refuses read it at most


class Catalog:
    """Reads of control data. Absence is not cached, so a new topic is found at once. A deleted one may be found for
    CACHE_MS more, and a deletion waits so long: see Admin."""

    def __init__(self, control: Control, clock: Clock) -> None:
        self.control = control
        self._clock = clock
        self._topics: TtlCache[str, Topic] = TtlCache(clock, CACHE_MS)
        self._looked_again: TtlCache[str, bool] = TtlCache(clock, _LOOK_AGAIN_MS)
        self._groups: TtlCache[tuple[str, str], Group] = TtlCache(clock, CACHE_MS)
        self._events: TtlCache[str, list[Events]] = TtlCache(clock, MINUTE_MS)
        self._consumers: TtlCache[str, list[Consumer]] = TtlCache(clock, CACHE_MS)
        self._callback_hosts: TtlCache[str, frozenset[str]] = TtlCache(clock, CACHE_MS)

    def events(self) -> Events | None:
        """Where operational events go; known for up to a minute."""
        known = self._events.get("")
        if known is None:
            with self._events.calling("") as call:
                stored = self.control.events(consistent=False)
                known = call.keep([stored] if stored else [])
        return known[0] if known else None

    def set_events(self, events: Events | None) -> None:
        """Have operational events go elsewhere, or nowhere (None): at once in this process, in others in a minute."""
        self.control.put_events(events)
        self._events.drop("")

    def topic(self, name: str, *, consistent: bool = False) -> Topic:
        """The topic, or NotFound. `consistent`: read consistently, for a change."""
        if not consistent and (hit := self._topics.get(name)):
            return hit
        with self._topics.calling(name) as call:
            topic = self.control.topic(name)
            if topic is None:
                text = f"There is no topic {name!r}. Create it with PUT /v1/topics/{name}."
                raise NotFound("TOPIC_NOT_FOUND", text)
            return call.keep(topic)

    def known(self, name: str) -> Topic | None:
        """The topic, if it is in the cache."""
        return self._topics.get(name)

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
        if not consistent and (hit := self._groups.get(key)):
            return hit
        with self._groups.calling(key) as call:
            group = self.control.group(topic, name)
            if consistent and group is not None:
                self._consumers.drop(group.uid)
            if group is None:
                path = f"/v1/topics/{topic.name}/groups/{name}"
                text = f"Topic {topic.name!r} has no group {name!r}. Create it with PUT {path}."
                raise NotFound("GROUP_NOT_FOUND", text)
            return call.keep(group)

    def groups(self, topic: Topic) -> list[Group]:
        """All groups of the topic, by name."""
        return self.control.groups(topic)

    def allows_callback(self, topic: Topic, host: str, *, consistent: bool = False) -> bool:
        """Does a group of the topic let messages have this host called? `consistent`: a refusal reads the groups."""
        hosts = self._callback_hosts.get(topic.uid)
        if hosts is None or (consistent and host not in hosts):
            hosts = frozenset(host for group in self.groups(topic) for host in group.callbacks or ())
            self._callback_hosts.put(topic.uid, hosts)
        return host in hosts

    def consumers(self, topic: Topic, group: Group) -> list[Consumer]:
        """All registered consumers of the group, by name. One that has expired is none, though its row is still
        there."""
        entry = self._consumers.get(group.uid)
        if entry is None:
            with self._consumers.calling(group.uid) as call:
                rows, now_ms = self.control.consumers(topic, group), self._clock.now_ms()
                entry = call.keep([row for row in rows if not row.is_expired(now_ms)])
        return entry

    def owed_nothing(self, topic: Topic, group: Group) -> Set[str]:
        """The uids of the consumers that a broadcast with `offline: "skip"` owes nothing new now: they are silent, or
        not called."""
        if group.offline != Offline.SKIP or not POLICIES[group.mode].per_consumer:
            return frozenset()
        consumers, now_ms = self.consumers(topic, group), self._clock.now_ms()
        return {c.uid for c in consumers if is_silent(c, now_ms) or c.state != ConsumerState.ACTIVE}

    def consumer_names(self, topic: Topic, group: Group) -> Mapping[str, str]:
        """The names of the consumers by uid."""
        names = {consumer.uid: consumer.name for consumer in self.consumers(topic, group)}
        return names | ({CALLBACKS: CALLBACKS} if group.callbacks else {})

    def cursor_owners(self, topic: Topic, group: Group) -> list[str]:
        """As `Control.cursor_owners`, from the cache."""
        if not POLICIES[group.mode].per_consumer:
            return [""]
        return [c.uid for c in self.consumers(topic, group)]

    def cursor_keys(self, topic: Topic, group: Group, shard: int | None) -> list[CursorKey]:
        """The group's cursors on a shard, or on its retry lanes (None)."""
        return [cursor_key(topic, group, shard, uid) for uid in self.cursor_owners(topic, group)]

    def consumer(self, topic: Topic, group: Group, name: str) -> Consumer:
        """The group's consumer, or NotFound."""
        for consistent in (False, True):
            if consistent:
                self._consumers.drop(group.uid)
            for consumer in self.consumers(topic, group):
                if consumer.name == name:
                    return consumer
        path = f"/v1/topics/{topic.name}/groups/{group.name}/consumers/{name}"
        text = f"Group {group.name!r} has no consumer {name!r}. Register it with PUT {path}."
        raise NotFound("CONSUMER_NOT_FOUND", text)

    def is_registered(self, topic: Topic, group: Group, uid: str) -> bool:
        """Is the consumer registered at this moment?"""
        self._consumers.drop(group.uid)
        return any(consumer.uid == uid for consumer in self.consumers(topic, group))

    def forget(self, topic: Topic, group: Group | None = None) -> None:
        """Drop a topic or a group from the cache, after a change."""
        self._topics.drop(topic.name)
        if group:
            self._groups.drop((topic.uid, group.name))
            self._consumers.drop(group.uid)


def broadcast_needs_consumer() -> Refused:
    """The error of a receive from a broadcast group without a consumer's name."""
    text = "This group is a broadcast: say which registered consumer receives, in `consumer`."
    return Refused("CONSUMER_REQUIRED", text)
