"""One request as a page's handler sees it, what a handler answers, and links between pages: relative, so that they hold
behind a stage's prefix and on a custom domain."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from ..domain.errors import Forbidden
from ..domain.topic import Caller, Group, Topic
from ..ports.world import Units
from ..services.inspect.attempts import History
from ..wiring import Deps
from .session import Session

ROOT = "console"
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_PLACE = re.compile(rf"(?:{_PART}(?:/{_PART})*)?(?:\?[A-Za-z0-9._~%&=+:*-]*)?\Z")
# What a page may cost: those that read on and on stop before it.
MOST_READ_UNITS = 20
_TOPICS = "console-topics"
_READERS = {"consume", "admin"}


class Links(NamedTuple):
    """Links from the page at `path`, which begins with `/`."""

    path: str

    @property
    def up(self) -> str:
        """From here to the folder that holds the console."""
        return "../" * (self.path.rstrip("/").count("/") - 1)

    def to(self, *parts: object, **query: object) -> str:
        """A link to the page below the console's root with these parts; what is None in the query is left out."""
        place = "/".join((ROOT, *(quote(str(part), safe="") for part in parts)))
        return self.up + place + query_text(query)

    def back(self, place: str) -> str:
        """A link to a place that a form names; to the overview, where that is no place of the console's."""
        if not place or not _PLACE.match(place):
            return self.up + ROOT
        return self.up + (f"{ROOT}{place}" if place.startswith("?") else f"{ROOT}/{place}")

    @property
    def here(self) -> str:
        """This page as `back` takes it."""
        return self.path.rstrip("/").partition(f"/{ROOT}")[2].lstrip("/")


def query_text(query: Mapping[str, object]) -> str:
    """The query of a link, with its question mark; nothing where there is none."""
    parameters = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "")}
    return f"?{urlencode(parameters)}" if parameters else ""


@dataclass(kw_only=True, frozen=True, slots=True)
class Visit:
    """One request as a page's handler sees it.

    `base`: where the service is, as curl needs it.
    `params`: what stands in the path.
    `source`: the visitor's address.
    `named`: the topic and the group that the path names, once they are read: each template has them.
    """

    deps: Deps
    method: str
    links: Links
    base: str
    headers: Mapping[str, str]
    params: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    units: Units
    request_id: str
    secure: bool
    source: str
    signed_in: Session | None = None
    named: dict[str, Topic | Group] = field(default_factory=dict)

    @property
    def session(self) -> Session:
        assert self.signed_in, "only pages that are open are shown without a session"
        return self.signed_in

    @property
    def caller(self) -> Caller:
        return self.session.caller

    def check_may_read(self) -> None:
        """Bodies are for those who may consume. Raises Forbidden."""
        if not self.may_read:
            words = "Seeing messages needs a token with the scope 'consume' or 'admin'."
            raise Forbidden("SCOPE_MISSING", words)

    @property
    def now_ms(self) -> int:
        return self.deps.adapters.clock.now_ms()

    def topic(self, *, consistent: bool = False) -> Topic:
        """The topic that the path names, as the visitor may see it; NotFound. `consistent`: as it is stored, not as it
        was some seconds ago."""
        topic = self.caller.seen(self.deps.catalog.topic(self.params["topic"], consistent=consistent))
        self.named["topic"] = topic
        return topic

    def group(self, *, consistent: bool = False) -> tuple[Topic, Group]:
        """The topic and the group that the path names; NotFound."""
        topic = self.topic()
        group = self.deps.catalog.group(topic, self.params["group"], consistent=consistent)
        self.named["group"] = group
        return topic, group

    def position(self, purpose: str, name: str = "after") -> str | None:
        """Where the list goes on, as the URL says; None where it begins."""
        return self.deps.signing_keys.verified(purpose, self.query.get(name, "")) or None

    def signed(self, purpose: str, position: str | None) -> str | None:
        """A position for the link to the next page; None: there is none."""
        return None if position is None else self.deps.signing_keys.sign(purpose, position)

    @property
    def may_read(self) -> bool:
        """May the visitor see bodies, and what subscribers answered?"""
        return bool(self.caller.scopes & _READERS)

    @property
    def name_before(self) -> str:
        """The name behind which a list of topics goes on; empty (from the beginning) where the URL has none."""
        text = self.query.get("after")
        return (self.deps.signing_keys.opened(_TOPICS, text) if text else None) or ""

    def sealed_name(self, name: str | None) -> str | None:
        """The same for the link to the next page: the name may be that of a topic which the visitor may not see, since
        a page ends where its read units do."""
        return name and self.deps.signing_keys.seal(_TOPICS, name)

    @property
    def wants_fragment(self) -> bool:
        """Does a page that is shown already ask for its moving part?"""
        return self.headers.get("hx-request") == "true"

    def has_units(self, reserve: float = 0) -> bool:
        """May the page read on?"""
        return self.units.reads < MOST_READ_UNITS - reserve

    def may_go_on(self, reserve: float) -> Callable[[], bool]:
        """The same as a question for who reads on and on."""
        return partial(self.has_units, reserve)

    def last_hour(self, topic: Topic, group: Group) -> History | None:
        """The group's latest attempts, as far as they are known or may be read."""
        return self.deps.board.last_hour(topic, group, self.has_units)


@dataclass(frozen=True, slots=True)
class Page:
    """A template and what it shows. `begun`: the session that begins with it, and its `Set-Cookie`."""

    template: str
    model: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    begun: tuple[Session, str] | None = None


class SeeOther(NamedTuple):
    """Another page, after something was done (or undone)."""

    to: str
    cookie: str | None = None


@dataclass(frozen=True, slots=True)
class File:
    """Bytes of another type than a page's."""

    body: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


Shown = Page | SeeOther | File
