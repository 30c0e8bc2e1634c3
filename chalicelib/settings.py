"""Every environment variable and its meaning. `wiring` is the only reader."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Settings:
    """What a deployed stage, or a local run, is told from outside."""

    prefix: str
    """HEADRACE_PREFIX (headrace): table names begin with it; several stages may share an account."""

    region: str
    """AWS_REGION or AWS_DEFAULT_REGION (us-east-1)."""

    bucket: str | None
    """HEADRACE_BUCKET: where large bodies are kept. Without it, HEADRACE_DATA/bucket."""

    data: Path
    """HEADRACE_DATA (.data): the local run's folder."""

    @property
    def folder(self) -> Path:
        """The folder that stands for the bucket locally."""
        return self.data / "bucket"


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of this process."""
    get = environment.get
    return Settings(
        prefix=get("HEADRACE_PREFIX", "headrace"),
        region=get("AWS_REGION") or get("AWS_DEFAULT_REGION") or "us-east-1",
        bucket=get("HEADRACE_BUCKET") or None,
        data=Path(get("HEADRACE_DATA", ".data")),
    )
