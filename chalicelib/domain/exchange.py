"""One request to a subscriber and what came back, to be looked at by people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .call_result import CallResult

MOST_SHOWN_BYTES = 1_024


@dataclass(kw_only=True, frozen=True, slots=True)
class Exchange:
    """A `POST` to a URL (without headers: an event for the function of this name), as it was sent, and its result.

    `answer_headers` and the beginning of the answer's body are the subscriber's own; both are empty if there was no
    answer, and the result says why. `answer_bytes` is how long the whole body was.
    """

    url: str
    headers: Mapping[str, str]
    body: bytes
    result: CallResult
    answer_headers: Mapping[str, str]
    answer_body: bytes = b""
    answer_bytes: int = 0
