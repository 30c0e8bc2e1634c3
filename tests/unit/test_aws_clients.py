"""The one factory of AWS clients, which threads share: boto3 makes clients in one thread at a time only."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from chalicelib.store.clients import Clients

_LONG_SECONDS = 0.05  # for a thread that waits for nothing


@pytest.mark.parametrize("is_same", [True, False], ids=["the same client", "another client"])
def test_while_one_thread_makes_a_client_no_other_thread_makes_one(is_same: bool) -> None:
    """Movers and pushes first ask for theirs in several threads at once."""
    makings: list[Any] = []
    second: list[Future[Any]] = []
    may_end = Event()

    def note(client: Any) -> None:
        makings.append(client)
        if len(makings) == 1:
            second.append(pool.submit((clients if is_same else others).get, "sqs"))
            may_end.wait(_LONG_SECONDS)
            assert len(makings) == 1, "another thread is at it as well"
        else:
            may_end.set()

    clients, others = Clients("us-east-1", note), Clients("us-east-1", note)
    with ThreadPoolExecutor(1) as pool:
        first = clients.get("sqs")
        assert (second[0].result() is first) is is_same
    assert makings == [first] if is_same else [first, second[0].result()]
