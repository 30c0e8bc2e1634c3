"""The filters of a list, as a query names them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..domain.limits import MAX_KEY_CHARS
from ..domain.message import DeadReason
from . import list_pages, parse
from .http import invalid
from .requests import DeadFilter

if TYPE_CHECKING:
    from ..services.inspect.filters import Filters
    from ..services.inspect.letter_lookup import DeadLetterFilter

LETTER_FILTERS: tuple[str, ...] = DeadFilter.__struct_fields__
"""The filters of a list of dead letters, and of a redrive."""
_REASONS = tuple(DeadReason)


def purpose(kind: str, names: Sequence[str], query: Mapping[str, str], filter_names: Sequence[str]) -> str:
    """What the page tokens of a list are for: this kind of list, of what has these names, with these filters. A token
    of another list is refused."""
    return f"{kind}:" + json.dumps([*names, {name: query[name] for name in filter_names if name in query}])


def of_query(query: Mapping[str, str]) -> Filters:
    """The filters that any list of messages takes. Raises Malformed. Whether the topic has the shard is said by
    `list_pages.topic_and_shard`."""
    from ..services.inspect.filters import Filters

    times = {name: parse.time_ms(query[name], name) for name in ("from", "to") if name in query}
    return Filters(
        tag=query.get("tag"),
        shard=list_pages.shard(query),
        from_ms=times.get("from"),
        to_ms=times.get("to"),
    )


def letter_filter(fields: Mapping[str, str], at: str = "") -> DeadLetterFilter:
    """Which dead letters these fields (of a query, or at a path in a body) mean. Raises Malformed."""
    from ..services.inspect.letter_lookup import DeadLetterFilter

    values: dict[str, Any] = {name: fields[name] for name in LETTER_FILTERS if name in fields}
    if "reason" in values and values["reason"] not in _REASONS:
        raise invalid(f"{at}reason", f"must be one of {', '.join(_REASONS)}")
    if "since" in values:
        values["since_ms"] = parse.time_ms(values.pop("since"), f"{at}since")
    # Raises for a filter that it does not have: left out, a redrive would take all letters.
    return DeadLetterFilter(**values)


def key(query: Mapping[str, str]) -> str | None:
    """The key that the messages are to have. Raises Malformed."""
    return bounded_text(query, "key", MAX_KEY_CHARS)


def bounded_text(query: Mapping[str, str], name: str, most: int) -> str | None:
    """The text of this name, of 1 to `most` characters; None where the query has none. Raises Malformed."""
    text = query.get(name)
    if text is not None and not 1 <= len(text) <= most:
        raise invalid(name, f"must have 1 to {most} characters")
    return text
