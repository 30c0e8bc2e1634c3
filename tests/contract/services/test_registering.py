"""The life of a consumer that is called: registered, replaced, disabled, taken up again; its secrets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.breaker import Health
from chalicelib.domain.errors import NotFound, Unavailable
from chalicelib.domain.signing import Secret
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Consumer, ConsumerKind, ConsumerState, Group
from chalicelib.services.consume.claimant import Claim, Claimant
from chalicelib.services.manage.registry import PULLS, Contact, Registration
from chalicelib.store.control import Control
from chalicelib.store.cursors import Cursors
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.desk import Desk
from tests.support.faults import Death
from tests.support.stages import Stage
from tests.support.troubled import Troubled

HOOK = Contact(ConsumerKind.URL, "https://example.com/hook")
OTHER = Contact(ConsumerKind.URL, "https://example.com/other")
FUNCTION = Contact(ConsumerKind.FUNCTION, "arn:aws:lambda:eu-west-1:123456789012:function:f")
BROKEN = Health(window=(), allowance=1, failing_ms=5, open_until_ms=7, times_opened=3)


@pytest.fixture
def desk(stage: Stage) -> Desk:
    return Desk.at(stage, shards=2)


@pytest.fixture
def group(desk: Desk) -> Group:
    return desk.group()


def register(desk: Desk, group: Group, contact: Contact = HOOK, name: str = "w") -> Registration:
    return desk.deps.registry.register(desk.topic, group, name, contact)


def stored(desk: Desk, group: Group, name: str = "w") -> Consumer:
    [consumer] = [c for c in desk.stage.adapters.control.consumers(desk.topic, group) if c.name == name]
    return consumer


def present(desk: Desk, group: Group) -> bytes:
    return bytes.fromhex(stored(desk, group).secrets[0].hex)


def test_no_secret_is_given_out_that_is_not_stored(desk: Desk, group: Group) -> None:
    """The consumer has got another target meanwhile."""
    old = register(desk, group).member.consumer
    kept = register(desk, group, OTHER).secret
    with pytest.raises(Unavailable):
        desk.deps.registry.rotate_secret(desk.topic, group, old)
    assert present(desk, group) == kept


@pytest.mark.parametrize(
    "contact", [OTHER, FUNCTION, PULLS, replace(OTHER, state=ConsumerState.PENDING, why="no consent")]
)
def test_another_contact_replaces_the_one_there_was(desk: Desk, group: Group, contact: Contact) -> None:
    old = register(desk, group).member.consumer
    desk.deps.registry.set_health(desk.topic, group, old, lambda _: BROKEN)
    desk.deps.registry.disable(desk.topic, group, old, "gone")
    member, is_new, secret, _ = register(desk, group, contact)
    new = member.consumer
    assert not is_new
    assert (new.uid, new.kind, new.target, new.state, new.why) == (
        old.uid,
        contact.kind,
        contact.target,
        contact.state,
        contact.why,
    )
    assert (new.failing_ms, new.open_until_ms, new.times_opened) == (None, None, 0)
    assert new.secrets == ((Secret(secret.hex()),) if secret else ())
    assert (secret is not None) is (contact.kind == ConsumerKind.URL)
    assert old.secrets != new.secrets


def test_a_disabled_consumer_is_taken_up_again_with_its_secret(desk: Desk, group: Group) -> None:
    old = register(desk, group).member.consumer
    desk.deps.registry.set_health(desk.topic, group, old, lambda _: BROKEN)
    for why in ("it answered 410 Gone", "again"):
        desk.deps.registry.disable(desk.topic, group, old, why)
        assert (stored(desk, group).state, stored(desk, group).why) == ("DISABLED", "it answered 410 Gone")
    assert desk.deps.assignments.current(desk.topic, group).members == ()
    again = register(desk, group)
    assert again.secret is None
    assert replace(again.member.consumer, version=old.version) == old
    assert again.member.shards == (0, 1)


def test_rotating_keeps_each_secret_for_its_day(desk: Desk, group: Group) -> None:
    secrets = [register(desk, group).secret]
    consumer = stored(desk, group)
    for _ in range(3):
        desk.stage.clock.advance(HOUR_MS)
        secrets.append(desk.deps.registry.rotate_secret(desk.topic, group, consumer))  # by an old view
        assert present(desk, group) == secrets[-1]
    assert len(set(secrets)) == 4
    stored_secrets = stored(desk, group).secrets
    assert [bytes.fromhex(secret.hex) for secret in stored_secrets] == secrets[::-1]
    ends = [desk.stage.clock.now_ms() + DAY_MS - hours * HOUR_MS for hours in range(3)]
    assert [secret.until_ms for secret in stored_secrets] == [None, *ends]


CHANGES: dict[str, Callable[[Desk, Group, Consumer], Consumer | None]] = {
    "activate": lambda desk, group, old: desk.deps.registry.activate(desk.topic, group, old),
    "disable": lambda desk, group, old: desk.deps.registry.disable(desk.topic, group, old, "late"),
    "set_health": lambda desk, group, old: desk.deps.registry.set_health(
        desk.topic, group, old, lambda _: BROKEN
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("meanwhile", ["replaced", "gone", "another of the name"])
def test_what_is_learnt_of_an_old_target_does_not_touch_the_new_one(
    desk: Desk, group: Group, change: str, meanwhile: str
) -> None:
    old = register(desk, group, replace(HOOK, state=ConsumerState.PENDING)).member.consumer
    if meanwhile == "replaced":
        register(desk, group, replace(OTHER, state=ConsumerState.PENDING))
    else:
        desk.deps.registry.unregister(desk.topic, group, old)
    if meanwhile == "another of the name":
        register(desk, group, replace(HOOK, state=ConsumerState.PENDING))
    before = desk.stage.adapters.control.consumers(desk.topic, group)
    assert CHANGES[change](desk, group, old) is None
    assert desk.stage.adapters.control.consumers(desk.topic, group) == before


def test_who_comes_back_under_the_name_ends_a_removal_that_was_begun(desk: Desk) -> None:
    group, control = desk.group(mode="broadcast"), desk.stage.adapters.control
    old = register(desk, group, PULLS).member.consumer
    control.retire_consumer(desk.topic, group, old)
    control.delete_consumer(desk.topic, group, old)  # and here its process died
    assert not desk.cursor(group, 1, old.uid).is_closed
    new = register(desk, group, PULLS).member.consumer
    assert desk.cursor(group, 1, old.uid).is_closed
    assert not desk.cursor(group, 1, new.uid).is_closed
    assert control.retired_consumers(desk.topic, group) == []


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_i8_a_removal_that_is_slow_leaves_who_has_the_name_by_then(desk: Desk, mode: str) -> None:
    """Between its last look and its deletion, another process removes the consumer, and it is registered again."""
    group, control = desk.group(mode=mode), desk.stage.adapters.control
    old = register(desk, group, PULLS).member.consumer

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(control, name)

        def delete_consumer(self, *row: Any) -> Any:
            if not news:
                desk.deps.registry.unregister(desk.topic, group, old)
                news.append(register(desk, group, PULLS).member.consumer)
            return control.delete_consumer(*row)

    news: list[Consumer] = []
    slow = Deps(replace(desk.stage.another(), control=cast(Control, Slow())))
    slow.registry.unregister(desk.topic, group, old)
    assert control.consumers(desk.topic, group) == news


def test_a_heartbeat_by_a_clock_set_back_takes_back_no_earlier_one(desk: Desk, group: Group) -> None:
    consumer = register(desk, group, PULLS).member.consumer
    seen_ms = desk.stage.clock.now_ms()
    desk.stage.clock.advance(-20 * SECOND_MS)
    desk.deps.registry.heartbeat(desk.topic, group, consumer)
    assert stored(desk, group).seen_ms == seen_ms


def test_a_sign_of_life_that_could_not_be_stored_is_stored_with_the_next(desk: Desk, group: Group) -> None:
    consumer = register(desk, group, PULLS).member.consumer
    desk.stage.clock.advance(20 * SECOND_MS)
    process = desk.stage.another()
    control = Troubled(process.control, lambda name, *_: name == "put_consumer" and not control.refused)
    registry = Deps(replace(process, control=cast(Control, control))).registry
    registry.note_alive(desk.topic, group, consumer.uid)
    assert stored(desk, group) == consumer
    registry.note_alive(desk.topic, group, consumer.uid)
    assert stored(desk, group).seen_ms == desk.stage.clock.now_ms()


def test_i20_what_a_consumer_did_counts_though_it_has_been_removed_meanwhile(
    desk: Desk, group: Group
) -> None:
    consumer = register(desk, group, PULLS).member.consumer
    desk.produce(make.draft(1))
    messages = desk.receive(group, 1, consumer)
    desk.stage.clock.advance(20 * SECOND_MS)
    desk.deps.assignments.current(desk.topic, group)  # this process serves others of the group, too
    desk.deps.catalog.consumers(desk.topic, group)
    desk.stage.process().registry.unregister(desk.topic, group, consumer)
    assert desk.ack(group, messages) == [None]


class Interrupted:
    """store.Cursors of a process that dies before it closes any."""

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursors, name)

    def close(self, keys: object, until_s: int) -> None:
        raise Death("before the cursors are closed")


@pytest.mark.parametrize("after", ["removed again", "registered again", "group deleted"])
def test_a_removal_that_was_broken_off_is_ended_by_whoever_comes_next(desk: Desk, after: str) -> None:
    group = desk.group(mode="broadcast")
    consumer = register(desk, group).member.consumer
    adapters = desk.stage.another()
    dying_registry = Deps(replace(adapters, cursors=cast(Cursors, Interrupted(adapters.cursors)))).registry
    with pytest.raises(Death):
        dying_registry.unregister(desk.topic, group, consumer)
    cursors, later = desk.stage.adapters.cursors, desk.stage.process()
    assert not any(c.is_closed for c in cursors.of_owner(group.uid, consumer.uid, consistent=True).values())
    match after:
        case "removed again":
            assert later.registry.consumer_to_remove(desk.topic, group, "w").uid == consumer.uid
            later.registry.unregister(desk.topic, group, consumer)
            with pytest.raises(NotFound):
                later.registry.consumer_to_remove(desk.topic, group, "w")
        case "registered again":
            anew = later.registry.register(desk.topic, group, "w", HOOK).member.consumer
            later.registry.unregister(desk.topic, group, consumer)
            assert stored(desk, group).uid == anew.uid != consumer.uid, "another of the name stays"
        case "group deleted":
            later.admin.delete_group(desk.topic, group)
    cursors_left = cursors.of_owner(group.uid, consumer.uid, consistent=True)
    assert cursors_left
    assert all(cursor.is_closed for cursor in cursors_left.values())
    assert desk.stage.adapters.control.retired_consumers(desk.topic, group) == []


def test_who_has_left_a_broadcast_does_not_begin_again_when_its_cursors_have_gone(desk: Desk) -> None:
    group = desk.group(mode="broadcast")
    consumer = register(desk, group).member.consumer
    desk.deps.registry.unregister(desk.topic, group, consumer)
    desk.stage.clock.advance(400 * DAY_MS)
    desk.stage.drop_expired()
    desk.produce(make.draft(shard=0))
    claimant = Claimant(topic=desk.topic, group=group, lease_seconds=30, consumer_uid=consumer.uid)
    assert desk.stage.process().claimer.claim(claimant, 0, 5) == Claim()


def expired(desk: Desk, group: Group) -> Consumer:
    """A pull consumer that has been silent for longer than it may."""
    contact = replace(PULLS, expires_after_seconds=60)
    consumer = register(desk, group, contact).member.consumer
    desk.stage.clock.advance(61 * SECOND_MS)
    return consumer


def test_a_sign_of_life_in_the_last_moment_keeps_a_consumer(desk: Desk) -> None:
    """The job has read its row, and a process with a slower clock notes a heartbeat."""
    group = desk.group(mode="broadcast")
    consumer = expired(desk, group)
    desk.stage.clock.advance(-2 * SECOND_MS)
    desk.stage.process().registry.heartbeat(desk.topic, group, consumer)
    desk.stage.clock.advance(2 * SECOND_MS)
    assert not desk.deps.registry.remove_expired(desk.topic, group, consumer)
    assert stored(desk, group).uid == consumer.uid
    assert not desk.cursor(group, 1, consumer.uid).is_closed


def test_registrations_remove_expired_consumers_of_other_names(desk: Desk) -> None:
    group = desk.group(mode="broadcast")
    for name in "abc":
        register(desk, group, replace(PULLS, expires_after_seconds=60), name)
    desk.stage.clock.advance(61 * SECOND_MS)
    for name in "de":
        register(desk, group, PULLS, name)
    assert [c.name for c in desk.stage.adapters.control.consumers(desk.topic, group)] == ["d", "e"]
