"""Many producing processes, each message an append of its own: what contention costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from chalicelib.domain.message import Draft
from chalicelib.domain.segment import Allocation, Segment
from chalicelib.domain.topic import Topic
from chalicelib.services.produce.appender import ProduceResult

from .figures import Figure, at_most, without_target
from .meter import Cost, Meter
from .stage import Stage, run_together, say, stage

_WRITERS = 32
_EACH = 50
_LIMIT_WU = 2.5


class _Run(NamedTuple):
    """What one writer did."""

    cost: Cost
    places: list[tuple[int, int]]
    seconds: float


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """32 processes on 4 shards and on one; RuntimeError if a message is lost or an offset is missing."""
    with stage(endpoint) as target:
        alone = _rate(_run_writers(target, 1, 4, 400))
        for shards in (4, 1):
            runs = _run_writers(target, _WRITERS, shards, _EACH)
            cost = sum((run.cost for run in runs), Cost()).per(_WRITERS * _EACH)
            share = _reserved_share(target, shards, runs)
            rate = _rate(runs)
            work = f"{_WRITERS} writers on {shards} shard{'s'[: shards > 1]}"
            losses = sum(run.cost.failed for run in runs) / _WRITERS / _EACH
            ratio = f"{cost.reads:.2f} RU, {losses:.2f} races lost a message"
            name = f"{work}, dense, nothing lost: write units per message"
            if shards > 1:
                yield at_most(name, cost.writes, _LIMIT_WU, "WU", ratio)
            else:
                yield without_target(name, f"{cost.writes:.3g} WU", ratio)
            yield without_target(
                f"{work}: messages a second", f"{rate:,.0f}", f"{rate / alone:.2f} x one writer"
            )
            yield without_target(f"{work}: share of messages at reserved offsets", f"{share:.0%}")


def _run_writers(target: Stage, writers: int, shards: int, each: int) -> list[_Run]:
    say(f"writers: {writers} processes x {each} messages on {shards} shards")
    topic, _ = target.deps().admin.put_topic(f"w{writers}-{shards}", {"shards": shards})
    return run_together(writers, partial(_write, target, topic, each))


def _write(target: Stage, topic: Topic, each: int, number: int, ready: Callable[[], None]) -> _Run:
    meter = Meter()
    producer = target.deps(meter).producer
    places = []
    ready()
    start = time.monotonic()
    for i in range(each):
        (result,) = producer.produce(topic, [Draft(_body(number, i))])
        if not isinstance(result, ProduceResult):
            raise result
        assert result.shard is not None
        assert result.offset is not None
        places.append((result.shard, result.offset))
    return _Run(meter.cost, places, time.monotonic() - start)


def _body(writer: int, number: int) -> bytes:
    return f'"{writer}-{number} {"x" * 200}"'.encode()


def _rate(runs: list[_Run]) -> float:
    return sum(len(run.places) for run in runs) / max(run.seconds for run in runs)


def _reserved_share(target: Stage, shards: int, runs: list[_Run]) -> float:
    """Check that offsets are dense and each message is at its writer's offset only. Returns the share reserved."""
    deps = target.deps()
    topic = deps.catalog.topic(f"w{len(runs)}-{shards}")
    reserved_count = 0
    for shard in range(shards):
        rows = _rows(deps.adapters.log.read, topic, shard)
        at = 0
        for row in rows:
            if row.first != at:
                raise RuntimeError(f"shard {shard}: offsets {at} to {row.first - 1} are missing")
            at = row.end
        told_of = {
            o: _body(n, i) for n, run in enumerate(runs) for i, (s, o) in enumerate(run.places) if s == shard
        }
        bodies = {row.first + i: draft.body for row in rows for i, draft in enumerate(row.drafts)}
        if bodies != told_of:
            raise RuntimeError(f"shard {shard}: the log does not hold what the writers were told")
        reserved_count += sum(len(row.drafts) for row in rows if row.allocation is Allocation.RESERVED)
    return reserved_count / sum(len(run.places) for run in runs)


def _rows(read: Callable[..., list[Segment]], topic: Topic, shard: int) -> list[Segment]:
    """All of a shard's segments."""
    rows: list[Segment] = []
    while segments := read(topic.shard_key(shard), rows[-1].end if rows else 0, 500):
        rows += segments
    return rows
