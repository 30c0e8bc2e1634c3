"""Log lines: one JSON object each, with ids and codes, never bodies, headers or tokens."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def _logger() -> Any:
    from aws_lambda_powertools import Logger  # late: a cold start that logs nothing need not pay for it

    return Logger(service="Headrace")  # Chalice logs as "headrace"


def unavailable(error: BaseException, request_id: str, call: str) -> None:
    """A request that ended in 503: what failed below, and for which call."""
    _logger().warning("unavailable", request_id=request_id, call=call, exc_info=error)


def unexpected(error: BaseException, request_id: str, call: str) -> None:
    """A request that met a bug of ours."""
    _logger().error("unexpected", request_id=request_id, call=call, exc_info=error)


def report(job: str, counts: dict[str, Any]) -> None:
    """What one run of a timed job did."""
    _logger().info(job, **counts)
