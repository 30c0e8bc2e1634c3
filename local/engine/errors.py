"""What the engine refuses, as DynamoDB says it."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError


class Refused(Exception):
    """A request that is answered with an error; `extra` stands beside it in the answer."""

    def __init__(self, code: str, message: str, status: int = 400, **extra: Any) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.extra = code, message, status, extra

    def as_client_error(self, operation: str) -> ClientError:
        """What boto3 raises for it."""
        metadata = {"HTTPStatusCode": self.status, "RetryAttempts": 0}
        error = {"Code": self.code, "Message": self.message}
        response: Any = {"Error": error, "ResponseMetadata": metadata, **self.extra}
        return ClientError(response, operation)


def invalid(message: str) -> Refused:
    """A request that says nothing the engine can do."""
    return Refused("ValidationException", message)


def condition_failed(item: dict[str, Any] | None) -> Refused:
    """A condition does not hold; `item` is the row that was found, where the request asked for it."""
    found = {"Item": item} if item is not None else {}
    return Refused("ConditionalCheckFailedException", "The conditional request failed", 400, **found)


def no_table(message: str) -> Refused:
    return Refused("ResourceNotFoundException", message)


def out_of_order(why: str) -> Refused:
    """The disk is full, or the file is damaged: nothing of the request was done."""
    return Refused("InternalServerError", f"The engine cannot use its file: {why}", 500)


def unknown(what: str) -> NotImplementedError:
    """Something of DynamoDB that the embedded engine does not have."""
    return NotImplementedError(f"The embedded engine does not know {what}; `--engine dynamodb-local` has it.")
