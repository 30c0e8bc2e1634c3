"""AWS error code → our error. A refused condition is an expected outcome: a value for the caller."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ..domain.errors import HeadraceError, unavailable

CONFLICTS = {"TransactionConflictException", "TransactionInProgressException"}
_TRANSIENT = {
    "InternalServerError",
    "InternalFailure",
    "ServiceUnavailable",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "LimitExceededException",
    "RequestTimeout",
    "SlowDown",  # S3's
    "InternalError",  # likewise
    *CONFLICTS,
}


class ConditionFailed(Exception):
    """A conditional write found its condition not met; `item` is the stored row (None: there is none).

    `retried` says that the request was sent more than once: the refusal may be of our own success.
    """

    def __init__(self, item: dict[str, Any] | None, retried: bool) -> None:
        super().__init__("condition failed")
        self.item = item
        self.retried = retried


class Cancelled(Exception):
    """A transaction was cancelled; per action the item that stood in its way (None: not this action).

    `retried` says that it was sent more than once, and not only by the SDK, whose repetitions bear one token and
    so are never refused because of our own success.
    """

    def __init__(self, items: list[dict[str, Any] | None], retried: bool) -> None:
        super().__init__("transaction cancelled")
        self.items = items
        self.retried = retried


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def was_resent(error: ClientError) -> bool:
    """Did the SDK send the request more than once?"""
    return int(error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) > 0


def translate(
    error: ClientError | BotoCoreError, is_resent: bool = False
) -> HeadraceError | ConditionFailed | Cancelled | Exception:
    """The error to raise in place of one of botocore's; unexpected ones stay as they are.

    `is_resent`: the same request was made before, and the SDK sent it more than once.
    """
    if isinstance(error, BotoCoreError):
        return unavailable()
    response: dict[str, Any] = dict(error.response)
    code = code_of(error)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(response.get("Item"), is_resent or was_resent(error))
    if code == "TransactionCanceledException":
        return _cancellation(error, is_resent)
    status: int = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    is_server_error = status >= 500  # a load balancer before AWS answers with a page, and none of AWS's codes
    return unavailable() if is_server_error or code in _TRANSIENT else error


def _cancellation(error: ClientError, is_resent: bool) -> Exception:
    reasons: list[dict[str, Any]] = [dict(r) for r in error.response.get("CancellationReasons", [])]
    if any(r.get("Code") == "TransactionConflict" for r in reasons):
        return unavailable()
    if not any(r.get("Code") == "ConditionalCheckFailed" for r in reasons):
        return unavailable()
    items = [r.get("Item", {}) if r.get("Code") == "ConditionalCheckFailed" else None for r in reasons]
    return Cancelled(items, is_resent)


def is_conflict(error: ClientError) -> bool:
    """Was it refused because of another transaction? Then nothing was written, and the request can be repeated."""
    if code_of(error) in CONFLICTS:
        return True
    reasons = error.response.get("CancellationReasons", [])
    return any(r.get("Code") == "TransactionConflict" for r in reasons)
