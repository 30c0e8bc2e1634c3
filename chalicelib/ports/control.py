"""Topics, groups, consumers, assignments, tokens, replays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..domain.assignment import Assignment, Staffed
from ..domain.replay import Replay
from ..domain.secret import KeyRing
from ..domain.topic import Consumer, Group, Token, Topic
from ..domain.unreadable import PassOver, leave_out


class Control(Protocol):
    """Topics, groups, consumers, tokens and the like. Read often (cached by the services), written seldom and always
    conditionally: what was deleted and made again under its name, with another uid, is another. A row that cannot be
    read raises Unreadable, unless there is a `pass_over`; it is deleted like the others."""

    def topic(self, name: str, *, consistent: bool = True) -> Topic | None:
        """A read that is not consistent costs half and may be of a moment ago."""
        ...

    def topics(
        self, after: str | None, limit: int, *, consistent: bool = True, pass_over: PassOver = leave_out
    ) -> list[Topic]:
        """Topics by name. A read that is not consistent costs half and may miss the newest."""
        ...

    def put_topic(self, topic: Topic, old: Topic | None) -> bool:
        """Store if the topic still is `old` (None: absent). False: it is not."""
        ...

    def retire_topic(self, topic: Topic) -> bool:
        """Take the topic out of the list; a note of its deletion stays until `delete_topic`. False: it has
        changed since it was read."""
        ...

    def retired_topics(self, name: str) -> list[Topic]:
        """Topics that had the name and are not quite deleted. A note that cannot be read is left out, here and below:
        it must not stop who makes the name anew."""
        ...

    def delete_topic(self, topic: Topic) -> None:
        """Remove all rows below this topic, then the topic itself and the note of its deletion."""
        ...

    def group(self, topic: Topic, name: str) -> Group | None:
        """The topic's group of this name; None if there is none."""
        ...

    def groups(self, topic: Topic, pass_over: PassOver | None = None) -> list[Group]:
        """All groups of a topic, by name."""
        ...

    def put_group(self, topic: Topic, group: Group, old: Group | None) -> bool:
        """Store if the group still is `old` (None: absent). False: it is not."""
        ...

    def retire_group(self, topic: Topic, group: Group) -> bool:
        """As `retire_topic`: its consumers stay until `delete_group`."""
        ...

    def retired_groups(self, topic: Topic, name: str | None = None) -> list[Group]:
        """Groups that had the name (None: any) and are not quite deleted."""
        ...

    def delete_group(self, topic: Topic, group: Group) -> None:
        """Remove this group with its consumers, its assignment and the note of its deletion."""
        ...

    def consumer(self, topic: Topic, group: Group, name: str) -> Consumer | None:
        """The group's consumer of this name, if there is one. One row is read, so others that cannot be read do not
        matter."""
        ...

    def consumers(self, topic: Topic, group: Group, pass_over: PassOver | None = None) -> list[Consumer]:
        """All consumers of a group, by name."""
        ...

    def put_consumer(self, topic: Topic, group: Group, consumer: Consumer, old: Consumer | None) -> bool:
        """Store if the consumer still is `old` (None: absent). False: it is not."""
        ...

    def delete_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Remove a consumer's row. Harmless if there is none, or another consumer's of this name."""
        ...

    def retire_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Note that a consumer's removal was begun; the note stays until `forget_consumer`."""
        ...

    def retired_consumers(self, topic: Topic, group: Group, name: str | None = None) -> list[Consumer]:
        """Consumers that had the name (None: any) and are not quite removed; one whose row is still there may be
        among them."""
        ...

    def forget_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Remove the note of `retire_consumer`."""
        ...

    def assignment(self, topic: Topic, group: Group) -> Assignment | None:
        """The group's assignment of shards, read consistently; None before the first one."""
        ...

    def put_assignment(self, topic: Topic, group: Group, new: Assignment) -> bool:
        """Store if what is stored has the epoch before (1: nothing is stored). False: it has not."""
        ...

    def staffed_groups(self, topic: Topic, pass_over: PassOver | None = None) -> list[Staffed]:
        """The topic's groups that have consumers, by name; without those of which no consumer, or not the assignment,
        can be read. One read, not consistent: it may miss the newest."""
        ...

    def token(self, token_id: str) -> Token | None:
        """The token with this id (not its secret); None if there is none."""
        ...

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        """Up to `limit` tokens in the order of their ids: those after an id (None: from the first)."""
        ...

    def put_token(self, token: Token, old: Token | None) -> bool:
        """Store if the token still is `old` (None: absent). False: it is not."""
        ...

    def delete_token(self, token_id: str) -> bool:
        """Remove a token. False: there was none."""
        ...

    def note_use(self, token_id: str, at_ms: int) -> None:
        """Store that a token was used at this time."""
        ...

    def uses(self, first: str, last: str) -> Mapping[str, int]:
        """When tokens were used last, ms, as far as it was noted: of those with ids from `first` to `last`."""
        ...

    def replay(self, replay_id: str) -> Replay | None:
        """The replay with this id; None if there is none."""
        ...

    def replays(self, topic: str, before: str | None, limit: int) -> list[Replay]:
        """Replays of a topic's messages, the newest first: those before an id."""
        ...

    def put_replay(self, replay: Replay, old: Replay | None) -> bool:
        """Store if the replay still is `old` (None: absent). False: it is not."""
        ...

    def key_ring(self) -> KeyRing | None:
        """The stage's signing keys; None before they are first needed."""
        ...

    def put_key_ring(self, ring: KeyRing, old: KeyRing | None) -> bool:
        """Store if the signing keys still are `old` (None: absent). False: they are not."""
        ...
