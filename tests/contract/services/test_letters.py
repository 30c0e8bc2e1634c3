"""Dead letters in somebody's hands: each rule of listing, editing, sending again and deleting them, by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain.cursor import Disposition
from chalicelib.domain.errors import Conflict, NotFound, TooLarge, Unavailable
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.message import DeadReason, Draft
from chalicelib.domain.record import DeadLetter
from chalicelib.domain.status import Status
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.letter_lookup import DeadLetterFilter, LetterLookup, RedriveOutcome
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS, Hasty
from tests.support.counted import Counted
from tests.support.desk import Desk
from tests.support.push import PushDesk
from tests.support.stages import Stage, memory_stage

BURY = Nack(dead_letter=True, reason="no such account")
ALL = DeadLetterFilter()
MANY = 230


@pytest.fixture
def stage() -> Stage:
    """The rules are the service's; that both stores keep letters alike is judged in tests/contract/ports."""
    return memory_stage()


class Table:
    """A group, and letters of its topic."""

    def __init__(self, stage: Stage, *drafts: Draft, **settings: Any) -> None:
        self.desk = Desk.at(stage, max_body_bytes=1 << 20, **settings)
        self.group, self.topic, self.deps = self.desk.group(), self.desk.topic, self.desk.deps
        self.dead_letters, self.letter_lookup = self.deps.dead_letters, self.deps.letter_lookup
        self.ids = [result.id for result in self.desk.produce(*(drafts or (make.draft("x"),)))]
        self.bury()

    def bury(self) -> None:
        while messages := self.desk.receive(self.group, 500):
            self.desk.nack(self.group, messages, BURY)

    def letter(self) -> DeadLetter:
        return self.letter_lookup.find(self.topic, self.group, self.ids[0])[0]

    def edit(self, body: bytes, letter: DeadLetter | None = None, by: str = "") -> DeadLetter:
        return self.dead_letters.edit(self.topic, self.group, letter or self.letter(), body, by)

    def redrive(self, *letters: DeadLetter, by: str = "") -> int:
        return self.dead_letters.redrive(self.topic, self.group, letters or [self.letter()], by)

    def pages(self, selection: DeadLetterFilter, limit: int) -> list[list[int]]:
        """The offsets of each page."""
        pages: list[list[int]] = []
        after: str | None = None
        while True:
            letters, after = self.letter_lookup.page(self.topic, self.group, selection, after, limit)
            pages.append([letter.offset for letter in letters])
            if after is None:
                return pages


@pytest.mark.parametrize("limit", [1, 7, MANY - 1, MANY, MANY + 1])
def test_pages_have_each_letter_once_and_are_full_but_for_the_last(stage: Stage, limit: int) -> None:
    table = Table(stage, *make.drafts(MANY))
    *full, last = table.pages(ALL, limit)
    assert [offset for page in (*full, last) for offset in page] == list(range(MANY))
    assert {len(page) for page in full} <= {limit}
    assert len(last) < limit


def test_a_page_that_may_not_go_on_ends_after_one_read_and_says_where(stage: Stage) -> None:
    table = Table(stage, *make.drafts(4))

    def page(selection: DeadLetterFilter, after: str | None, may_go_on: bool) -> tuple[list[int], str | None]:
        letters, position = table.letter_lookup.page(
            table.topic, table.group, selection, after, 9, rows_per_read=3, may_go_on=lambda: may_go_on
        )
        return [letter.offset for letter in letters], position

    offsets, position = page(ALL, None, may_go_on=False)
    assert (offsets, page(ALL, position, may_go_on=False)) == ([0, 1, 2], ([3], None))
    assert page(DeadLetterFilter(tag="none"), None, may_go_on=False) == ([], position)
    assert page(ALL, None, may_go_on=True) == ([0, 1, 2, 3], None)


def test_a_selection_has_what_all_it_says_is_true_of(stage: Stage) -> None:
    table = Table(stage, make.draft(0, tag="a", keys=("k", "l")), make.draft(1, tag="a"), make.draft(2))
    stage.clock.advance(SECOND_MS)
    table.desk.produce(make.draft(3, tag="a", keys=("l",)))
    table.bury()
    selections: dict[DeadLetterFilter, list[int]] = {
        ALL: [0, 1, 2, 3],
        DeadLetterFilter(reason="REJECTED"): [0, 1, 2, 3],
        DeadLetterFilter(reason="EXPIRED"): [],
        DeadLetterFilter(tag="a"): [0, 1, 3],
        DeadLetterFilter(key="l"): [0, 3],
        DeadLetterFilter(since_ms=START_MS): [0, 1, 2, 3],
        DeadLetterFilter(since_ms=START_MS + 1): [3],
        DeadLetterFilter(since_ms=START_MS + SECOND_MS): [3],
        DeadLetterFilter(since_ms=START_MS + SECOND_MS + 1): [],
        DeadLetterFilter(tag="a", key="k"): [0],
    }
    for selection, offsets in selections.items():
        assert table.pages(selection, 9) == [offsets], selection


@pytest.mark.parametrize("limit", [1, 99, 100, 101, 200, MANY, MANY + 1])
def test_so_many_are_sent_again_as_were_asked_for(stage: Stage, limit: int) -> None:
    table = Table(stage, *make.drafts(MANY))
    count = min(limit, MANY)
    assert table.dead_letters.redrive_matching(table.topic, table.group, ALL, limit)[0] == count
    assert [offset for page in table.pages(ALL, 100) for offset in page] == list(range(count, MANY))
    assert len(table.desk.receive(table.group, 500)) == count


def test_who_sends_very_many_again_is_told_where_to_go_on(stage: Stage) -> None:
    table = Table(stage, *make.drafts(MANY))
    slow = Deps(replace(stage.adapters, clock=Hasty())).dead_letters
    count, after = slow.redrive_matching(table.topic, table.group, ALL, MANY)
    assert 0 < count < MANY - count
    assert slow.redrive_matching(table.topic, table.group, ALL, count, after=after) == (count, None), (
        "it was all"
    )
    sent = 2 * count
    while after:
        count, after = slow.redrive_matching(table.topic, table.group, ALL, MANY, after=after)
        sent += count
    assert sent == MANY


def test_another_body_is_json_within_the_topics_bound_and_kept_where_it_has_room(stage: Stage) -> None:
    table = Table(stage, Draft(b"\xff", is_json=False, content_type="image/png", keys=("k",)))
    most = table.topic.max_body_bytes
    with pytest.raises(TooLarge):
        table.edit(text(most + 1))
    table.edit(text(most))
    draft = table.letter().message.draft
    assert (draft.body, draft.blob_bytes, draft.is_json, draft.content_type, draft.keys) == (
        *(b"", most, True, "application/json"),
        ("k",),
    )
    table.edit(text(BLOB_THRESHOLD_BYTES))
    draft = table.letter().message.draft
    assert (len(draft.body), draft.blob, draft.blob_bytes) == (BLOB_THRESHOLD_BYTES, None, 0)
    assert table.redrive() == 1
    (claimed_message,) = table.desk.receive(table.group)
    assert claimed_message.message.draft.body == text(BLOB_THRESHOLD_BYTES)


def text(size: int) -> bytes:
    return b'"%s"' % (b"x" * (size - 2))


def test_what_was_read_before_somebody_elses_change_is_changed_no_more(stage: Stage) -> None:
    table = Table(stage)
    before = table.letter()
    after = table.edit(b"2", table.edit(b"1"))
    attempts: list[Callable[[], object]] = [
        lambda: table.edit(b"3", before),
        lambda: table.dead_letters.discard(table.topic, table.group, before),
    ]
    for attempt in attempts:
        with pytest.raises(Conflict) as refusal:
            attempt()
        assert refusal.value.code == "DEAD_LETTER_CHANGED"
    assert table.letter().message.draft.body == b"2"
    assert table.redrive(before) == 0
    table.dead_letters.discard(table.topic, table.group, after)
    with pytest.raises(NotFound):
        table.letter()


def test_a_letter_tells_who_did_what_to_it(stage: Stage) -> None:
    table = Table(stage)
    table.edit(b"1", by="ann")
    stage.clock.advance(SECOND_MS)
    table.redrive(by="ben")
    stage.clock.advance(SECOND_MS)
    table.bury()
    stage.clock.advance(SECOND_MS)
    table.dead_letters.discard(table.topic, table.group, table.letter(), "cleo")
    path = table.desk.trace(table.ids[0])
    by_people = [(event.event, event.by) for event in path if event.by]
    assert by_people == [("edited", "ann"), ("redriven", "ben"), ("deleted", "cleo")]


@pytest.mark.parametrize("reason", ["EXPIRED", "ATTEMPTS_EXHAUSTED", "RATE_LIMITED", "REJECTED"])
def test_a_burial_and_its_reason_outlive_the_redrive(stage: Stage, reason: str) -> None:
    """But for REJECTED no attempt ends with it: before the redrive only the record tells of it."""
    desk = Desk.at(stage, retry=Retry(1, (10,), jitter=0.0))
    group = desk.group()
    end_ms = START_MS + SECOND_MS
    is_expiring = reason == "EXPIRED"
    over_limit = DeadReason.RATE_LIMITED if reason == "RATE_LIMITED" else None
    draft = make.draft("x", expires_ms=end_ms if is_expiring else None, dead_reason=over_limit)
    results = desk.produce(make.draft("before"), draft, replace(draft, body=b"2"))
    desk.ack(group, desk.receive(group, 1, lease=600))
    if reason == "ATTEMPTS_EXHAUSTED":
        desk.receive(group, lease=1)
    elif reason == "REJECTED":
        desk.nack(group, desk.receive(group), BURY)
    stage.clock.advance(SECOND_MS)
    assert desk.receive(group) == []
    paths = [desk.trace(result.id) for result in results]
    buried_events = [event for path in paths[1:] for event in path if event.event == "buried"]
    detail = "no such account" if reason == "REJECTED" else reason
    assert [event.detail for event in buried_events] == [detail] * 2
    stage.clock.advance(SECOND_MS)
    assert desk.deps.dead_letters.redrive_matching(desk.topic, group, ALL, 9, by="ann")[0] == 2
    for path, result in zip(paths, results, strict=True):
        *before, after = desk.trace(result.id)
        if result is results[0]:
            assert [*before, after] == path
        else:
            assert (before, after.event, after.by) == (path, "redriven", "ann")


def test_what_is_buried_again_without_an_attempt_shows_each_burial(stage: Stage) -> None:
    desk = Desk.at(stage, retry=Retry(1, (10,), jitter=0.0))
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    desk.nack(group, desk.receive(group), Nack(reason="busy"))
    for _ in range(2):
        stage.clock.advance(SECOND_MS)
        desk.deps.dead_letters.redrive_matching(desk.topic, group, ALL, 9)
        assert len(desk.receive(group, lease=1)) == 1
        stage.clock.advance(SECOND_MS)
        assert desk.receive(group) == []
    path = [(event.event, event.attempt, event.detail) for event in desk.trace(result.id)[1:]]
    once_more = [("redriven", None, None), ("delivered", 2, None), ("buried", 2, "ATTEMPTS_EXHAUSTED")]
    assert path == [
        ("delivered", 1, "busy"),
        ("buried", 1, "busy"),
        *once_more,
        *((name, number and 3, detail) for name, number, detail in once_more),
    ]


def test_an_id_of_another_message_finds_no_letter_in_its_place(stage: Stage) -> None:
    table, other = Table(stage), Table(stage)
    alien = other.ids[0]
    assert alien != table.ids[0]
    assert table.letter_lookup.letters(table.topic, table.group, alien) == []
    assert table.letter_lookup.letters_of(table.topic, table.group, [alien, table.ids[0]]) == [table.letter()]
    with pytest.raises(Conflict) as refusal:
        table.dead_letters.retry_now(table.topic, table.group, alien)
    assert refusal.value.code == "DEAD_LETTER_GONE"
    assert table.letter()


@pytest.mark.parametrize("how", ["redrive", "try now", "try a timer now", "give back from the lane"])
def test_whoever_found_nothing_a_moment_ago_gets_it_at_once(stage: Stage, how: str) -> None:
    """A process remembers for a moment that a lane was empty."""
    table = Table(stage)

    def receive() -> list[ClaimedMessage]:
        return table.deps.receiver.receive(table.topic, table.group, None, 9, 0, 30)

    if how in ("try a timer now", "give back from the lane"):
        table.redrive()
        (claimed_message,) = receive()
    if how == "try a timer now":
        table.desk.nack(table.group, [claimed_message], Nack(delay_ms=60 * SECOND_MS))
    assert receive() == []
    if how == "redrive":
        table.redrive()
    elif how == "give back from the lane":
        table.desk.nack(table.group, [claimed_message], Nack())
    else:
        table.dead_letters.retry_now(table.topic, table.group, table.ids[0])
    assert [each.message.id for each in receive()] == table.ids


@pytest.mark.parametrize("how", ["redrive", "try now"])
def test_its_subscribers_are_woken_once(stage: Stage, how: str) -> None:
    desk = PushDesk.at(stage)
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    (claimed_message,) = desk.deps.receiver.receive(desk.topic, group, None, 1, 0, 30)
    desk.nack(group, [claimed_message], BURY)
    desk.subscriber(group, "one")
    desk.push()
    desk.inbox.asked.clear()
    (letter,) = desk.deps.letter_lookup.find(desk.topic, group, result.id)
    if how == "redrive":
        assert desk.deps.dead_letters.redrive(desk.topic, group, [letter]) == 1
    else:
        desk.deps.dead_letters.retry_now(desk.topic, group, result.id)
    assert [event["group"] for function, event in desk.inbox.asked if function == "deliver"] == [group.name]


def test_an_expired_message_that_is_sent_again_is_wanted_now(stage: Stage) -> None:
    table = Table(stage, make.draft("x", expires_ms=START_MS + SECOND_MS))
    stage.clock.advance(2 * SECOND_MS)
    table.redrive()
    (claimed_message,) = table.desk.receive(table.group)
    assert claimed_message.message.draft == replace(claimed_message.message.draft, expires_ms=None)


def test_what_died_for_a_broadcasts_consumer_stays_when_that_has_left(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    leaver, stayer = desk.consumer(group, "leaver"), desk.consumer(group, "stayer")
    (result,) = desk.produce(make.draft("x"))
    for consumer in (leaver, stayer):
        desk.nack(group, desk.receive(group, 1, consumer), BURY)
    letters = desk.deps.letter_lookup.find(desk.topic, group, result.id)
    assert [each.key.consumer_uid for each in letters] == [leaver.uid, stayer.uid]
    desk.deps.registry.unregister(desk.topic, group, leaver)
    assert desk.deps.letter_lookup.find(desk.topic, group, result.id) == letters[::-1], "who left comes last"
    assert desk.deps.dead_letters.redrive(desk.topic, group, letters) == 1
    (claimed_message,) = desk.receive(group, 1, stayer)
    assert claimed_message.message.id == result.id
    assert desk.deps.letter_lookup.find(desk.topic, group, result.id) == letters[:1], "who left, has it"


def test_a_broadcasts_dead_letter_costs_a_read_not_one_for_each_consumer(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    consumers = [desk.consumer(group, f"c-{n}") for n in range(9)]
    (result,) = desk.produce(make.draft("x"))
    desk.nack(group, desk.receive(group, 1, consumers[5]), BURY)
    records = Counted(stage.adapters.records)
    deps = Deps(replace(stage.adapters, **cast(Any, {"records": records})))
    (letter,) = deps.letter_lookup.find(desk.topic, group, result.id)
    assert letter.key.consumer_uid == consumers[5].uid
    assert records.calls == {"all_letters_at": 1}


def test_what_nobody_can_read_goes_when_somebody_has_given_it_a_body(stage: Stage) -> None:
    table = Table(stage)
    letter = table.letter()
    unreadable = replace(
        letter,
        message=replace(
            letter.message, draft=replace(letter.message.draft, dead_reason=DeadReason.UNDECODABLE)
        ),
    )
    assert table.redrive(unreadable) == 0
    assert table.redrive(replace(unreadable, edited=True)) == 1


@pytest.mark.parametrize(
    ("ending", "expected"), [("dead", "FAILED"), ("acked", "PENDING"), ("none", "PENDING")]
)
def test_the_worst_of_what_became_of_it_in_a_broadcast_is_told(
    stage: Stage, ending: str, expected: str
) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    consumers = [desk.consumer(group, name) for name in ("one", "two")]
    (result,) = desk.produce(make.draft("x"))
    for consumer in consumers:
        desk.nack(group, desk.receive(group, 1, consumer), BURY)
    letter_lookup = desk.deps.letter_lookup
    desk.deps.dead_letters.redrive(desk.topic, group, letter_lookup.find(desk.topic, group, result.id))
    if ending != "none":
        messages = desk.receive(group, 1, consumers[0])
        desk.nack(group, messages, BURY) if ending == "dead" else desk.ack(group, messages)
    assert letter_lookup.outcome_of_redrive(desk.topic, group, result.id) == RedriveOutcome[expected]


def test_letters_that_stand_side_by_side_come_in_the_order_they_were_asked_for(stage: Stage) -> None:
    table = Table(stage, *make.drafts(4))
    ids = [table.ids[2], table.ids[0], table.ids[1]]
    letters = table.letter_lookup.letters_of(table.topic, table.group, ids)
    assert [letter.message.id for letter in letters] == ids


def test_letters_of_delayed_messages_are_found_among_the_groups_letters_not_one_by_one_in_the_log(
    stage: Stage,
) -> None:
    table = Table(stage, *make.drafts(MANY))
    ids = delayed_and_buried(table, 40)
    letter_lookup, calls = counted(stage)
    letters = letter_lookup.letters_of(table.topic, table.group, [ids[1], table.ids[0], *ids])
    assert [letter.message.id for letter in letters] == [ids[1], table.ids[0], ids[0], *ids[2:]]
    assert calls() == {"dead": 3, "letters_between": 2}
    assert table.redrive(*letters) == 41
    assert letter_lookup.letters_of(table.topic, table.group, ids) == []
    assert calls() == {"dead": 3}, "of what is no letter any more, the log tells nothing"


def test_letters_of_few_delayed_messages_are_found_behind_very_many_however_slow(stage: Stage) -> None:
    table = Table(stage, *make.drafts(1_000))
    (id,) = delayed_and_buried(table, 1)
    letter_lookup, calls = counted(stage, slow=True)
    letters = letter_lookup.letters_of(table.topic, table.group, [id, table.ids[7]])
    assert [letter.message.id for letter in letters] == [id, table.ids[7]]
    assert "dead" not in calls()


def test_who_asks_for_more_delayed_messages_than_there_is_time_for_is_told(stage: Stage) -> None:
    table = Table(stage, *make.drafts(1_000))
    ids = delayed_and_buried(table, 11)
    slow, _ = counted(stage, slow=True)
    with pytest.raises(Unavailable, match="fewer in one call"):
        slow.letters_of(table.topic, table.group, ids)
    found = [
        letter.message.id
        for some in (ids[:6], ids[6:])
        for letter in counted(stage)[0].letters_of(table.topic, table.group, some)
    ]
    assert found == ids


def delayed_and_buried(table: Table, count: int) -> list[str]:
    """Ids of messages that were delayed and then buried, each with a row of its own."""
    now_ms = table.desk.stage.clock.now_ms()
    drafts = [make.draft(n, due_ms=now_ms + (1 + n) * SECOND_MS) for n in range(count)]
    results = table.desk.produce(*drafts)
    for _ in results:
        table.desk.stage.clock.advance(SECOND_MS)
        table.bury()
    return [result.id for result in results]


def counted(stage: Stage, *, slow: bool = False) -> tuple[LetterLookup, Callable[[], Counter[str]]]:
    """That of a further process; and what was asked of its store since the last look."""
    names = ("log", "records", "timers")
    ports: dict[str, Any] = {name: Counted(getattr(stage.adapters, name)) for name in names}
    clock = Hasty() if slow else stage.clock

    def calls() -> Counter[str]:
        total = sum((port.calls for port in ports.values()), Counter[str]())
        for port in ports.values():
            port.calls.clear()
        return total

    letter_lookup = Deps(replace(stage.adapters, clock=clock, **ports)).letter_lookup
    calls()
    return letter_lookup, calls


def test_what_died_again_after_it_was_sent_again_has_failed(stage: Stage) -> None:
    table = Table(stage, make.draft("x"))

    def outcome() -> RedriveOutcome:
        return table.letter_lookup.outcome_of_redrive(table.topic, table.group, table.ids[0])

    table.redrive()
    assert outcome() is RedriveOutcome.PENDING
    (claimed_message,) = table.desk.receive(table.group)
    table.desk.nack(table.group, [claimed_message], Nack(delay_ms=SECOND_MS))
    assert outcome() is RedriveOutcome.FAILED
    stage.clock.advance(SECOND_MS)
    table.desk.ack(table.group, table.desk.receive(table.group))
    assert outcome() is RedriveOutcome.SUCCEEDED


def test_what_was_deleted_for_one_of_a_broadcast_is_gone_though_another_has_it(stage: Stage) -> None:
    desk = Desk.at(stage)
    group = desk.group(mode="broadcast")
    lucky, unlucky = desk.consumer(group, "lucky"), desk.consumer(group, "unlucky")
    (result,) = desk.produce(make.draft("x"))
    desk.nack(group, desk.receive(group, 1, unlucky), BURY)
    dead_letters = desk.deps.dead_letters
    (letter,) = desk.deps.letter_lookup.find(desk.topic, group, result.id)
    dead_letters.discard(desk.topic, group, letter)
    desk.ack(group, desk.receive(group, 1, lucky))
    with pytest.raises(Conflict) as refusal:
        dead_letters.retry_now(desk.topic, group, result.id)
    assert refusal.value.code == "DEAD_LETTER_GONE"


def test_a_process_that_saw_a_message_before_it_failed_tries_it_now(stage: Stage) -> None:
    desk = Desk.at(stage, mode="serial")
    group = desk.group()
    (result,) = desk.produce(make.draft("x", ordering_key="k"))
    beside = Deps(stage.another())
    beside.states.last(cursor_key(desk.topic, group, 0))
    desk.nack(group, desk.receive(group), Nack(delay_ms=60 * SECOND_MS))
    beside.dead_letters.retry_now(desk.topic, group, result.id)
    (claimed_message,) = beside.receiver.receive(desk.topic, group, None, 1, 0, 30)
    assert claimed_message.message.id == result.id


@given(
    st.sampled_from(("queue", "serial")),
    st.lists(
        st.sampled_from(("take", "nack", "bury", "give back", "redrive", "wait", "wait long")), max_size=8
    ),
)
@settings(max_examples=60)
def test_what_is_shown_as_retrying_or_dead_comes_at_once_when_it_is_retried_now(
    mode: str, deeds: list[str]
) -> None:
    desk = Desk.at(memory_stage(), mode=mode)
    group = desk.group()
    (result,) = desk.produce(make.draft("x"))
    for deed in deeds:
        _do(desk, group, deed)
    message = desk.deps.lookup.message(desk.topic, result.id)
    status = desk.deps.statuses.deliveries(desk.topic, message)[group.name].status
    if status in (Status.RETRYING, Status.DEAD):
        desk.deps.dead_letters.retry_now(desk.topic, group, result.id)
        assert [each.message.id for each in desk.receive(group)] == [result.id]
    elif status is not Status.NEW:  # what was given back unsent is NEW, and its pause may end now
        with pytest.raises(Conflict, match="neither RETRYING nor DEAD"):
            desk.deps.dead_letters.retry_now(desk.topic, group, result.id)


def _do(desk: Desk, group: Group, deed: str) -> None:
    if deed.startswith("wait"):
        desk.stage.clock.advance((3_600 if deed == "wait long" else 20) * SECOND_MS)
    elif deed == "redrive":
        desk.deps.dead_letters.redrive_matching(desk.topic, group, ALL, 1)
    elif messages := desk.receive(group, lease=30):
        later = SettleDecision(Disposition.RELEASED, desk.stage.clock.now_ms() + 60 * SECOND_MS)
        if deed == "give back":
            receipts = [each.receipt for each in messages]
            desk.deps.settler.settle(desk.topic, group, receipts, lambda *_: later)
        elif deed != "take":
            desk.nack(group, messages, BURY if deed == "bury" else Nack(delay_ms=60 * SECOND_MS))
