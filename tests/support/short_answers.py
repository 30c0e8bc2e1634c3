"""A log whose answers hold few rows, as DynamoDB's do that end at a megabyte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from chalicelib.adapters import Adapters
from chalicelib.domain.segment import Rows, Segment, ShardKey
from chalicelib.store.log import Log


class _ShortAnswers:
    def __init__(self, log: Log, most: int) -> None:
        self._log = log
        self._most = most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def read(self, shard: ShardKey, first: int, rows: int, *, consistent: bool = False) -> Rows:
        return self._log.read(shard, first, min(rows, self._most), consistent=consistent)

    def read_back(self, shard: ShardKey, last: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        return self._log.read_back(shard, last, min(rows, self._most), consistent=consistent)


def with_short_answers(adapters: Adapters, most: int = 2) -> Adapters:
    """The ports of a process that gets so many rows of a log at once."""
    return replace(adapters, log=cast(Log, _ShortAnswers(adapters.log, most)))
