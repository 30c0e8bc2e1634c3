"""A sender that calls subscribers on this machine, over sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress
from chalicelib.delivery.functions import LocalFunctions
from chalicelib.delivery.sender import Sender
from chalicelib.ports.world import Clock


@contextmanager
def sending(clock: Clock, origin: str, functions: Path | None) -> Iterator[Sender]:
    """A sender that knows no other hosts, and the functions of this file. Its connections are closed at the end."""
    rules = Rules(own_hosts=frozenset({origin}), allow_loopback=True)
    egress = Egress(rules=rules, monotonic=time.monotonic, resolve=lambda host: ())
    yield Sender(
        egress=egress,
        functions=LocalFunctions(functions),
        clock=clock,
        real_clock=clock,
        monotonic=time.monotonic,
        origin=origin,
    )
    egress.close()
