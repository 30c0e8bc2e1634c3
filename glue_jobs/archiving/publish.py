"""How new files become part of the archive, in four steps:

1. Spark writes sorted files into the folder of their day, where no list names them yet.
2. They are read again, all values, and compared with what was written.
3. The manifest that names them is written, and the lists for readers. This is the moment at which readers see them.
4. Files that no manifest names any more are deleted, after the grace period.

A job may be stopped between any two steps: the archive is as it was, or as it is after step 3. The next run cleans up.
"""

from __future__ import annotations

from dataclasses import replace

from glue_jobs.common import manifest as manifests
from glue_jobs.common.bucket import Bucket
from glue_jobs.common.failures import JobError
from glue_jobs.common.manifest import Manifest, Table
from glue_jobs.common.schemas import TABLES

_LISTS = "archive/catalog"


class Mismatch(JobError):
    """What was written is not what should have been; nothing was published."""


def folder_of(table: str, day: str) -> str:
    """Where the files of a table's day are, with or without a name in its manifest."""
    return f"archive/{table}/day={day}"


def kept(bucket: Bucket, table: str, day: str, new: Table, old: Table) -> Table:
    """The old files, if they hold the same rows; else the new ones."""
    is_same = old.topics == new.topics and {(file.name, file.size) for file in old.files} <= {
        (entry.name, entry.size) for entry in bucket.entries(folder_of(table, day))
    }
    return old if is_same else new


def switch(bucket: Bucket, old: Manifest | None, new: Manifest, now_ms: int) -> Manifest:
    """Write the new manifest and the lists for readers. Files that only the old one names are noted in it as retired:
    `sweep` deletes them later."""
    retired_at = dict(old.retired) if old else {}
    retired_at |= dict.fromkeys(_names(old) if old else (), now_ms)
    retired = sorted((name, at) for name, at in retired_at.items() if name not in _names(new))
    new = replace(new, retired=tuple(retired))
    manifests.save(bucket, new)
    show(bucket, new)
    return new


def sweep(bucket: Bucket, manifest: Manifest, grace_ms: int, now_ms: int) -> None:
    """Delete the files that were retired at least `grace_ms` ago, and what a stopped run left behind."""
    retired_files = tuple((name, at) for name, at in manifest.retired if now_ms - at < grace_ms)
    names = _names(manifest) | dict(retired_files).keys()
    for table in TABLES:
        home = folder_of(table, manifest.day)
        bucket.delete(f"{home}/_temporary")
        for entry in bucket.entries(home):
            if entry.name not in names:
                bucket.delete(entry.name)
    if retired_files != manifest.retired:
        manifests.save(bucket, replace(manifest, retired=retired_files))


def show(bucket: Bucket, manifest: Manifest) -> bool:
    """Let readers see what the manifest names: for each table and day, `files.txt` has a URI in each line. Athena's
    tables point to these lists (SymlinkTextInputFormat), other readers read them as text. A list is put in one step, so
    a reader sees a day as it was or as it is, never between. Did they see it before?"""
    was_shown = True
    for table in TABLES:
        name = f"{_LISTS}/{table}/day={manifest.day}/files.txt"
        text = "".join(f"{bucket.uri(file.name)}\n" for file in manifest.table(table).files)
        if text != (bucket.read(name) or ""):
            bucket.write(name, text)
            was_shown = False
    return was_shown


def _names(manifest: Manifest) -> set[str]:
    return {file.name for table in manifest.tables.values() for file in table.files}
