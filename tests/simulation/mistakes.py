"""Visits of jobs that failed by a mistake of ours."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.scheduler.walk import Trouble


def mistakes(report: object) -> Iterator[Trouble]:
    """A job skips a topic that it cannot read, or whose visit fails: in a simulation only the store may be the
    reason. Of jobs that visit no topics there is nothing to say."""
    for trouble in report.stretch.troubles if hasattr(report, "stretch") else ():
        if trouble.topic and not trouble.detail.startswith(("Unavailable", "Unreadable")):
            yield trouble
