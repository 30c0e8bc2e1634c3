"""Whichever way a message goes, all that its producer said arrives with it, and it is found as long as it is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

import pytest

from chalicelib.domain.limits import BLOB_THRESHOLD_BYTES
from chalicelib.domain.message import Draft, Firing, Message, producer_text
from chalicelib.domain.times import DAY_MS, SECOND_MS
from chalicelib.domain.transaction import TransactionState
from chalicelib.services.consume.claimant import ClaimedMessage
from chalicelib.services.consume.settle import Nack
from chalicelib.services.inspect.lookup import Filters
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.services.produce.delayed import DelayedMessage
from chalicelib.services.produce.transactions import Checks
from tests.support.clock import START_MS
from tests.support.desk import Desk, require_stored
from tests.support.stages import Stage, embedded_stage

DUE_MS = START_MS + 60 * SECOND_MS
GIVEN: dict[str, Any] = {
    "body": b'{"n":1}',
    "is_json": True,
    "content_type": "application/json",
    "keys": ("order-1", "customer-2"),
    "tag": "paid",
    "tenant": "Müller & Co.",
    "ordering_key": "account-3",
    "priority": 0,
    "headers": {"Traceparent": "00-1-2-01", "x-shop": "Zürich"},
    "expires_ms": START_MS + 3 * DAY_MS,
    "sent_ms": START_MS - SECOND_MS,
    "max_attempts": 7,
    "ladder": (5, 50),
    "jitter": 0.5,
    "steps_from": "start",
    "redact": ("/n",),
    "firing": Firing("daily", START_MS - SECOND_MS, "before"),
    "job": "close/order-1",
    "callback_url": "https://api.example.com/done",
}
BYTES: dict[str, Any] = {"body": b"\x89PNG\r\n", "is_json": False, "content_type": "image/png"}
LARGE: dict[str, Any] = {"body": b'"%s"' % (b"x" * BLOB_THRESHOLD_BYTES)}
EDITED = {"x-shop": "Basel"}
NOT_CARRIED = {
    *("shard", "dedup_id", "dedup_until", "instead_of"),  # for the call that stores it
    *(
        "blob",
        "blob_bytes",
        "origin",
        "id",
        "due_ms",
        "dead_reason",
        "changed_ms",
        "cancelled",
        "target_group_uid",
    ),  # ours
    *("accepted_ms", "by", "acts"),  # what became of it: see test_statuses.py
}
BY = producer_text("token", "app/1", "127.0.0.1")


def draft(**settings: Any) -> Draft:
    return Draft(**{**GIVEN, **settings})


def test_a_message_of_these_tests_lacks_nothing() -> None:
    """A new field of drafts needs a line here that says whether it arrives."""
    assert {field.name for field in fields(Draft)} == GIVEN.keys() | NOT_CARRIED
    values = {field.name: field.default for field in fields(Draft) if field.default is not MISSING}
    same = {name for name in GIVEN if name in values and GIVEN[name] == values[name]}
    assert same == {"is_json", "content_type"}, "which BYTES have"


class Way:
    """A topic with a group of its own, and a message on its way to it."""

    def __init__(self, stage: Stage, **settings: Any) -> None:
        self.desk = Desk.at(stage, retention_days=2, max_body_bytes=1 << 20, **settings)
        self.group = self.desk.group(lease_seconds=30, callbacks=("api.example.com",))
        self.clock, self.deps, self.topic = stage.clock, self.desk.deps, self.desk.topic

    def produce(self, of: Draft) -> ProduceResult:
        return require_stored(self.deps.producer.produce(self.topic, [of], BY))[0]

    def waiting(self, message_id: str) -> DelayedMessage:
        message = self.deps.lookup.find(self.topic, message_id)
        assert isinstance(message, DelayedMessage)
        return message

    def receive(self) -> ClaimedMessage:
        (delivery,) = self.desk.receive(self.group)
        return delivery

    def give_back(self, how: Nack) -> None:
        assert self.desk.nack(self.group, [self.receive()], how) == [None]

    def wait(self, until_ms: int = DUE_MS) -> None:
        self.clock.advance(until_ms - self.clock.now_ms())


def at_once(way: Way, of: Draft) -> str:
    return way.produce(of).id


def delayed(way: Way, of: Draft) -> str:
    message_id = way.produce(of).id
    way.wait()
    return message_id


def postponed(way: Way, of: Draft) -> str:
    message_id = way.produce(of).id
    way.deps.delayed.amend(way.topic, way.waiting(message_id), {"due_ms": DUE_MS + DAY_MS}, "somebody")
    way.wait(DUE_MS + DAY_MS)
    return message_id


def edited_before_its_time(way: Way, of: Draft) -> str:
    message_id = way.produce(of).id
    way.deps.delayed.amend(way.topic, way.waiting(message_id), {"headers": EDITED}, "somebody")
    way.wait()
    return message_id


def edited_in_the_log(way: Way, of: Draft) -> str:
    result = way.produce(of)
    way.produce(draft(keys=(), tag="other", **BYTES))  # and its neighbour stays as it is
    message = way.deps.lookup.message(way.topic, result.id)
    way.deps.amender.amend(way.topic, message, {"headers": EDITED}, "somebody")
    return result.id


def committed(way: Way, of: Draft) -> str:
    transaction, _ = way.deps.transactor.prepare(way.topic, of, Checks(), by=BY)
    way.deps.transactor.decide(transaction, TransactionState.COMMITTED, by="somebody")
    return transaction.message_id


def committed_for_later(way: Way, of: Draft) -> str:
    message_id = committed(way, of)
    way.wait()
    return message_id


def tried_in_vain(way: Way, of: Draft) -> str:
    message_id = at_once(way, of)
    way.give_back(Nack(delay_ms=None))
    way.clock.advance(10 * SECOND_MS)
    return message_id


def tried_in_vain_for_days(way: Way, of: Draft) -> str:
    """Its retention is over before its retry's turn."""
    message_id = at_once(way, of)
    way.give_back(Nack(delay_ms=5 * DAY_MS // 2))
    way.clock.advance(5 * DAY_MS // 2)
    return message_id


def given_back(way: Way, of: Draft) -> str:
    message_id = at_once(way, of)
    way.give_back(Nack())
    return message_id


def lapsed(way: Way, of: Draft) -> str:
    message_id = at_once(way, of)
    way.receive()
    way.clock.advance(30 * SECOND_MS)
    return message_id


def redriven(way: Way, of: Draft) -> str:
    message_id = at_once(way, of)
    way.give_back(Nack(dead_letter=True))
    assert way.deps.dead_letters.redrive(
        way.topic, way.group, way.deps.letter_lookup.find(way.topic, way.group, message_id)
    )
    return message_id


def tried_now(way: Way, of: Draft) -> str:
    message_id = at_once(way, of)
    way.give_back(Nack(delay_ms=DAY_MS))
    way.deps.dead_letters.retry_now(way.topic, way.group, message_id)
    return message_id


WHOLE = {
    redriven,
    tried_in_vain_for_days,
}  # copies, while what was stored at once has its producer in its row
LATER = {delayed, postponed, edited_before_its_time, committed_for_later}
CHANGED: dict[Callable[[Way, Draft], str], dict[str, Any]] = {
    edited_before_its_time: {"headers": EDITED},
    edited_in_the_log: {"headers": EDITED},
    postponed: {"expires_ms": GIVEN["expires_ms"] + DAY_MS},
    redriven: {"expires_ms": None},
}
WAYS = [
    *(at_once, delayed, postponed, edited_before_its_time, edited_in_the_log, committed, committed_for_later),
    *(tried_in_vain, tried_in_vain_for_days, given_back, lapsed, redriven, tried_now),
]


def arrives(stage: Stage, how: Callable[[Way, Draft], str], **settings: Any) -> None:
    way = Way(stage)
    message_id = how(way, draft(**settings, due_ms=DUE_MS if how in LATER else None))
    claimed_message = next(each for each in way.desk.receive(way.group) if each.message.draft.tag == "paid")
    fields = {name: getattr(claimed_message.message.draft, name) for name in GIVEN}
    assert fields == {**GIVEN, **settings, **CHANGED.get(how, {})}
    assert claimed_message.message.draft.size == len(fields["body"])
    assert (claimed_message.message.id, claimed_message.message.first_accepted_ms) == (message_id, START_MS)
    message = claimed_message.message
    known = () if how in WHOLE else ("token", "app/1", "127.0.0.1")
    assert tuple(filter(None, (message.by, message.app, message.address))) == known


@pytest.mark.parametrize("how", WAYS, ids=lambda how: how.__name__)
def test_all_that_was_said_arrives(stage: Stage, how: Callable[[Way, Draft], str]) -> None:
    arrives(stage, how)


@pytest.mark.parametrize("settings", [BYTES, LARGE], ids=["bytes", "large"])
@pytest.mark.parametrize("how", WAYS, ids=lambda how: how.__name__)
def test_whatever_its_body_is(how: Callable[[Way, Draft], str], settings: dict[str, Any]) -> None:
    arrives(embedded_stage(), how, **settings)


@pytest.mark.parametrize(
    "how", [at_once, delayed, postponed, committed, committed_for_later], ids=lambda h: h.__name__
)
def test_its_keys_find_it_until_it_goes(stage: Stage, how: Callable[[Way, Draft], str]) -> None:
    way = Way(stage)
    message_id = how(way, draft(due_ms=DUE_MS if how in LATER else None, expires_ms=None))
    way.deps.mover.run_once()
    stage.clock.advance(2 * DAY_MS - 1)
    stage.drop_expired()
    for key in GIVEN["keys"]:
        page, page_token = way.deps.key_lookup.newest_first(way.topic, key, Filters(), 9, None)
        assert [each.id for each in page if isinstance(each, Message)] == [message_id]
        assert page_token is None


@pytest.mark.parametrize("due_ms", [None, DUE_MS])
def test_a_repeat_is_told_where_the_first_one_is(stage: Stage, due_ms: int | None) -> None:
    way = Way(stage)
    first = way.produce(draft(job=None, dedup_id="d", due_ms=due_ms))
    stage.clock.advance(SECOND_MS)
    again = way.produce(draft(job=None, dedup_id="d", due_ms=due_ms))
    assert again == ProduceResult(first.id, first.shard, first.offset, first.accepted_ms, True, due_ms)
    assert (first.accepted_ms, first.due_ms) == (START_MS, due_ms)
