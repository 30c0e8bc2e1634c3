"""The DynamoDB tables, as described in `chalicelib/store/layout.py`; a test compares the two."""

from __future__ import annotations

from typing import Any

from . import names
from .resources import retained

_KEYS: dict[str, dict[str, str]] = {
    "log": {"s": "S", "o": "N"},
    "cursors": {"c": "S", "s": "S"},
    "records": {"g": "S", "k": "S"},
    "timers": {"f": "S", "t": "S"},
    "transactions": {"t": "S"},
    "traces": {"k": "S", "o": "S"},
    "dedup": {"d": "S"},
    "keys": {"k": "S", "o": "S"},
    "rates": {"r": "S"},
    "rounds": {"r": "S", "k": "S"},
    "audit": {"d": "S", "k": "S"},
    "control": {"pk": "S", "sk": "S"},
}
_STREAMS = {"log": "NEW_IMAGE", "traces": "NEW_IMAGE"}
_INDEXES = {"transactions": ("by-state", {"g": "S", "o": "S"}, "eqazkcibwuldhf")}
_EXPIRES = {"cursors": "z"}  # by this attribute; other tables by x


def tables(prefix: str) -> dict[str, Any]:
    """All tables, by logical id. They and what they hold outlive the stack."""
    return {table_id(noun): _table(prefix, noun) for noun in names.TABLES}


def streams() -> dict[str, Any]:
    """The ARN of each table's stream, by noun."""
    return {noun: {"Fn::GetAtt": [table_id(noun), "StreamArn"]} for noun in _STREAMS}


def table_id(noun: str) -> str:
    return f"{names.logical(noun)}Table"


def _table(prefix: str, noun: str) -> dict[str, Any]:
    keys = _KEYS[noun]
    properties: dict[str, Any] = {
        "TableName": names.table(prefix, noun),
        "BillingMode": "PAY_PER_REQUEST",
        "KeySchema": _schema(keys),
        "AttributeDefinitions": _attributes(keys),
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "DeletionProtectionEnabled": True,
        "TimeToLiveSpecification": {"AttributeName": _EXPIRES.get(noun, "x"), "Enabled": True},
    }
    if noun in _STREAMS:
        properties["StreamSpecification"] = {"StreamViewType": _STREAMS[noun]}
    if noun in _INDEXES:
        index, index_keys, other_attributes = _INDEXES[noun]
        properties["AttributeDefinitions"] += _attributes(index_keys)
        properties["GlobalSecondaryIndexes"] = [
            {
                "IndexName": index,
                "KeySchema": _schema(index_keys),
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": list(other_attributes)},
            }
        ]
    return retained("AWS::DynamoDB::Table", properties)


def _schema(keys: dict[str, str]) -> list[dict[str, str]]:
    kinds = ("HASH", "RANGE")
    return [{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, kinds, strict=False)]


def _attributes(keys: dict[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": key, "AttributeType": type_} for key, type_ in keys.items()]
