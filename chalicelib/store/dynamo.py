"""The low-level DynamoDB client with our errors: what a unit or a round trip counts for goes through here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from .failures import is_conflict, translate, was_resent
from .layout import Tables

_CONFLICT_TRIES = 8


class Dynamo:
    """A DynamoDB client and the stage's table names. Raises our errors, ConditionFailed or Cancelled."""

    def __init__(
        self, client: Any, tables: Tables, pause: Callable[[int], None], token: Callable[[], str]
    ) -> None:
        """`pause(n)` waits a little before the n-th repetition after a transaction conflict; `token()` names a
        transaction, so that all its repetitions are one."""
        self.client = client
        self.tables = tables
        self._pause = pause
        self._token = token

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """One request. Conflicts with another transaction are repeated here: botocore does not.

        An attempt whose answer was lost may have won and the SDK's next one met a conflict: then a refusal of our
        repetition may be of our own success.
        """
        if operation == "transact_write_items":
            request["ClientRequestToken"] = self._token()
        attempt = 0
        resent = False
        while True:
            attempt += 1
            try:
                answer: dict[str, Any] = getattr(self.client, operation)(**request)
                return answer
            except ClientError as error:
                if is_conflict(error) and attempt < _CONFLICT_TRIES:
                    resent = resent or was_resent(error)
                    self._pause(attempt)
                    continue
                raise translate(error, resent) from error
            except BotoCoreError as error:
                raise translate(error) from error
