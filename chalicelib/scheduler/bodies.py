"""Deletes large bodies from the blob store when nothing needs them any more.

That may be years after the row, because of a dead letter. The journal notes each body under the day after its row's
end. If something still needs it on that day, it is noted under a later day.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..domain import blob_expiry
from ..domain.blob_expiry import BlobExpiry
from ..domain.errors import Unavailable
from ..domain.times import DAY_SECONDS
from ..ports.world import Blobs, Clock
from ..store import Control, Log, Records
from .expirer import Ends, RetentionGuard
from .walk import HasTime, Trouble

_OWED_S = 7 * DAY_SECONDS  # until a body is looked at again that a group needs
_PAGE = 1000  # what S3 lists at once


@dataclass(slots=True)
class BodyReport:
    """What one run did. `postponed` counts bodies that are still needed."""

    deleted: int = 0
    postponed: int = 0
    troubles: list[Trouble] = field(default_factory=list)
    finished: bool = True


@dataclass(kw_only=True, frozen=True, slots=True)
class BodySweeper:
    """Deletes the bodies whose day has come. A run without any costs one list request. With a guard, a body waits until
    the archive has its message."""

    log: Log
    records: Records
    control: Control
    blobs: Blobs
    clock: Clock
    retention_guard: RetentionGuard | None

    def run_once(self, has_time: HasTime = lambda: True) -> BodyReport:
        """Delete all that are due, as many as there is time for. A body that cannot be read does not stop the
        others."""
        report = BodyReport()
        now_s = self.clock.now_ms() // 1000
        try:
            proved_ends = self.retention_guard.proved_ends() if self.retention_guard else None
            for body in self._due_expiries(blob_expiry.day_of(now_s)):
                if not has_time():
                    report.finished = False
                    break
                self._look_at(body, now_s, proved_ends, report)
        except Unavailable as error:  # the bucket: the same function has more to do than this
            report.troubles.append(Trouble.of("", error))
        return report

    def _look_at(self, body: BlobExpiry, now_s: int, proved_ends: Ends | None, report: BodyReport) -> None:
        try:
            if until_s := self._needed_until_s(body, now_s, proved_ends):
                self._postpone(body, until_s)
                report.postponed += 1
            else:
                self.blobs.delete(body.body)
                self.blobs.delete(body.name)
                report.deleted += 1
        except Exception as error:  # noqa: BLE001 - a bad row, a throttled table, a bug: it is reported
            report.troubles.append(Trouble.of(body.shard.topic, error))

    def _due_expiries(self, today: str) -> Iterator[BlobExpiry]:
        after = ""
        while names := self.blobs.names(blob_expiry.FOLDER, after, _PAGE):
            for name in names:
                body = blob_expiry.parse(name)
                if body and body.day > today:
                    return
                if body:
                    yield body
            after = names[-1]

    def _needed_until_s(self, body: BlobExpiry, now_s: int, ends: Ends | None) -> int | None:
        """When to check the body again; None: it is no longer needed."""
        if ends is not None and body.offset >= ends.get(str(body.shard), 0):
            return now_s
        rows = self.log.read_back(body.shard, body.offset, 1, consistent=True)
        if rows and body.offset < rows[0].end:
            return max(rows[0].expires_s, now_s)
        topic = self.control.topic(body.shard.topic)
        if topic is None or topic.uid != body.shard.topic_uid:
            return None
        groups = self.control.groups(topic)
        is_owed = any(self.records.is_owed(group.uid, body.shard, body.offset) for group in groups)
        return now_s + _OWED_S if is_owed else None

    def _postpone(self, body: BlobExpiry, until_s: int) -> None:
        later = replace(body, day=blob_expiry.day_behind(until_s))
        self.blobs.put(later.name, b"")
        self.blobs.delete(body.name)
