"""How large a cursor's item becomes: with many open leases that are settled in any order, and in simulated worlds.

Nothing here depends on the machine: the store is in memory, time is virtual.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from chalicelib.domain.limits import MAX_CURSOR_BYTES, MAX_RECEIVE
from chalicelib.domain.topic import CursorKey, Group, cursor_key
from tests.simulation.judge import play
from tests.simulation.threads import make_virtual
from tests.support import factories as make
from tests.support.cursor_bytes import bytes_of
from tests.support.desk import Desk
from tests.support.stages import embedded_stage

from .figures import Figure, at_most
from .stage import say

_RECEIVES = 30
_ACKED_TOGETHER = 100
_LEASE_SECONDS = 3_600
_WORLDS = 40


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """The largest item of one shard's cursor, and of any in the worlds."""
    for mode in ("queue", "serial"):
        say(f"cursors: {_RECEIVES} receives of {MAX_RECEIVE:,}, {mode}")
        yield _figure_of_open_leases(mode)
    say(f"cursors: {_WORLDS} worlds")
    yield _figure_of_worlds()


def _figure(work: str, largest: int, note: str) -> Figure:
    return at_most(f"{work}: largest cursor item", largest / 1024, MAX_CURSOR_BYTES / 1024, "KB", note)


def _figure_of_open_leases(mode: str) -> Figure:
    """Every other message of each receive is acknowledged, in random order: so leases fall into most pieces."""
    desk, chance = Desk.at(embedded_stage(), mode=mode, shards=1), random.Random(1)
    group = desk.group(mode=mode)
    key, largest = cursor_key(desk.topic, group, 0), 0
    leased = []
    for n in range(_RECEIVES):
        desk.produce(*(make.draft(i, ordering_key=f"k{n}-{i}") for i in range(MAX_RECEIVE)))
        leased += desk.receive(group, MAX_RECEIVE, lease=_LEASE_SECONDS)
        largest = max(largest, _size(desk, group, key))
    in_flight = len(leased)
    odd = leased[::2]
    chance.shuffle(odd)
    for first in range(0, len(odd), _ACKED_TOGETHER):
        desk.ack(group, odd[first : first + _ACKED_TOGETHER])
        largest = max(largest, _size(desk, group, key))
    work = f"{_RECEIVES} receives of {MAX_RECEIVE:,}, every other message acked in any order, {mode}"
    return _figure(work, largest, f"{in_flight:,} messages in flight on one shard")


def _size(desk: Desk, group: Group, key: CursorKey) -> int:
    return bytes_of(key, desk.cursor(group))


def _figure_of_worlds() -> Figure:
    largest = 0
    with pytest.MonkeyPatch.context() as patch:
        make_virtual(patch)
        for seed in range(_WORLDS):
            world, _ = play(seed)
            largest = max(largest, world.largest_cursor_bytes)
    return _figure(f"{_WORLDS} simulated worlds", largest, "")
