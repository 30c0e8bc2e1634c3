"""What a person does is one call of the HTTP interface: with the same checks, the same answer, and as curl."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..api import resources
from ..api.calls import CALLS, Call, Context
from ..api.http import perform, why_not
from ..domain.errors import Forbidden
from ..domain.topic import Caller
from .visit import Visit, query_text

_BY_NAME = {call.handler.__name__: call for call in CALLS}
__all__ = ["Action", "add_call", "do", "has", "resources", "why_not_allowed"]


def add_call(call: Call) -> None:
    """Have a call at hand that not every service has: the local one's clock."""
    _BY_NAME[call.handler.__name__] = call


def has(name: str) -> bool:
    """Has this service such a call?"""
    return name in _BY_NAME


@dataclass(frozen=True, slots=True)
class Action:
    """A call by the name of its handler, with the parameters of its path, its query and its JSON body."""

    name: str
    params: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def call(self) -> Call:
        return _BY_NAME[self.name]

    @property
    def path(self) -> str:
        return self.call.path.format(**self.params)

    @property
    def raw(self) -> bytes:
        return b"" if self.body is None else msgspec.json.encode(self.body)

    def curl(self, base: str) -> str:
        """The call for a shell that has the token in HEADRACE_TOKEN."""
        parts = ["curl", "-X", self.call.method, "-H", '"Authorization: Bearer $HEADRACE_TOKEN"']
        if self.body is not None:
            parts += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(self.raw.decode())]
        return " ".join([*parts, shlex.quote(base + self.path + query_text(self.query))])


def why_not_allowed(action: Action, caller: Caller) -> Forbidden | None:
    """Why the caller's token does not allow it; None: it does."""
    return why_not(action.call, caller, action.params, action.query)


def listing(
    visit: Visit, name: str, most: int, start: str | None, params: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A page of a call's list, from where a page token says, and where the next one begins; or why the caller may not
    see it: as templates show it."""
    action = Action(name, params or {}, {"limit": str(most), **({"page_token": start} if start else {})})
    refusal = why_not_allowed(action, visit.caller)
    answer = {"items": []} if refusal else do(visit, action)
    return {"items": answer["items"], "following": answer.get("next_page_token"), "refusal": refusal}


def do(visit: Visit, action: Action, options: Mapping[str, str] | None = None) -> Any:
    """Do it: what the call answers. `options` are headers. Raises what it raises."""
    headers = {"content-type": "application/json", **(options or {})}
    asked = (headers, action.params, action.query, action.raw)
    context = Context(visit.deps, visit.caller, visit.request_id, *asked, source=visit.source)
    answer = perform(action.call, context)
    return None if answer.status == 204 else json.loads(msgspec.json.encode(answer.body))
