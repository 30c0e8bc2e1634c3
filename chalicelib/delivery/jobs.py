"""The archive's jobs on Glue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError


class GlueJobs:
    """ports.Jobs: jobs of Glue that are named `<prefix>-<job>`."""

    def __init__(self, client: Callable[[], Any], prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def start(self, job: str, arguments: Mapping[str, str]) -> bool:
        """False also where Glue refuses: too many runs at once, no such job, no answer. An operator can fix each."""
        options = {f"--{name}": value for name, value in arguments.items()}
        try:
            self._client().start_job_run(JobName=f"{self._prefix}-{job}", Arguments=options)
        except (ClientError, BotoCoreError):
            return False
        return True
