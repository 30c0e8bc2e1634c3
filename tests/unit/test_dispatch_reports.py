"""What a run of `deliver` says about itself."""

from __future__ import annotations

from chalicelib.domain.call_result import CallResult, Verdict
from chalicelib.services.push.run import DispatchReport, FailedAttempt
from tests.support import factories as make

CONSUMER = make.consumer(make.group(make.topic()), "shop")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_results_are_counted_one_by_one() -> None:
    report = DispatchReport(late=3, finished=False)
    results = [CallResult(Verdict.DONE), CallResult(Verdict.DONE), CallResult(Verdict.FAILED)]
    for _ in range(2):
        report.add(CONSUMER, [make.claimed_message(offset=n) for n in range(3)], results)
    assert report.as_dict() == {"DONE": 4, "FAILED": 2, "stale": 3, "finished": False}


def test_failed_attempts_are_told_with_their_ids() -> None:
    report = DispatchReport()
    draft = make.draft(headers={"traceparent": TRACEPARENT})
    claimed_message = make.claimed_message(4, 7, draft, shard=2, entry=5)
    for verdict in Verdict:
        report.add(CONSUMER, [claimed_message], [CallResult(verdict, f"was {verdict}")])
    assert [each.verdict for each in report.troubles] == ["FAILED", "REFUSED", "GONE", "UNDECODABLE"]
    assert report.troubles[0] == FailedAttempt(
        claimed_message.message.id, 2, 7, 4, "shop", "FAILED", "was FAILED", TRACEPARENT
    )


def test_of_many_failed_attempts_the_first_hundred_are_told() -> None:
    report = DispatchReport()
    failure = CallResult(Verdict.FAILED)
    report.add(CONSUMER, [make.claimed_message(offset=n) for n in range(130)], [failure] * 130)
    report.add(CONSUMER, [make.claimed_message()], [failure])
    assert [each.offset for each in report.troubles] == list(range(100))
    assert report.as_dict()["FAILED"] == 131
