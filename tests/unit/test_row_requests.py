"""What ports ask of DynamoDB: when a row goes, and which reads may be of a moment ago.

The engine on this machine deletes when it likes, and its reads are never old: so neither shows there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import cursor_write
from chalicelib.domain.append import KeyEntry
from chalicelib.domain.audit import AuditEntry
from chalicelib.domain.cursor import Disposition, Result
from chalicelib.domain.mark import Mark
from chalicelib.domain.meter import HOURS, MINUTES, GroupReading, Reading
from chalicelib.domain.status import Status
from chalicelib.domain.times import DAY_SECONDS
from chalicelib.domain.token_bucket import Grant
from chalicelib.domain.transaction import TransactionState
from chalicelib.store.attributes import number, text
from chalicelib.store.audit import Audit
from chalicelib.store.control import Control
from chalicelib.store.cursors import Cursors
from chalicelib.store.dedup import Tickets
from chalicelib.store.dynamo import Dynamo
from chalicelib.store.keys import Keys
from chalicelib.store.marks import Marks, Readings, Rounds
from chalicelib.store.timers import Timers
from chalicelib.store.token_buckets import TokenBuckets
from chalicelib.store.traces import Traces
from chalicelib.store.transactions import Transactions
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.scripted import Scripted

NOW_S = START_MS // 1000
TOPIC = make.topic()
GROUP = make.group(TOPIC)
KEY = make.cursor_key()
ENTRY = AuditEntry(
    at_ms=START_MS,
    token_id="t",
    token_name="ci",
    method="PUT",
    path="/v1/topics",
    object="topic",
    result="OK",
    request_id="r",
)

Call = Callable[[Dynamo], Any]

WRITES: dict[str, tuple[Call, int]] = {
    "a mark, in a week": (lambda d: Marks(d).mark(Mark("t", START_MS)), NOW_S + 7 * DAY_SECONDS),
    "an entry of the audit trail": (lambda d: Audit(d).add(ENTRY), NOW_S + 90 * DAY_SECONDS),
    "a minute's reading": (
        lambda d: Readings(d).keep("u", MINUTES, Reading(START_MS, 1)),
        NOW_S + MINUTES.keep_ms // 1000,
    ),
    "an hour's reading": (
        lambda d: Readings(d).keep("u", HOURS, Reading(START_MS, 1)),
        NOW_S + HOURS.keep_ms // 1000,
    ),
    "a ticket": (lambda d: Tickets(d).use("t", START_MS, NOW_S + 9), NOW_S + 9),
    "an account of permits": (lambda d: TokenBuckets(d).take("a", 9, 1, START_MS), NOW_S + DAY_SECONDS),
    "a trace": (
        lambda d: Traces(d).write([make.trace(KEY, make.entries([1]), expires_s=NOW_S + 7)]),
        NOW_S + 7,
    ),
    "a key's entry": (
        lambda d: Keys(d).note([KeyEntry("u", "k", "m", START_MS, NOW_S + 5)]),
        NOW_S + 5,
    ),
}


@pytest.mark.parametrize(("write", "expires_s"), WRITES.values(), ids=WRITES)
def test_a_row_says_in_seconds_when_it_goes(write: Call, expires_s: int) -> None:
    client = Scripted()
    write(client.dynamo)
    operation, request = client.asked[-1]
    stored = request["Item"]["x"] if operation == "put_item" else request["ExpressionAttributeValues"][":x"]
    assert stored == {"N": str(expires_s)}


def test_a_ticket_is_no_dedup_id() -> None:
    """Both are in one table."""
    client = Scripted()
    assert Tickets(client.dynamo).use("t1", START_MS, NOW_S)
    [(_, request)] = client.asked
    assert request["Item"]["d"] == text("ticket#t1")
    assert not Tickets(Scripted(refused()).dynamo).use("t1", START_MS, NOW_S)


def refused(**item: Any) -> ClientError:
    answer: Any = {"Error": {"Code": "ConditionalCheckFailedException"}, "Item": item}
    return ClientError(answer, "PutItem")


def test_a_settlement_that_is_stored_stands_though_its_cursor_cannot_be_read_then() -> None:
    """With an error the caller would not wake the group for the retry, and a repetition would be refused."""
    before = make.leased_cursor(0, 2)
    after, _ = transitions.settle(before, "1.aaaa", [Result(0, Disposition.SUCCESS)])
    throttled = ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, "GetItem")
    client = Scripted({}, throttled)
    record = make.record(0, Status.SUCCESS)
    assert Cursors(client.dynamo).write(KEY, cursor_write.change(before, after), [record]) == after
    assert [operation for operation, _ in client.asked] == ["transact_write_items", "get_item"]


@pytest.mark.parametrize("races", [0, 1, 7, 8])
def test_who_loses_races_for_permits_goes_on_with_what_the_winner_left(races: int) -> None:
    """After eight the account is taken for empty: everybody else was faster."""
    now_ns = START_MS * 10**6
    losses = [refused(t=number(now_ns + n)) for n in range(1, races + 1)]
    client = Scripted({}, *losses)
    grant = TokenBuckets(client.dynamo).take("a", 10, 2, START_MS)
    assert grant == (Grant(2) if races < 8 else Grant(0, 1))
    writes = [request for name, request in client.asked if name == "update_item"]
    assert len(writes) == min(races + 1, 8)
    bounds = [request["ExpressionAttributeValues"] for request in writes]
    assert bounds[0][":t"] == number(0), "of an idle account its state; then whether there is enough"
    assert [bound[":l"] for bound in bounds[1:]] == [number(now_ns + 3 * 10**8)] * (len(writes) - 1)
    assert all(request["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD" for request in writes)


@pytest.mark.parametrize("groups", [1, 3, 9, 14])
def test_backlogs_by_shard_take_what_room_there_is_and_the_most_of_them_go_first(groups: int) -> None:
    """Half a kilobyte: so a day's rows are few read units."""
    meters = {f"g{n}": GroupReading(n, 9 * n, 0, (n,) * 16) for n in range(groups)}
    client = Scripted()
    Readings(client.dynamo).keep("u", HOURS, Reading(START_MS, 1, meters))
    [(_, request)] = client.asked
    item = request["Item"]
    assert sum(len(name) + len(value) for name, each in item.items() for value in each.values()) <= 512
    parts = msgspec.json.decode(item.get("b", text("[]"))["S"])
    names = [name for name, part in zip(meters, parts, strict=False) if part]
    assert names == [f"g{n}" for n in range(groups - len(names), groups) if n], "and none without a backlog"
    assert names or groups == 1


ITEMS: dict[str, Any] = {"Items": []}
CURRENT: dict[str, Call] = {
    "a topic": lambda d: Control(d).topic("t"),
    "a list of topics": lambda d: Control(d).topics(None, 9),
    "a group": lambda d: Control(d).group(TOPIC, "g"),
    "a topic's groups": lambda d: Control(d).groups(TOPIC),
    "a group's consumers": lambda d: Control(d).consumers(TOPIC, GROUP),
    "what is retired": lambda d: Control(d).retired_groups(TOPIC),
    "an assignment": lambda d: Control(d).assignment(TOPIC, GROUP),
    "a token": lambda d: Control(d).token("t"),
    "a list of tokens": lambda d: Control(d).tokens(None, 9),
    "a replay": lambda d: Control(d).replay("r"),
    "the signing keys": lambda d: Control(d).key_ring(),
    "a transaction": lambda d: Transactions(d).get("t"),
    "a bookmark": lambda d: Rounds(d).bookmark("job"),
    "a key's entries": lambda d: Keys(d).newest("u", "k", None, None, None, 9),
    "a timer": lambda d: Timers(d).find(START_MS, "t"),
    "a trace that is to be read so": lambda d: Traces(d).rows_covering(KEY, 5, consistent=True),
}
OF_A_MOMENT_AGO: dict[str, Call] = {
    "a topic that is cached anyway": lambda d: Control(d).topic("t", consistent=False),
    "topics that are shown": lambda d: Control(d).topics(None, 9, consistent=False),
    "a topic's groups with all that is theirs": lambda d: Control(d).staffed_groups(TOPIC),
    "the last uses of tokens": lambda d: Control(d).uses("a", "b"),
    "traces": lambda d: Traces(d).rows_covering(KEY, 5),
    "the newest traces": lambda d: list(Traces(d).newest(KEY, 5)),
    "marks": lambda d: list(Marks(d).since(0)),
    "the topics of each minute": lambda d: Marks(d).each_minute(),
    "the worst": lambda d: Marks(d).worst(9),
    "readings": lambda d: Readings(d).latest("u", HOURS, 9),
    "the audit trail": lambda d: list(Audit(d).entries(START_MS, START_MS + 1, None)),
    "an account of permits": lambda d: TokenBuckets(d).take("a", 9, 1, START_MS),
    "a list of transactions": lambda d: Transactions(d).of_state(TOPIC, TransactionState.UNDECIDED, None, 9),
}


def reads(call: Call) -> list[bool]:
    """Which of the reads of a call are consistent."""
    client = Scripted(ITEMS, ITEMS)
    call(client.dynamo)
    reads = (request for name, request in client.asked if name not in ("put_item", "update_item"))
    return [bool(request.get("ConsistentRead")) for request in reads]


@pytest.mark.parametrize("call", CURRENT.values(), ids=CURRENT)
def test_what_a_decision_depends_on_is_read_as_it_is_now(call: Call) -> None:
    assert reads(call) == [True]


@pytest.mark.parametrize("call", OF_A_MOMENT_AGO.values(), ids=OF_A_MOMENT_AGO)
def test_what_may_be_a_moment_old_costs_half(call: Call) -> None:
    assert reads(call) == [False]
