"""The services of one process, which its threads share."""

from __future__ import annotations

from threading import Thread
from typing import Any, cast

from chalicelib.wiring import Deps
from tests.support.stages import embedded_stage

_LONG_SECONDS = 0.05  # for a thread that waits for nothing


def test_threads_that_ask_for_a_service_at_once_get_the_same_one() -> None:
    """Of two catalogs, say, the one would not hear of what was changed by way of the other."""

    class Adapters:
        """Another thread asks for the catalog while the first one makes it."""

        def __getattr__(self, name: str) -> Any:
            if other.ident is None:
                other.start()
                other.join(_LONG_SECONDS)
            return getattr(adapters, name)

    adapters = embedded_stage().adapters
    deps = Deps(cast(Any, Adapters()))
    catalogs: list[object] = []
    other = Thread(target=lambda: catalogs.append(deps.catalog))
    catalogs.append(deps.catalog)
    other.join()
    assert catalogs == [deps.catalog, deps.catalog]
