"""The bucket as the driver sees it: S3 on AWS, a folder on one machine. Spark reads and writes its rows by itself.

Only what S3 has is used: there are no folders, and no file is renamed in one step. A text is written in one step,
and a listing shows everything that was written before it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol

_GONE = {"404", "NoSuchKey"}  # what S3 says to HEAD, which has no text, and to GET


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its name within the bucket, its bytes."""

    name: str
    size: int


class Bucket(Protocol):
    """Names are without `s3://<bucket>/`. Each change is one call, so that a test can stop before any."""

    def uri(self, name: str) -> str:
        """The name as Spark reads it."""

    def entries(self, folder: str) -> list[Entry]:
        """All files below a folder, by name."""

    def folders(self, folder: str) -> list[str]:
        """The names, within it, of the folders in a folder."""

    def exists(self, name: str) -> bool:
        """Is there such a file?"""

    def read(self, name: str) -> str | None:
        """A text; None where there is none."""

    def write(self, name: str, text: str) -> None:
        """Put a text, in the place of what may be there, in one step."""

    def get(self, name: str) -> bytes | None:
        """A file's bytes; None where there is none."""

    def get_file(self, name: str, path: Path) -> bool:
        """Bring a file, which may be large, to `path` on this machine; False where there is none."""

    def put(self, name: str, content: bytes) -> None:
        """Put a file, in the place of what may be there, in one step."""

    def put_file(self, name: str, path: Path) -> None:
        """The same with what a file of this machine holds, which may be large."""

    def reader(self) -> Callable[[str], bytes | None]:
        """`get`, for other processes."""

    def delete(self, name: str) -> None:
        """Remove a file, or all files below a folder. Harmless where there are none."""


class FolderBucket:
    """A folder used as the bucket."""

    def __init__(self, folder: Path, bucket: str) -> None:
        self._folder = folder
        self._root = f"s3://{bucket}"

    def uri(self, name: str) -> str:
        return f"{self._root}/{name}"

    def entries(self, folder: str) -> list[Entry]:
        files = (Path(path, name) for path, _, names in os.walk(self._path(folder)) for name in names)
        return sorted(filter(None, map(self._entry, files)), key=lambda entry: entry.name)

    def _entry(self, file: Path) -> Entry | None:
        """None: it is gone already, as a draft that has got its name meanwhile."""
        try:
            return Entry(str(file.relative_to(self._folder)), file.stat().st_size)
        except FileNotFoundError:
            return None

    def folders(self, folder: str) -> list[str]:
        path = self._path(folder)
        return sorted(each.name for each in path.iterdir() if each.is_dir()) if path.is_dir() else []

    def exists(self, name: str) -> bool:
        return self._path(name).is_file()

    def read(self, name: str) -> str | None:
        content = self.get(name)
        return None if content is None else content.decode()

    def write(self, name: str, text: str) -> None:
        self.put(name, text.encode())

    def get(self, name: str) -> bytes | None:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def get_file(self, name: str, path: Path) -> bool:
        try:
            shutil.copyfile(self._path(name), path)
        except FileNotFoundError:
            return False
        return True

    def put(self, name: str, content: bytes) -> None:
        self._put(name, lambda draft: draft.write_bytes(content))

    def put_file(self, name: str, path: Path) -> None:
        self._put(name, partial(shutil.copyfile, path))

    def _put(self, name: str, write: Callable[[Path], object]) -> None:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.new")
        write(draft)
        draft.replace(path)

    def reader(self) -> Callable[[str], bytes | None]:
        return self.get

    def delete(self, name: str) -> None:
        path = self._path(name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / name


class S3Bucket:
    """A bucket of S3, by boto3's client for it."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def uri(self, name: str) -> str:
        return f"s3://{self._bucket}/{name}"

    def entries(self, folder: str) -> list[Entry]:
        return [
            Entry(each["Key"], each["Size"])
            for page in self._pages(f"{folder}/")
            for each in page.get("Contents", ())
            if not each["Key"].endswith("/")  # what some tools put in the place of a folder
        ]

    def folders(self, folder: str) -> list[str]:
        pages = self._pages(f"{folder}/", Delimiter="/")
        prefixes = (each["Prefix"] for page in pages for each in page.get("CommonPrefixes", ()))
        return sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in prefixes)

    def exists(self, name: str) -> bool:
        answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=name, MaxKeys=1)
        return any(each["Key"] == name for each in answer.get("Contents", ()))

    def read(self, name: str) -> str | None:
        content = self.get(name)
        return None if content is None else content.decode()

    def write(self, name: str, text: str) -> None:
        self.put(name, text.encode())

    def get(self, name: str) -> bytes | None:
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=name)
        except self._client.exceptions.NoSuchKey:
            return None
        return bytes(answer["Body"].read())

    def get_file(self, name: str, path: Path) -> bool:
        try:
            self._client.download_file(self._bucket, name, str(path))  # in parts, beyond some MB
        except self._client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] not in _GONE:
                raise
            return False
        return True

    def put(self, name: str, content: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=name, Body=content)

    def put_file(self, name: str, path: Path) -> None:
        self._client.upload_file(str(path), self._bucket, name)  # in parts, beyond some MB

    def reader(self) -> Callable[[str], bytes | None]:
        return partial(_get, self._client.meta.region_name, self._client.meta.endpoint_url, self._bucket)

    def delete(self, name: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=name)
        for page in self._pages(f"{name}/"):
            keys = [{"Key": each["Key"]} for each in page.get("Contents", ())]
            if keys:
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True}
                )
                if errors := answer.get("Errors"):
                    raise OSError(f"{errors[0]['Key']} could not be deleted: {errors[0]['Message']}")

    def _pages(self, prefix: str, **options: str) -> Any:
        pages = self._client.get_paginator("list_objects_v2")
        return pages.paginate(Bucket=self._bucket, Prefix=prefix, **options)


@cache
def _bucket_there(region: str, endpoint: str, bucket: str) -> S3Bucket:
    import boto3

    return S3Bucket(boto3.client("s3", region_name=region, endpoint_url=endpoint), bucket)


def _get(region: str, endpoint: str, bucket: str, name: str) -> bytes | None:
    return _bucket_there(region, endpoint, bucket).get(name)


def bucket_of(bucket: str, folder: Path | None) -> Bucket:
    """The bucket, or the folder used as one."""
    if folder:
        return FolderBucket(folder, bucket)
    import boto3

    return S3Bucket(boto3.client("s3"), bucket)
