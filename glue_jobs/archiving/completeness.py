"""The proof that nothing is lacking: offsets are dense, so what is missing is a gap.

`archive/proved.json` holds, by the log's partition key, the offsets that are in the archive (or were accounted for, as
cancelled or as closed holes) and those that are lost for good. The service lets only rows below go (docs/archive.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from glue_jobs.common.bucket import Bucket
from glue_jobs.common.manifest import Manifest
from glue_jobs.common.ranges import Ranges, merged, without

NAME = "archive/proved.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Proved:
    """By shard: the offsets in the archive, and those that nobody has any more."""

    ranges: Mapping[str, Ranges]
    lost: Mapping[str, Ranges]

    def with_day(self, manifest: Manifest, asked: bool) -> Proved:
        """The same after a day. What is missing is lost only where DynamoDB was asked for it."""
        ranges, lost = dict(self.ranges), dict(self.lost)
        for shard in manifest.shards:
            ranges[shard.key] = merged((*ranges.get(shard.key, ()), *shard.ranges))
            missing = shard.missing if asked else ()
            lost[shard.key] = without((*lost.get(shard.key, ()), *missing), ranges[shard.key])
        return Proved(ranges, lost)


def load(bucket: Bucket) -> Proved:
    document = json.loads(bucket.read(NAME) or '{"ranges":{},"lost":{}}')
    return Proved(_ranges(document["ranges"]), _ranges(document["lost"]))


def save(bucket: Bucket, proved: Proved) -> None:
    document = {
        "v": VERSION,
        "ranges": dict(proved.ranges),
        "lost": {k: r for k, r in proved.lost.items() if r},
    }
    bucket.write(NAME, json.dumps(document, separators=(",", ":")))


def _ranges(told: Mapping[str, list[list[int]]]) -> dict[str, Ranges]:
    return {key: tuple((first, last) for first, last in ranges) for key, ranges in told.items()}


def begin(key: str, ranges: Ranges, proved: Proved, old: Manifest | None) -> int:
    """From which offset on a day must have all: from where it had at its last run, or behind what is proved."""
    for shard in old.shards if old else ():
        if shard.key == key:
            return shard.begin
    proved_ranges = proved.ranges.get(key, ())
    return min(proved_ranges[-1][1] + 1 if proved_ranges else 0, ranges[0][0])


def gaps(
    ranges_by_shard: Mapping[str, Ranges], begins: Mapping[str, int], proved: Proved, old: Manifest | None
) -> dict[str, Ranges]:
    """The offsets that a day should have and has not: between its own, and those that it had before."""
    lacking: dict[str, Ranges] = {}
    had = {shard.key: shard.ranges for shard in old.shards} if old else {}
    for key, ranges in ranges_by_shard.items():
        between = without([(begins[key], ranges[-1][1])], (*ranges, *proved.ranges.get(key, ())))
        lacking[key] = merged((*between, *without(had.get(key, ()), ranges)))
    for key in had.keys() - ranges_by_shard.keys():
        lacking[key] = had[key]
    return {key: ranges for key, ranges in lacking.items() if ranges}
