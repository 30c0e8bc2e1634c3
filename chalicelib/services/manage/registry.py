"""Consumers: registration, consent, removal, signs of life, secrets and health. Each call may be repeated safely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...domain import strict_json
from ...domain.assignment import is_online, seen
from ...domain.breaker import Health
from ...domain.call_result import Verdict
from ...domain.errors import NotFound, Refused, Unavailable, unavailable
from ...domain.signing import Secret
from ...domain.times import MINUTE_MS
from ...domain.topic import LATEST, Consumer, ConsumerKind, ConsumerState, Group, Offline, Topic, cursor_keys
from ...modes import POLICIES
from ...ports.world import Clock, Random, Sender
from ...store import Control
from ..core.assignments import Assignments
from ..core.catalog import Catalog
from ..core.cursor_store import CursorStore
from ..core.expiring_cache import TtlCache
from ..core.positions import Positions, all_keys
from ..core.secrets import OVERLAP_MS, NewSecret, SecretCipher, encryption_context_of, header_context_of
from ..core.wake import Waker
from .contact import PULLS as PULLS
from .contact import Contact as Contact
from .contact import Membership as Membership
from .contact import Registration as Registration
from .contact import check_number, check_slow, fresh, taken_from, with_contact

_UID_CHARS = 8
_SIGN_OF_LIFE_MS = 10_000  # receiving counts as a heartbeat, written at most this often
_LONGEST_SILENCE_MS = 25_000  # safely less than what makes a consumer offline
_RECEIVE_NOTED_MS = MINUTE_MS  # how old the note of the last receive may be, where it decides about shards
_TRIES = 8
_REMOVED_AT_ONCE = 2  # expired consumers, by a registration: more than it adds

Change = Callable[[Consumer], Consumer]


@dataclass(kw_only=True, eq=False)
class Registry:
    """Changes consumers. Each change is one conditional write, tried again after another process's change. `mark` notes
    that a topic may have messages to push; called before its first push consumer is stored. `on_disabled` is called
    after one was disabled."""

    control: Control
    catalog: Catalog
    positions: Positions
    states: CursorStore
    assignments: Assignments
    mark: Callable[[Topic], None]
    on_disabled: Callable[[Consumer], object]
    secret_cipher: SecretCipher
    clock: Clock
    random: Random

    def __post_init__(self) -> None:
        # uids that showed one lately
        self._signs: TtlCache[str, bool] = TtlCache(self.clock, _SIGN_OF_LIFE_MS // 2)

    def register(self, topic: Topic, group: Group, name: str, contact: Contact = PULLS) -> Registration:
        """Register a consumer, or renew its registration. Another contact replaces the old one."""
        now_ms, uid = self.clock.now_ms(), self.random.id(_UID_CHARS)
        secret = (contact.secret or self.random.secret()) if contact.kind == ConsumerKind.URL else b""
        context = encryption_context_of(topic, group, name)
        signing = NewSecret(self.secret_cipher, context, secret, now_ms)
        headers = self._sealed(topic, group, name, contact)
        old_secrets: tuple[Secret, ...] | None = None
        if contact.kind != ConsumerKind.PULL:
            self.will_be_called(topic)
        for _ in range(_TRIES):
            consumers = self._without_expired(topic, group, name)
            old = next((consumer for consumer in consumers if consumer.name == name), None)
            if old is None:
                check_number(consumers, now_ms)
            check_slow(consumers, name, contact, POLICIES[group.mode].per_consumer)
            if old_secrets is None:
                old_secrets = old.secrets if old else ()
            first = Consumer(topic.name, group.name, name, uid, now_ms, now_ms, state=ConsumerState.PENDING)
            base = old or replace(first, instance=contact.instance, instance_by=contact.instance_by)
            new = with_contact(base, contact, now_ms)
            if headers is not None:
                new = replace(new, headers=headers, header_names=tuple(contact.headers or ()))
            if contact.kind == ConsumerKind.URL and (contact.secret or not new.secrets):
                new = signing(new)
            if old is not None:
                self._skip_missed(topic, group, old, new)
            elif POLICIES[group.mode].per_consumer:
                for old_consumer in self.control.retired_consumers(topic, group, name):
                    self._end_removal(topic, group, old_consumer)
                self.positions.begin(topic, group, contact.begin, uid)
            if new == old or self._put(topic, group, new, old):
                version = base.version if new == old else base.version + 1
                member = self._membership_if_known(topic, group, replace(new, version=version))
                is_new = signing.signs(new) and new.secrets[0] not in old_secrets
                loser = taken_from(base, new)
                return Registration(member, new.uid == uid, secret if is_new else None, loser)
        raise _busy()

    def _sealed(self, topic: Topic, group: Group, name: str, contact: Contact) -> tuple[Secret, ...] | None:
        """As they are stored; None: those before stay."""
        if not contact.headers:
            return None if contact.headers is None else ()
        text = strict_json.dump(dict(contact.headers))
        sealed_for = header_context_of(topic, group, name, contact.target)
        return (self.secret_cipher.encrypted(text, sealed_for),)

    def take_over(
        self, topic: Topic, group: Group, consumer: Consumer, instance: str | None, by: str
    ) -> str | None:
        """Note a call of this instance (None: of none). If it takes the name over from another one: that one's token.
        Raises Conflict if it lost the name itself."""
        if instance in (None, consumer.instance):
            return None
        before = consumer

        def with_instance(row: Consumer) -> Consumer:
            nonlocal before
            before = row
            return row.with_instance(instance, by)

        after = self._amend(topic, group, consumer, with_instance) or before
        self.catalog.forget(topic, group)
        return taken_from(before, after)

    def will_be_called(self, topic: Topic) -> None:
        """From now on, who puts anything into the topic marks it; what lies there already is found by this mark."""
        row = topic
        while not row.is_called:
            self.control.put_topic(replace(row, is_called=True), row)
            self.catalog.forget(topic)
            row = self.catalog.topic(topic.name)
            if row.uid != topic.uid:
                text = f"The topic {topic.name!r} was deleted, and made again, just now."
                raise NotFound("TOPIC_NOT_FOUND", text)
        self.mark(row)

    def heartbeat(
        self, topic: Topic, group: Group, consumer: Consumer, *, at_work: bool = False, receives: bool = False
    ) -> Membership:
        """Note that a pull consumer is alive; a push consumer shows it by answering. One that was at work was never
        away, however long it was silent. Counts for the consumer that has the name now. Raises NotFound."""
        now_ms = self.clock.now_ms()

        def with_sign_of_life(row: Consumer) -> Consumer:
            return seen(row, now_ms, receives=receives)

        if self._amend(topic, group, consumer, with_sign_of_life, was_at_work=at_work) is None:
            self.catalog.forget(topic, group)
            self._amend(topic, group, self.catalog.consumer(topic, group, consumer.name), with_sign_of_life)
        return self.membership(topic, group, self.catalog.consumer(topic, group, consumer.name))

    def sign_of_life(
        self,
        topic: Topic,
        group: Group,
        consumer: Consumer,
        wait_seconds: float = 0,
        *,
        was_at_work: bool = False,
        receives: bool = False,
    ) -> None:
        """Count a receive or a settlement as a heartbeat; not each is written. The consumer may be silent for the
        next `wait_seconds`."""
        now_ms = self.clock.now_ms()
        silent_ms = now_ms - consumer.seen_ms
        soon = silent_ms + wait_seconds * 1000 > _LONGEST_SILENCE_MS
        is_known = is_online(consumer, now_ms) and silent_ms <= _SIGN_OF_LIFE_MS
        if receives and POLICIES[group.mode].holds_back:
            is_known = is_known and now_ms - consumer.received_ms <= _RECEIVE_NOTED_MS
        if not consumer.is_called and (soon or not is_known):
            self.heartbeat(topic, group, consumer, at_work=was_at_work, receives=receives)

    def note_alive(self, topic: Topic, group: Group, uid: str) -> None:
        """Note that the consumer with this uid is at work. If that cannot be stored now, a later call will; of one that
        was removed a moment ago nothing is noted. The consumer's call counts in any case."""
        if self._signs.get(uid):
            return
        self._signs.put(uid, True)
        try:
            for consumer in self.catalog.consumers(topic, group):
                if consumer.uid == uid:
                    self.sign_of_life(topic, group, consumer, was_at_work=True)
        except (Unavailable, NotFound):
            self._signs.drop(uid)

    def rotate_secret(
        self, topic: Topic, group: Group, consumer: Consumer, overlap_seconds: int = OVERLAP_MS // 1000
    ) -> bytes:
        """Make a new signing secret. Until the overlap ends, messages are signed with the old one as well."""
        if consumer.kind != ConsumerKind.URL:
            text = f"Consumer {consumer.name!r} has no secret: only what a URL gets is signed."
            raise Refused("NO_SECRET", text)
        secret, context = self.random.secret(), encryption_context_of(topic, group, consumer.name)
        new = NewSecret(self.secret_cipher, context, secret, self.clock.now_ms(), overlap_seconds * 1000)
        if not self._amend(topic, group, consumer, new):
            raise _busy()
        return secret

    def activate(self, topic: Topic, group: Group, consumer: Consumer) -> Consumer | None:
        """Call the consumer from now on. None: no consumer has this target any more."""

        def change(row: Consumer) -> Consumer:
            return row if row.state == ConsumerState.ACTIVE else fresh(row, ConsumerState.ACTIVE, None, None)

        return self._amend(topic, group, consumer, change)

    def still_pending(self, topic: Topic, group: Group, consumer: Consumer, why: str) -> Consumer | None:
        """Store why the consumer's owner has not consented. None: as for `activate`."""
        return self._amend(
            topic, group, consumer, lambda row: replace(row, why=why) if row.state == "PENDING" else row
        )

    def disable(self, topic: Topic, group: Group, consumer: Consumer, why: str) -> Consumer | None:
        """Do not call the consumer until it is registered again. None: as for `activate`."""
        now_ms, is_new = self.clock.now_ms(), False

        def change(row: Consumer) -> Consumer:
            nonlocal is_new
            is_new = row.state != ConsumerState.DISABLED
            return replace(row, state=ConsumerState.DISABLED, why=why, state_ms=now_ms) if is_new else row

        disabled = self._amend(topic, group, consumer, change)
        if disabled and is_new:
            self.on_disabled(disabled)
        return disabled

    def set_health(
        self, topic: Topic, group: Group, consumer: Consumer, health_after: Callable[[Consumer], Health]
    ) -> Consumer | None:
        """Store what all processes must know of a consumer's circuit breaker, as it follows from the registration that
        stands. None: as for `activate`."""

        def change(row: Consumer) -> Consumer:
            health = health_after(row)
            row = replace(row, failing_ms=health.failing_ms, open_until_ms=health.open_until_ms)
            return replace(row, times_opened=health.times_opened)

        return self._amend(topic, group, consumer, change)

    def membership(self, topic: Topic, group: Group, consumer: Consumer) -> Membership:
        """The consumer's rank among those online, and its shards."""
        assignment = self.assignments.current(topic, group)
        rank = assignment.rank(consumer.uid)
        shards = self.assignments.shards_for(topic, group, consumer) if rank is not None else ()
        return Membership(consumer, rank, len(assignment.members), shards)

    def _membership_if_known(self, topic: Topic, group: Group, consumer: Consumer) -> Membership:
        """The same of a consumer that was just stored. Its secret is shown once, so that a refusal would lose it; its
        rank and shards can be asked for later."""
        try:
            return self.membership(topic, group, consumer)
        except Unavailable:
            return Membership(consumer, None, 0, ())

    def consumer_to_remove(self, topic: Topic, group: Group, name: str) -> Consumer:
        """The consumer of this name, also if its removal from a broadcast has begun and was not finished. Raises
        NotFound."""
        try:
            return self.catalog.consumer(topic, group, name)
        except NotFound:
            if POLICIES[group.mode].per_consumer:
                for consumer in self.control.retired_consumers(topic, group, name):
                    return consumer
            raise

    def unregister(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Remove a consumer and, in a broadcast, its cursors."""
        has_cursors = POLICIES[group.mode].per_consumer
        if has_cursors:
            self.control.retire_consumer(topic, group, consumer)
        self.control.delete_consumer(topic, group, consumer)
        self.catalog.forget(topic, group)
        self.assignments.current(topic, group)
        if has_cursors:
            self._end_removal(topic, group, consumer)

    def remove_expired(self, topic: Topic, group: Group, consumer: Consumer) -> bool:
        """Remove a consumer that has expired, in a broadcast with its cursors. A sign of life in the last moment keeps
        it: False. After a crash the next call goes on."""
        if not consumer.is_expired(self.clock.now_ms()):
            return False
        # From here on it has expired by each clock.
        if consumer.seen_ms and not self._put(topic, group, replace(consumer, seen_ms=0), consumer):
            return False
        if POLICIES[group.mode].per_consumer:
            self.states.close(all_keys(topic, group, consumer.uid))
        self.control.delete_consumer(topic, group, consumer)
        self.catalog.forget(topic, group)
        return True

    def _without_expired(self, topic: Topic, group: Group, name: str) -> list[Consumer]:
        """The consumers of a group as they are stored, but for expired ones. Of these, the one of this name is removed,
        and a few others."""
        now_ms = self.clock.now_ms()
        consumers = self.control.consumers(topic, group)
        expired = [consumer for consumer in consumers if consumer.is_expired(now_ms)]
        expired.sort(key=lambda consumer: (consumer.name != name, consumer.seen_ms))
        for consumer in expired[:_REMOVED_AT_ONCE]:
            self.remove_expired(topic, group, consumer)
        return [consumer for consumer in consumers if consumer not in expired]

    def _end_removal(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        """Close the cursors of a broadcast's consumer that is in no list any more."""
        self.states.close(all_keys(topic, group, consumer.uid))
        self.control.forget_consumer(topic, group, consumer)

    def _amend(
        self, topic: Topic, group: Group, consumer: Consumer, change: Change, *, was_at_work: bool = False
    ) -> Consumer | None:
        """Change a registration as it stands; None where this consumer, with this target, is there no more."""
        for _ in range(_TRIES):
            row = self.control.consumer(topic, group, consumer.name)
            if row is None or _identity(row) != _identity(consumer) or row.is_expired(self.clock.now_ms()):
                return None
            new = change(row)
            if new == row:
                return row
            if not was_at_work:
                self._skip_missed(topic, group, row, new)
            if self._put(topic, group, new, row):
                return replace(new, version=row.version + 1)
        raise _busy()

    def _put(self, topic: Topic, group: Group, new: Consumer, old: Consumer | None) -> bool:
        is_stored = self.control.put_consumer(topic, group, new, old)
        self.catalog.forget(topic, group)
        return is_stored

    def _skip_missed(self, topic: Topic, group: Group, old: Consumer, new: Consumer) -> None:
        """A consumer that comes back to a skipping broadcast goes to the tail, unless it still works on something."""
        now_ms = self.clock.now_ms()
        is_back = is_online(new, now_ms) and not is_online(old, now_ms)
        if is_back and group.offline == Offline.SKIP and POLICIES[group.mode].per_consumer:
            keys = cursor_keys(topic, group, new.uid)
            if not self.positions.are_leased(keys):
                for key in keys:
                    self.positions.seek(topic, key, LATEST)


def _identity(consumer: Consumer) -> tuple[str, str, str]:
    return consumer.uid, consumer.kind, consumer.target


def _busy() -> Unavailable:
    return unavailable("Others keep changing this consumer; try again.")


class Consent:
    """Asks the owner of a PENDING consumer's URL again."""

    def __init__(self, sender: Sender, registry: Registry, waker: Waker) -> None:
        self._sender = sender
        self._registry = registry
        self._waker = waker

    def ask(self, topic: Topic, group: Group, consumer: Consumer) -> bool:
        """Ask the consumer's URL. Returns True if it agreed; it is called from now on. Any other answer is stored
        with the consumer, if it differs from the last one."""
        greeting = self._sender.greet(consumer.target)
        if greeting.verdict is not Verdict.DONE:
            if greeting.detail != consumer.why:
                self._registry.still_pending(topic, group, consumer, greeting.detail)
            return False
        active = self._registry.activate(topic, group, consumer)
        if active:
            self._waker.wake_for(topic, group, active)
        return active is not None
