"""DynamoDB Local is the oracle: the embedded engine answers each request as it does. Compared are requests of the flows
of the crash tests, in their order, and random variations of them, with each expression that the product sends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from uuid import uuid4

import pytest

from local.engine.core import Engine
from local.engine.server import Protocol
from tests.conftest import SOAK
from tests.crash.all_flows import FLOWS
from tests.crash.scenes import play
from tests.oracle.requests import Request, Variations, Wire, difference, recording
from tests.support.clock import ManualClock
from tests.support.flows import SharedTables, chance

_VARIATIONS = 200_000 if SOAK else 1_000
_FLOWS_OF_A_SHAPE = 1_000 if SOAK else 3


@pytest.fixture(scope="module")
def requests(engine: str, tmp_path_factory: pytest.TempPathFactory) -> list[Request]:
    """What the product sends while flows are played once: all of a flow that has a shape which few before it had."""
    with recording() as requests:
        tables = SharedTables(f"oracle-{uuid4().hex[:8]}", tmp_path_factory.mktemp("blobs"))
        tables.deps(ManualClock(), chance("tables")).setup()
        flows_with: Counter[str] = Counter()
        for name, flow in FLOWS.items():
            begin = len(requests)
            play(tables, flow, name=f"oracle {name}", rests=())
            shapes = {request.shape for request in requests[begin:]}
            if all(flows_with[shape] >= _FLOWS_OF_A_SHAPE for shape in shapes):
                del requests[begin:]
            else:
                flows_with.update(shapes)
    return requests


@pytest.fixture(scope="module")
def ours() -> Protocol:
    return Protocol(Engine())


@pytest.fixture(scope="module")
def theirs(oracle: str) -> Iterator[Wire]:
    with Wire(oracle) as wire:
        yield wire


def test_the_product_s_requests_are_answered_alike(
    requests: list[Request], ours: Protocol, theirs: Wire
) -> None:
    assert len(requests) > 1_000
    differences = (difference(request, ours, theirs) for request in requests)
    assert next(filter(None, differences), None) is None


@pytest.mark.soak  # slow
def test_variations_of_them_are_answered_alike(requests: list[Request], ours: Protocol, theirs: Wire) -> None:
    variations = Variations(requests, seed=1)
    differences = (difference(request, ours, theirs) for request in islice(variations, _VARIATIONS))
    assert next(filter(None, differences), None) is None
