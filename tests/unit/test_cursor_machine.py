"""The cursor algebra under several actors with stale copies: I4, I5, I6, I7, I9, I14, I16 after every step."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.cursor import Cursor, Disposition, Result, raise_floor
from chalicelib.modes import POLICIES, Keyed, Policy, Serial
from tests.support.cursor_world import GONE, LEASE_MS, World, span_of

ACTORS = ("ann", "bob", "cid")
actors = st.sampled_from(ACTORS)
fates = st.sampled_from(Disposition)


def in_order(cursor: Cursor, token: str, results: list[Result], now_ms: int) -> tuple[Cursor, list[Result]]:
    """What becomes of these results: in a run what has an order, with what is given back; its deadline moves."""
    lease = cursor.leases.get(token)
    if lease is None or not lease.run_ms:
        return cursor, results
    known = {result.offset: result for result in results}
    named = transitions.in_run(lease, {o: result.disposition for o, result in known.items()})
    parts = [(known[o], [Result(each, Disposition.RELEASED) for each in behind]) for o, behind in named]
    extended = transitions.extend(cursor, token, max(lease.deadline_ms, now_ms + lease.run_ms))
    return extended or cursor, [result for first, behind in parts for result in (first, *behind)]


class CursorMachine(RuleBasedStateMachine):
    """Each actor acts on the cursor as it last saw it; a refused write shows it the current one."""

    policy: Policy

    @initialize(units=st.lists(st.sampled_from("abc-"), max_size=6))
    def start(self, units: list[str]) -> None:
        self.world = World(self.policy)
        self.world.units += units
        self.known = dict.fromkeys(ACTORS, Cursor())
        self.copies: dict[str, dict[int, int]] = {actor: {} for actor in ACTORS}
        self.floor = 0

    @rule(unit=st.sampled_from("abcdef-"), count=st.integers(1, 5))
    def messages_arrive(self, unit: str, count: int) -> None:
        self.world.units += [unit] * count

    @rule(count=st.integers(1, 4))
    def rows_expire_unread(self, count: int) -> None:
        self.world.units += [GONE] * count

    @rule(by_ms=st.sampled_from((1, LEASE_MS // 2, LEASE_MS, 3 * LEASE_MS)))
    def time_passes(self, by_ms: int) -> None:
        self.world.now_ms += by_ms

    @rule()
    def all_look(self) -> None:
        self.known = dict.fromkeys(ACTORS, self.world.stored)

    @rule(actor=actors, most=st.integers(1, 5), whole=st.booleans())
    def claims(self, actor: str, most: int, whole: bool) -> None:
        world = self.world
        for _ in range(2):
            cursor = self.known[actor]
            expired_cursor, selection = world.plan(cursor, most)
            if not (selection.granted or selection.settled or selection.passed_over):
                assert cursor != world.stored or world.stuck(cursor), (
                    "nothing granted though something could be"
                )
                return
            assert len(selection.granted) <= most + self.policy.run
            assert self.policy.run or len(selection.granted) <= most
            token = f"{cursor.epoch + 1}.{actor}{len(world.writes)}"  # new for each try
            token += ".1=" if self.policy.run else ""
            after = transitions.claim(expired_cursor, selection, token, actor, world.now_ms + LEASE_MS)
            editions = world.read(selection, cursor, self.copies[actor])
            # A store may write a change as a replacement where the whole cursor stands.
            make = cursor_write.replacement if whole and cursor == world.stored else cursor_write.change
            current = self.known[actor] = world.stored
            if world.write(make(cursor, after)):
                assert cursor.epoch == current.epoch, "I4: claims are serialised by the epoch"
                world.enter_claim(current, selection, editions)
                world.tokens.append(token)
                self.known[actor] = world.stored
                return
            assert world.stored is current, "a refused write changes nothing"
        raise AssertionError("a claim from the current cursor was refused")

    @precondition(lambda self: self.world.tokens)
    @rule(actor=actors, data=st.data())
    def settles(self, actor: str, data: st.DataObject) -> None:
        world = self.world
        token = data.draw(st.sampled_from([*world.stored.leases, *world.tokens[-2:]]))
        around = sorted(span_of(world.stored, token)) or list(
            range(world.stored.floor, world.stored.next + 1)
        )
        offsets = data.draw(st.lists(st.sampled_from([*around, world.stored.next]), unique=True, min_size=1))
        delay = st.sampled_from((0, 1, LEASE_MS))
        wanted = [Result(o, data.draw(fates), world.now_ms + data.draw(delay)) for o in offsets]
        for _ in range(2):
            current, lease_offsets = world.stored, span_of(world.stored, token)
            before, results = in_order(self.known[actor], token, wanted, world.now_ms)
            after, accepted_results = transitions.settle(before, token, results)
            if accepted_results:
                is_current = world.write(
                    cursor_write.change(self.known[actor], after), token, accepted_results
                )
                self.known[actor] = world.stored
                if is_current:
                    assert lease_offsets, "I5, I16: a token that has passed on is refused"
                    world.settle_accepted(token, accepted_results, lease_offsets)
                    return
                assert world.stored is current
            elif self.known[actor] is world.stored:
                assert after == before, "nothing held, nothing changed"
                assert not {r.offset for r in results} & lease_offsets.keys(), (
                    "refused although the lease holds it"
                )
                return
            self.known[actor] = world.stored

    @precondition(lambda self: self.world.tokens)
    @rule(actor=actors, data=st.data(), by_ms=st.integers(1, 3 * LEASE_MS))
    def extends(self, actor: str, data: st.DataObject, by_ms: int) -> None:
        world = self.world
        token = data.draw(st.sampled_from(world.tokens[-6:]))
        before = world.stored
        after = transitions.extend(self.known[actor], token, world.now_ms + by_ms)
        if after is None:
            assert token not in self.known[actor].leases
        elif after == self.known[actor]:
            return  # the deadline it has: nothing to write
        elif world.write(cursor_write.change(self.known[actor], after), token):
            assert span_of(world.stored, token) == span_of(before, token) != {}
            assert world.stored.leases[token].deadline_ms == world.now_ms + by_ms
        else:
            assert world.stored is before
        self.known[actor] = world.stored

    @rule(actor=actors, data=st.data())
    def seeks(self, actor: str, data: st.DataObject) -> None:
        world = self.world
        to = data.draw(st.integers(0, len(world.units)))
        if world.write(cursor_write.replacement(self.known[actor], transitions.seek(self.known[actor], to))):
            world.rounds += 1
            world.begin_again(to)
            self.floor = to
        self.known[actor] = world.stored

    @precondition(lambda self: self.world.units)
    @rule(data=st.data())
    def amends(self, data: st.DataObject) -> None:
        """Change a message in the log, in one transaction with the cursor."""
        world = self.world
        offset = data.draw(st.integers(0, len(world.units) - 1))
        after = transitions.amend(world.stored, offset)
        is_claimed = world.begin <= offset < world.stored.next
        assert (after is None) == is_claimed, "what has been claimed, and only that, can't be changed"
        if after is not None:
            world.enter_amend(offset, after)

    @precondition(lambda self: self.world.writes)
    @rule(data=st.data())
    def asks_after_a_lost_answer(self, data: st.DataObject) -> None:
        """The SDK repeats a write whose answer was lost: what do we make of the refusal? (I20)"""
        world = self.world
        write = data.draw(st.sampled_from(world.writes[-4:]))
        if cursor_write.holds(write.change, world.stored):
            again = cursor_write.apply(world.stored, write.change)
            assert not write.applied or again == world.stored, "written twice"
            return
        verdict = cursor_write.was_stored(write.change, world.stored)
        if write.results and write.applied:
            assert verdict is not False, "a recorded settlement was called lost"
        if write.results and verdict:
            assert write.applied or world.is_recorded(write), (
                "a settlement that was never recorded was called ours"
            )
        if write.change.serialised and not write.change.whole and verdict:
            assert write.applied, "another's claim was called ours"

    @invariant()
    def the_cursor_is_sound(self) -> None:
        if hasattr(self, "world"):
            self.world.check()
            assert self.world.stored.floor >= self.floor, "the floor falls by seeks only"
            self.floor = self.world.stored.floor

    def teardown(self) -> None:
        """Heal: an actor that settles everything it is given drains the shard."""
        if not hasattr(self, "world"):
            return
        world = self.world
        for _ in range(10 * len(world.units) + 10):
            world.now_ms += 4 * LEASE_MS
            self.known["ann"] = world.stored
            self.claims("ann", 5, False)
            for token in list(world.stored.leases):
                lease_offsets = span_of(world.stored, token)
                after, accepted_results = transitions.settle(
                    world.stored, token, [Result(o, Disposition.SUCCESS) for o in lease_offsets]
                )
                assert world.write(cursor_write.change(world.stored, after), token, accepted_results)
                world.settle_accepted(token, accepted_results, lease_offsets)
        world.check()
        end = raise_floor(world.stored)
        assert (end.floor, end.next) == (len(world.units), len(world.units)), "not drained"
        assert not end.leases
        assert not end.waiting


@pytest.mark.parametrize(
    "policy", [*POLICIES.values(), Serial(run=4), Keyed(2)], ids=[*POLICIES, "runs", "keys"]
)
def test_no_interleaving_of_actors_with_stale_copies_breaks_a_cursor(policy: Policy) -> None:
    machine = type("Cursor", (CursorMachine,), {"policy": policy})
    run_state_machine_as_test(machine, settings=settings(max_examples=50, stateful_step_count=40))
