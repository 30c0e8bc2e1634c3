"""Creating, changing and deleting topics and groups. Each call may be repeated safely."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...domain import redact
from ...domain.errors import Conflict, Forbidden, NotFound, Refused, Unavailable, unavailable
from ...domain.ladder import Retry
from ...domain.limits import MAX_METERED_GROUPS
from ...domain.topic import DEFAULT_RETRY, FOR_EVER_MS, Group, Mode, Topic, Where, cursor_key, cursor_keys
from ...domain.trace import AttemptOutcome, TraceEntry
from ...modes import POLICIES
from ...ports.world import Clock, Random
from ...store import Control, Marks, Records
from ..core.attempt_log import AttemptLog
from ..core.catalog import CACHE_MS, Catalog
from ..core.cursor_store import CursorStore
from ..core.positions import Places, Positions, all_keys
from ..core.secrets import NewSecret, SecretCipher, callback_context_of

_UID_CHARS = 8
_TRIES = 8
_SLACK_MS = 250  # added to the caches' age: the clocks of two processes differ a little

# Makes a retry policy of the one that holds, so that two changes of different parts of it both take effect.
NewRetry = Callable[[Retry], Retry]


@dataclass(frozen=True, kw_only=True, slots=True)
class Admin:
    """Changes topics and groups. Each change is one conditional write, tried again after another process's change."""

    control: Control
    catalog: Catalog
    positions: Positions
    states: CursorStore
    records: Records
    marks: Marks
    attempt_log: AttemptLog
    secret_cipher: SecretCipher
    clock: Clock
    random: Random

    def put_topic(
        self, name: str, settings: Mapping[str, Any], retry: NewRetry | None = None, may_reveal: bool = True
    ) -> tuple[Topic, bool]:
        """Create or change a topic; settings not given keep their value. True: created. Raises Forbidden if a pointer
        of `redact` would go, unless the caller `may_reveal` what it hides."""
        for _ in range(_TRIES):
            old = self.control.topic(name)
            if retry:
                settings = {**settings, "retry": retry(old.retry if old else DEFAULT_RETRY)}
            if old is None:
                self._finish(self.control.retired_topics(name))
                uid, now_ms = self.random.id(_UID_CHARS), self.clock.now_ms()
                shards = 1 if settings.get("mode", Mode.QUEUE) == Mode.SERIAL else 4
                new = replace(Topic(name, uid, now_ms, shards=shards, is_called=False), **settings)
            else:
                # A key stays in its shard while the topic grows: in another it might overtake what waits in this one.
                new = replace(old, **{"key_shards": _default_key_shards(old, settings), **settings})
                if new.retention_days < old.retention_days:
                    ends_ms = self.clock.now_ms() + old.retention_ms
                    new = replace(new, rows_until_ms=max(old.rows_until_ms, ends_ms))
                _check_growth(old, new)
                if redact.removed_pointers(old, new) and not may_reveal:
                    text = "Only an admin of all topics may take a pointer out of `redact`."
                    raise Forbidden("TOO_MUCH", text)
                new = redact.after(old, new, self.clock.now_ms())
            if new.shards_of_keys > new.shards:
                raise Refused("NO_SUCH_SHARD", f"Topic {name!r} would have {new.shards} shards.")
            if new == old or self.control.put_topic(new, old):
                self.catalog.forget(new)
                if new.alarm_backlog is not None:
                    self.marks.watch(name, new.edition + (new != old))
                return new, old is None
        raise unavailable("Others keep changing this topic; try again.")

    def topic_to_delete(self, name: str) -> Topic:
        """The topic of this name, also if its deletion has begun and was not finished. Raises NotFound."""
        try:
            return self.catalog.topic(name, consistent=True)
        except NotFound:
            for topic in self.control.retired_topics(name):
                return topic
            raise

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic with its groups. Its messages can no longer be reached, and expire with their retention.

        Takes three seconds, as long as other processes may have the topic in their caches. Messages that they accept
        for it in this time are deleted with it. After a crash, repeating the call or creating the topic again
        finishes the deletion.
        """
        row = self.control.topic(topic.name)
        while row and row.uid == topic.uid and not self.control.retire_topic(row):
            row = self.control.topic(topic.name)
        self.catalog.forget(topic)
        self._finish([topic])

    def _finish(self, topics: Sequence[Topic]) -> None:
        """End the deletion of topics that are in no list any more."""
        if topics:
            self._outwait_caches()
        for topic in topics:
            for group in (*self.control.groups(topic), *self.control.retired_groups(topic)):
                self._close(topic, group)
            self.control.delete_topic(topic, topic.expires_s(self.clock.now_ms()))

    def _outwait_caches(self) -> None:
        self.clock.sleep((CACHE_MS + _SLACK_MS) / 1000)

    def _close(self, topic: Topic, group: Group) -> None:
        """Put an end to a group's cursors, so that who still works for it gets, settles and begins nothing; then to its
        dead letters, to which no way leads any more; and to the group. A consumer goes with its cursors: if there are
        so many that time ends, the next try goes on with the others."""
        self.states.close(all_keys(topic, group))
        if POLICIES[group.mode].per_consumer:
            for consumer in self.control.consumers(topic, group):
                self.states.close(all_keys(topic, group, consumer.uid))
                self.control.delete_consumer(topic, group, consumer)
            for consumer in self.control.retired_consumers(topic, group):
                self.states.close(all_keys(topic, group, consumer.uid))
                self.control.forget_consumer(topic, group, consumer)
        self.records.forget(group.uid)
        self.control.delete_group(topic, group)

    def put_group(
        self, topic: Topic, name: str, settings: Mapping[str, Any], retry: NewRetry | None = None
    ) -> tuple[Group, bool]:
        """Create or change a group. Its first position is stored before the group can be seen. True: created."""
        for _ in range(_TRIES):
            old = self.control.group(topic, name)
            if retry:
                settings = {**settings, "retry": retry((old and old.retry) or topic.retry)}
            if old is None:
                self._finish_groups(topic, self.control.retired_groups(topic, name))
                mode = Mode(settings.get("mode") or topic.mode)
                uid, now_ms = self.random.id(_UID_CHARS), self.clock.now_ms()
                new = Group(topic=topic.name, name=name, uid=uid, created_ms=now_ms, mode=mode)
                new = replace(new, **{**settings, "mode": mode})
                if not POLICIES[new.mode].per_consumer:
                    self.positions.begin(topic, new, new.begin)
            else:
                new = replace(old, **{k: v for k, v in settings.items() if k != "begin"})
                if new.mode != old.mode:
                    raise Conflict("MODE_FIXED", f"Group {name!r} is {old.mode}; a group's mode is for life.")
            if new.callbacks and POLICIES[new.mode].per_consumer:
                raise Refused("WRONG_MODE", "A broadcast's consumers all get every message: no `callbacks`.")
            if new.key_concurrency and new.mode is not Mode.QUEUE:
                text = f"Group {name!r} is {new.mode}: only a queue takes `key_concurrency`."
                raise Refused("WRONG_MODE", text)
            if new.callbacks and not new.secrets:
                new = self._new_secret(topic, new)(new)
            if new.metrics != bool(old and old.metrics):
                self._meter(new)
            if self._store_group(topic, new, old):
                return new, old is None
        raise _group_is_busy()

    def rotate_callback_secret(self, topic: Topic, name: str, overlap_ms: int) -> Group:
        """Make a new secret for the group's callbacks; the one before signs, too, until the overlap ends. Raises
        Refused."""
        group = self.catalog.group(topic, name, consistent=True)
        if not group.callbacks:
            raise Refused("NO_SECRET", f"Group {name!r} has no `callbacks`: nothing is signed for it.")
        return self._amend(topic, name, self._new_secret(topic, group, overlap_ms))

    def _new_secret(self, topic: Topic, group: Group, overlap_ms: int = 0) -> NewSecret:
        context, now_ms = callback_context_of(topic, group), self.clock.now_ms()
        return NewSecret(self.secret_cipher, context, self.random.secret(), now_ms, overlap_ms)

    def _meter(self, group: Group) -> None:
        """Have a group measured each minute for its metrics, or no more. Raises Refused: too many are."""
        if not group.metrics:
            return self.marks.unwatch(group.mark)
        others = [key for key in self.marks.each_minute().watched if "#" in key and key != group.mark]
        if len(others) >= MAX_METERED_GROUPS:
            text = f"{MAX_METERED_GROUPS} groups of a stage may have `metrics`, and have: take them from one first."
            raise Refused("TOO_MANY_METRICS", text)
        return self.marks.watch(group.mark, 0)

    def pause(self, topic: Topic, name: str, paused: bool, until_ms: int = FOR_EVER_MS) -> Group:
        """Stop handing out the group's messages, until a time or until it is resumed, or go on. Raises
        NotFound: unlike `put_group` it makes none."""
        paused_until_ms = until_ms if paused else 0
        return self._amend(topic, name, lambda group: replace(group, paused_until_ms=paused_until_ms))

    def _amend(self, topic: Topic, name: str, change: Callable[[Group], Group]) -> Group:
        for _ in range(_TRIES):
            old = self.catalog.group(topic, name, consistent=True)
            new = change(old)
            if self._store_group(topic, new, old):
                return new
        raise _group_is_busy()

    def seek(
        self, topic: Topic, group: Group, where: Where, uids: Sequence[str], shard: int | None, by: str
    ) -> None:
        """Move the cursors of these owners (see `Catalog.cursor_owners`) on one shard, or on all (None); their leases
        become invalid, those of retries too. `by` is the token's id, which the trace of the message at the new position
        shows. Raises NotFound."""
        places: Places = {}
        for uid in uids:
            try:
                for key in cursor_keys(topic, group, uid):
                    if shard in (None, key.shard.shard):
                        cursor = self.positions.seek(topic, key, where, places)
                        self.records.forget_purges(key)
                        entry = TraceEntry(cursor.next, 0, AttemptOutcome.SOUGHT, detail=by)
                        entries = [(key.shard.shard, entry)]
                        self.attempt_log.note_by_hand(topic, group, uid, entry.outcome, entries)
                self.positions.end_leases(cursor_key(topic, group, None, uid))
            except NotFound:  # a broadcast goes on without the consumer that has just left
                if not uid or self.catalog.group(topic, group.name, consistent=True).uid != group.uid:
                    raise

    def _store_group(self, topic: Topic, new: Group, old: Group | None) -> bool:
        """False: another process has changed it since."""
        if new != old and not self.control.put_group(topic, new, old):
            return False
        self.catalog.forget(topic, new)
        return True

    def group_to_delete(self, topic: Topic, name: str) -> Group:
        """The group of this name, also if its deletion has begun and was not finished. Raises NotFound."""
        try:
            return self.catalog.group(topic, name, consistent=True)
        except NotFound:
            for group in self.control.retired_groups(topic, name):
                return group
            raise

    def delete_group(self, topic: Topic, group: Group) -> None:
        """Remove a group, its consumers and its cursors; the topic's messages stay for other groups. Takes three
        seconds, as for a topic."""
        row = self.control.group(topic, group.name)
        while row and row.uid == group.uid and not self.control.retire_group(topic, row):
            row = self.control.group(topic, group.name)
        self.catalog.forget(topic, group)
        if group.metrics:
            self.marks.unwatch(group.mark)
        self._finish_groups(topic, [group])

    def _finish_groups(self, topic: Topic, groups: Sequence[Group]) -> None:
        """End the deletion of groups that are in no list any more."""
        if groups:
            self._outwait_caches()
        for group in groups:
            self._close(topic, group)


def _group_is_busy() -> Unavailable:
    return unavailable("Others keep changing this group; try again.")


def _default_key_shards(old: Topic, settings: Mapping[str, Any]) -> int | None:
    """The `key_shards` of a topic when a request leaves it out."""
    return old.shards_of_keys if settings.get("shards", old.shards) > old.shards else old.key_shards


def _check_growth(old: Topic, new: Topic) -> None:
    if new.shards < old.shards:
        text = f"Topic {old.name!r} has {old.shards} shards; shards may grow, never shrink."
        raise Conflict("SHARDS_CANNOT_SHRINK", text)
    if new.priorities < old.priorities:
        text = f"Topic {old.name!r} has {old.priorities} priorities; they may grow, never shrink."
        raise Conflict("PRIORITIES_CANNOT_SHRINK", text)
    if new.shards_of_keys < old.shards_of_keys:
        raise Conflict(
            "SHARDS_CANNOT_SHRINK",
            f"Topic {old.name!r} spreads ordering keys over {old.shards_of_keys} shards; they may grow, never shrink.",
        )
