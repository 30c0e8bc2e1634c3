"""Used tickets on DynamoDB (layout: table `dedup`)."""

from __future__ import annotations

from .attributes import number, text
from .dynamo import Dynamo
from .layout import FORMAT

_TICKETS = "ticket#"  # no topic's uid begins so


class Tickets:
    """Which tickets were used: a write unit for each use."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._table = dynamo.tables.dedup

    def use(self, ticket_id: str, now_ms: int, until_s: int) -> bool:
        """Use a ticket, which is worth nothing after `until_s`. False: it was used before. A caller that
        lost the answer does not know which, and needs another ticket."""
        key = {"d": text(_TICKETS + ticket_id)}
        return self._dynamo.write_if(
            "put_item",
            TableName=self._table,
            Item={**key, "a": number(now_ms), "x": number(until_s), "v": {"N": FORMAT}},
            ConditionExpression="attribute_not_exists(d)",
        )
