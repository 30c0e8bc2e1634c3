"""ports.Control in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar, cast

from ...domain.assignment import Assignment
from ...domain.replay import Replay
from ...domain.secret import KeyRing
from ...domain.topic import Consumer, Group, Token, Topic
from ...ports.control import PassOver, Staffed, leave_out

K = TypeVar("K")
V = TypeVar("V", Topic, Group, Consumer, Token, Replay, KeyRing)
W = TypeVar("W")


class MemoryControl:
    """ports.Control as dicts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._topics: dict[str, Topic] = {}
        self._groups: dict[tuple[str, str], Group] = {}
        self._consumers: dict[tuple[str, str, str], Consumer] = {}
        self._retired_topics: dict[str, Topic] = {}
        self._retired_groups: dict[tuple[str, str], Group] = {}
        self._retired_consumers: dict[tuple[str, str, str], Consumer] = {}
        self._assignments: dict[str, Assignment] = {}
        self._tokens: dict[str, Token] = {}
        self._uses: dict[str, int] = {}
        self._replays: dict[str, Replay] = {}
        self._rings: dict[str, KeyRing] = {}

    def topic(self, name: str, *, consistent: bool = True) -> Topic | None:
        return self._topics.get(name)

    def topics(
        self, after: str | None, limit: int, *, consistent: bool = True, pass_over: PassOver = leave_out
    ) -> list[Topic]:
        return self._page(self._topics, after, limit)

    def put_topic(self, topic: Topic, old: Topic | None) -> bool:
        return self._put(self._topics, topic.name, topic, old)

    def retire_topic(self, topic: Topic) -> bool:
        with self._lock:
            row = self._topics.get(topic.name)
            self._retired_topics[topic.uid] = topic
            if _state(row) != _state(topic):
                return False
            del self._topics[topic.name]
            return True

    def retired_topics(self, name: str) -> list[Topic]:
        with self._lock:
            return sorted((t for t in self._retired_topics.values() if t.name == name), key=lambda t: t.uid)

    def delete_topic(self, topic: Topic) -> None:
        with self._lock:
            for rows in (self._groups, self._consumers, self._retired_groups, self._retired_consumers):
                _drop_topic(cast("dict[tuple[str, ...], object]", rows), topic.uid)
            row = self._topics.get(topic.name)
            if row and row.uid == topic.uid:
                del self._topics[topic.name]
            self._retired_topics.pop(topic.uid, None)

    def group(self, topic: Topic, name: str) -> Group | None:
        return self._groups.get((topic.uid, name))

    def groups(self, topic: Topic, pass_over: PassOver | None = None) -> list[Group]:
        with self._lock:
            groups = [group for (uid, _), group in self._groups.items() if uid == topic.uid]
        return sorted(groups, key=lambda group: group.name)

    def put_group(self, topic: Topic, group: Group, old: Group | None) -> bool:
        return self._put(self._groups, (topic.uid, group.name), group, old)

    def retire_group(self, topic: Topic, group: Group) -> bool:
        with self._lock:
            row = self._groups.get((topic.uid, group.name))
            self._retired_groups[topic.uid, group.uid] = group
            if _state(row) != _state(group):
                return False
            del self._groups[topic.uid, group.name]
            return True

    def retired_groups(self, topic: Topic, name: str | None = None) -> list[Group]:
        with self._lock:
            groups = [group for (uid, _), group in self._retired_groups.items() if uid == topic.uid]
        return sorted((g for g in groups if name in (None, g.name)), key=lambda g: (g.name, g.uid))

    def delete_group(self, topic: Topic, group: Group) -> None:
        for consumer in self.consumers(topic, group):
            self.delete_consumer(topic, group, consumer)
        for consumer in self.retired_consumers(topic, group):
            self.forget_consumer(topic, group, consumer)
        self._assignments.pop(group.uid, None)
        with self._lock:
            row = self._groups.get((topic.uid, group.name))
            if row and row.uid == group.uid:
                del self._groups[topic.uid, group.name]
            self._retired_groups.pop((topic.uid, group.uid), None)

    def consumer(self, topic: Topic, group: Group, name: str) -> Consumer | None:
        return self._consumers.get((topic.uid, group.uid, name))

    def consumers(self, topic: Topic, group: Group, pass_over: PassOver | None = None) -> list[Consumer]:
        home = (topic.uid, group.uid)
        with self._lock:
            consumers = [consumer for key, consumer in self._consumers.items() if key[:2] == home]
        return sorted(consumers, key=lambda consumer: consumer.name)

    def put_consumer(self, topic: Topic, group: Group, consumer: Consumer, old: Consumer | None) -> bool:
        return self._put(self._consumers, (topic.uid, group.uid, consumer.name), consumer, old)

    def delete_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        key = (topic.uid, group.uid, consumer.name)
        with self._lock:
            row = self._consumers.get(key)
            if row and row.uid == consumer.uid:
                del self._consumers[key]

    def retire_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        with self._lock:
            self._retired_consumers[topic.uid, group.uid, consumer.uid] = replace(consumer, secrets=())

    def retired_consumers(self, topic: Topic, group: Group, name: str | None = None) -> list[Consumer]:
        home = (topic.uid, group.uid)
        with self._lock:
            consumers = [c for key, c in self._retired_consumers.items() if key[:2] == home]
        return sorted((c for c in consumers if name in (None, c.name)), key=lambda c: (c.name, c.uid))

    def forget_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        with self._lock:
            self._retired_consumers.pop((topic.uid, group.uid, consumer.uid), None)

    def assignment(self, topic: Topic, group: Group) -> Assignment | None:
        return self._assignments.get(group.uid)

    def put_assignment(self, topic: Topic, group: Group, new: Assignment) -> bool:
        with self._lock:
            row = self._assignments.get(group.uid)
            if new.epoch != (row.epoch if row else 0) + 1:
                return False
            self._assignments[group.uid] = new
            return True

    def staffed_groups(self, topic: Topic, pass_over: PassOver | None = None) -> list[Staffed]:
        with_consumers = [(g, tuple(self.consumers(topic, g))) for g in self.groups(topic)]
        return [
            Staffed(g, consumers, self.assignment(topic, g)) for g, consumers in with_consumers if consumers
        ]

    def token(self, token_id: str) -> Token | None:
        return self._tokens.get(token_id)

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        return self._page(self._tokens, after, limit)

    def put_token(self, token: Token, old: Token | None) -> bool:
        return self._put(self._tokens, token.id, token, old)

    def delete_token(self, token_id: str) -> bool:
        with self._lock:
            self._uses.pop(token_id, None)
            return self._tokens.pop(token_id, None) is not None

    def note_use(self, token_id: str, at_ms: int) -> None:
        with self._lock:
            self._uses[token_id] = at_ms

    def uses(self, first: str, last: str) -> Mapping[str, int]:
        with self._lock:
            return {id: at_ms for id, at_ms in self._uses.items() if first <= id <= last}

    def replay(self, replay_id: str) -> Replay | None:
        return self._replays.get(replay_id)

    def replays(self, topic: str, before: str | None, limit: int) -> list[Replay]:
        with self._lock:
            replays = [r for r in self._replays.values() if r.source == topic]
        older = [replay for replay in replays if before is None or replay.id < before]
        return sorted(older, key=lambda replay: replay.id, reverse=True)[:limit]

    def put_replay(self, replay: Replay, old: Replay | None) -> bool:
        return self._put(self._replays, replay.id, replay, old)

    def key_ring(self) -> KeyRing | None:
        return self._rings.get("")

    def put_key_ring(self, ring: KeyRing, old: KeyRing | None) -> bool:
        return self._put(self._rings, "", ring, old)

    def _put(self, rows: dict[K, V], key: K, new: V, old: V | None) -> bool:
        with self._lock:
            if _state(rows.get(key)) != _state(old):
                return False
            rows[key] = replace(new, version=(old.version if old else 0) + 1)
            return True

    def _page(self, rows: dict[str, W], after: str | None, limit: int) -> list[W]:
        with self._lock:
            return [rows[name] for name in sorted(rows) if after is None or name > after][:limit]


def _drop_topic(rows: dict[tuple[str, ...], object], topic_uid: str) -> None:
    """In place: a thread that waits to store a row has these rows in its hand."""
    for key in [key for key in rows if key[0] == topic_uid]:
        del rows[key]


def _state(row: Topic | Group | Consumer | Token | Replay | KeyRing | None) -> tuple[str, int] | None:
    """The version of a row, and whose life it is: what is deleted and made again begins with the same version."""
    return (getattr(row, "uid", ""), row.version) if row else None
