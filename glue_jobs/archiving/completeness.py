"""The proof that nothing is lacking: offsets are dense, so what is missing is a gap.

`archive/proved.json` holds, by the log's partition key, the offsets that are in the archive (or were accounted for, as
cancelled or as closed holes) and those that are lost for good. The service lets only rows below go (docs/archive.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from glue_jobs.common.bucket import Bucket
from glue_jobs.common.failures import Unreadable
from glue_jobs.common.manifest import Manifest, days
from glue_jobs.common.manifest import load as load_manifest
from glue_jobs.common.ranges import Ranges, merged, without

NAME = "archive/proved.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Proof:
    """By shard: the offsets that are in the archive, and those that are lost for good."""

    ranges: Mapping[str, Ranges]
    lost: Mapping[str, Ranges]

    def end(self, key: str, ranges: Ranges = ()) -> int:
        """The first offset of a shard behind all that is proved, and behind these."""
        return max((last + 1 for _, last in (*self.ranges.get(key, ()), *ranges)), default=0)

    def with_day(self, manifest: Manifest, was_asked: bool) -> Proof:
        """The same after a day. What is missing is lost only where DynamoDB was asked for it."""
        ranges, lost_ranges = dict(self.ranges), dict(self.lost)
        for shard in manifest.shards:
            ranges[shard.key] = merged((*ranges.get(shard.key, ()), *shard.ranges))
            missing_ranges = shard.missing if was_asked else ()
            lost_ranges[shard.key] = without(
                (*lost_ranges.get(shard.key, ()), *missing_ranges), ranges[shard.key]
            )
        return replace(self, ranges=ranges, lost=lost_ranges)


def load(bucket: Bucket) -> Proof:
    """What is proved so far. Raises Unreadable."""
    try:
        document = json.loads(bucket.read(NAME) or '{"ranges":{},"lost":{}}')
        return Proof(_ranges(document["ranges"]), _ranges(document["lost"]))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Unreadable(
            f"{NAME} can't be read: delete it, and run the archive again, which makes it anew of the manifests."
        ) from error


def ensure(bucket: Bucket) -> None:
    """Check that the proof can be read. If its file is missing, make it again from the manifests; a day whose
    manifest is damaged is added when it is archived again. Raises TooNew, Unreadable."""
    if bucket.exists(NAME):
        load(bucket)
        return
    proof = Proof({}, {})
    for day in days(bucket):
        with suppress(Unreadable):
            if manifest := load_manifest(bucket, day):
                proof = proof.with_day(manifest, was_asked=False)
    if proof.ranges:
        save(bucket, proof)


def save(bucket: Bucket, proof: Proof) -> None:
    document = {
        "v": VERSION,
        "ranges": dict(proof.ranges),
        "lost": {k: r for k, r in proof.lost.items() if r},
    }
    bucket.write(NAME, json.dumps(document, separators=(",", ":")))


def _ranges(pairs_by_shard: Mapping[str, list[list[int]]]) -> dict[str, Ranges]:
    return {key: tuple((first, last) for first, last in pairs) for key, pairs in pairs_by_shard.items()}


def begin(key: str, ranges: Ranges, proof: Proof, old: Manifest | None) -> int:
    """From which offset on a day must have all: from where it had at its last run, or behind what is proved."""
    for shard in old.shards if old else ():
        if shard.key == key:
            return shard.begin
    return min(proof.end(key), ranges[0][0])


def gaps(
    ranges_by_shard: Mapping[str, Ranges],
    first_offsets: Mapping[str, int],
    proof: Proof,
    old: Manifest | None,
) -> dict[str, Ranges]:
    """The offsets that a day should have and has not: between its own, and those that it had before."""
    missing_ranges: dict[str, Ranges] = {}
    old_ranges = {shard.key: shard.ranges for shard in old.shards} if old else {}
    for key, ranges in ranges_by_shard.items():
        inner_gaps = without([(first_offsets[key], ranges[-1][1])], (*ranges, *proof.ranges.get(key, ())))
        missing_ranges[key] = merged((*inner_gaps, *without(old_ranges.get(key, ()), ranges)))
    for key in old_ranges.keys() - ranges_by_shard.keys():
        missing_ranges[key] = old_ranges[key]
    return {key: ranges for key, ranges in missing_ranges.items() if ranges}
