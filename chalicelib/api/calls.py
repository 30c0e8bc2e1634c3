"""The calls of the HTTP interface, and what their handlers get and give."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Generic, TypeVar

import msgspec

from ..domain.message import Draft
from ..domain.topic import Caller, Consumer, Group, Scope, Topic
from ..wiring import Deps
from .fields import without_path

T = TypeVar("T")
JSON = "application/json"
ANY = tuple(Scope)
ADMIN, PRODUCE, CONSUME = (Scope.ADMIN,), (Scope.PRODUCE,), (Scope.CONSUME,)
READ = (Scope.CONSUME, Scope.ADMIN)
SEND = (Scope.PRODUCE, Scope.ADMIN)
TOPIC = "/v1/topics/{topic}"
MESSAGE = f"{TOPIC}/messages/{{id}}"
GROUP = f"{TOPIC}/groups/{{group}}"
CONSUMER = f"{GROUP}/consumers/{{consumer}}"


class Response(msgspec.Struct, Generic[T], frozen=True):
    """What a handler answers: a JSON value of type T (or bytes as they are, or None with a 204), a status, headers."""

    body: T
    status: int = 200
    headers: Mapping[str, str] = {}


class Context(msgspec.Struct, frozen=True):
    """One request as a handler sees it."""

    deps: Deps
    caller: Caller | None
    request_id: str
    headers: Mapping[str, str]
    params: Mapping[str, str]
    query: Mapping[str, str] = {}
    raw: bytes = b""
    body: Any = None
    prefix: str = ""  # of every path: on AWS, the stage
    source: str = ""  # the caller's address
    may_wait: bool = True  # for messages
    received_ms: int | None = None  # when the gateway received it: before a cold start. None: just now

    @property
    def by(self) -> str:
        """The id of the caller's token."""
        return self.caller.token_id if self.caller else ""

    @property
    def now_ms(self) -> int:
        """The time, by the service's clock."""
        return self.deps.adapters.clock.now_ms()

    def may_use_group(self, group: str) -> bool:
        """Whether the caller's token is for this group, too."""
        return self.caller is None or self.caller.may_use_group(group)

    @property
    def may_read(self) -> bool:
        """Has the caller the scope consume or admin?"""
        return self.caller is None or bool(self.caller.scopes & set(READ))

    def shown_urls(self, draft: Draft) -> Draft:
        """The draft as the caller may see it: others than readers do not see the path of its `callback_url`."""
        if self.may_read or not draft.callback_url:
            return draft
        return replace(draft, callback_url=without_path(draft.callback_url))

    def topic(self, *, consistent: bool = False) -> Topic:
        """The topic in the path. Raises NotFound. `consistent`: read from the store, not from the cache of three
        seconds."""
        return self.deps.catalog.topic(self.params["topic"], consistent=consistent)

    def topic_for(self, fits: Callable[[Topic], bool]) -> Topic:
        """The topic in the path for a call that a setting of it may refuse: the cached one, or where that does not fit
        (`fits`), the stored one, so that a raised limit is valid at once. Raises NotFound."""
        return self.deps.catalog.topic_for(self.params["topic"], fits)

    def group(self, *, consistent: bool = False) -> tuple[Topic, Group]:
        """The topic and the group that the path names; NotFound. `consistent`: as for a topic, the group's consumers
        included; for a change, which must reach all of them."""
        topic = self.topic(consistent=consistent)
        return topic, self.deps.catalog.group(topic, self.params["group"], consistent=consistent)

    def consumer(self, *, consistent: bool = False) -> tuple[Topic, Group, Consumer]:
        """The topic, the group and the consumer that the path names; NotFound. `consistent`: as for a group."""
        topic, group = self.group(consistent=consistent)
        return topic, group, self.deps.catalog.consumer(topic, group, self.params["consumer"])


Handler = Callable[[Context], Response[Any]]


class Reach(Enum):
    """What a call concerns: the topic and the group in its path, all groups of a topic, or the whole service. A token
    for some topics or groups may not make those that concern more; of GROUPS a producer may, on its own messages."""

    PATH = auto()
    GROUPS = auto()
    SERVICE = auto()


BY_PRODUCERS: Any = {"scopes": SEND, "reach": Reach.GROUPS}
# The query of every list.
PAGED = ("limit", "page_token")


class Call(msgspec.Struct, frozen=True):
    """One entry of the HTTP interface. `scopes`: any one will do; empty: no token needed. `headers` are options.
    `statuses` are the success codes, `media` is their content type; the body's schema comes from the handler's return
    type. `scopes_of_group`: with a `group` in the query the call concerns this one alone, and has these scopes."""

    method: str
    path: str
    handler: Handler
    scopes: tuple[str, ...]
    body: type | None = None
    query: tuple[str, ...] = ()
    any_media: bool = False
    headers: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    media: str = JSON
    reach: Reach = Reach.PATH
    scopes_of_group: tuple[str, ...] = ()

    @property
    def params(self) -> list[str]:
        """The names of what its path holds."""
        return re.findall(r"{(\w+)}", self.path)


CALLS: list[Call] = []
# The header by which handlers see the request's Accept; Chalice takes that one for itself.
ACCEPTED = "x-accepted"


def call(method: str, path: str, **fields: Any) -> Callable[[Handler], Handler]:
    """Enter a handler into the HTTP interface. `fields` are the others of Call."""

    def add_call(handler: Handler) -> Handler:
        CALLS.append(Call(method, path, handler, **fields))
        return handler

    return add_call
