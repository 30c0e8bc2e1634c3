"""The log's stream as AWS has it: rows of all tenants in batches, to the router and the journal. A batch that is put
off comes again, before everything behind it: what stops one stops all."""

from __future__ import annotations

import base64
import gzip
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from chalicelib.domain.errors import HeadraceError
from chalicelib.domain.segment import ShardKey
from chalicelib.store.attributes import Item, int_of
from chalicelib.store.layout import segment_key
from tests.simulation.clients import TOPIC
from tests.simulation.world import Wakes, World
from tests.support.damage import NEWER, Change, having, without

_ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/log/stream/2026-11-20T09:30:00.000"
_AGAIN_S = 1

DAMAGES: tuple[Change, ...] = (
    NEWER,
    having("m", {"B": b"\x00\xff damaged"}),
    without("m"),
    without("s"),
    having("s", {"S": "nowhere"}),
    having("o", {"S": "first"}),
    having("k", {"S": "a kind of its own"}),
    having("k", {"N": "7"}),
    lambda item: {"kind": {"S": "unheard of"}},
)
"""What may stand in a stream instead of a row of ours."""


class Stream(Wakes):
    """ports.Invoker as before; rows go to the router and the journal together."""

    def __init__(self, world: World, *, is_damaged: bool = False) -> None:
        """`is_damaged`: rows of the tenant in trouble come to the journal in any shape."""
        super().__init__(world)
        self._is_damaged = is_damaged
        self._random = random.Random(f"stream {world.seed}")
        self._rows: list[tuple[ShardKey, int]] = []
        self._number = 0
        self.shown: Counter[str] = (
            Counter()
        )  # records that the journal cannot read; by topic, messages that it can
        world.scheduler.spawn(self._carries, world)

    def appended(self, shard: ShardKey, offset: int) -> None:
        self._rows.append((shard, offset))

    def _carries(self) -> None:
        world = self._world
        while True:
            world.pause(self._random.uniform(0.2, 0.8))
            rows, self._rows = self._rows, []
            if not rows:
                continue
            last: dict[str, int] = {}
            for shard, offset in rows:
                last[str(shard)] = max(offset, last.get(str(shard), 0))
            records = [self._record(*row) for row in rows]
            while not self._is_taken(last, records):
                world.pause(_AGAIN_S)

    def _is_taken(self, last: Mapping[str, int], records: list[dict[str, Any]]) -> bool:
        try:
            with self._world.fleet.at_work("router", 60) as process:
                process.deps.waker.route(last)
                process.deps.journal.write(records)
        except HeadraceError:
            return False
        except Exception as error:  # noqa: BLE001 - Lambda tries until the records are too old
            self._world.accuse(f"a batch is never taken: {error!r}")
        return True

    def _record(self, shard: ShardKey, offset: int) -> dict[str, Any]:
        item = self._world.damage.row("log", segment_key(shard, offset))
        if self._is_damaged and shard.topic == TOPIC and self._random.random() < 0.5:
            item = self._random.choice(DAMAGES)(item)
            self.shown["damaged"] += 1
            self._world.injected["record damaged"] += 1
        elif "~" not in shard.topic and shard.topic != TOPIC:
            self.shown[shard.topic] += int_of(item, "n")
        self._number += 1
        return {
            "eventName": "INSERT",
            "eventSourceARN": _ARN,
            "dynamodb": {"SequenceNumber": f"{self._number:021}", "NewImage": _json(item)},
        }

    def journaled(self) -> Counter[str]:
        """What the journal says: messages by topic, and what lies in quarantine."""
        lines: Counter[str] = Counter()
        blobs: Any = self._world.adapters.blobs
        for name, body in blobs._blobs.items():
            folder = name.split("/")[:2]
            if folder == ["journal", "quarantine"]:
                lines["damaged"] += gzip.decompress(body).count(b"\n")
            elif folder == ["journal", "messages"]:
                rows = map(msgspec.json.decode, gzip.decompress(body).splitlines())
                lines.update(row["topic"] for row in rows if row.get("void") != "undecodable")
        return lines


def _json(item: Item) -> Item:
    """As Lambda shows it: binary values in base64."""
    return {
        name: {"B": base64.b64encode(value["B"]).decode()} if "B" in value else value
        for name, value in item.items()
    }
