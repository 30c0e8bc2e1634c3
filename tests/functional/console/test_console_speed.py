"""Every page is made quickly and is light.

Quickly: by the time that this process computes, which does not grow when other processes work. What a browser waits
for is measured by `python -m bench --only console`.
"""

from __future__ import annotations

from time import process_time

import pytest

from tests.functional.console.conftest import Scene
from tests.functional.console.test_console_weight import LATER_BYTES, on_the_wire

MOST_SECONDS = 0.1
ROUNDS = 3


@pytest.mark.soak  # how much a processor does in a tenth of a second depends on which it is
def test_every_page_is_made_within_a_tenth_of_a_second_and_is_light(scene: Scene) -> None:
    slow: dict[str, float] = {}
    heavy: dict[str, int] = {}
    for name, path in scene.paths.items():
        durations = []
        for _ in range(ROUNDS):
            start = process_time()
            body, _ = on_the_wire(scene.browser, f"/{path}")
            durations.append(process_time() - start)
        if min(durations) > MOST_SECONDS:
            slow[name] = min(durations)
        if len(body) > LATER_BYTES:
            heavy[name] = len(body)
    assert (slow, heavy) == ({}, {})
