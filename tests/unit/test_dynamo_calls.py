"""The handling of DynamoDB's answers: errors, repetitions, pages, batches, units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from chalicelib.domain.errors import Unavailable
from chalicelib.domain.transaction import Counted
from chalicelib.store import dynamo
from chalicelib.store.attributes import number, text
from chalicelib.store.dynamo import Cancelled, ConditionFailed, translate
from tests.support.scripted import Scripted

CONFLICT = {"Code": "TransactionConflict"}
REFUSED = {"Code": "ConditionalCheckFailed"}
FINE = {"Code": "None"}
GONE = EndpointConnectionError(endpoint_url="https://example.com")


def error(code: str, resends: int = 0, reasons: list[Any] | None = None, **more: Any) -> ClientError:
    """What the SDK raises, after it has sent the request `resends` more times."""
    answer: Any = {
        "Error": {"Code": code},
        "ResponseMetadata": {"RetryAttempts": resends},
        **({} if reasons is None else {"CancellationReasons": reasons}),
        **more,
    }
    return ClientError(answer, "PutItem")


def cancelled(*reasons: Mapping[str, Any], resends: int = 0) -> ClientError:
    return error("TransactionCanceledException", resends, list(reasons))


# Errors.


@pytest.mark.parametrize(
    "code",
    [
        "InternalServerError",
        "InternalFailure",
        "ServiceUnavailable",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "LimitExceededException",
        "RequestTimeout",
        "SlowDown",
        "InternalError",
        "TransactionConflictException",
        "TransactionInProgressException",
    ],
)
def test_what_passes_by_itself_can_be_tried_again(code: str) -> None:
    assert isinstance(translate(error(code)), Unavailable)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_page_of_a_load_balancer_is_no_answer_of_aws(status: int) -> None:
    """The SDK takes the status for a code then."""
    assert isinstance(
        translate(error(str(status), ResponseMetadata={"HTTPStatusCode": status, "RetryAttempts": 2})),
        Unavailable,
    )


def test_what_nobody_expects_stays_what_it_is() -> None:
    unexpected = error("ValidationException")
    assert translate(unexpected) is unexpected
    assert isinstance(translate(GONE), Unavailable)


@pytest.mark.parametrize(("sdk", "we", "is_retried"), [(0, False, False), (1, False, True), (0, True, True)])
def test_a_refusal_says_what_stands_there_and_whether_it_may_be_our_own(
    sdk: int, we: bool, is_retried: bool
) -> None:
    item = {"a": number(1)}
    refusal = translate(error("ConditionalCheckFailedException", sdk, Item=item), we)
    assert isinstance(refusal, ConditionFailed)
    assert (refusal.item, refusal.retried) == (item, is_retried)
    nothing = translate(error("ConditionalCheckFailedException"))
    assert isinstance(nothing, ConditionFailed)
    assert nothing.item is None


def test_a_cancelled_transaction_says_which_actions_were_refused_and_by_what() -> None:
    item = {"a": number(1)}
    refusal = translate(cancelled({**REFUSED, "Item": item}, FINE, REFUSED, resends=1), is_resent=True)
    assert isinstance(refusal, Cancelled)
    assert (refusal.items, refusal.retried) == ([item, None, {}], True)
    by_sdk = translate(cancelled(REFUSED, resends=1))
    assert isinstance(by_sdk, Cancelled)
    assert not by_sdk.retried, "the SDK's repetitions bear one token"


@pytest.mark.parametrize("reasons", [(CONFLICT,), (REFUSED, CONFLICT), (FINE, {"Code": "ThrottlingError"})])
def test_a_transaction_that_was_not_judged_can_be_tried_again(reasons: tuple[Any, ...]) -> None:
    assert isinstance(translate(cancelled(*reasons)), Unavailable)


# Calls.


@pytest.mark.parametrize("conflict", [error("TransactionConflictException"), cancelled(FINE, CONFLICT)])
def test_a_conflict_is_repeated_with_growing_pauses(conflict: ClientError) -> None:
    engine = Scripted(conflict, conflict, {"Item": {}})
    assert engine.dynamo.call("put_item", TableName="t") == {"Item": {}}
    assert engine.asked == [("put_item", {"TableName": "t"})] * 3
    assert engine.pauses == [1, 2]


def test_conflicts_that_do_not_end_can_be_tried_again_later() -> None:
    engine = Scripted(*[error("TransactionConflictException")] * 9)
    with pytest.raises(Unavailable):
        engine.dynamo.call("put_item")
    assert engine.pauses == [1, 2, 3, 4, 5, 6, 7]


def test_whoever_cannot_reach_it_is_told_to_try_again() -> None:
    with pytest.raises(Unavailable):
        Scripted(GONE).dynamo.call("put_item")


def test_all_repetitions_of_a_transaction_bear_one_token() -> None:
    engine = Scripted(cancelled(CONFLICT), {}, {})
    dynamo = engine.dynamo
    for _ in range(2):
        dynamo.call("transact_write_items", TransactItems=[])
    assert [request["ClientRequestToken"] for _, request in engine.asked] == ["a", "a", "b"]


@pytest.mark.parametrize("later", [0, 1])
def test_a_refusal_after_a_conflict_may_be_of_what_the_sdk_sent_before(later: int) -> None:
    """A call sent before any of the conflicts counts, even if later conflicts differ."""
    conflicts = error("TransactionConflictException", 1), error("TransactionConflictException", later)
    engine = Scripted(*conflicts, error("ConditionalCheckFailedException"))
    with pytest.raises(ConditionFailed) as refusal:
        engine.dynamo.call("put_item")
    assert refusal.value.retried


def test_a_refusal_after_conflicts_alone_is_of_somebody_else() -> None:
    engine = Scripted(error("TransactionConflictException"), error("ConditionalCheckFailedException"))
    with pytest.raises(ConditionFailed) as refusal:
        engine.dynamo.call("put_item")
    assert not refusal.value.retried


# Pages.

LAST = {"LastEvaluatedKey": {"k": text("a")}}


def test_a_query_reads_page_after_page_as_it_is_asked() -> None:
    engine = Scripted({"Items": [{"n": 1}, {"n": 2}], **LAST}, {"Items": [], **LAST}, {"Items": [{"n": 3}]})
    rows: Any = engine.dynamo.query(TableName="t")
    assert [next(rows)["n"], next(rows)["n"], len(engine.asked)] == [1, 2, 1]
    assert [row["n"] for row in rows] == [3]
    starts = [request.get("ExclusiveStartKey") for _, request in engine.asked]
    assert starts == [None, {"k": text("a")}, {"k": text("a")}]


@pytest.mark.parametrize(
    ("most", "counter", "pages"),
    [(None, Counted(9), 3), (10, Counted(9), 3), (9, Counted(9), 3), (7, Counted(7, whole=False), 2)],
)
def test_a_count_reads_no_more_pages_than_it_needs(most: int | None, counter: Counted, pages: int) -> None:
    engine = Scripted({"Count": 4, **LAST}, {"Count": 3, **LAST}, {"Count": 2})
    assert engine.dynamo.count(most, TableName="t") == counter
    assert len(engine.asked) == pages
    assert all(request["Select"] == "COUNT" for _, request in engine.asked)


# Batches.


def test_what_a_batch_leaves_is_sent_again_after_growing_pauses() -> None:
    items = [{"k": text(str(n))} for n in range(26)]
    rest = {"t": [{"PutRequest": {"Item": items[3]}}]}
    engine = Scripted({"UnprocessedItems": rest}, {"UnprocessedItems": rest}, {"UnprocessedItems": {}}, {})
    engine.dynamo.put("t", items)
    assert [len(request["RequestItems"]["t"]) for _, request in engine.asked] == [25, 1, 1, 1]
    assert engine.asked[1][1]["RequestItems"] == rest
    assert engine.pauses == [1, 2]


def test_a_batch_that_is_never_done_can_be_tried_again_later() -> None:
    rest: dict[str, Any] = {"t": [{"DeleteRequest": {"Key": {}}}]}
    engine = Scripted(*[{"UnprocessedItems": rest}] * 9)
    with pytest.raises(Unavailable):
        engine.dynamo.delete("t", [{"k": text("a")}, {"k": text("b")}])
    assert len(engine.asked) == 8


# Read units.


def test_units_are_counted_inside_the_block_only() -> None:
    def read(operation: str, answer: Any) -> dict[str, Any]:
        engine = Scripted(answer)
        engine.dynamo.call(operation)
        ((_, request),) = engine.asked
        return request

    units = {"ConsumedCapacity": {"CapacityUnits": 2.5}}
    with dynamo.count_units() as outer:
        assert read("query", units) == read("get_item", units) == {"ReturnConsumedCapacity": "TOTAL"}
        assert read("put_item", units) == {"ReturnConsumedCapacity": "TOTAL"}
        read("batch_write_item", {"ConsumedCapacity": 2 * [units["ConsumedCapacity"]]})
        with pytest.raises(Unavailable):
            read("query", GONE)
        with dynamo.count_units() as inner:
            read("query", {})
            read("query", {"ConsumedCapacity": {"CapacityUnits": 0.0}})
        read("query", units)
    assert read("query", units) == {}
    assert (outer.reads, inner.reads) == (7.5, 1.0)
    assert (outer.writes, inner.writes) == (7.5, 0.0)
