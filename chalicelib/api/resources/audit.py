"""The audit trail."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypedDict

from ...domain.audit import AuditEntry
from ...domain.limits import AUDIT_DAYS, MAX_AUDIT_LOOKS
from ...domain.times import DAY_MS
from .. import lists
from ..calls import ADMIN, PAGED, Context, Reach, Response, call
from ..fields import Time, one_of, shown
from ..http import check_name

if TYPE_CHECKING:
    from ...store.audit import Audit


class AuditToken(TypedDict):
    """A token, with its name at that time."""

    id: str
    name: str


class AuditView(TypedDict):
    """A call that changed something, or tried to. `result` is "OK" or the code of the error; `source` is the
    caller's address, if it is known. The service's own changes have the token `service`, no method and no path, and
    the new state as `result`."""

    at: Time
    token: AuditToken
    method: Annotated[str, one_of("GET", "PUT", "POST", "PATCH", "DELETE", "")]
    path: str
    object: str
    result: str
    source: str | None
    request_id: str


class AuditFilter(NamedTuple):
    """Which entries: of this topic, by this token, at `from_ms` or later and before `to_ms`."""

    from_ms: int
    to_ms: int
    topic: str | None = None
    token_id: str | None = None

    def fits(self, entry: AuditEntry) -> bool:
        """Are the entry's topic and token those asked for? The times are not looked at: the query has limited them."""
        return self.topic in (None, entry.topic) and self.token_id in (None, entry.token_id)


_FILTERS = ("topic", "token", "from", "to")


@call("GET", "/v1/audit", scopes=ADMIN, query=(*_FILTERS, *PAGED), reach=Reach.SERVICE)
def list_audit(context: Context) -> Response[lists.Page[AuditView]]:
    """Changes of the last 90 days with the token that made them, the newest first.

    `token` is a token's id. A page may be short or empty although there is a next one: filters read 1,000
    entries for each page."""
    selection = filter_of(context.query, context.now_ms)
    purpose = lists.purpose("audit", [], context.query, _FILTERS)
    before, limit = lists.page_start(context, purpose), lists.limit(context.query)
    trail = context.deps.adapters.audit
    entries, next_start = newest_first(trail, selection, before, limit, lambda looks: looks < MAX_AUDIT_LOOKS)
    views = [shown(AuditView, each, token={"id": each.token_id, "name": each.token_name}) for each in entries]
    return lists.page(context, purpose, views, next_start)


def filter_of(query: Mapping[str, str], now_ms: int) -> AuditFilter:
    """The entries that a query asks for. Raises Malformed."""
    topic, ends_ms = query.get("topic"), now_ms + 1
    if topic is not None:
        check_name("topic", topic)
    from_ms = max(lists.time_ms(query, "from") or 0, now_ms - AUDIT_DAYS * DAY_MS)
    to_ms = lists.time_ms(query, "to")
    return AuditFilter(from_ms, ends_ms if to_ms is None else min(to_ms, ends_ms), topic, query.get("token"))


def newest_first(
    audit: "Audit", which: AuditFilter, before: str | None, limit: int, may_go_on: Callable[[int], bool]
) -> tuple[list[AuditEntry], str | None]:
    """Up to `limit` entries before a position, and the next position (None: the end). `may_go_on(entries)` is asked
    after each query."""
    entries: list[AuditEntry] = []
    if which.from_ms >= which.to_ms:
        return entries, None
    for looks, entry in enumerate(audit.entries(which.from_ms, which.to_ms, before), 1):
        if which.fits(entry):
            entries.append(entry)
        if len(entries) == limit or not may_go_on(looks):
            return entries, entry.key
    return entries, None
