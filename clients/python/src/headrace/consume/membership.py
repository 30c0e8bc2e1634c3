"""A consumer's place in its group: the group as the consumer wants it, and its registration."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from typing import Any

from .._sync.client import Operations
from ..errors import ConsumerTakenOver, Forbidden, GroupNotFound, HeadraceError
from ..models import Consumer as Registration
from ..models import Group
from ..outgoing import new_id
from .settings import ConsumerSettings

_LOG = logging.getLogger("headrace")
_EXPIRES_AFTER_SECONDS = 3600
_BACK = timedelta(minutes=10)  # for clocks that differ from the service's


class Membership:
    """The place of one run of a consumer. `name` is None if it does not register. A name that was made here
    has no other user: if this process dies, its registration ends as well."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.settings = settings
        self.name = settings.consumer_name() if settings.register else None
        self.instance = new_id() if self.name else None
        self.registration: Registration | None = None
        self.is_taken_over = False
        self._last_seen: datetime | None = None

    def saw(self) -> None:
        """The group has just answered."""
        self._last_seen = datetime.now(timezone.utc)

    @property
    def _resumes_at(self) -> datetime | None:
        """Where a group or position that was deleted meanwhile begins: not at the earliest message, which was handled
        long ago. None: the consumer has not been at work."""
        return self._last_seen - _BACK if self._last_seen else None

    def enter(self, hr: Operations) -> Group:
        """Have the group, and register in it."""
        s = self.settings
        group = ensure_group(hr, s, self._resumes_at)
        if self.name is not None:
            has_position = group.mode == "broadcast" and group.offline == "keep"
            self.registration = hr.put_consumer(
                s.topic,
                s.group,
                self.name,
                expires_after_seconds=_EXPIRES_AFTER_SECONDS if s.name is None else None,
                instance=self.instance,
                begin=self._resumes_at if has_position else None,
            )
        return group

    def beat(self, hr: Operations) -> None:
        """Stay online."""
        if self.name is None or self.is_taken_over:
            return
        s = self.settings
        try:
            self.registration = hr.heartbeat(s.topic, s.group, self.name, instance=self.instance)
        except ConsumerTakenOver:  # the next receive raises it
            self.is_taken_over = True
        except HeadraceError as error:  # the next receive waits it out
            _LOG.debug("%s/%s: no heartbeat: %s", s.topic, s.group, error)

    def leave(self, hr: Operations, group: Group) -> None:
        """Give the place to the others; but a name keeps its place in a broadcast."""
        s = self.settings
        if self.name is None or self.is_taken_over or (group.mode == "broadcast" and s.name is not None):
            return
        try:
            hr.delete_consumer(s.topic, s.group, self.name)
        except HeadraceError as error:
            _LOG.warning("%s did not leave its group: %s", self.name, error)


def ensure_group(hr: Operations, settings: ConsumerSettings, begin: datetime | None = None) -> Group:
    """The group, made if it is missing, with `begin` instead of its setting. ValueError where it has another mode or
    filter than the consumer wants."""
    s = settings
    own_filter = " || ".join(s.tags or ())
    try:
        group = hr.get_group(s.topic, s.group)
    except GroupNotFound as error:
        fields: dict[str, Any] = {"mode": s.mode} if s.mode else {}
        if s.tags:
            fields["filter"] = own_filter
        try:
            group = hr.put_group(s.topic, s.group, begin=begin or s.begin, **fields)
        except Forbidden:
            raise error from None
    if s.mode and group.mode != s.mode:
        raise ValueError(f"Group {s.group} of {s.topic} is {group.mode}, not {s.mode}: a mode is for life.")
    if s.tags and _tags_of(group.filter) != _tags_of(own_filter):
        raise ValueError(
            f"Group {s.group} of {s.topic} has the filter {group.filter!r}, and this consumer's tags are "
            f"{own_filter!r}: each group has one filter. Change the group's, for all its consumers, with "
            f'hr.put_group("{s.topic}", "{s.group}", filter="{own_filter}") or '
            f"`headrace groups set {s.topic} {s.group} --filter '{own_filter}'`; or use another group."
        )
    return group


def _tags_of(text: str) -> set[str]:
    return {tag.strip() for tag in text.split("||")}
