"""Schedules: messages at times."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..calls import given, path
from ..durations import Duration, rfc3339, whole_seconds
from ..models import NextTimes, Schedule, Sent
from ..models.settings import Unpack
from ..outgoing import MessageFields, Missed, Outgoing, Overlap
from .caller import Caller
from .pager import Pager


class SyncSchedules(Caller):
    """Schedules: messages at times, by cron or each so often."""

    def put_schedule(
        self,
        name: str,
        topic: str,
        body: Any = None,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        begin: datetime | str | None = None,
        until: datetime | str | None = None,
        jitter: Duration | None = None,
        missed: Missed | None = None,
        overlap: Overlap | None = None,
        paused: bool | None = None,
        app: str | None = None,
        **message: Unpack[MessageFields],
    ) -> Schedule:
        """Create or replace a schedule: the body is sent to the topic by `cron`, such as "0 9 * * mon-fri", in
        `timezone` ("UTC"), or `every` "15m". `begin` is the interface's `from`. `missed` says what becomes of times
        that nothing could be sent at ("one", "skip", "all"), `overlap="skip"` leaves out a time while the last message
        is unfinished. `message` says how each message travels, as for `send`."""
        fields = {
            "topic": topic,
            "message": Outgoing(body, **message).fields(),
            **_times(cron, every, timezone, begin, until, jitter),
            **given(missed=missed, overlap=overlap, paused=paused, app=app),
        }
        return self._ask(Schedule, "PUT", path("schedules", name), fields)

    def preview_schedule(
        self,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str | None = None,
        begin: datetime | str | None = None,
        until: datetime | str | None = None,
        jitter: Duration | None = None,
    ) -> list[datetime]:
        """The next ten times of a schedule with these times; nothing is stored."""
        times = _times(cron, every, timezone, begin, until, jitter)
        return (self._ask(NextTimes, "POST", path("schedules", "preview"), times)).next

    def get_schedule(self, name: str) -> Schedule:
        """A schedule, with its next times and its last messages."""
        return self._ask(Schedule, "GET", path("schedules", name))

    def list_schedules(self, *, app: str | None = None, limit: int | None = None) -> Pager[Schedule]:
        """Schedules by name, of the topics that the token may use; of this `app`."""
        return self._list(Schedule, path("schedules"), limit=limit, app=app)

    def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Messages that it has sent stay."""
        self._delete(path("schedules", name))

    def pause_schedule(self, name: str) -> Schedule:
        """Stop a schedule until it is resumed; what it would have sent meanwhile is not sent."""
        return self._ask(Schedule, "POST", path("schedules", name, "pause"), {})

    def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule go on with its next time."""
        return self._ask(Schedule, "POST", path("schedules", name, "resume"), {})

    def run_schedule(self, name: str) -> Sent:
        """Send the message of a schedule now, once; its times stay as they are. Not repeated after a lost answer."""
        return self._ask(Sent, "POST", path("schedules", name, "run"), {}, repeatable=False)


def _times(
    cron: str | None,
    every: Duration | None,
    timezone: str | None,
    begin: datetime | str | None,
    until: datetime | str | None,
    jitter: Duration | None,
) -> dict[str, Any]:
    times = {"from": begin, "until": until}
    return given(
        cron=cron,
        every_seconds=whole_seconds(every) if every is not None else None,
        timezone=timezone,
        jitter_seconds=whole_seconds(jitter) if jitter is not None else None,
        **{name: rfc3339(moment) for name, moment in times.items() if moment is not None},
    )
