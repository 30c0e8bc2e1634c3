"""Used tickets on DynamoDB (layout: table `dedup`)."""

from __future__ import annotations

from .attributes import number, text
from .dynamo import Dynamo
from .failures import ConditionFailed
from .layout import FORMAT

_TICKETS = "ticket#"  # no topic's uid begins so


class DynamoTickets:
    """ports.Tickets: a write unit for each use."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._table = dynamo.tables.dedup

    def use(self, ticket_id: str, now_ms: int, until_s: int) -> bool:
        try:
            self._dynamo.call(
                "put_item",
                TableName=self._table,
                Item={
                    "d": text(_TICKETS + ticket_id),
                    "a": number(now_ms),
                    "x": number(until_s),
                    "v": {"N": FORMAT},
                },
                ConditionExpression="attribute_not_exists(d)",
            )
        except ConditionFailed:
            return False
        return True
