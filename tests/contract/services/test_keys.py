"""Business keys: each stored message is found by each of its keys, newest first, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chalicelib.domain.append import KeyEntry, PutResult
from chalicelib.domain.errors import Unavailable, unavailable
from chalicelib.domain.limits import LOSSES_BEFORE_RESERVING
from chalicelib.domain.message import Message
from chalicelib.domain.request import Request
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.inspect.lookup import Filters, status_before_log
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.keys import Keys
from chalicelib.store.log import Log
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.clock import START_MS, ManualClock
from tests.support.desk import Desk, overtaken, require_stored
from tests.support.stages import Stage

EVERYTHING = Filters()


@pytest.fixture
def keys(stage: Stage) -> Keys:
    return stage.adapters.keys


def entry(topic_uid: str, key: str = "k", at_ms: int = START_MS, **settings: Any) -> KeyEntry:
    message_id = settings.pop("message_id", None) or make.uid("m")
    return KeyEntry(
        topic_uid, key, message_id, at_ms, settings.pop("expires_s", (START_MS + 7 * DAY_MS) // 1000)
    )


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


def found(desk: Desk, key: str, filters: Filters = EVERYTHING, limit: int = 32) -> list[str]:
    """The ids of all pages of a key's list."""
    ids: list[str] = []
    mark: str | None = None
    while True:
        page, mark = desk.deps.key_lookup.newest_first(desk.topic, key, filters, limit, mark)
        assert len(page) <= limit
        ids += [item.id for item in page if isinstance(item, Message)]
        if mark is None:
            return ids


@settings(max_examples=40)
@given(
    times=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    from_ms=st.none() | st.integers(-3, 12),
    to_ms=st.none() | st.integers(-3, 12),
    limit=st.integers(1, 5),
)
def test_pages_hold_what_lies_in_the_range_newest_first(
    keys: Keys, times: list[int], from_ms: int | None, to_ms: int | None, limit: int
) -> None:
    topic_uid = make.uid("t")
    entries = [entry(topic_uid, at_ms=at) for at in times]
    keys.note([*entries, entry(topic_uid, "k2", 5), entry(topic_uid + "x", "k", 5)])
    entries_read: list[KeyEntry] = []
    while page := keys.newest(
        topic_uid, "k", from_ms, to_ms, entries_read[-1].sort_key if entries_read else None, limit
    ):
        assert len(page) == min(limit, len(page))
        entries_read += page
    low, high = from_ms if from_ms is not None else -99, to_ms if to_ms is not None else 99
    inside = [e for e in entries if low <= e.accepted_ms <= high]
    assert entries_read == sorted(inside, key=lambda e: e.sort_key, reverse=True)


def test_a_message_is_found_by_each_of_its_keys_and_by_no_other(stage: Stage) -> None:
    desk = Desk.at(stage, shards=4)
    [first] = desk.produce(make.draft(1, keys=("a", "b", "a")))
    stage.clock.advance(1)
    [second] = desk.produce(make.draft(2, keys=("b", "c"), shard=3))
    desk.produce(make.draft(3))
    assert found(desk, "a") == [first.id]
    assert found(desk, "b") == [second.id, first.id]
    assert found(desk, "c") == [second.id]
    assert found(desk, "A") == found(desk, "") == []


def test_times_belong_to_the_range(stage: Stage) -> None:
    desk = Desk.at(stage)
    places = []
    for n in range(4):
        places += desk.produce(make.draft(n, keys=("k",)))
        stage.clock.advance(10)
    middle = Filters(from_ms=places[1].accepted_ms, to_ms=places[2].accepted_ms)
    assert found(desk, "k", middle) == [places[2].id, places[1].id]
    assert found(desk, "k", Filters(from_ms=places[2].accepted_ms, to_ms=places[1].accepted_ms)) == []


def test_a_writer_that_loses_races_leaves_entries_that_nobody_sees(stage: Stage) -> None:
    desk = Desk.at(stage)
    rival = desk.deps.producer
    log = overtaken(
        stage.another().log,
        lambda _: rival.produce(desk.topic, [make.draft("rival", keys=("r",))]),
        LOSSES_BEFORE_RESERVING,
    )
    late_results = require_stored(desk.producer(log).produce(desk.topic, make.drafts(3, keys=("k",))))
    entries = stage.adapters.keys.newest(desk.topic.uid, "k", None, None, None, 99)
    assert len(entries) == 3 * (LOSSES_BEFORE_RESERVING + 1)
    assert sorted(found(desk, "k", limit=1)) == sorted(p.id for p in late_results)
    assert len(found(desk, "r")) == LOSSES_BEFORE_RESERVING
    require_stored(desk.deps.producer.produce(desk.topic, [make.draft("reserved", keys=("r",))]))
    assert len(found(desk, "r")) == LOSSES_BEFORE_RESERVING + 1


class Spoilt:
    """A log or an index whose first writes fail, before they are done or after."""

    def __init__(self, inner: Any, *, after: bool, times: int = 9) -> None:
        self._inner = inner
        self._after = after
        self._left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, *args: Any) -> PutResult:
        return cast(PutResult, self._fail(self._inner.put, *args))

    def note(self, entries: Sequence[KeyEntry]) -> None:
        self._fail(self._inner.note, entries)

    def _fail(self, act: Any, *args: Any) -> object:
        self._left -= 1
        if self._left < 0:
            return act(*args)
        if self._after:
            act(*args)
        raise unavailable()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("port", ["log", "keys"])
def test_whatever_fails_what_is_stored_is_found(stage: Stage, port: str, after: bool) -> None:
    desk = Desk.at(stage)
    a = stage.another()
    log = cast(Log, Spoilt(a.log, after=after)) if port == "log" else a.log
    keys = cast(Keys, Spoilt(a.keys, after=after)) if port == "keys" else a.keys
    producer = Deps(replace(a, log=log, keys=keys)).producer
    assert {type(o) for o in producer.produce(desk.topic, make.drafts(2, keys=("k",)))} == {Unavailable}
    stored_messages = [row.message(0, row.first + i) for row in desk.rows() for i in range(row.count)]
    assert len(stored_messages) == (2 if (port, after) == ("log", True) else 0)
    assert sorted(found(desk, "k")) == sorted(m.id for m in stored_messages if m)


@pytest.mark.parametrize("after", [False, True])
def test_what_is_sent_again_is_found_once(stage: Stage, after: bool) -> None:
    """Both tries are for one offset, so both note their keys for one id."""
    desk = Desk.at(stage)
    a = stage.another()
    producer = Deps(replace(a, log=cast(Log, Spoilt(a.log, after=after, times=1)))).producer
    drafts = make.drafts(2, keys=("k",))
    outcomes = producer.produce(desk.topic, drafts, "", Request("shop-1"))
    assert {type(outcome) for outcome in outcomes} == {Unavailable}
    stage.clock.advance(10)
    places = require_stored(producer.produce(desk.topic, drafts, "", Request("shop-1", since_ms=START_MS)))
    assert len(stage.adapters.keys.newest(desk.topic.uid, "k", None, None, None, 99)) == 4
    assert sorted(found(desk, "k")) == sorted(place.id for place in places)


def test_what_waited_is_noted_once_and_found_by_the_id_that_it_has_had_since(stage: Stage) -> None:
    """A note costs a write unit for each key."""
    desk = Desk.at(stage)
    group = desk.group()
    (place,) = desk.produce(make.draft(keys=("k",), due_ms=stage.clock.now_ms() + 1_000))
    stage.clock.advance(1_000)
    (message,) = desk.receive(group)
    assert message.message.offset == 0
    assert found(desk, "k") == [place.id]
    assert len(stage.adapters.keys.newest(desk.topic.uid, "k", None, None, None, 99)) == 1


def test_a_batch_that_lost_its_race_is_found_by_the_right_keys(stage: Stage) -> None:
    """Its second try covers offsets that the first had noted for other messages of it."""
    desk = Desk.at(stage)
    rival = desk.deps.producer

    def happens(_: object) -> None:
        stage.clock.advance(1)
        rival.produce(desk.topic, make.drafts(1))

    log = overtaken(stage.another().log, happens)
    late_results = require_stored(
        desk.producer(log).produce(desk.topic, [make.draft(n, keys=(f"k{n}", "k")) for n in range(3)])
    )
    assert [found(desk, f"k{n}") for n in range(3)] == [[p.id] for p in late_results]
    assert sorted(found(desk, "k")) == sorted(p.id for p in late_results)


class Keyed:
    """Messages with one key, in every state that a message may be in before it is in the log."""

    def __init__(self, desk: Desk, clock: ManualClock) -> None:
        self._desk, self._deps, self._now_ms = desk, desk.deps, clock.now_ms

    def later(self, name: str) -> str:
        (result,) = self._desk.produce(make.draft(name, keys=("k",), due_ms=self._now_ms() + 60 * SECOND_MS))
        return result.id

    def postponed(self, name: str) -> str:
        message_id = self.later(name)
        due_ms = self._now_ms() + 40 * DAY_MS
        self._deps.delayed.amend(self._desk.topic, self._waiting(message_id), {"due_ms": due_ms})
        return message_id

    def cancelled(self, name: str) -> str:
        message_id = self.later(name)
        self._deps.delayed.cancel(self._desk.topic, self._waiting(message_id))
        return message_id

    def prepared(self, name: str, delay_ms: int = 0, decision: TransactionState | None = None) -> str:
        draft = make.draft(name, keys=("k",), due_ms=self._now_ms() + delay_ms if delay_ms else None)
        transaction, _ = self._deps.transactor.prepare(
            self._desk.topic, draft, Checks(), delay_from_commit=bool(delay_ms)
        )
        if decision:
            self._deps.transactor.decide(self._deps.transactor.find(transaction.id), decision)
        return self._deps.transactor.find(transaction.id).message_id

    def statuses(self) -> dict[str, str]:
        """What the key finds now, by message id."""
        page, mark = self._deps.key_lookup.newest_first(self._desk.topic, "k", Filters(), 100, None)
        assert mark is None
        messages = {m.id if isinstance(m, Message) else m.message.id: m for m in page}
        assert len(messages) == len(page), "each once"
        state_of = self._deps.lookup.state_by_id(self._desk.topic)
        return {
            id: state_of(id).status if isinstance(message, Message) else status_before_log(message)
            for id, message in messages.items()
        }

    def _waiting(self, message_id: str) -> DelayedMessage:
        message = self._deps.lookup.find(self._desk.topic, message_id)
        assert isinstance(message, DelayedMessage)
        return message


def test_a_key_finds_a_message_in_every_state(stage: Stage) -> None:
    desk = Desk.at(stage)
    keyed_desk = Keyed(desk, stage.clock)
    postponed_id = keyed_desk.postponed("postponed")
    expected = {
        keyed_desk.later("delayed"): "DELAYED",
        postponed_id: "DELAYED",
        keyed_desk.cancelled("cancelled"): "CANCELLED",
        keyed_desk.prepared("half"): "PREPARED",
        keyed_desk.prepared("slow", 5000): "PREPARED",
        keyed_desk.prepared("rolled back", decision=TransactionState.ROLLED_BACK): "CANCELLED",
        keyed_desk.prepared("committed", 70 * SECOND_MS, TransactionState.COMMITTED): "DELAYED",
        keyed_desk.prepared("done", decision=TransactionState.COMMITTED): "NEW",
    }
    (result,) = desk.produce(make.draft("new", keys=("k",)))
    expected[result.id] = "NEW"

    assert keyed_desk.statuses() == expected
    stage.clock.advance(71 * SECOND_MS)
    desk.deps.mover.run_once()
    assert keyed_desk.statuses() == {
        id: "NEW" if word == "DELAYED" and id != postponed_id else word for id, word in expected.items()
    }
    stage.clock.advance(9 * DAY_MS)  # longer than it is kept from when it was due at first
    stage.drop_expired()
    assert keyed_desk.statuses()[postponed_id] == "DELAYED"
