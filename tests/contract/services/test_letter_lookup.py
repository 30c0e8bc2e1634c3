"""How dead letters are found: page by page, with a filter, by ids; and what became of those that were sent again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from chalicelib.domain.errors import Conflict
from chalicelib.domain.record import FailureFilter
from chalicelib.domain.times import SECOND_MS
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.letter_lookup import LetterLookup, RedriveOutcome
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import Hasty
from tests.support.dead_letters import ALL, BURY, MANY, Table
from tests.support.desk import Desk
from tests.support.stages import Stage
from tests.support.troubled import Counted


@pytest.mark.parametrize("limit", [1, 7, MANY - 1, MANY, MANY + 1])
def test_pages_have_each_letter_once_and_are_full_but_for_the_last(stage: Stage, limit: int) -> None:
    table = Table(stage, *make.drafts(MANY))
    *full, last = table.pages(ALL, limit)
    assert [offset for page in (*full, last) for offset in page] == list(range(MANY))
    assert {len(page) for page in full} <= {limit}
    assert len(last) < limit


def test_a_page_that_may_not_go_on_ends_after_one_read_and_says_where(stage: Stage) -> None:
    table = Table(stage, *make.drafts(4))

    def page(selection: FailureFilter, after: str | None, may_go_on: bool) -> tuple[list[int], str | None]:
        letters, position = table.letter_lookup.page(
            table.topic, table.group, selection, after, 9, rows_per_read=3, may_go_on=lambda: may_go_on
        )
        return [letter.offset for letter in letters], position

    offsets, position = page(ALL, None, may_go_on=False)
    assert (offsets, page(ALL, position, may_go_on=False)) == ([0, 1, 2], ([3], None))
    assert page(FailureFilter(tag="none"), None, may_go_on=False) == ([], position)
    assert page(ALL, None, may_go_on=True) == ([0, 1, 2, 3], None)


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
    assert records.calls == {"letters_at": 1}


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
