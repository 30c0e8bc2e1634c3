"""Nothing depends on a wake-up: with the stream switched off, sweeps still deliver."""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.load.serving import serving
from tests.support.receiver import Receiver, Visit

_MESSAGES = 40
_SECONDS = 75.0  # a sweep a minute, and its work


@pytest.mark.skipif(not os.environ.get("HEADRACE_SOAK"), reason="a sweep comes once a minute")
def test_i10_without_the_stream_all_arrives_with_the_next_sweep(engine: str, tmp_path: Path) -> None:
    modes = ("queue", "serial")
    with (
        Receiver() as receiver,
        serving(tmp_path, f"sweep-{uuid4().hex[:8]}", HEADRACE_STREAM="0") as api,
    ):
        topic = api.topic()
        for mode in modes:
            group = topic.group(mode, mode=mode)
            api.put(f"{group.path}/consumers/c", {"url": receiver.url(mode)}).expect(201)
        sent_ids = {result["id"] for result in topic.batch([{"body": n} for n in range(_MESSAGES)])}
        start = time.monotonic()
        arrivals: dict[str, set[str]] = {}
        while arrivals != dict.fromkeys(modes, sent_ids):
            assert time.monotonic() - start < _SECONDS, {mode: len(ids) for mode, ids in arrivals.items()}
            time.sleep(0.25)
            arrivals = {mode: {_id(v) for v in receiver.visits[:] if v.path == f"/{mode}"} for mode in modes}


def _id(visit: Visit) -> str:
    return visit.headers["webhook-id"]
