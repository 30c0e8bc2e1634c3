"""From rows to files that a manifest names.

Rows are written aside, read again and compared, then given their names, which hold their checksum, then named by the
manifest, and only then does anything go. Whoever stops it anywhere leaves the archive as it was; the next run tidies.

What is compared are all values, but of a day that Arrow makes only offsets: its journal stays, so it can be made again.
"""

from __future__ import annotations

from dataclasses import replace

from glue_jobs.archiving import catalog
from glue_jobs.common import manifest as manifests
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.failures import JobError
from glue_jobs.common.manifest import Manifest, Part
from glue_jobs.common.schemas import TABLES

ASIDE = "archive/_aside"
_UNSIGNED = 2**64 - 1


class Mismatch(JobError):
    """What was written is not what should have been; nothing was published."""


def files_aside(bucket: Bucket, table: str, day: str, within: str = "") -> dict[str, tuple[Entry, ...]]:
    """The files that lie aside (in such folders), by topic."""
    files: dict[str, list[Entry]] = {}
    for entry in bucket.entries(folder_aside(table, day)):
        if entry.name.endswith(".parquet") and within in entry.name:
            files.setdefault(entry.name.split("/of=")[1].partition("/")[0], []).append(entry)
    return {topic: tuple(entries) for topic, entries in files.items()}


def part(topic: str, rows: int, checksum: int, files: tuple[Entry, ...]) -> Part:
    """A partition; its checksum is told as a number without a sign."""
    return Part(topic, rows, f"{checksum & _UNSIGNED:X}", files)


def publish(bucket: Bucket, table: str, day: str, part: Part, old: Part | None) -> Part:
    """Give a partition that lies aside its place. Where the same rows are there already, they stay."""
    if old and (old.rows, old.checksum) == (part.rows, part.checksum) and _are_there(bucket, old):
        return old
    return place(bucket, table, day, part)


def place(bucket: Bucket, table: str, day: str, part: Part) -> Part:
    """Move a partition's files to where no manifest names them yet."""
    home = f"archive/{table}/day={day}/topic={part.topic}"
    files = []
    for number, file in enumerate(part.files, 1):
        name = f"{home}/{part.checksum.lower()}-{number}-of-{len(part.files)}.zstd.parquet"
        bucket.move(file.name, name)
        files.append(replace(file, name=name))
    return replace(part, files=tuple(files))


def switch(bucket: Bucket, old: Manifest | None, new: Manifest, now_ms: int) -> Manifest:
    """Publish a manifest; what it does not name any more is retired from now on."""
    names = {file.name for table in new.tables for file in new.files(table)}
    before = {file.name for table in old.tables for file in old.files(table)} if old else set()
    retired = dict(old.retired) if old else {}
    retired |= dict.fromkeys(before, now_ms)
    new = replace(
        new,
        retired=tuple(sorted((name, at) for name, at in retired.items() if name not in names)),
    )
    manifests.save(bucket, new)
    catalog.show(bucket, new)
    return new


def sweep(bucket: Bucket, manifest: Manifest, grace_ms: int, now_ms: int) -> int:
    """Remove what was retired long enough ago, and what runs that were stopped left behind; how many files."""
    retired = tuple((name, at) for name, at in manifest.retired if now_ms - at < grace_ms)
    names = {file.name for table in manifest.tables for file in manifest.files(table)} | dict(retired).keys()
    leftovers = [
        entry.name
        for table in TABLES
        for entry in bucket.entries(f"archive/{table}/day={manifest.day}")
        if entry.name not in names
    ]
    for name in leftovers:
        bucket.delete(name)
    bucket.delete(f"{ASIDE}/{manifest.day}")
    if retired != manifest.retired:
        manifests.save(bucket, replace(manifest, retired=retired))
    return len(leftovers)


def _are_there(bucket: Bucket, part: Part) -> bool:
    return all(bucket.exists(file.name) for file in part.files)


def folder_aside(table: str, day: str) -> str:
    """Where a day's rows are written first; what is above is the root of what folders tell."""
    return f"{ASIDE}/{day}/{table}/day={day}"
