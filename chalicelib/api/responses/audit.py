"""The audit trail."""

from typing import Annotated, TypedDict

from ...domain.audit import AuditEntry
from .common import Time, at, one_of


class AuditToken(TypedDict):
    """A token, with its name at that time."""

    id: str
    name: str


class AuditView(TypedDict):
    """A call that changed something, or tried to. `result` is "OK" or the code of the error; `source` is the
    caller's address, if it is known."""

    at: Time
    token: AuditToken
    method: Annotated[str, one_of("GET", "PUT", "POST", "PATCH", "DELETE")]
    path: str
    object: str
    result: str
    source: str | None
    request_id: str


def view(entry: AuditEntry) -> AuditView:
    """An entry of the audit trail."""
    return {
        "at": at(entry.at_ms),
        "token": {"id": entry.token_id, "name": entry.token_name},
        "method": entry.method,
        "path": entry.path,
        "object": entry.object,
        "result": entry.result,
        "source": entry.source,
        "request_id": entry.request_id,
    }
