"""The archive's jobs in tests: what they print last, and a bucket at which they die."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from glue_jobs.common.bucket import Bucket


def read_summary(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The last line of what a job printed."""
    summary: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return summary


class Killed(BaseException):
    """The process died here."""


class Stopping:
    """A bucket whose process dies before the change after `left` more."""

    left = 0

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def write(self, name: str, text: str) -> None:
        self._step()
        self._bucket.write(name, text)

    def put_file(self, name: str, path: Path) -> None:
        self._step()
        self._bucket.put_file(name, path)

    def delete(self, name: str) -> None:
        self._step()
        self._bucket.delete(name)
