"""Used tickets on DynamoDB (layout: table `dedup`)."""

from __future__ import annotations

from .attributes import attributes
from .dynamo import TableAccess
from .layout import FORMAT

_TICKETS = "ticket#"  # no topic's uid begins so


class Tickets(TableAccess, table="dedup"):
    """Which tickets were used: a write unit for each use."""

    def use(self, ticket_id: str, now_ms: int, until_s: int) -> bool:
        """Use a ticket, which is worth nothing after `until_s`. False: it was used before. A caller that
        lost the answer does not know which, and needs another ticket."""
        return self._dynamo.write_if(
            "put_item",
            TableName=self._table,
            Item=attributes(d=_TICKETS + ticket_id, a=now_ms, x=until_s, v=int(FORMAT)),
            ConditionExpression="attribute_not_exists(d)",
        )
