"""Claims: which of a cursor's messages one takes, what it keeps of others' changes, and when the next may come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from chalicelib.domain import cursor_size
from chalicelib.domain.cursor import Cursor, Disposition, Lease
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.limits import HOLE_AGE, MAX_ANSWER_BYTES, MAX_CURSOR_BYTES, MAX_PASSED_OVER
from chalicelib.domain.segment import Allocation, ShardKey
from chalicelib.domain.spans import HEAVY, Span
from chalicelib.domain.times import DAY_MS, HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.services.consume.claim_choice import DEAD_PER_WRITE, ClaimPlan
from chalicelib.services.consume.claim_plan import ClaimPlanner
from chalicelib.services.consume.claimant import Claimant, ClaimedMessage
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.log_reader import LogReader, Slot
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.dead_letters import BURY, redrive_first
from tests.support.desk import Desk, attempts, offsets
from tests.support.stages import Stage, embedded_stage
from tests.support.troubled import Troubled


def another(desk: Desk, refuses: Callable[..., bool], *, after: bool = False) -> Desk:
    """The same topic at another process, whose calls of the cursors may be refused or have their answers lost."""
    cursors: Any = Troubled(desk.stage.adapters.cursors, refuses, after=after)
    return Desk(desk.stage, Deps(replace(desk.stage.another(), cursors=cursors)), desk.topic)


def test_what_is_settled_between_a_claims_read_and_its_write_stays_settled(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    batches = [desk.receive(group, 1)]

    def settles_first(name: str, *_: Any) -> bool:
        if name == "write" and batches:
            assert desk.ack(group, batches.pop()) == [None]
        return False

    other = another(desk, settles_first)
    assert attempts(other.receive(group)) == {1: 1, 2: 1}
    assert not batches
    stage.clock.advance(30 * SECOND_MS)
    assert attempts([*desk.receive(group), *desk.receive(group)]) == {1: 2, 2: 2}


def test_a_cursor_has_something_when_a_message_is_due_or_a_lease_may_end() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    desk.produce(*(make.draft(ordering_key=key) for key in "abcd"))
    desk.receive(group, 1, lease=20)
    desk.receive(group, 1, lease=600)
    for seconds in (5, 9):
        desk.nack(group, desk.receive(group, 1), Nack(delay_ms=seconds * SECOND_MS))
    key, now_ms = cursor_key(desk.topic, group, 0), stage.clock.now_ms()
    for lease_seconds, dues in ((20, [5, 9, 20]), (19, [5, 9]), (600, [5, 9, 20, 600])):
        dues_found = desk.deps.claimer.dues_ms(key, lease_seconds)
        assert sorted((due_ms - now_ms) // SECOND_MS for due_ms in dues_found) == dues


def test_a_cursor_has_something_when_the_hole_before_it_may_be_closed() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage)
    group, shard = desk.group(), desk.topic.shard_key(0)
    for first in (0, 3):
        row = make.segment(first, allocation=Allocation.RESERVED, accepted_ms=stage.clock.now_ms())
        stage.adapters.log.put(shard, row, make.packed(row))
    desk.ack(group, desk.receive(group))
    (due_ms,) = desk.deps.claimer.dues_ms(cursor_key(desk.topic, group, 0), 30)
    assert due_ms - stage.clock.now_ms() == HOLE_AGE / timedelta(milliseconds=1)


@pytest.mark.parametrize("is_written", [False, True])
def test_i4_a_claim_whose_answer_was_lost_grants_what_it_holds_and_nothing_else(
    stage: Stage, is_written: bool
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    messages = desk.receive(group, 1)
    other = another(desk, lambda name, *_: name == "write", after=is_written)
    if is_written:
        assert attempts(other.receive(group)) == {1: 1, 2: 1}
    else:
        with pytest.raises(Unavailable):
            other.receive(group)
        assert attempts(desk.receive(group)) == {1: 1, 2: 1}
    assert desk.ack(group, messages) == [None]


def test_a_lease_lasts_as_long_as_was_asked_for_whatever_was_buried_before_it() -> None:
    stage = embedded_stage()
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(200, expires_ms=stage.clock.now_ms() + SECOND_MS), make.draft())
    stage.clock.advance(SECOND_MS)

    def takes_a_second(name: str, *_: Any) -> bool:
        if name == "write":
            stage.clock.advance(SECOND_MS)
        return False

    assert attempts(another(desk, takes_a_second).receive(group, lease=30)) == {200: 1}
    (lease,) = desk.cursor(group).leases.values()
    assert lease.deadline_ms - stage.clock.now_ms() == 29 * SECOND_MS, "from before its own write"


def test_each_claim_of_what_is_given_back_turns_to_another_consumer() -> None:
    desk = Desk.at(embedded_stage())
    group = desk.group()
    desk.produce(make.draft())
    claimant, turns = Claimant(topic=desk.topic, group=group, lease_seconds=30), []
    for _ in range(4):
        turns.append(desk.deps.claimer.rotation(claimant, 0))
        messages = desk.claim(claimant, 0, 1)
        receipts = [message.receipt for message in messages]
        desk.deps.settler.settle(desk.topic, group, receipts, lambda *_: SettleDecision(Disposition.RELEASED))
    assert turns == sorted(set(turns)), "each is later than the one before"


def claim(desk: Desk, group: Group, most: int, **settings: Any) -> list[ClaimedMessage]:
    claimant = Claimant(topic=desk.topic, group=group, lease_seconds=30, is_called=True, **settings)
    return desk.claim(claimant, 0, most)


class CountedSlots(LogReader):
    """A reader that counts the unclaimed slots it has returned, and lists the waiting ones."""

    slot_count = 0
    waiting_offsets: tuple[int, ...] = ()

    def fetch(self, shard: ShardKey, offsets: Iterable[int], *settings: Any) -> dict[int, Slot]:
        slots = super().fetch(shard, offsets, *settings)
        self.waiting_offsets += tuple(slots)
        return slots

    def slots_from(self, *args: Any, **settings: Any) -> list[Slot]:
        slots = super().slots_from(*args, **settings)
        self.slot_count += len(slots)
        return slots


def planner(desk: Desk, group: Group, reader: LogReader | None = None) -> ClaimPlanner:
    return ClaimPlanner(
        reader=reader or desk.deps.reader,
        claimant=Claimant(topic=desk.topic, group=group, lease_seconds=30),
        shard=0,
        recent_tenants=desk.deps.recent_tenants,
        leased_in=lambda _: Counter(),
        now_ms=desk.stage.clock.now_ms(),
    )


def plan(desk: Desk, group: Group, most: int = 1, most_bytes: int = MAX_ANSWER_BYTES) -> ClaimPlan:
    """The plan of a cursor without claims."""
    return planner(desk, group).plan(Cursor(), most, most_bytes)


def test_lapsed_leases_take_no_place_of_those_that_may_be_in_flight(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    assert attempts(claim(desk, group, 3, most_in_flight=2)) == {0: 1, 1: 1}
    assert claim(desk, group, 3, most_in_flight=2) == []
    stage.clock.advance(30 * SECOND_MS)
    assert attempts(claim(desk, group, 3, most_in_flight=2)) == {0: 2, 1: 2}


def test_i7_a_free_key_is_found_behind_however_many_of_busy_ones(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    desk.produce(*make.drafts(25, ordering_key="busy"), *(make.draft(ordering_key=key) for key in "abcd"))
    assert offsets(claim(desk, group, 5)) == [0, 25, 26, 27, 28]


def test_a_gap_of_expired_rows_takes_one_step_whatever_its_length(stage: Stage) -> None:
    desk = Desk.at(stage, retention_days=1)
    group = desk.group()
    desk.produce(*make.drafts(300))
    stage.clock.advance(DAY_MS + HOUR_MS)
    desk.produce(make.draft())
    stage.clock.advance(DAY_MS - HOUR_MS + SECOND_MS)
    stage.drop_expired()
    claimed = claim(desk, group, 1)
    assert (offsets(claimed), desk.cursor(group).epoch) == ([300], 1)


def test_a_cursor_too_large_for_more_gives_one_message_when_no_lease_is_open(stage: Stage) -> None:
    """Otherwise nothing would ever make it smaller."""
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(802))
    apart = tuple(Span(n, 1, due_ms=1 + n) for n in range(0, 800, 2))
    for ends_ms, granted in ((0, 1), (SECOND_MS, 0)):
        deadline_ms = stage.clock.now_ms() + ends_ms
        cursor = Cursor(0, 802, {"t": Lease("t", (Span(801, 1),), deadline_ms)}, apart)
        assert cursor_size.most_bytes(cursor) > MAX_CURSOR_BYTES * 25 // 32
        claimed, after = planner(desk, group).plan_that_fits(cursor, 10, MAX_ANSWER_BYTES, "new")
        assert sum(span.count for span in claimed.selection.granted) == granted
        assert ("new" in after.leases) == bool(granted)


def test_one_write_buries_no_more_than_a_transaction_holds(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    expires_ms = stage.clock.now_ms() + SECOND_MS
    desk.produce(*make.drafts(60, expires_ms=expires_ms))
    stage.clock.advance(SECOND_MS)
    assert len(plan(desk, group, 60).dead) == DEAD_PER_WRITE
    large = Desk.at(stage)
    for _ in range(12):
        large.produce(make.draft("x" * 240_000, expires_ms=stage.clock.now_ms() + SECOND_MS))
    stage.clock.advance(SECOND_MS)
    buried = plan(large, large.group(), 12).dead
    assert 1 < sum(record.message.draft.weight for record in buried if record.message) <= 2_000_000


def test_an_answer_ends_before_the_first_message_that_it_has_no_room_for(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(make.draft("x" * 1_000), make.draft("x" * 200_000), make.draft("x"))
    assert plan(desk, group, 3, 10_000).selection.granted == (Span(0, 1),)


def produce_large(desk: Desk, count: int, ordering_key: str) -> None:
    """Messages of which one answer holds about twenty."""
    body = b'"' + b"x" * 200_000 + b'"'
    for n in range(count):
        desk.produce(replace(make.draft(n), body=body, ordering_key=ordering_key))


@pytest.mark.parametrize("is_leased", [False, True])
def test_i7_large_messages_of_a_busy_key_hold_other_keys_not_back(stage: Stage, is_leased: bool) -> None:
    """Skipped messages take no space in the answer. `is_leased`: the key is busy by an earlier claim."""
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    last = MAX_PASSED_OVER + 1
    produce_large(desk, last, "busy")
    desk.produce(make.draft(ordering_key="free"))
    earlier = offsets(claim(desk, group, 1)) if is_leased else []
    assert earlier + offsets(claim(desk, group, 2)) == [0, last]
    assert [(span.start, span.count) for span in desk.cursor(group).waiting] == [(1, MAX_PASSED_OVER)]


@pytest.mark.parametrize("is_leased", [False, True])
def test_i7_large_messages_behind_failed_or_leased_ones_leave_place_for_other_keys(
    stage: Stage, is_leased: bool
) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    keys = [f"busy {n}" for n in range(25)]
    desk.produce(*(make.draft(ordering_key=key) for key in keys))
    first_messages = desk.receive(group, 25, lease=3600)
    assert len(first_messages) == 25
    if not is_leased:
        desk.nack(group, first_messages, Nack(delay_ms=HOUR_MS))
    for key in keys:
        produce_large(desk, 1, key)
    for n in range(3):
        desk.produce(make.draft(ordering_key=f"free {n}"))
        assert [each.message.draft.ordering_key for each in desk.receive(group, 10)] == [f"free {n}"]


def test_a_claim_stops_to_read_where_it_may_pass_over_no_more(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    produce_large(desk, 2 * MAX_PASSED_OVER, "busy")
    desk.produce(make.draft(ordering_key="free"))
    reader = CountedSlots(stage.adapters.log, stage.clock)
    selection = planner(desk, group, reader).plan(Cursor(), 2, MAX_ANSWER_BYTES).selection
    assert [span.start for span in selection.granted] == [0]
    assert MAX_PASSED_OVER < reader.slot_count < MAX_PASSED_OVER + 25


def test_of_a_keys_waiting_messages_a_claim_reads_up_to_the_first_it_can_deliver(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    expired_drafts = make.drafts(2, ordering_key="busy", expires_ms=stage.clock.now_ms() + SECOND_MS)
    desk.produce(make.draft(ordering_key="busy"), *expired_drafts, *make.drafts(90, ordering_key="busy"))
    desk.produce(make.draft(ordering_key="free"))
    messages = desk.receive(group)
    assert offsets(messages) == [0, 93]
    desk.ack(group, messages)
    stage.clock.advance(SECOND_MS)
    reader = CountedSlots(stage.adapters.log, stage.clock)
    selection = planner(desk, group, reader).plan(desk.cursor(group), 10, MAX_ANSWER_BYTES).selection
    assert (selection.settled, [span.start for span in selection.granted]) == (((1, 3),), [3])
    assert reader.waiting_offsets == (1, 2, 3)


def tenants(*counts: tuple[str | None, int], **settings: Any) -> list[Any]:
    return [make.draft(n, tenant=tenant, **settings) for tenant, count in counts for n in range(count)]


@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_a_tenants_backlog_is_skipped_for_the_others_and_delivered_once(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage, mode=mode)
    group = desk.group()
    who = desk.consumer(group, "one") if mode == "broadcast" else None
    uid = who.uid if who else ""
    desk.produce(*tenants(("loud", 1500), ("quiet", 2)))
    first = desk.receive(group, 3, who)
    assert offsets(first) == [0, 1, 2], "as far as it has looked, only one tenant has messages"
    assert desk.cursor(group, 0, uid).waiting == (Span(3, 997, unit=HEAVY),)
    second = desk.receive(group, 3, who)
    assert offsets(second) == [1500, 1501, 3]
    assert (cursor := desk.cursor(group, 0, uid)).waiting == (Span(4, 1496, unit=HEAVY),)
    assert cursor_size.most_bytes(cursor) < 600
    third = desk.receive(group, 3, who)
    assert set(desk.ack(group, [*first, *second, *third])) == {None}
    desk.produce(*tenants(("quiet", 1)))
    assert offsets(desk.receive(group, 1, who)) == [1502], "though the loud one's are many and older"
    assert sorted(desk.drain(group, 500, who)) == list(range(7, 1500))


def test_heavy_tenants_are_first_come_first_served_in_a_full_cursor() -> None:
    desk = Desk.at(embedded_stage())
    group = desk.group()
    scattered = (Span(offset, 1, 1 + offset % 5, due_ms=1 << 42) for offset in range(0, 600, 3))
    full = Cursor(next=1000, waiting=(*scattered, Span(900, 20, unit=HEAVY)))
    desk.produce(*tenants(("loud", 1050), ("quiet", 1)))
    assert not cursor_size.has_room_to_skip(full)
    plan = planner(desk, group).plan(full, 3, MAX_ANSWER_BYTES)
    assert [span.start for span in plan.selection.granted] == [900, 901, 902]
    assert (plan.selection.passed_over, plan.has_tenants) == ((), False)


def test_messages_without_tenants_are_read_no_further_than_before() -> None:
    desk = Desk.at(embedded_stage())
    group, counts = desk.group(), list[int]()
    for tenant in (None, "t"):
        desk.produce(*tenants((tenant, 100)))
        reader = CountedSlots(desk.stage.adapters.log, desk.stage.clock)
        planner(desk, group, reader).plan(Cursor(next=len(counts) * 100), 3, MAX_ANSWER_BYTES)
        counts.append(reader.slot_count)
    assert counts == [3, 100]


def test_heavy_tenants_have_their_share_of_consumers_and_slots_while_others_are_there() -> None:
    desk = Desk.at(embedded_stage(), shards=2)
    group = desk.group(tenant_share=50, max_in_flight=8)
    consumers = [desk.consumer(group, name) for name in "ab"]
    desk.produce(*tenants(("loud", 40), shard=0), *tenants(("quiet", 1), shard=1))
    ranks = {c.uid: desk.deps.assignments.seat(desk.topic, group, c.uid, 1) for c in consumers}
    first, last = sorted(consumers, key=lambda c: ranks[c.uid].rank)  # type: ignore[union-attr]
    assert [each.message.shard for each in desk.receive(group, 9, last)] == [1]
    assert desk.receive(group, 9, last) == [], "it waits for tenants that are not heavy"
    assert len(desk.receive(group, 9, first)) == 9
    slots: dict[str, Any] = {"is_called": True, "guaranteed": 1, "free": 8}
    called = Claimant(topic=desk.topic, group=group, lease_seconds=30, owner="push", **slots)
    assert len(desk.claim(called, 0, 9)) == 3, "of 8 less what the other shard and the lane are sure of"
    assert desk.claim(called, 0, 9) == []
    desk.stage.clock.advance(61 * SECOND_MS)
    assert desk.receive(group, 1, last), "nothing of others came for a minute"


def test_receives_take_turns_at_the_shards_where_tenants_wait() -> None:
    desk = Desk.at(embedded_stage(), shards=4)
    group = desk.group()
    for shard in range(4):
        desk.produce(*tenants(("a", 9), ("b", 9), shard=shard))
    shards = [desk.receive(group, 1)[0].message.shard for _ in range(9)]
    assert shards[1:5] == shards[5:]
    assert sorted(shards[1:5]) == [0, 1, 2, 3]


def test_of_one_key_so_many_are_in_flight_as_key_concurrency_allows(stage: Stage) -> None:
    """Over first attempts and retries; messages without a key are free, and a failure does not block its key."""
    desk = Desk.at(stage)
    group = desk.group(key_concurrency=2)
    desk.produce(*(make.draft(ordering_key=key) for key in (*"aaaa", None, None, "b", None)))
    first = desk.receive(group, 20)
    assert offsets(first) == [0, 1, 4, 5, 6, 7]
    assert desk.receive(group, 20) == []
    desk.nack(group, first[:2], Nack(delay_ms=5 * SECOND_MS))
    second = desk.receive(group, 20)
    assert offsets(second) == [2, 3], "those that failed wait without a place"
    stage.clock.advance(5 * SECOND_MS)
    assert desk.ack(group, second[:1]) == [None]
    assert attempts(desk.receive(group, 20)) == {0: 2}
    stage.clock.advance(31 * SECOND_MS)
    assert sorted(desk.drain(group, 20)) == [0, 1, 3, 4, 5, 6, 7], "each is delivered"


@pytest.mark.parametrize("sources", [(None, 0), (0, None)], ids=["lane", "shard"])
def test_claims_of_a_key_in_its_shard_and_in_the_lane_may_meet(
    stage: Stage, sources: tuple[int | None, int | None]
) -> None:
    """Of two at the same time, each by what it read before the other, one gets it. Neither attempt is lost."""
    desk = Desk.at(stage)
    group = desk.group(key_concurrency=1)
    claimant = Claimant(topic=desk.topic, group=group, lease_seconds=30)
    desk.produce(make.draft("redriven", ordering_key="a"))
    desk.nack(group, desk.receive(group), BURY)
    assert redrive_first(desk.deps, desk.topic, group, 9) == 1
    desk.produce(make.draft("new", ordering_key="a"))
    rivals, held = [sources[1]], list[ClaimedMessage]()

    def rival_comes_first(name: str, *_: Any) -> bool:
        if name == "write" and rivals:
            held.extend(desk.claim(claimant, rivals.pop(), 9))
        return False

    held += another(desk, rival_comes_first).claim(claimant, sources[0], 9)
    assert len(held) == 1
    assert [*desk.claim(claimant, 0, 9), *desk.claim(claimant, None, 9)] == []
    assert desk.ack(group, held) == [None]
    looks = [
        desk.claim(claimant, source, 9) for source in (0, None, 0, None)
    ]  # the first may be by an old view
    (last,) = [each for messages in looks for each in messages]
    assert {each.attempt for each in (*held, last)} == {1, 2}
    assert desk.extend(group, [last], 30) == [None]
    stage.clock.advance(30 * SECOND_MS)
    assert desk.extend(group, [last], 30) == ["RECEIPT_STALE"], "others may count it as over"
    assert desk.ack(group, [last]) == [None]
    desk.produce(make.draft(ordering_key="a"))
    assert len(desk.claim(claimant, 0, 9)) == 1
    assert desk.cursor(group).in_lane == 0, "no claim looks at an empty lane twice"


def test_key_concurrency_may_change_while_messages_are_leased(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*(make.draft(ordering_key="a") for _ in range(6)))
    held = desk.receive(group, 2)
    keyed, plain = replace(group, key_concurrency=1), replace(group, key_concurrency=None)
    held += desk.receive(keyed, 9)  # those leased before are not counted
    assert set(desk.nack(plain, held)) == {None}
    assert offsets(desk.receive(keyed, 9)) == [0]
    assert sorted([0, *desk.drain(plain)]) == list(range(6))
