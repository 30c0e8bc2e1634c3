"""Journals to archive, made by hand."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import duckdb
from pyspark.sql import SparkSession

from glue_jobs.archiving import options
from glue_jobs.archiving import run as archive_run
from glue_jobs.common import manifest, session
from glue_jobs.common.bucket import Bucket, FolderBucket, S3Bucket
from tests.support.s3.server import S3Server

NOON_MS = 1_795_262_400_000  # 2026-11-21T12:00:00Z
DAY, NEXT = "2026-11-21", "2026-11-22"
LATER = "2026-11-23T06:00:00Z"
Line = dict[str, Any]


def orders(*offsets: int) -> list[tuple[Any, ...]]:
    """What `Place.places` answers for these offsets of the topic `orders`, shard 0."""
    return [("orders", 0, offset) for offset in offsets]


def message(offset: int, topic: str = "orders", shard: int = 0, **fields: Any) -> Line:
    line = {
        "v": 1, "topic": topic, "topic_uid": "u1", "shard": shard, "offset": offset, "edition": 0,
        "accepted_ms": NOON_MS + offset, "id": f"m-{shard}-{offset}", "keys": ["k"], "headers": {"h": "ö"},
        "content_type": "application/json", "body": json.dumps({"n": offset}, separators=(",", ":")),
    }  # fmt: skip
    return {**line, **fields}


def delivery(offset: int, attempt: int = 1, topic: str = "orders", shard: int = 0, **fields: Any) -> Line:
    line = {
        "v": 1, "topic": topic, "topic_uid": "u1", "group": "billing", "group_uid": "g1", "shard": shard,
        "offset": offset, "attempt": attempt, "consumer": "c", "consumer_uid": "", "duration_ms": 5, "detail": "",
        "started_ms": NOON_MS + 1000 * attempt + offset, "outcome": "SUCCESS", "trace": f"t{attempt}",
    }  # fmt: skip
    return {**line, **fields}


@dataclass
class Place:
    """A bucket, as a folder, and what is done with it."""

    spark: SparkSession
    bucket: Bucket
    name: str
    folder: Path

    @classmethod
    def in_folder(cls, spark: SparkSession, folder: Path, name: str) -> Place:
        """An empty bucket that is a folder."""
        session.map_bucket(spark, name, folder)
        return Place(spark, FolderBucket(folder, name), name, folder)

    def journal(self, name: str, lines: Iterable[Line], day: str = "", hour: str = "") -> Path:
        """Put one object, where its first line belongs; its path."""
        lines = list(lines)
        table = "messages" if "accepted_ms" in lines[0] else "deliveries"
        at_ms = lines[0]["accepted_ms" if table == "messages" else "started_ms"]
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        path = (
            self.folder / f"journal/{table}/day={day or at.date()}/hour={hour or f'{at:%H}'}/{name}.jsonl.gz"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
        return path

    def archive(self, *argv: str, bucket: Bucket | None = None) -> int:
        """Run the job in this process; its exit code."""
        args = ["--bucket", self.name, "--folder", str(self.folder), "--now", LATER, "--grace-minutes", "0"]
        if "--backfill" not in argv:
            args += ["--backfill", "no"]
        with self.as_it_is():
            return archive_run.run(
                self.start, bucket or self.bucket, options.of_archive(None, [*args, *argv])
            )

    def start(self, is_small: bool = False) -> SparkSession:
        """The session, which is there."""
        return self.spark

    def as_it_is(self) -> AbstractContextManager[None]:
        """For the time of a job, what is in the folder is in the bucket, and afterwards the other way round."""
        return nullcontext()

    def pull(self) -> None:
        """Bring what is in the bucket into the folder, where it is."""

    def manifest(self, day: str = DAY) -> manifest.Manifest:
        day_manifest = manifest.load(self.bucket, day)
        assert day_manifest
        return day_manifest

    def files(self, table: str = "messages") -> list[str]:
        """What lies there, whether or not a manifest names it."""
        return sorted(
            str(p.relative_to(self.folder)) for p in self.folder.glob(f"archive/{table}/**/*.parquet")
        )

    def named(self) -> set[str]:
        """The files that the day's manifest names."""
        manifest = self.manifest()
        return {file.name for table in manifest.tables.values() for file in table.files}

    def shown(self, table: str = "messages") -> list[str]:
        """The files that the catalog shows to readers."""
        lists = sorted(self.folder.glob(f"archive/catalog/{table}/*/files.txt"))
        uris = [uri for each in lists for uri in each.read_text().split()]
        assert all(uri.startswith(f"s3://{self.name}/") for uri in uris)
        return sorted(uri.removeprefix(f"s3://{self.name}/") for uri in uris)

    def query(
        self, selection: str, table: str = "messages", files: list[str] | None = None
    ) -> list[tuple[Any, ...]]:
        """Ask DuckDB about a table: an independent reader of all that lies there, or of some files."""
        files = [str(self.folder / name) for name in (self.files(table) if files is None else files)]
        rows = f"read_parquet({files}, hive_partitioning=true, hive_types={{'day': 'DATE'}})"
        return duckdb.execute(f"select {selection.replace('%', rows)}").fetchall()

    def places(self) -> list[tuple[Any, ...]]:
        """Topic, shard and offset of every row."""
        return self.query('topic, shard, "offset" from % order by all')


@dataclass
class S3Place(Place):
    """A bucket of S3, which the folder mirrors: what a test finds or changes there is in the bucket."""

    server: S3Server

    @classmethod
    def made(cls, spark: SparkSession, server: S3Server, name: str, folder: Path) -> Self:
        client = server.client()
        client.create_bucket(Bucket=name)
        return cls(spark, S3Bucket(client, name), name, folder, server)

    @contextmanager
    def as_it_is(self) -> Iterator[None]:
        self.push()
        try:
            yield
        finally:
            self.server.allow()
            self.pull()

    def manifest(self, day: str = DAY) -> manifest.Manifest:
        self.push()
        return super().manifest(day)

    def push(self) -> None:
        """Make the bucket what the folder is."""
        client, remote_tags = self.server.client(), self._there()
        local_paths = {
            str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()
        }
        for name in remote_tags.keys() - local_paths.keys():
            client.delete_object(Bucket=self.name, Key=name)
        for name, path in local_paths.items():
            content = path.read_bytes()
            if remote_tags.get(name) != f'"{hashlib.md5(content).hexdigest()}"':
                client.put_object(Bucket=self.name, Key=name, Body=content)

    def pull(self) -> None:
        """Make the folder what the bucket is."""
        client, remote_tags = self.server.client(), self._there()
        for path in [path for path in self.folder.rglob("*") if path.is_file()]:
            if str(path.relative_to(self.folder)) not in remote_tags:
                path.unlink()
        for name in remote_tags:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.get_object(Bucket=self.name, Key=name)["Body"].read())

    def _there(self) -> dict[str, str]:
        pages = self.server.client().get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return {
            each["Key"]: each["ETag"]
            for page in pages
            for each in page.get("Contents", ())
            if not each["Key"].endswith("/")
        }
