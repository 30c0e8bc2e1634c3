"""How fast the client is, in numbers that docs/figures.md has; those that depend on the machine in the soak only."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from headrace import Headrace


@pytest.fixture(scope="module")
def bench() -> Any:
    spec = importlib.util.spec_from_file_location("client_bench", Path(__file__).parents[1] / "bench.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_send_takes_little_more_processor_time_than_a_bare_post(
    bench: Any, hr: Headrace, topic: str
) -> None:
    own, bare = bench.send_costs(hr, topic, 50)
    assert own <= 2.5 * bare, "it is about 1.2 times; by httpx it was twice"


@pytest.mark.soak
def test_it_is_imported_within_150_ms(bench: Any) -> None:
    assert bench.import_seconds() <= 0.15


@pytest.mark.soak
def test_lingering_sends_twenty_times_as_much(bench: Any, hr: Headrace, topic: str) -> None:
    ratios = []
    for _ in range(3):  # side by side, for a machine may be busy now and idle then
        single = bench.single_sends(hr, topic, 500)
        ratios.append(bench.lingering_sends(hr, topic, 20_000) / single)
    assert max(ratios) >= 20


@pytest.mark.soak
def test_eight_handlers_take_3000_messages_a_second(bench: Any, hr: Headrace, topic: str) -> None:
    hr.put_group(topic, "bench", begin="earliest")
    bench.lingering_sends(hr, topic, 20_000)
    assert bench.consumption_rate(hr, topic, 20_000) >= 3_000
