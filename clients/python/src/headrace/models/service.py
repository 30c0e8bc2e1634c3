"""Replays, the archive, access tokens, the audit trail, and the service itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .base import Model


class Replay(Model, frozen=True, kw_only=True, rename={"begin": "from", "end": "to"}):
    replay_id: str
    topic: str
    begin: datetime
    end: datetime
    state: str
    created_at: datetime
    changed_at: datetime
    tag: str | None = None
    key: str | None = None
    where: str | None = None
    predicate: Any = None
    into: str | None = None
    group: str | None = None
    rate: int = 0
    dry_run: bool = False
    matched: int | None = None
    sent: int = 0
    error: str | None = None
    started: bool | None = None
    run_with: str | None = None


class ScheduleRun(Model, frozen=True, kw_only=True):
    """A message that a schedule has sent, and the time that it was for."""

    at: datetime
    message_id: str


class NextTimes(Model, frozen=True, kw_only=True):
    next: list[datetime]


class Schedule(NextTimes, frozen=True, kw_only=True, rename={"begin": "from"}):
    """A schedule. `next` are its next ten times; `last`, when one schedule is read, its last messages."""

    name: str
    topic: str
    message: dict[str, Any]
    timezone: str
    created_at: datetime
    cron: str | None = None
    every_seconds: int | None = None
    begin: datetime | None = None
    until: datetime | None = None
    jitter_seconds: int = 0
    missed: str = "one"
    overlap: str = "allow"
    paused: bool = False
    app: str | None = None
    made_by: str | None = None
    last: list[ScheduleRun] | None = None


class Token(Model, frozen=True, kw_only=True):
    """An access token. Its text, `token`, comes once: when it is made."""

    id: str
    name: str
    scopes: list[str]
    topics: list[str]
    created_at: datetime
    expires_at: datetime | None = None
    groups: list[str] | None = None
    jobs: list[str] | None = None
    rate_limit: int | None = None
    most_urgent: int | None = None
    tenant: str | None = None
    last_used_at: datetime | None = None
    token: str | None = None


class MadeConsumer(Model, frozen=True, kw_only=True):
    topic: str
    group: str
    consumer: str


class Made(Model, frozen=True, kw_only=True):
    """What a token has made that goes on without it: the names of schedules, and push consumers."""

    schedules: list[str]
    consumers: list[MadeConsumer]


class ArchivedTopic(Model, frozen=True, kw_only=True):
    """A topic's part of an archived day: PROVED, OPEN (more may come) or with HOLES."""

    topic: str
    proof: str
    messages: int
    deliveries: int
    missing: int


class ArchivedDay(Model, frozen=True, kw_only=True):
    """Up to which hour a day is archived (24: all of it; None: nothing is), and its topics."""

    day: str
    until_hour: int | None
    written_at: datetime | None
    damaged: int
    bodies_missing: int
    topics: list[ArchivedTopic]


class Archive(Model, frozen=True, kw_only=True):
    """Days of the archive, the latest first. A day is deleted after `archive_days`; None: never."""

    items: list[ArchivedDay]
    archive_days: int | None = None
    next_page_token: str | None = None


class SignInLink(Model, frozen=True, kw_only=True):
    """A link that signs in the first browser that opens it, until it expires."""

    url: str
    expires_at: datetime


class AuditToken(Model, frozen=True, kw_only=True):
    id: str
    name: str


class SigningKey(Model, frozen=True, kw_only=True):
    """When the present signing key was made, and when each of those before it ends."""

    rotated_at: datetime
    former_until: list[datetime]


class AuditEntry(Model, frozen=True, kw_only=True):
    """A call that changed something, or tried to. `result` is "OK" or the code of the error. The service's own changes
    have the token `service`, no method and no path, and the new state as `result`."""

    at: datetime
    token: AuditToken
    method: str
    path: str
    object: str
    result: str
    source: str | None = None
    request_id: str


class Attention(Model, frozen=True, kw_only=True):
    """A state in which work waits for a person: its kind, since when, what it means and what to do. `topic` is None if
    it is the service's, `group` if it is a topic's."""

    kind: str
    since: datetime
    topic: str | None = None
    group: str | None = None
    consumer: str | None = None
    what: str = ""
    to_do: str = ""


class Events(Model, frozen=True, kw_only=True):
    """The topic that gets operational events (None: none does), and which types of them."""

    topic: str | None
    types: list[str]


class Ladder(Model, frozen=True, kw_only=True):
    ladder: str
    steps_seconds: list[float]
    sum_seconds: float
    max_attempts: int
    waits_seconds: list[float]
    waits_sum_seconds: float


class Health(Model, frozen=True, kw_only=True):
    status: str
    store: str
