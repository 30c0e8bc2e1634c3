"""Creating the tables where no template did it: locally and in tests."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from .failures import code_of
from .layout import Tables, definitions, expiring


def create_missing(client: Any, tables: Tables) -> None:
    """Create what is not there and wait until all can be used. Harmless to repeat."""
    for definition in definitions(tables):
        try:
            client.create_table(**definition)
        except ClientError as error:
            if code_of(error) != "ResourceInUseException":
                raise
        client.get_waiter("table_exists").wait(
            TableName=definition["TableName"], WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )
    for name in expiring(tables):
        _expire_by(client, name)


def _expire_by(client: Any, table: str) -> None:
    status = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]["TimeToLiveStatus"]
    if status == "DISABLED":
        client.update_time_to_live(
            TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "x"}
        )
