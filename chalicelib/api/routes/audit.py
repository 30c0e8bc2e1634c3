"""The audit trail."""

from __future__ import annotations

from itertools import islice

from ...domain.audit import AuditEntry
from ...domain.limits import AUDIT_DAYS, MAX_AUDIT_LOOKS
from .. import parse
from ..http import Context, Response, call
from ..responses import audit
from ..responses.audit import AuditView
from ..responses.common import Page, page
from .tokens import unlimited

_DAY_MS = 86_400_000


@call("GET", "/v1/audit", scopes=("admin",), query=("topic", "token", "from", "to", "limit", "page_token"))
def list_audit(context: Context) -> Response[Page[AuditView]]:
    """Who changed what, the newest first, of the last 90 days.

    `token` is a token's id. A page may be short, and even empty, while there is a next one: filters look at 1,000
    entries for each."""
    unlimited(context)
    query, limit = context.query, parse.limit(context.query)
    now_ms = context.deps.adapters.clock.now_ms()
    start_ms = max(
        parse.time_ms(query["from"], "from") if "from" in query else 0, now_ms - AUDIT_DAYS * _DAY_MS
    )
    end_ms = min(parse.time_ms(query["to"], "to") if "to" in query else now_ms + 1, now_ms + 1)
    before = parse.page_start(context, "audit")
    entries: list[AuditEntry] = []
    looks, last = 0, None
    for last in islice(context.deps.adapters.audit.entries(start_ms, end_ms, before), MAX_AUDIT_LOOKS):
        looks += 1
        if query.get("topic") in (None, last.topic) and query.get("token") in (None, last.token_id):
            entries.append(last)
        if len(entries) == limit:
            break
    following = last.key if last and (len(entries) == limit or looks == MAX_AUDIT_LOOKS) else None
    return Response(page(context, "audit", [audit.view(entry) for entry in entries], following))
