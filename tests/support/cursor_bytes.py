"""How many bytes a stored cursor has."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.cursor import Cursor
from chalicelib.domain.topic import CursorKey
from chalicelib.store.cursors import _item
from chalicelib.store.layout import cursor_item_key


def bytes_of(key: CursorKey, cursor: Cursor) -> int:
    """The bytes that DynamoDB bills."""
    return sum(len(name) + _size(value) for name, value in {**cursor_item_key(key), **_item(cursor)}.items())


def _size(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "N":
        return len(content) // 2 + 2
    if kind == "S":
        return len(content)
    return 3 + sum(len(name) + _size(each) + 1 for name, each in content.items())
