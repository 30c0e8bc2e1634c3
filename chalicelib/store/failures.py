"""AWS error code → our error. What DynamoDB refuses on purpose (a condition) is a value for the caller."""

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
    *CONFLICTS,
}


class ConditionFailed(Exception):
    """A conditional write found its condition not met; `item` is what stands there (None: nothing).

    `retried` says that the SDK sent the request more than once: the refusal may be of our own success.
    """

    def __init__(self, item: dict[str, Any] | None, retried: bool) -> None:
        super().__init__("condition failed")
        self.item = item
        self.retried = retried


class Cancelled(Exception):
    """A transaction was cancelled; per action the item that stood in its way (None: not this action)."""

    def __init__(self, items: list[dict[str, Any] | None], retried: bool) -> None:
        super().__init__("transaction cancelled")
        self.items = items
        self.retried = retried


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def translate(error: ClientError | BotoCoreError) -> HeadraceError | ConditionFailed | Cancelled | Exception:
    """The error to raise in the place of one of botocore's. An unexpected one stays as it is."""
    if isinstance(error, BotoCoreError):
        return unavailable()
    response: dict[str, Any] = dict(error.response)
    code = code_of(error)
    retried = error.response.get("ResponseMetadata", {}).get("RetryAttempts", 0) > 0
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(response.get("Item"), retried)
    if code == "TransactionCanceledException":
        return _cancelled(error, retried)
    return unavailable() if code in _TRANSIENT else error


def _cancelled(error: ClientError, retried: bool) -> Exception:
    reasons: list[dict[str, Any]] = [dict(r) for r in error.response.get("CancellationReasons", [])]
    if any(r.get("Code") == "TransactionConflict" for r in reasons):
        return unavailable()
    if not any(r.get("Code") == "ConditionalCheckFailed" for r in reasons):
        return unavailable()
    failed = [r.get("Item", {}) if r.get("Code") == "ConditionalCheckFailed" else None for r in reasons]
    return Cancelled(failed, retried)


def is_conflict(error: ClientError) -> bool:
    """Did another transaction stand in the way? Certainly nothing happened, and trying again will do."""
    if code_of(error) in CONFLICTS:
        return True
    reasons = error.response.get("CancellationReasons", [])
    return any(r.get("Code") == "TransactionConflict" for r in reasons)
