"""The present counts of every group, from the service: also of groups without attempts, which the archive does not
show."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from glue_jobs.common import access
from glue_jobs.common.failures import Ended, sentence
from glue_jobs.common.service import Service


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What a group has at the moment when the report is made."""

    topic: str
    group: str
    backlog: int
    in_flight: int
    retrying: int
    dead: int
    oldest_age_seconds: float | None


def groups(arguments: argparse.Namespace) -> tuple[list[GroupCounts], str | None]:
    """Every group of the topics in question; and, where the service could not be asked, why not. Raises Ended."""
    if not access.has_token(arguments):
        return [], "there is no token (HEADRACE_TOKEN, HEADRACE_DATA or --token-secret)"
    try:
        return list(_groups(access.service(arguments), arguments.topic)), None
    except Ended:
        raise
    except Exception as error:  # noqa: BLE001
        return [], sentence(error)


def _groups(service: Service, name: str | None) -> Iterator[GroupCounts]:
    topics = [service.ask("GET", f"/v1/topics/{quote(name)}")] if name else _topics(service)
    for topic in topics:
        for group, stats in topic["stats"]["groups"].items():
            counts = {key: stats[key] for key in ("backlog", "in_flight", "retrying", "dead")}
            yield GroupCounts(topic["topic"], group, **counts, oldest_age_seconds=stats["oldest_age_seconds"])


def _topics(service: Service) -> Iterator[dict[str, Any]]:
    page: str | None = ""
    while page is not None:
        answer = service.ask("GET", f"/v1/topics{f'?page_token={quote(page)}' if page else ''}")
        yield from answer["items"]
        page = answer.get("next_page_token")
