"""The archive's jobs in tests: what they print last, and a bucket that is watched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glue_jobs.common.bucket import Bucket


def read_summary(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The last line of what a job printed."""
    summary: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return summary


class Watched:
    """A bucket at which readers look before each change."""

    def __init__(self, bucket: Bucket, look: Callable[[], None]) -> None:
        self._bucket, self._look = bucket, look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def write(self, name: str, text: str) -> None:
        self._look()
        self._bucket.write(name, text)

    def put_file(self, name: str, path: Path) -> None:
        self._look()
        self._bucket.put_file(name, path)

    def delete(self, name: str) -> None:
        self._look()
        self._bucket.delete(name)
