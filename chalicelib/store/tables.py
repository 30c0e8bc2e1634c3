"""The tables themselves: are they there? And creating them where no template did it, locally and in tests."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from ..domain.errors import Unavailable
from .dynamo import Dynamo, code_of
from .layout import KEYS, Tables, definitions, expiring_tables


def create_missing(client: Any, tables: Tables) -> None:
    """Create the missing tables and wait until all can be used. Harmless to repeat."""
    for definition in definitions(tables):
        try:
            client.create_table(**definition)
        except ClientError as error:
            if code_of(error) != "ResourceInUseException":
                raise
        patience = {"Delay": 1, "MaxAttempts": 60}
        client.get_waiter("table_exists").wait(TableName=definition["TableName"], WaiterConfig=patience)
    for name, attribute in expiring_tables(tables).items():
        _expire_by(client, name, attribute)


def unreadable(dynamo: Dynamo) -> str | None:
    """The first table that cannot be read, without its prefix; None where all can. Half a read unit for each."""
    for table, keys in KEYS.items():
        no_row = {name: {"N": "0"} if kind == "N" else {"S": "~nobody"} for name, kind in keys.items()}
        try:
            dynamo.call("get_item", TableName=getattr(dynamo.tables, table), Key=no_row)
        except (Unavailable, ClientError):
            return table
    return None


def _expire_by(client: Any, table: str, attribute: str) -> None:
    status = client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]["TimeToLiveStatus"]
    if status != "DISABLED":
        return
    try:
        expiry = {"Enabled": True, "AttributeName": attribute}
        client.update_time_to_live(TableName=table, TimeToLiveSpecification=expiry)
    except ClientError as error:  # another process that was started at the same time has just done it
        if "already enabled" not in str(error):
            raise
