"""The archive: its contents."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

from .. import list_pages
from ..calls import ANY, Context, Response, call
from ..http import invalid
from ..responses import archive
from ..responses.archive import ArchiveView

_DAYS = 14
_DAY = re.compile(r"(19[7-9]|2\d\d|[3-9]\d\d)\d-\d\d-\d\d\Z")  # fromisoformat reads much else, such as weeks


@call("GET", "/v1/archive", scopes=ANY, query=("to", "limit"))
def get_archive(context: Context) -> Response[ArchiveView]:
    """List the archived days: `limit` days (14; 31 at most) back from the day `to` (today), UTC."""
    from ...services.inspect.archive_days import MOST_DAYS

    limit = list_pages.limit({"limit": str(_DAYS), **context.query})
    if limit > MOST_DAYS:
        raise invalid("limit", f"must be a number from 1 to {MOST_DAYS}")
    last = day_of(context.query.get("to"), context.deps.adapters.clock.now_ms())
    return Response(archive.view(context.deps.archive_days.back_from(last, limit), context.caller))


def day_of(text: str | None, now_ms: int) -> date:
    """The day that a query names; today where it names none. Raises Malformed."""
    if text is None:
        return datetime.fromtimestamp(now_ms / 1000, UTC).date()
    try:
        day = date.fromisoformat(text) if _DAY.match(text) else None
    except ValueError:
        day = None
    if day is None:
        raise invalid("to", "must be a day like 2030-01-01")
    return day
