"""What all answers are made of."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from ..durations import rfc3339

T = TypeVar("T")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as the service's JSON has them."""
        values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(plain(self)))
        return values


def plain(value: Any) -> Any:
    """Models and what they hold as what JSON is made of, as the service makes it: times with milliseconds, bodies
    with all digits."""
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {name: plain(getattr(value, field)) for name, field in names}
    return value


class Page(Model, Generic[T], frozen=True, kw_only=True):
    """One page of a list."""

    items: list[T]
    next_page_token: str | None = None
