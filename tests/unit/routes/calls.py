"""What these tests do again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.http import Client, Reply, Topic


@dataclass
class StartedJobs:
    """ports.Jobs, where each job can be started."""

    started: list[str] = field(default_factory=list)

    def start(self, job: str, arguments: Mapping[str, str]) -> bool:
        self.started.append(job)
        return True


def token(api: Client, name: str, *scopes: str, **limits: Any) -> Client:
    token = api.post("/v1/tokens", {"name": name, "scopes": list(scopes), **limits}).expect(201)
    return api.with_token(token["token"])


def change(topic: Topic, query: str = "", **body: Any) -> Reply:
    """Change what is delayed."""
    return topic.api.call("PATCH", f"{topic.path}/messages{query}", body)
