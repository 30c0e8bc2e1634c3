"""A client of DynamoDB with scripted answers, for what no engine can be made to do."""

from __future__ import annotations

from typing import Any

from chalicelib.store.dynamo import Dynamo
from chalicelib.store.layout import Tables


class Scripted:
    """Gives these answers, one after the other, then empty ones. It keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.pauses: list[int] = []
        self.tokens = iter("abc")

    def __getattr__(self, operation: str) -> Any:
        def answer(**request: Any) -> Any:
            self.asked.append((operation, request))
            reply = self.answers.pop(0) if self.answers else {}
            if isinstance(reply, Exception):
                raise reply
            return reply

        return answer

    @property
    def dynamo(self) -> Dynamo:
        return Dynamo(self, Tables("hr"), self.pauses.append, lambda: next(self.tokens))
