"""Each test as the first of a process: a pytest plugin (`make alone`).

Processes that share the tests take them as they come, so any test may be the first of one. A test that needs what
another left behind, a second topic or a cached setting, fails here each time, and not on some days.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

import pytest
from _pytest.runner import runtestprotocol


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with many values, the first and the last are run."""
    by_function: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_function.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {each for values in by_function.values() for each in (values[0], values[-1])}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports_of_child(item):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _reports_of_child(item: pytest.Item) -> list[pytest.TestReport]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as answer:
                pickle.dump(_run(item), answer)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        pickled = answer.read()
    os.waitpid(child, 0)
    if not pickled:
        return [pytest.TestReport(item.nodeid, item.location, {}, "failed", "its process died", "call")]
    hook = item.config.hook
    return [
        hook.pytest_report_from_serializable(config=item.config, data=data) for data in pickle.loads(pickled)
    ]


def _run(item: pytest.Item) -> list[dict[str, Any]]:
    """The reports of the test and all its fixtures, which are made for it only."""
    hook = item.config.hook
    return [
        hook.pytest_report_to_serializable(config=item.config, report=report)
        for report in runtestprotocol(item, log=False, nextitem=None)
    ]
