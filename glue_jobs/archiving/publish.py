"""How new files become part of the archive, in five steps:

1. Spark writes rows to a temporary folder, `archive/_aside`.
2. They are read again, all values, and compared with what was written.
3. The files are moved into the folder of their day and topic. Their names contain the checksum of the rows.
4. The manifest that names them is written. This is the moment at which readers see them.
5. Files that no manifest names any more are deleted, after the grace period.

A job may be stopped between any two steps: the archive is as it was, or as it is after step 4. The next run cleans up.
"""

from __future__ import annotations

from dataclasses import replace

from glue_jobs.common import manifest as manifests
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.checksums import in_hex
from glue_jobs.common.failures import JobError
from glue_jobs.common.manifest import Manifest, Part
from glue_jobs.common.schemas import TABLES

ASIDE = "archive/_aside"
_LISTS = "archive/catalog"


class Mismatch(JobError):
    """What was written is not what should have been; nothing was published."""


def files_aside(bucket: Bucket, table: str, day: str, within: str = "") -> dict[str, tuple[Entry, ...]]:
    """The files in the temporary folder, by topic; with `within`, only those with this text in their name."""
    files: dict[str, list[Entry]] = {}
    for entry in bucket.entries(folder_aside(table, day)):
        if entry.name.endswith(".parquet") and within in entry.name:
            files.setdefault(entry.name.split("/of=")[1].partition("/")[0], []).append(entry)
    return {topic: tuple(entries) for topic, entries in files.items()}


def part(topic: str, rows: int, checksum: int, files: tuple[Entry, ...]) -> Part:
    """A partition. Its checksum is written as an unsigned number, in hex."""
    return Part(topic, rows, in_hex(checksum), files)


def publish(bucket: Bucket, table: str, day: str, part: Part, old: Part | None) -> Part:
    """Move a partition from the temporary folder into the archive. If its old files hold the same rows, they stay and
    nothing is moved."""
    if old and (old.rows, old.checksum) == (part.rows, part.checksum) and _are_there(bucket, old):
        return old
    return move_home(bucket, table, day, part)


def move_home(bucket: Bucket, table: str, day: str, part: Part) -> Part:
    """Move a partition's files into the folder of their day and topic, where no manifest names them yet."""
    home = f"archive/{table}/day={day}/topic={part.topic}"
    files = []
    for number, file in enumerate(part.files, 1):
        name = f"{home}/{part.checksum.lower()}-{number}-of-{len(part.files)}.zstd.parquet"
        bucket.move(file.name, name)
        files.append(replace(file, name=name))
    return replace(part, files=tuple(files))


def switch(bucket: Bucket, old: Manifest | None, new: Manifest, now_ms: int) -> Manifest:
    """Write the new manifest and the lists for readers. Files that only the old one names are noted in it as retired:
    `sweep` deletes them later."""
    names = {file.name for table in new.tables for file in new.files(table)}
    before = {file.name for table in old.tables for file in old.files(table)} if old else set()
    retired_at = dict(old.retired) if old else {}
    retired_at |= dict.fromkeys(before, now_ms)
    new = replace(
        new,
        retired=tuple(sorted((name, at) for name, at in retired_at.items() if name not in names)),
    )
    manifests.save(bucket, new)
    show(bucket, new)
    return new


def sweep(bucket: Bucket, manifest: Manifest, grace_ms: int, now_ms: int) -> int:
    """Delete the files that were retired at least `grace_ms` ago, and those that a stopped run left behind. Returns how
    many there were."""
    retired_files = tuple((name, at) for name, at in manifest.retired if now_ms - at < grace_ms)
    names = {file.name for table in manifest.tables for file in manifest.files(table)} | dict(
        retired_files
    ).keys()
    leftovers = [
        entry.name
        for table in TABLES
        for entry in bucket.entries(f"archive/{table}/day={manifest.day}")
        if entry.name not in names
    ]
    for name in leftovers:
        bucket.delete(name)
    bucket.delete(f"{ASIDE}/{manifest.day}")
    if retired_files != manifest.retired:
        manifests.save(bucket, replace(manifest, retired=retired_files))
    return len(leftovers)


def _are_there(bucket: Bucket, part: Part) -> bool:
    folders = {file.name.rpartition("/")[0] for file in part.files}
    return {*part.files} <= {entry for folder in folders for entry in bucket.entries(folder)}


def folder_aside(table: str, day: str) -> str:
    """The temporary folder of a day's rows. Spark reads the columns that folders name from the folder above it."""
    return f"{ASIDE}/{day}/{table}/day={day}"


def show(bucket: Bucket, manifest: Manifest) -> None:
    """Let readers see what the manifest names: for each table and day, `files.txt` has a URI in each line. Athena's
    tables point to these lists (SymlinkTextInputFormat), other readers read them as text. A list is put in one step, so
    a reader sees a day as it was or as it is, never between."""
    for table in TABLES:
        name = f"{_LISTS}/{table}/day={manifest.day}/files.txt"
        text = "".join(f"{bucket.uri(file.name)}\n" for file in manifest.files(table))
        if text != (bucket.read(name) or ""):
            bucket.write(name, text)
