"""Log lines and metrics: one JSON object each on standard output, with ids and codes, never bodies, headers or tokens.

A metric is a log line in CloudWatch's embedded format (docs/adr/0013): it costs no call.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from .domain.errors import Unavailable, Unreadable

NAMESPACE = "Headrace"
# Every metric there is.
UNITS = {
    "Accepted": "Count",  # messages stored, by any way in
    "Delivered": "Count",  # deliveries that ended in SUCCESS
    "Failed": "Count",  # attempts that did not, as their consumers reported
    "Dead": "Count",  # deliveries that became dead letters
    "Undecodable": "Count",  # dead letters of what cannot be read, and unreadable rows that were skipped
    "Stale": "Count",  # settlements of pushes that came after their lease
    "Moved": "Count",  # delayed messages and retries that came to their shards
    "DelayLateness": "Milliseconds",  # the greatest of a run, behind the due time
    "Checks": "Count",  # producers asked about transactions
    "Forgotten": "Count",  # shards with work that only the sweep found
    "Reassigned": "Count",  # groups whose shards changed hands on the schedule
    "Checkpoints": "Count",  # tails of quiet shards written down
    "LogBehind": "Count",  # cursors above the end of their log, each minute
    "Findings": "Count",  # what the daily check found that does not fit together
    "Kept": "Count",  # messages that only stay in the log because the archive lacks them
    "Backlog": "Count",  # unsettled messages for the group furthest behind
    "OldestAge": "Seconds",  # of the oldest that any group owes
    "BacklogOverAlarm": "Count",  # topics with a larger backlog than their alarm allows
    "Attention": "Count",  # states in which work waits for a person
    "Troubles": "Count",  # topics that a job skipped, because its visit failed
    "RoundAge": "Milliseconds",  # since a job that goes round all topics was at the end of its list
    "Unfinished": "Count",  # runs that time ended
    "Unavailable": "Count",  # requests answered with 503
}


@cache
def _logger() -> Any:
    from aws_lambda_powertools import Logger  # late: a cold start that logs nothing need not pay for it

    return Logger(service="Headrace")  # Chalice logs as "headrace"


def failed(error: BaseException, request_id: str, call: str, traceparent: str | None = None) -> None:
    """A request that ended in 503: what failed below, and for which call; or that it met a bug of ours."""
    ids = _ids(request_id=request_id, call=call, traceparent=traceparent)
    is_known = isinstance(error, Unavailable)
    log = _logger().warning if is_known else _logger().error
    log("unavailable" if is_known else "unexpected", **ids, exc_info=error)


def stuck(place: str, error: BaseException) -> None:
    """A bug of ours that keeps work where it is; what else there is to do goes on."""
    _logger().error("stuck", place=place, exc_info=error)


def report(job: str, counts: Mapping[str, Any]) -> None:
    """What one run of a timed job did."""
    _logger().info(job, **counts)


def event(name: str, **ids: Any) -> None:
    """Something that a person may want to find again, by its ids."""
    _logger().warning(name, **_ids(**ids))


def unreadable(stage: str, error: Unreadable) -> None:
    """An unreadable row that a list or a job has skipped."""
    event("unreadable", table=error.table, key=error.key)
    metrics(stage, {"Undecodable": 1})


def _ids(**ids: Any) -> dict[str, Any]:
    return {name: value for name, value in ids.items() if value is not None}


def count(stage: str, counters: Any, counts: Mapping[str, float], **caller: str) -> None:
    """What happened to messages since the last call, and some counts more, as metrics and log lines."""
    metrics(stage, {**counts, **counters.take()}, **caller)
    for (topic, group), values in counters.take_of_groups().items():
        metrics(stage, values, topic, group)
    for name, place in counters.events():
        event(name, **place)


def metrics(
    stage: str, values: Mapping[str, float], topic: str | None = None, group: str | None = None, **caller: str
) -> None:
    """Send the metrics of a stage, or of one of its topics or groups. Each metric of each costs money, so only topics
    with an alarm and groups with `metrics` have some. A stage without a name sends none. What is known of the caller is
    in the log line alone."""
    if not stage or not values:
        return
    from aws_lambda_powertools.metrics import EphemeralMetrics  # late, as the logger

    line = EphemeralMetrics(namespace=NAMESPACE, service=stage)
    if topic is not None:
        line.add_dimension("topic", topic)
    if group is not None:
        line.add_dimension("group", group)
    for name, text in caller.items():
        line.add_metadata(name, text)
    for name, value in values.items():
        line.add_metric(name, UNITS[name], value)
    line.flush_metrics()
