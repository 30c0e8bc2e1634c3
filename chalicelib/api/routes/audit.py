"""The audit trail."""

from __future__ import annotations

from collections.abc import Mapping

from ...domain.limits import AUDIT_DAYS, MAX_AUDIT_LOOKS
from ...domain.times import DAY_MS
from ...domain.topic import Scope
from ...services.inspect.audit_list import AuditFilter, newest_first
from .. import list_filters, list_pages, parse
from ..calls import Context, Reach, Response, call
from ..http import check_name
from ..responses import audit
from ..responses.audit import AuditView
from ..responses.common import Page, page

_FILTERS = ("topic", "token", "from", "to")


@call(
    "GET",
    "/v1/audit",
    scopes=(Scope.ADMIN,),
    query=(*_FILTERS, "limit", "page_token"),
    reach=Reach.SERVICE,
)
def list_audit(context: Context) -> Response[Page[AuditView]]:
    """Changes of the last 90 days with the token that made them, the newest first.

    `token` is a token's id. A page may be short or empty although there is a next one: filters read 1,000
    entries for each page."""
    selection = filter_of(context.query, context.deps.adapters.clock.now_ms())
    purpose = list_filters.purpose("audit", [], context.query, _FILTERS)
    before, limit = list_pages.page_start(context, purpose), list_pages.limit(context.query)
    trail = context.deps.adapters.audit
    entries, next_start = newest_first(
        trail, selection, before, limit, may_go_on=lambda looks: looks < MAX_AUDIT_LOOKS
    )
    return Response(page(context, purpose, [audit.view(entry) for entry in entries], next_start))


def filter_of(query: Mapping[str, str], now_ms: int) -> AuditFilter:
    """The entries that a query asks for. Raises Malformed."""
    if "topic" in query:
        check_name("topic", query["topic"])
    from_ms = parse.time_ms(query["from"], "from") if "from" in query else 0
    to_ms = parse.time_ms(query["to"], "to") if "to" in query else now_ms + 1
    return AuditFilter(
        max(from_ms, now_ms - AUDIT_DAYS * DAY_MS),
        min(to_ms, now_ms + 1),
        query.get("topic"),
        query.get("token"),
    )
