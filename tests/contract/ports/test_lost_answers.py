"""DynamoDB's own troubles. A write whose answer is lost is sent again by the SDK, and the refusal it then meets may
be of our own success; a batch may be done in part."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError

from chalicelib.adapters import Adapters, dynamo_adapters
from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.append import AlreadyMoved, Stored
from chalicelib.domain.cursor import Cursor, Disposition, Result, Selection, start_at
from chalicelib.domain.errors import Unavailable
from chalicelib.domain.record import DeadLetter
from chalicelib.domain.segment import Tail
from chalicelib.domain.spans import Span
from chalicelib.services.core.counters import Counters
from chalicelib.services.core.cursor_store import CursorStore
from chalicelib.settings import Settings
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import ManualClock, SeededRandom
from tests.support.faults import Call, Fault, FaultPlan, _answer, lose, without_backoff

LOST = pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_THEN_CONFLICT])


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> FaultPlan:
    without_backoff(monkeypatch)
    return FaultPlan()


@pytest.fixture(scope="module")
def prefix(engine: str) -> str:
    return f"hr-{uuid4().hex[:8]}"


@pytest.fixture
def a(prefix: str, plan: FaultPlan, tmp_path: Path) -> Adapters:
    """Adapters whose calls the plan spoils."""
    settings = Settings(prefix=prefix, region="us-east-1", bucket=None, data=tmp_path)
    adapters = dynamo_adapters(settings, ManualClock(), SeededRandom(uuid4().hex), plan.attach)
    adapters.create_tables()
    return adapters


@pytest.fixture
def letter(a: Adapters) -> DeadLetter:
    key, record = make.cursor_key(), make.dead_record(1)
    a.cursors.write(key, cursor_write.replacement(Cursor(), start_at(2)), [record], exists=False)
    return make.letter(key, record)


def next_call(plan: FaultPlan, fault: Fault) -> None:
    plan.fault, plan.at = fault, len(plan.calls) + 1


@LOST
def test_an_edit_is_recognised(a: Adapters, plan: FaultPlan, letter: DeadLetter, fault: Fault) -> None:
    next_call(plan, fault)
    assert a.records.edit(replace(letter, edited=True))
    assert plan.fired
    assert a.records.dead_letter(letter.key, 1) == replace(letter, edited=True, version=1)


@LOST
def test_anothers_edit_is_not_taken_for_our_own(
    a: Adapters, plan: FaultPlan, letter: DeadLetter, fault: Fault
) -> None:
    assert a.records.edit(letter)
    next_call(plan, fault)
    assert not a.records.edit(replace(letter, edited=True))
    assert plan.fired


class Overtaken(FaultPlan):
    """Loses the answer to a write, and others change the row before it is sent again."""

    overtake: Callable[[], object] | None = None

    def meet(self, call: Call) -> AWSResponse | None:
        overtake, self.overtake = self.overtake, None
        if overtake is None:
            return None
        with suppress(ConnectionClosedError):
            lose(call)
        overtake()
        raise ConnectionClosedError(endpoint_url=call.request.url)


@pytest.fixture
def overtaken(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Adapters, Overtaken]:
    without_backoff(monkeypatch)
    settings, plan = Settings(prefix=prefix, region="us-east-1", bucket=None, data=tmp_path), Overtaken()
    adapters = dynamo_adapters(settings, ManualClock(), SeededRandom(uuid4().hex), plan.attach)
    adapters.create_tables()
    return adapters, plan


def test_an_edit_is_unknown_where_the_timer_was_moved_before_its_answer_was_heard(
    overtaken: tuple[Adapters, Overtaken],
) -> None:
    a, plan = overtaken
    timer, segment = make.timer(), make.segment(0, 1)
    edited = replace(timer, draft=make.draft("edited"))
    a.timers.store([timer])
    moved = replace(edited, edits=1)
    plan.overtake = lambda: a.log.put(make.shard(), segment, make.packed(segment), promotables=[moved])
    with pytest.raises(Unavailable):
        a.timers.amend(timer, edited, keep_s=1)
    assert a.timers.find(timer.due_ms, timer.id) is None, "with the edit"


def test_a_seek_is_not_repeated_where_others_consumed_before_its_answer_was_heard(
    overtaken: tuple[Adapters, Overtaken],
) -> None:
    a, plan = overtaken
    key, states = make.cursor_key(), CursorStore(a.cursors, ManualClock(), Counters())
    a.cursors.create(key, start_at(9))
    sought = transitions.seek(start_at(9), 0)
    claimed = transitions.claim(sought, Selection((Span(0, 9),), next=9), "2.them", "", 30_000)
    consumed = transitions.settle(claimed, "2.them", [Result(n, Disposition.SUCCESS) for n in range(9)])[0]

    def consume() -> None:
        for old, new in ((sought, claimed), (claimed, consumed)):
            a.cursors.write(key, cursor_write.change(old, new))

    states.read(key)
    plan.overtake = consume
    with pytest.raises(Unavailable):
        states.update(
            key, lambda state: cursor_write.replacement(state.cursor, transitions.seek(state.cursor, 0))
        )
    assert a.cursors.get(key, consistent=True) == consumed


@LOST
def test_a_discard_is_recognised(a: Adapters, plan: FaultPlan, letter: DeadLetter, fault: Fault) -> None:
    next_call(plan, fault)
    assert a.records.discard(letter)
    assert plan.fired
    assert a.records.dead_letter(letter.key, 1) is None


def test_a_discard_is_unknown_where_the_letter_was_redriven_before_its_answer_was_heard(
    a: Adapters, plan: FaultPlan, letter: DeadLetter
) -> None:
    shard, segment = make.shard(), make.segment(0, 1)
    assert a.log.put(shard, segment, make.packed(segment), promotables=[letter]) == Stored()
    next_call(plan, Fault.FAIL_ONCE)
    with pytest.raises(Unavailable):
        a.records.discard(letter)
    assert plan.fired


@LOST
def test_a_move_is_made_once(a: Adapters, plan: FaultPlan, letter: DeadLetter, fault: Fault) -> None:
    timer, shard, segment = make.timer(), make.shard(), make.segment(0, 2)
    a.timers.store([timer])
    next_call(plan, fault)
    assert a.log.put(shard, segment, make.packed(segment), promotables=[timer, letter]) == Stored()
    assert plan.fired
    again = make.segment(2, 2)
    assert a.log.put(shard, again, make.packed(again), promotables=[timer, letter]) == AlreadyMoved((0, 1))
    assert a.log.tail(shard) == Tail(1)


@pytest.mark.parametrize("count", [1, 2], ids=["one", "a batch"])
@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.FAIL_ONCE])
def test_a_message_that_may_have_been_moved_meanwhile_is_not_stored_again(
    a: Adapters, plan: FaultPlan, fault: Fault, count: int
) -> None:
    timers = [make.timer(1_000 + n, stored_ms=0) for n in range(count)]
    next_call(plan, fault)
    with pytest.raises(Unavailable):
        a.timers.store(timers)
    assert plan.fired
    assert [call for call in plan.calls if call in ("PutItem", "BatchWriteItem")] == [plan.calls[-1]]


@pytest.mark.parametrize("count", [1, 2], ids=["one", "a batch"])
@pytest.mark.parametrize(
    ("fault", "due_ms"),
    [(Fault.THROTTLED, 1_000), (Fault.LOST_ANSWER, 61_000), (Fault.FAIL_ONCE, 61_000)],
    ids=["refused", "lost, due later", "failed, due later"],
)
def test_a_message_that_was_surely_not_moved_meanwhile_is_stored_again(
    a: Adapters, plan: FaultPlan, fault: Fault, due_ms: int, count: int
) -> None:
    timers = [make.timer(due_ms, stored_ms=0) for _ in range(count)]
    next_call(plan, fault)
    a.timers.store(timers)
    assert plan.fired
    assert [a.timers.find(timer.due_ms, timer.id) for timer in timers] == timers


class Reluctant(FaultPlan):
    """Says of every batch that only its first row was done, as DynamoDB may, and DynamoDB Local never does."""

    def meet(self, call: Call) -> AWSResponse | None:
        if call.operation != "BatchWriteItem":
            return None
        ((table, requests),) = call.body["RequestItems"].items()
        self.calls.append(str(len(requests)))
        call.send(call.request).content  # noqa: B018 - reading the answer to its end frees the connection
        return _answer(call, 200, {"UnprocessedItems": {table: requests[1:]} if requests[1:] else {}})


@pytest.mark.parametrize(("count", "sizes"), [(4, "4 3 2 1"), (27, "25 24 23 22 21 20 19 18")])
def test_what_a_batch_leaves_undone_is_asked_again_within_bounds(
    prefix: str, tmp_path: Path, count: int, sizes: str
) -> None:
    settings = Settings(prefix=prefix, region="us-east-1", bucket=None, data=tmp_path)
    plan = Reluctant()
    adapters = dynamo_adapters(settings, ManualClock(), SeededRandom(1), plan.attach)
    adapters.create_tables()
    batch = [make.timer(7, fragment=count % 8) for _ in range(count)]
    with nullcontext() if count == 4 else pytest.raises(Unavailable):
        adapters.timers.store(batch)
    assert " ".join(plan.calls) == sizes


@pytest.mark.parametrize("what", ["token", "key"])
def test_a_rotation_is_recognised(a: Adapters, plan: FaultPlan, what: str) -> None:
    deps = Deps(a)
    token, _ = deps.tokens.create("ci", ("produce",))
    deps.signing_keys.present()
    plan.fault, plan.at = Fault.LOST_ANSWER, len(plan.calls) + 2  # behind the read
    if what == "token":
        _, text = deps.tokens.rotate(token.id, 0, None)
        assert Deps(a).tokens.authenticate(text).token_id == token.id
    else:
        ring = deps.signing_keys.rotate(60)
        assert Deps(a).signing_keys.present().hex() == ring.keys[0].hex
    assert plan.fired
