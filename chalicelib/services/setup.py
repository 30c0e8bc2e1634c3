"""Setting up: creating, changing and removing topics, groups and consumers. Repeating any of it is harmless."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..domain.assignment import is_online
from ..domain.errors import Conflict, unavailable
from ..domain.topic import Consumer, Group, Topic
from ..modes import POLICIES
from ..ports import Chance, Clock, Control
from .assignment import Assignments
from .catalog import Catalog
from .cursor_state import CursorStates
from .positions import EARLIEST, LATEST, Positions, keys

_UID_CHARS = 8
_SIGN_OF_LIFE_MS = 10_000  # receiving counts as a heartbeat, written at most this often
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Membership:
    """A consumer and what it serves at the moment."""

    consumer: Consumer
    rank: int | None
    total: int
    shards: tuple[int, ...]


class Setup:
    """Changes of control data; each is one conditional write, repeated when another came first."""

    def __init__(
        self,
        control: Control,
        catalog: Catalog,
        positions: Positions,
        states: CursorStates,
        assignments: Assignments,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self._control = control
        self._catalog = catalog
        self._positions = positions
        self._states = states
        self._assignments = assignments
        self._clock = clock
        self._chance = chance

    def put_topic(self, name: str, settings: Mapping[str, Any]) -> tuple[Topic, bool]:
        """Create or change a topic; settings not given keep their value. True: created."""
        for _ in range(_TRIES):
            old = self._control.topic(name)
            if old is None:
                mode = settings.get("mode", "queue")
                new = Topic(
                    name,
                    self._chance.id(_UID_CHARS),
                    self._clock.now_ms(),
                    shards=1 if mode == "serial" else 4,
                )
                new = replace(new, **settings)
            else:
                new = replace(old, **settings)
                if new.shards < old.shards:
                    raise Conflict(
                        "SHARDS_CANNOT_SHRINK",
                        f"Topic {name!r} has {old.shards} shards; shards may grow, never shrink.",
                    )
            if new == old or self._control.put_topic(new, old):
                self._catalog.forget(new)
                return new, old is None
        raise unavailable("Others keep changing this topic; try again.")

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic with its groups. Its messages are out of reach at once and expire with retention."""
        for group in self._catalog.groups(topic):
            self.delete_group(topic, group)
        self._control.delete_topic(topic)
        self._catalog.forget(topic)

    def put_group(self, topic: Topic, name: str, settings: Mapping[str, Any]) -> tuple[Group, bool]:
        """Create or change a group. Its first position is stored before the group can be seen. True: created."""
        for _ in range(_TRIES):
            old = self._control.group(topic, name)
            if old is None:
                mode = settings.get("mode") or topic.mode
                new = Group(topic.name, name, self._chance.id(_UID_CHARS), self._clock.now_ms(), mode)
                new = replace(new, **{**settings, "mode": mode})
                if not POLICIES[new.mode].per_consumer and new.begin != EARLIEST:
                    self._positions.begin(topic, new, new.begin)
            else:
                new = replace(old, **{k: v for k, v in settings.items() if k != "begin"})
                if new.mode != old.mode:
                    raise Conflict("MODE_FIXED", f"Group {name!r} is {old.mode}; a group's mode is for life.")
            if new == old or self._control.put_group(topic, new, old):
                self._catalog.forget(topic, new)
                return new, old is None
        raise unavailable("Others keep changing this group; try again.")

    def pause(self, topic: Topic, name: str, paused: bool) -> Group:
        """Stop or go on handing out the group's messages."""
        self._catalog.group(topic, name)
        return self.put_group(topic, name, {"paused": paused})[0]

    def delete_group(self, topic: Topic, group: Group) -> None:
        """Remove a group, its consumers and its cursors; the topic's messages stay for the others."""
        owners = ["", *(c.uid for c in self._catalog.consumers(topic, group))]
        self._control.delete_group(topic, group)
        self._catalog.forget(topic, group)
        for uid in owners:
            self._states.forget(keys(topic, group, uid))

    def register(self, topic: Topic, group: Group, name: str) -> tuple[Membership, bool]:
        """Register a pull consumer or renew its registration. True: created."""
        now_ms = self._clock.now_ms()
        for _ in range(_TRIES):
            old = self._find(topic, group, name)
            if old is not None:
                return self.heartbeat(topic, group, old), False
            new = Consumer(topic.name, group.name, name, self._chance.id(_UID_CHARS), now_ms, now_ms)
            if POLICIES[group.mode].per_consumer:
                self._positions.begin(topic, group, LATEST, new.uid)
            if self._control.put_consumer(topic, group, new, None):
                self._catalog.forget(topic, group)
                return self.membership(topic, group, replace(new, version=1)), True
        raise unavailable("Others keep changing this consumer; try again.")

    def _find(self, topic: Topic, group: Group, name: str) -> Consumer | None:
        return next((c for c in self._control.consumers(topic, group) if c.name == name), None)

    def heartbeat(self, topic: Topic, group: Group, consumer: Consumer) -> Membership:
        """Note a sign of life; a consumer that comes back to a skipping broadcast goes to the tail."""
        now_ms = self._clock.now_ms()
        if group.offline == "skip" and POLICIES[group.mode].per_consumer and not is_online(consumer, now_ms):
            consumer = self._find(topic, group, consumer.name) or consumer  # what is cached may be old
            if not is_online(consumer, now_ms):
                for key in keys(topic, group, consumer.uid):
                    self._positions.seek(key, LATEST)
        self._amend(topic, group, consumer, lambda held: replace(held, seen_ms=max(held.seen_ms, now_ms)))
        return self.membership(topic, group, self._catalog.consumer(topic, group, consumer.name))

    def _amend(
        self, topic: Topic, group: Group, consumer: Consumer, change: Callable[[Consumer], Consumer]
    ) -> Consumer | None:
        """Change the registration as it stands (at first it is taken to stand as `consumer` says); None where it
        is gone."""
        held: Consumer | None = consumer
        for _ in range(_TRIES):
            if held is None or held.uid != consumer.uid:
                return None
            new = change(held)
            if new == held:
                return held
            written = self._control.put_consumer(topic, group, new, held)
            self._catalog.forget(topic, group)
            if written:
                return replace(new, version=held.version + 1)
            held = self._find(topic, group, consumer.name)
        raise unavailable("Others keep changing this consumer; try again.")

    def sign_of_life(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Receiving counts as a heartbeat, but is not written each time."""
        if self._clock.now_ms() - consumer.seen_ms > _SIGN_OF_LIFE_MS:
            self.heartbeat(topic, group, consumer)

    def membership(self, topic: Topic, group: Group, consumer: Consumer) -> Membership:
        """The consumer's rank among those online, and its shards."""
        held = self._assignments.current(topic, group)
        rank = held.rank(consumer.uid)
        shards = self._assignments.shards_for(topic, group, consumer) if rank is not None else ()
        return Membership(consumer, rank, len(held.members), shards)

    def unregister(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Remove a consumer and, in a broadcast, its cursors."""
        self._control.delete_consumer(topic, group, consumer)
        self._catalog.forget(topic, group)
        self._assignments.current(topic, group)
        if POLICIES[group.mode].per_consumer:
            self._states.forget(keys(topic, group, consumer.uid))
