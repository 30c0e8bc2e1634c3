"""Messages in the log are edited and cancelled while nobody has claimed them: one winner, and the loser is told.

"Process B" is one that has read the messages before they were changed: its copies are old.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from chalicelib.domain.cursor import Cursor
from chalicelib.domain.errors import Conflict, HeadraceError, NotFound, Refused, TooLarge, Unavailable
from chalicelib.domain.limits import (
    BLOB_THRESHOLD_BYTES,
    FRAGMENTS,
    MAX_AMENDED_BYTES,
    MAX_AMENDED_CURSORS,
    MAX_AMENDED_RANGES,
)
from chalicelib.domain.message import Draft, Message
from chalicelib.domain.segment import Segment, ShardKey
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.ports.cursors import Cursors
from chalicelib.ports.log import Log
from chalicelib.services.consume.claim import Delivery
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.bodies import with_body
from chalicelib.services.manage.amend import Amender
from chalicelib.services.produce.appender import Placed
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import SECOND_MS
from tests.support.desk import Desk, offsets
from tests.support.stages import Stage

NEW = b'"new"'


def message_of(desk: Desk, placed: Placed) -> Message:
    return desk.deps.lookup.message(desk.topic, placed.id)


def edit(desk: Desk, placed: Placed, body: bytes = NEW, **changes: Any) -> Message:
    return desk.deps.amender.amend(desk.topic, message_of(desk, placed), {"body": body, **changes})


def cancel(desk: Desk, placed: Placed) -> None:
    desk.deps.amender.cancel(desk.topic, message_of(desk, placed))


def process_b(desk: Desk) -> Desk:
    return Desk(desk.stage, desk.stage.process(), desk.topic)


def bodies(got: Sequence[Delivery]) -> list[bytes]:
    return [d.message.draft.body for d in got]


def having_read(desk: Desk, group: Group, most: int = 1) -> Desk:
    """Process B: it has claimed and settled the first messages, and read further ahead."""
    other = process_b(desk)
    got = other.receive(group, most)
    assert other.ack(group, got) == [None] * most
    return other


def test_an_edited_message_is_delivered_as_it_was_edited_and_only_it(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(5, headers={"h": "1"}))
    told = edit(desk, placed[2], headers={"h": "2"}, max_attempts=7)
    assert (told.id, told.draft.body, told.draft.headers) == (placed[2].id, NEW, {"h": "2"})
    got = desk.receive(group)
    assert bodies(got) == [b'{"n":0}', b'{"n":1}', NEW, b'{"n":3}', b'{"n":4}']
    assert [d.message.draft.headers["h"] for d in got] == ["1", "1", "2", "1", "1"]
    assert [d.receipt.last_attempt for d in got] == [16, 16, 7, 16, 16]
    assert [d.message.id for d in got] == [p.id for p in placed]


def test_what_is_cancelled_is_passed_over_and_can_be_seen(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(3))
    cancel(desk, placed[1])
    cancel(desk, placed[1])
    seen = message_of(desk, placed[1])
    assert (seen.draft.cancelled, seen.draft.body) == (True, b'{"n":1}')
    assert desk.deps.statuses.deliveries(desk.topic, seen)[group.name].status == "CANCELLED"
    assert desk.drain(group) == [0, 2]
    cancel(desk, placed[1])
    assert desk.deps.statuses.deliveries(desk.topic, seen)[group.name].status == "CANCELLED"
    assert desk.cursor(group).next == 3
    assert [e.event for e in desk.deps.tracer.path(desk.topic, seen)] == ["accepted", "cancelled"]


def test_what_was_cancelled_cannot_be_edited(stage: Stage) -> None:
    desk = Desk.at(stage)
    (placed,) = desk.produce(make.draft("x"))
    cancel(desk, placed)
    with pytest.raises(Conflict, match="MESSAGE_CANCELLED"):
        edit(desk, placed)


@pytest.mark.parametrize("settled", ["running", "acked", "failed", "buried"])
def test_what_a_group_has_claimed_is_refused_with_its_name(stage: Stage, settled: str) -> None:
    desk = Desk.at(stage)
    group = desk.group("billing")
    desk.group("shipping")
    (placed,) = desk.produce(make.draft("old"))
    got = desk.receive(group)
    if settled == "acked":
        desk.ack(group, got)
    elif settled != "running":
        desk.nack(group, got, Nack(delay_ms=9_000, dead_letter=settled == "buried"))
    for change in (edit, cancel):
        with pytest.raises(Conflict, match=r"ALREADY_CLAIMED: .*'billing'"):
            change(desk, placed)
    assert message_of(desk, placed).draft.body == b'"old"'
    assert desk.rows()[0].edition == 0


@pytest.mark.parametrize("settled", ["acked", "failed", "buried"])
def test_after_a_seek_back_only_what_is_left_of_an_attempt_forbids_a_change(
    stage: Stage, settled: str
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (placed,) = desk.produce(make.draft("old"))
    got = desk.receive(group)
    if settled == "acked":
        desk.ack(group, got)
    else:
        desk.nack(group, got, Nack(delay_ms=9_000, dead_letter=settled == "buried"))
    desk.seek(group, "earliest")
    if settled == "acked":
        edit(desk, placed)
        assert bodies(desk.receive(group)) == [NEW]
        return
    with pytest.raises(Conflict, match="ALREADY_CLAIMED"):
        edit(desk, placed)


def test_a_group_that_is_not_owed_the_message_forbids_nothing(stage: Stage) -> None:
    desk = Desk.at(stage)
    (placed,) = desk.produce(make.draft("old"))
    late = desk.group("late", "latest")
    edit(desk, placed)
    desk.produce(make.draft("next"))
    assert bodies(desk.receive(late)) == [b'"next"']


def test_a_message_that_waits_for_no_time_has_none_to_change(stage: Stage) -> None:
    desk = Desk.at(stage)
    (placed,) = desk.produce(make.draft("x"))
    with pytest.raises(Refused, match="NOT_DELAYED"):
        desk.deps.amender.amend(desk.topic, message_of(desk, placed), {"due_ms": 1})


def test_what_has_expired_meanwhile_is_not_found(stage: Stage) -> None:
    desk = Desk.at(stage)
    (placed,) = desk.produce(make.draft("x"))
    message = message_of(desk, placed)
    stage.clock.advance(9 * 86_400 * SECOND_MS)
    stage.drop_expired()
    with pytest.raises(NotFound):
        desk.deps.amender.amend(desk.topic, message, {"body": NEW})


def test_a_message_that_was_delayed_can_be_changed_in_the_log_too(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (placed,) = desk.produce(make.draft("old", due_ms=stage.clock.now_ms() + 5_000))
    stage.clock.advance(5_000)
    desk.deps.mover.tick(range(FRAGMENTS))
    edit(desk, placed)
    (got,) = desk.receive(group)
    assert (got.message.id, got.message.draft.body) == (placed.id, NEW)


# Old copies: whatever another process has read before, nobody is given it.


def test_a_process_that_had_read_ahead_delivers_the_new_body(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(4))
    other = having_read(desk, group)
    edit(desk, placed[2])
    cancel(desk, placed[3])
    assert bodies(other.receive(group)) == [b'{"n":1}', NEW]


def test_an_edit_that_lands_in_the_middle_of_a_claim_wins_and_the_claim_is_made_anew(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(2))
    other = having_read(desk, group)
    before_writing(other, lambda: edit(desk, placed[1]))
    assert bodies(other.receive(group)) == [NEW]


def test_a_first_claim_loses_against_an_edit_as_well(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (placed,) = desk.produce(make.draft("old"))
    other = process_b(desk)
    before_writing(other, lambda: cancel(desk, placed))
    assert other.receive(group) == []


def test_an_edit_that_a_claim_overtakes_is_refused(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    (placed,) = desk.produce(make.draft("old"))
    got: list[Delivery] = []
    before_amending(desk, lambda: got.extend(desk.receive(group)))
    with pytest.raises(Conflict, match="ALREADY_CLAIMED"):
        edit(desk, placed)
    assert bodies(got) == [b'"old"']
    assert message_of(desk, placed).draft.body == b'"old"'


def test_claims_of_other_messages_do_not_hinder_an_edit(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(100))
    desk.receive(group, 1)
    before_amending(desk, lambda: desk.receive(group, 1), times=90)
    edit(desk, placed[99])
    assert desk.cursor(group).next == 2, "one try was enough"


@pytest.mark.parametrize("mode", ["queue", "serial"])
def test_what_lapsed_is_delivered_again_as_it_was_edited(stage: Stage, mode: str) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode=mode)
    placed = desk.produce(*make.drafts(3))
    other = having_read(desk, group)
    edit(desk, placed[1])
    assert bodies(desk.receive(group, 1)) == [NEW]
    stage.clock.advance(31 * SECOND_MS)
    (again,) = other.receive(group, 1)
    assert (again.attempt, again.message.draft.body) == (2, NEW)


def test_what_failed_is_retried_from_the_lane_as_it_was_edited(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(2))
    other = having_read(desk, group)
    edit(desk, placed[1])
    got = desk.receive(group)
    assert desk.nack(group, got, Nack(delay_ms=5_000)) == [None]
    stage.clock.advance(6 * SECOND_MS)
    (again,) = other.receive(group)
    assert (again.attempt, again.message.draft.body, again.message.id) == (2, NEW, placed[1].id)
    assert other.nack(group, [again], Nack(delay_ms=5_000)) == [None]
    stage.clock.advance(6 * SECOND_MS)
    assert bodies(other.receive(group)) == [NEW]


def test_what_is_buried_is_the_edited_message(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(2))
    other = having_read(desk, group)
    edit(desk, placed[1])
    got = desk.receive(group)
    assert other.nack(group, got, Nack(dead_letter=True)) == [None]
    (letter,) = other.deps.redriver.find(desk.topic, group, placed[1].id)
    assert letter.message.draft.body == NEW
    assert other.deps.redriver.redrive(desk.topic, group, [letter]) == 1
    stage.clock.advance(SECOND_MS)
    assert bodies(other.receive(group)) == [NEW]


def test_a_group_sent_back_gets_the_edited_message_again(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(3))
    other = having_read(desk, group)
    edit(desk, placed[1])
    desk.drain(group)
    other.seek(group, "earliest")
    assert bodies(other.receive(group)) == [b'{"n":0}', NEW, b'{"n":2}']


@pytest.mark.parametrize("begin", ["earliest", "@0"])
def test_a_group_that_is_made_later_gets_the_edited_message(stage: Stage, begin: str) -> None:
    desk = Desk.at(stage)
    placed = desk.produce(*make.drafts(3))
    other = having_read(desk, desk.group("first"))
    edit(desk, placed[1])
    later = desk.group("later", begin)
    assert bodies(other.receive(later)) == [b'{"n":0}', NEW, b'{"n":2}']


def test_a_group_much_older_than_a_process_shares_its_reading(stage: Stage) -> None:
    desk = Desk.at(stage)
    groups = [desk.group("a"), desk.group("b")]
    placed = desk.produce(*make.drafts(3))
    stage.clock.advance(2 * 3_600 * SECOND_MS)
    other = process_b(desk)
    reader = other.deps.reader
    counting = Counting(reader._log)
    reader._log = cast(Log, counting)
    assert other.drain(groups[0]) == [place.offset for place in placed]
    counting.shards.clear()
    assert len(other.receive(groups[1], 3)) == 3
    assert desk.topic.shard_key(0) not in counting.shards


def test_a_group_that_comes_up_during_an_edit_is_told_before_it_is_answered(stage: Stage) -> None:
    desk = Desk.at(stage)
    placed = desk.produce(*make.drafts(2))
    other = having_read(desk, desk.group("first"))
    before_amending(desk, lambda: desk.group("second"))
    edit(desk, placed[1])
    second = desk.group("second")
    assert desk.cursor(second).amended == ((1, 2),)
    assert bodies(other.receive(second)) == [b'{"n":0}', NEW]


def test_nobody_can_tell_where_a_group_comes_up_and_claims_during_an_edit(stage: Stage) -> None:
    desk = Desk.at(stage)
    (placed,) = desk.produce(make.draft("old"))
    before_amending(desk, lambda: desk.receive(desk.group("second")))
    with pytest.raises(Unavailable):
        edit(desk, placed)
    with pytest.raises(Conflict, match="ALREADY_CLAIMED"):
        edit(desk, placed)


def test_each_consumer_of_a_broadcast_gets_the_edited_message(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    ann, bob = desk.consumer(group, "ann"), desk.consumer(group, "bob")
    placed = desk.produce(*make.drafts(3))
    others = {consumer.uid: process_b(desk) for consumer in (ann, bob)}
    for consumer in (ann, bob):
        others[consumer.uid].receive(group, 1, consumer)
    edit(desk, placed[2])
    assert bodies(others[ann.uid].receive(group, 10, ann)) == [b'{"n":1}', NEW]
    with pytest.raises(Conflict, match=r"ALREADY_CLAIMED: .*'billing'"):
        edit(desk, placed[2], b'"newer"')
    assert bodies(others[bob.uid].receive(group, 10, bob)) == [b'{"n":1}', NEW]


def test_more_readers_than_a_transaction_can_tell_forbid_a_change(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    (placed,) = desk.produce(make.draft("old"))
    control = desk.stage.adapters.control
    for n in range(MAX_AMENDED_CURSORS):
        control.put_consumer(desk.topic, group, make.consumer(group, f"c{n:03d}"), None)
    edit(desk, placed)
    control.put_consumer(desk.topic, group, make.consumer(group, "one-more"), None)
    with pytest.raises(Conflict, match="TOO_MANY_READERS"):
        edit(desk, placed, b'"newer"')


# Sizes.


def test_a_cursors_notes_stay_few_and_no_edit_is_lost_among_many(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    count = 3 * MAX_AMENDED_RANGES
    placed = desk.produce(*make.drafts(count + 1))
    other = having_read(desk, group)
    changed = list(range(2, count, 2))
    random.Random(1).shuffle(changed)
    for n in changed:
        edit(desk, placed[n], str(n).encode())
    assert len(desk.cursor(group).amended) <= MAX_AMENDED_RANGES
    got = other.receive(group, count)
    assert bodies(got) == [b'{"n":%d}' % n if n % 2 or n == count else b"%d" % n for n in range(1, count + 1)]


def test_those_who_never_edit_store_nothing_for_it(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    desk.drain(group)
    assert desk.cursor(group).amended == ()
    assert desk.rows()[0].edition == 0


def _wide(seed: int, chars: int) -> str:
    """Text that does not compress well."""
    chance = random.Random(seed)
    return "".join(chr(chance.randrange(0x4E00, 0x9FFF)) for _ in range(chars))


def test_a_large_body_goes_to_the_blob_store_and_so_does_one_for_which_the_row_has_no_room(
    stage: Stage,
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*(make.draft(_wide(n, 6_000)) for n in range(20)))
    assert len(desk.rows()) == 1
    sent: list[bytes] = []
    for n in range(20):
        size = BLOB_THRESHOLD_BYTES + 1 if n == 0 else 30_000
        sent.append(make.draft(_wide(100 + n, size // 3)).body)
        edit(desk, placed[n], sent[-1])
    (row,) = desk.rows()
    assert {bool(draft.blob) for draft in row.drafts} == {True, False}
    got = desk.receive(group, 20)
    blobs = stage.adapters.blobs
    assert [with_body(blobs, d.message).draft.body for d in got] == sent


def test_a_row_that_would_become_too_large_is_refused_and_stays_as_it_is(stage: Stage) -> None:
    desk = Desk.at(stage)
    placed = desk.produce(*(make.draft("x", headers={"h": _wide(n, 3_000)}) for n in range(40)))
    answer, edits = "ok", 0
    while answer == "ok":
        before = desk.rows()
        answer = _attempt(edit, desk, placed[edits], headers={"h": _wide(100 + edits, 8_000)})
        edits += 1
    assert (answer, desk.rows()) == ("SEGMENT_FULL", before)
    with pytest.raises(TooLarge, match="BODY_TOO_LARGE"):
        edit(desk, placed[0], b"x" * (desk.topic.max_body_bytes + 1))
    assert MAX_AMENDED_BYTES < 400 * 1024


# Races.


def _attempt(call: Callable[..., object], *given: Any, **named: Any) -> str:
    """ "ok", or the code of the refusal."""
    try:
        call(*given, **named)
    except HeadraceError as error:
        return error.code
    return "ok"


@dataclass
class Race:
    """Claimers and editors, each a process of its own, on the messages of one shard. Claimers take as many turns as
    editors, so that both are at the front together."""

    desk: Desk
    group: Group
    placed: list[Placed]
    delivered: dict[int, bytes] = field(default_factory=dict)
    edited: defaultdict[int, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    over: threading.Event = field(default_factory=threading.Event)

    def claims(self, deps: Deps) -> None:
        claimer = Desk(self.desk.stage, deps, self.desk.topic)
        while (c := self.desk.cursor(self.group)).next < len(self.placed) or c.leases or c.waiting:
            if not self.over.is_set():
                self.turns.acquire(timeout=1)
            got = deps.receiver.receive(self.desk.topic, self.group, None, 2, 0, 3_600)
            for d in got:
                assert d.message.offset not in self.delivered
                self.delivered[d.message.offset] = d.message.draft.body
            assert set(claimer.ack(self.group, got)) <= {None}

    def edits(self, name: str, deps: Deps) -> None:
        chance = random.Random(name)
        while (front := self.desk.cursor(self.group).next) < len(self.placed):
            n = max(0, min(len(self.placed) - 1, front + chance.randrange(-1, 6)))  # some are claimed already
            message = Message(self.placed[n].id, 0, n, 0, Draft(b""))
            what = chance.choice(["cancel", *(f'"{name}{chance.random()}"' for _ in range(3))])
            if what == "cancel":
                answer = _attempt(deps.amender.cancel, self.desk.topic, message)
            else:
                answer = _attempt(deps.amender.amend, self.desk.topic, message, {"body": what.encode()})
            self.edited[n].append((what, answer))
            self.turns.release()
        self.over.set()


@pytest.mark.parametrize(("mode", "batches"), [("queue", 40), ("serial", 15)])
def test_who_was_told_ok_sees_the_new_body_delivered_and_nothing_cancelled(
    stage: Stage, mode: str, batches: int
) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode=mode)
    placed = [p for n in range(batches) for p in desk.produce(*make.drafts(5, ordering_key=f"k{n % 3}"))]
    race = Race(desk, group, placed)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(race.claims, stage.process()) for _ in range(2)]
        runs += [pool.submit(race.edits, name, stage.process()) for name in ("e", "f")]
        for run in runs:
            run.result(timeout=300)
    answers = {answer for tried in race.edited.values() for _, answer in tried}
    assert answers <= {"ok", "ALREADY_CLAIMED", "MESSAGE_CANCELLED"}
    assert answers >= {"ok", "ALREADY_CLAIMED"}
    for row in desk.rows():
        for n in range(row.first, row.end):
            draft = row.drafts[n - row.first]
            oks = [what for what, answer in race.edited[n] if answer == "ok"]
            assert (n in race.delivered) == (not draft.cancelled), "delivered or cancelled, not both"
            assert draft.cancelled == ("cancel" in oks)
            if n in race.delivered:
                assert race.delivered[n] == draft.body, "an old copy was delivered"
                assert draft.body.decode() in (oks or [f'{{"n":{n % 5}}}'])


def test_of_racing_editors_the_last_wins_and_no_row_is_torn(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    placed = desk.produce(*make.drafts(4))
    processes = [stage.process() for _ in range(4)]
    messages = [message_of(desk, p) for p in placed]

    def edits(n: int) -> str:
        changes = {"body": str(n).encode(), "headers": {"n": str(n)}}
        return _attempt(processes[n % 4].amender.amend, desk.topic, messages[n % 3], changes)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(edits, range(48)))
    assert set(answers) <= {"ok", "UNAVAILABLE"}
    assert answers.count("ok") > 24
    got = desk.receive(group)
    assert offsets(got) == [0, 1, 2, 3]
    for d in got[:3]:
        assert d.message.draft.headers["n"].encode() == d.message.draft.body
        assert int(d.message.draft.body) % 3 == d.message.offset
    assert got[3].message.draft.body == b'{"n":3}'
    assert desk.rows()[0].edition == answers.count("ok")


# What stands between a service and its store, in one test.


class Interposed:
    """A port before whose first calls of one method something else happens."""

    def __init__(self, port: Any, method: str, happens: Callable[[], object], times: int) -> None:
        self._port = port
        self._method = method
        self._left = [happens] * times

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self._left:
            self._left.pop()()
        return getattr(self._port, name)


def before_writing(desk: Desk, happens: Callable[[], object]) -> None:
    """Let something happen between what the desk's next claim reads and what it writes."""
    states = desk.deps.states
    states.cursors = cast(Cursors, Interposed(states.cursors, "write", happens, 1))


def before_amending(desk: Desk, happens: Callable[[], object], times: int = 1) -> None:
    """Let something happen between what the desk's next edit reads and what it writes."""
    a = desk.deps.adapters
    log = cast(Log, Interposed(a.log, "amend", happens, times))
    desk.deps.amender = Amender(
        a.control, log, a.cursors, a.records, desk.deps.producer, desk.deps.reader, a.clock
    )


@dataclass
class Counting:
    """ports.Log that keeps which shards are read."""

    log: Log
    shards: list[ShardKey] = field(default_factory=list)

    def read(self, shard: ShardKey, *given: Any, **named: Any) -> list[Segment]:
        self.shards.append(shard)
        return self.log.read(shard, *given, **named)

    def read_back(self, shard: ShardKey, *given: Any, **named: Any) -> list[Segment]:
        self.shards.append(shard)
        return self.log.read_back(shard, *given, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)


def test_the_store_writes_all_of_an_amendment_or_nothing(stage: Stage) -> None:
    """ports.Log.amend, by itself."""
    log, cursors = stage.adapters.log, stage.adapters.cursors
    topic = make.topic()
    shard: ShardKey = topic.shard_key(0)
    segment = make.segment(0, 3)
    log.put(shard, segment, make.packed(segment))
    pack = log.pack(make.drafts(3, tag="t"), whole=True)
    keys = [cursor_key(topic, make.group(topic, uid=make.uid("g")), 0) for _ in range(3)]
    at_two = Cursor(floor=2, next=2, begin=2)
    cursors.create(keys[0], at_two)

    def amends(offset: int, told: Mapping[int, Cursor | None]) -> bool:
        (row,) = log.read(shard, 0, 1, consistent=True)
        return log.amend(shard, row, pack, offset, {keys[n]: cursor for n, cursor in told.items()})

    assert not amends(2, {0: None, 1: None}), "a cursor that is there"
    assert not amends(2, {0: at_two, 1: Cursor()}), "one that is not"
    assert log.read(shard, 0, 1)[0].drafts == segment.drafts
    assert amends(2, {0: at_two, 1: None})
    assert [cursors.get(key, consistent=True) for key in keys] == [
        Cursor(floor=2, next=2, begin=2, epoch=1, amended=((2, 3),)),
        Cursor(epoch=1, amended=((2, 3),)),
        None,
    ]
    (row,) = log.read(shard, 0, 1, consistent=True)
    assert (row.edition, [draft.tag for draft in row.drafts]) == (1, ["t"] * 3)
    assert not amends(2, {0: at_two}), "other notes"
    assert not log.amend(shard, segment, pack, 2, {keys[2]: None}), "another edition"
    assert cursors.get(keys[2], consistent=True) is None
    noted = Cursor(floor=2, next=2, begin=2, epoch=1, amended=((2, 3),))
    assert amends(0, {0: noted}), "not owed"
    assert not amends(1, {0: noted})
