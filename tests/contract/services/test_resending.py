"""A resent named request writes nothing twice, on both stores, with concurrent writers; and its first try costs the
same as without a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from chalicelib.domain.append import Stored
from chalicelib.domain.errors import Conflict, Unavailable, unavailable
from chalicelib.domain.limits import MAX_LOOK_BACK_ROWS
from chalicelib.domain.message import Draft
from chalicelib.domain.request import Request
from chalicelib.domain.segment import Allocation, Segment, ShardKey
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.producer import Producer
from chalicelib.store.log import Log
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.desk import Desk, overtaken, require_stored
from tests.support.stages import Stage
from tests.support.troubled import with_short_answers

FIRST = Request("shop-1")
AGAIN = Request("shop-1", since_ms=START_MS)


class Lossy:
    """A log whose puts are carried out, and not answered."""

    def __init__(self, log: Log, times: int = 1) -> None:
        self._log = log
        self._left = times

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def put(self, *args: object, **kwargs: object) -> object:
        answer = self._log.put(*args, **kwargs)  # type: ignore[arg-type]
        if self._left and isinstance(answer, Stored):
            self._left -= 1
            raise unavailable()
        return answer


def send(producer: Producer, desk: Desk, drafts: list[Draft], request: Request) -> list[ProduceResult]:
    return require_stored(producer.produce(desk.topic, drafts, "", request))


def lose(desk: Desk, drafts: list[Draft], request: Request = FIRST) -> None:
    """A first try whose answer is lost."""
    log = Lossy(desk.stage.another().log)
    outcomes = desk.producer(log).produce(desk.topic, drafts, "", request)  # type: ignore[arg-type]
    assert {type(outcome) for outcome in outcomes} == {Unavailable}


def stored(desk: Desk, shards: int = 1) -> list[bytes]:
    return [d.body for shard in range(shards) for row in desk.rows(shard) for d in row.drafts]


def test_a_repeat_finds_what_the_lost_answer_told(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    drafts = make.drafts(3)
    lose(desk, drafts)
    again = send(desk.producer(), desk, drafts, AGAIN)
    assert [p.duplicate for p in again] == [True] * 3
    assert [p.offset for p in again] == [0, 1, 2]
    assert send(desk.producer(), desk, drafts, AGAIN) == again
    assert len(stored(desk, 4)) == 3


@pytest.mark.parametrize("late_ms", [0, 5_000])
def test_a_repeat_that_was_long_on_its_way_finds_it_too(stage: Stage, late_ms: int) -> None:
    """The delay may be on its way to the service, where it is unknown; or in it, in a cold start or a slow store."""
    desk = Desk.at(stage)
    lose(desk, make.drafts(1))
    stage.clock.advance(29_000)
    desk.produce(make.draft("other"))
    again = Request("shop-1", since_ms=START_MS + late_ms)
    (place,) = send(desk.producer(), desk, make.drafts(1), again)
    assert (place.offset, place.duplicate) == (0, True)


def test_a_repeat_reads_no_further_back_than_it_must(stage: Stage) -> None:
    desk = Desk.at(stage)
    lose(desk, make.drafts(1))
    stage.clock.advance(60_000)
    (place,) = send(desk.producer(), desk, make.drafts(1), Request("shop-1", since_ms=START_MS + 5_001))
    assert (place.offset, place.duplicate) == (1, False)


def test_it_is_found_behind_more_than_one_answer_holds(stage: Stage) -> None:
    """An answer ends at a megabyte: at three rows, where they are full."""
    desk = Desk.at(stage)
    lose(desk, make.drafts(2))
    for n in range(5):
        desk.produce(make.draft(f"other {n}"))
    process = Deps(with_short_answers(stage.another(), 3))
    again = send(process.producer, desk, make.drafts(2), AGAIN)
    assert [(p.offset, p.duplicate) for p in again] == [(0, True), (1, True)]


def test_a_repeat_of_what_never_arrived_stores_it(stage: Stage) -> None:
    desk = Desk.at(stage)
    desk.produce(*make.drafts(3))
    (place,) = send(desk.producer(), desk, make.drafts(1), AGAIN)
    assert (place.offset, place.duplicate) == (3, False)


def test_of_a_batch_that_was_stored_in_part_only_the_rest_is_stored(stage: Stage) -> None:
    desk = Desk.at(stage)
    drafts = make.drafts(5)
    lose(desk, [drafts[0], drafts[3]])
    again = send(desk.producer(), desk, drafts, AGAIN)
    assert [p.duplicate for p in again] == [True, False, False, True, False]
    assert sorted(stored(desk)) == sorted(d.body for d in drafts)


def test_equal_messages_of_one_batch_are_each_stored_once(stage: Stage) -> None:
    desk = Desk.at(stage)
    twins = [make.draft("same")] * 3
    lose(desk, twins)
    again = send(desk.producer(), desk, twins, AGAIN)
    assert len({p.id for p in again}) == 3
    assert len(stored(desk)) == 3


def test_other_content_under_the_same_name_is_another_message(stage: Stage) -> None:
    desk = Desk.at(stage)
    send(desk.producer(), desk, [make.draft("one")], FIRST)
    (place,) = send(desk.producer(), desk, [make.draft("two")], AGAIN)
    assert not place.duplicate
    assert len(stored(desk)) == 2


def test_what_was_edited_meanwhile_is_still_the_message(stage: Stage) -> None:
    desk = Desk.at(stage)
    (draft,) = make.drafts(1)
    lose(desk, [draft])
    (row,) = desk.rows()
    message = row.message(0, 0)
    assert message is not None
    edited_draft = replace(draft, body=b'"edited"', changed_ms=1)
    log = desk.stage.adapters.log
    shard = desk.topic.shard_key(0)
    assert log.amend(shard, row, log.pack([edited_draft], whole=True), 0, {})
    (place,) = send(desk.producer(), desk, [draft], AGAIN)
    assert (place.id, place.duplicate) == (message.id, True)


@pytest.mark.parametrize("others", range(3))
def test_two_tries_at_once_store_one_whichever_is_first(stage: Stage, others: int) -> None:
    """The repeat comes in at each moment of the first try that has chosen its offset, and others in between."""
    desk = Desk.at(stage)
    desk.produce(*make.drafts(2))
    drafts = make.drafts(2)
    second: list[ProduceResult] = []

    def meanwhile(_: ShardKey) -> None:
        for n in range(others):
            desk.produce(make.draft(f"other {n}"))
        if not second:
            second.extend(send(desk.producer(), desk, drafts, AGAIN))
        desk.produce(make.draft("behind"))

    slow = desk.producer(overtaken(desk.stage.another().log, meanwhile, 2))
    first = send(slow, desk, drafts, FIRST)
    assert [p.id for p in first] == [p.id for p in second]
    assert sum(body in {d.body for d in drafts} for body in stored(desk)[2:]) == 2


def test_a_repeat_with_an_old_idea_of_the_end_is_not_taken_for_the_whole(stage: Stage) -> None:
    """Its first offset is just where the first try stored a part."""
    desk = Desk.at(stage)
    stale = desk.producer()
    require_stored(stale.produce(desk.topic, [make.draft("warm")]))
    drafts = make.drafts(4)
    lose(desk, drafts[:2])
    again = send(stale, desk, drafts, AGAIN)
    assert [p.duplicate for p in again] == [True, True, False, False]
    assert len(stored(desk)) == 5


def test_one_sender_keeps_to_one_shard(stage: Stage) -> None:
    desk = Desk.at(stage, shards=16)
    shards = {send(desk.producer(), desk, make.drafts(1), Request(f"shop-{n}"))[0].shard for n in range(8)}
    assert len(shards) == 1
    keyed_draft = make.draft("keyed", shard=3)
    assert send(desk.producer(), desk, [keyed_draft], FIRST)[0].shard == 3


def waiting(*values: str) -> list[Draft]:
    return [make.draft(value, due_ms=START_MS + 60_000) for value in values]


def move(desk: Desk) -> None:
    desk.stage.clock.advance(60_000)
    desk.deps.mover.run_once()


def test_what_waits_is_stored_once_before_and_after_its_time(stage: Stage) -> None:
    """Equal messages of a batch, too; and those that an earlier try did not store are stored now."""
    desk = Desk.at(stage, dedup_window_seconds=1)
    first = send(desk.producer(), desk, waiting("twin", "other", "twin"), FIRST)
    again = send(desk.producer(), desk, waiting("twin", "twin", "new", "other", "twin"), AGAIN)
    ids = [p.id for p in again]
    assert [ids[n] for n in (0, 3, 1)] == [p.id for p in first]
    assert [p.duplicate for p in again] == [True, True, False, True, False]
    assert [p.duplicate for p in send(desk.producer(), desk, waiting("twin"), Request("shop-2"))] == [False]
    move(desk)
    assert len(stored(desk)) == 6
    stage.clock.advance(2_000)
    came = [make.draft(value, accepted_ms=START_MS) for value in ("twin", "twin", "new", "other", "twin")]
    assert [p.id for p in send(desk.producer(), desk, came, AGAIN)] == ids
    assert len(stored(desk)) == 6


def test_where_too_much_was_stored_since_it_says_so(stage: Stage) -> None:
    desk = Desk.at(stage)
    lose(desk, make.drafts(1))
    log = Deep(desk.stage.another().log)
    outcomes = desk.producer(log).produce(desk.topic, make.drafts(1), "", AGAIN)  # type: ignore[arg-type]
    (refusal,) = outcomes
    assert isinstance(refusal, Conflict)
    assert refusal.code == "RESEND_TOO_LATE"
    assert log.read_rows == MAX_LOOK_BACK_ROWS
    assert len(stored(desk)) == 1


class Deep:
    """A log in which young rows go back for ever."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.read_rows = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def read_back(self, shard: ShardKey, last: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        self.read_rows += rows
        (young,) = self._log.read_back(shard, 10**9, 1, consistent=consistent)
        return [replace(young, first=10**9 - n, request_id="other") for n in range(rows)]


def test_a_first_try_reads_nothing_and_writes_one_row(stage: Stage) -> None:
    desk = Desk.at(stage)
    counting = Counting(desk.stage.another().log)
    producer = desk.producer(counting)  # type: ignore[arg-type]
    send(producer, desk, make.drafts(1), Request("a-0"))
    counting.calls.clear()
    send(producer, desk, make.drafts(1), Request("a-1"))
    assert counting.calls == ["pack", "put"]


class Counting:
    """A log that notes what it is asked."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        self.calls.append(name)
        return getattr(self._log, name)


def test_where_offsets_are_reserved_a_try_under_way_is_headed_off(stage: Stage) -> None:
    """The first try has reserved its offset and stalls; the repeat comes; then the first goes on."""
    desk = Desk.at(stage)
    reserved_segment = make.segment(0, 2, allocation=Allocation.RESERVED)
    assert (
        stage.adapters.log.put(desk.topic.shard_key(0), reserved_segment, make.packed(reserved_segment))
        == Stored()
    )
    desk.produce(*make.drafts(1))
    drafts = [make.draft("a"), make.draft("b")]
    second: list[ProduceResult] = []

    def meanwhile(_: ShardKey) -> None:
        second.extend(send(desk.producer(), desk, drafts, AGAIN))

    slow = Stalling(desk.stage.another().log, meanwhile)
    first = send(desk.producer(slow), desk, drafts, FIRST)  # type: ignore[arg-type]
    assert [p.id for p in first] == [p.id for p in second]
    assert sorted(stored(desk)[3:]) == sorted(d.body for d in drafts)
    offsets = [d.message.offset for d in desk.receive(desk.group(), 100)]
    assert offsets[-2:] == [p.offset for p in second]


class Stalling:
    """A log whose first put waits for something to happen."""

    def __init__(self, log: Log, meanwhile: Callable[[ShardKey], None]) -> None:
        self._log = log
        self._meanwhile: Callable[[ShardKey], None] | None = meanwhile

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def put(self, shard: ShardKey, *args: object, **kwargs: object) -> object:
        act, self._meanwhile = self._meanwhile, None
        if act:
            act(shard)
        return self._log.put(shard, *args, **kwargs)  # type: ignore[arg-type]
