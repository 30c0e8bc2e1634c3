"""The W3C trace context of a request: its messages belong to the same trace, and so do its log lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ..domain.limits import MAX_HEADERS
from ..domain.message import TRACEPARENT, Draft, traceparent

_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


def of_request(headers: Mapping[str, str]) -> str | None:
    """The request's `traceparent`; None where there is none, or it is malformed."""
    parent = headers.get(TRACEPARENT)
    return parent if parent is not None and _FORM.fullmatch(parent) else None


def with_traceparent(draft: Draft, headers: Mapping[str, str]) -> Draft:
    """The draft as part of the request's trace, unless it names one itself."""
    parent = of_request(headers)
    if parent is None or traceparent(draft) is not None or len(draft.headers) >= MAX_HEADERS:
        return draft
    return replace(draft, headers={**draft.headers, TRACEPARENT: parent})
