"""The catalog for readers: for each table and day, a list of the files that the manifest names.

`archive/catalog/<table>/day=2026-11-21/files.txt`, a URI in each line. Athena's tables point to these lists
(SymlinkTextInputFormat), other readers read them as text. A list is replaced in one step, so readers see the old day or
the new one, never a mixture (docs/adr/0043).
"""

from __future__ import annotations

from glue_jobs.common.bucket import Bucket
from glue_jobs.common.manifest import Manifest
from glue_jobs.common.schemas import TABLES

FOLDER = "archive/catalog"


def name_of(table: str, day: str) -> str:
    return f"{FOLDER}/{table}/day={day}/files.txt"


def show(bucket: Bucket, manifest: Manifest) -> None:
    """Let readers see what the manifest names."""
    for table in TABLES:
        name = name_of(table, manifest.day)
        text = "".join(f"{bucket.uri(file.name)}\n" for file in manifest.files(table))
        if text != (bucket.read(name) or ""):
            bucket.write(name, text)
