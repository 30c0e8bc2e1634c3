"""Many clients at once on one gateway: nothing is lost, nothing comes twice, order holds."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pytest

from tests.support.http import Client, Reply

T = TypeVar("T")


def at_once(count: int, act: Callable[[int], T], over: threading.Event | None = None) -> list[T]:
    """Run in threads that begin together; an error in any of them is raised. It sets `over`: who waits for what this
    one was to do must not wait for ever."""
    start = threading.Barrier(count)

    def run(n: int) -> T:
        start.wait()
        try:
            return act(n)
        except BaseException:
            if over:
                over.set()
            raise

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def _put(api: Client, path: str, _: object) -> Reply:
    return api.put(path)


def test_a_topic_a_group_and_a_consumer_made_by_8_at_once_are_made_once(api: Client) -> None:
    for path in ("/v1/topics/race", "/v1/topics/race/groups/g", "/v1/topics/race/groups/g/consumers/c"):
        replies = at_once(8, partial(_put, api, path))
        assert sorted(r.status for r in replies) == [200] * 7 + [201]


def test_settings_changed_by_8_at_once_are_all_kept_or_all_refused(api: Client) -> None:
    topic = api.topic()
    fields = ["lease_seconds", "retention_days", "alarm_backlog", "rate_limit", "dedup_window_seconds"]
    replies = at_once(5, lambda n: api.put(topic.path, {fields[n]: 100 + n}))
    view = api.get(topic.path).expect(200)
    for n, reply in enumerate(replies):
        assert reply.status in (200, 503)
        if reply.status == 200:
            assert view[fields[n]] == 100 + n


@pytest.mark.parametrize("contact", [{}, {"url": "http://127.0.0.1:1/"}], ids=["pulls", "is called"])
def test_20_twins_that_register_one_consumer_make_one_and_see_one_secret(api: Client, contact: Any) -> None:
    group = api.topic().group()
    replies = at_once(20, lambda n: api.put(f"{group.path}/consumers/c", contact))
    assert Counter(reply.status for reply in replies) == {201: 1, 200: 19}
    assert [reply.status for reply in replies if "secret" in reply.json] == ([201] if contact else [])
