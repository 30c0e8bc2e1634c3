"""Bodies too large for the log: in a bucket on AWS, in a folder locally."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from heapq import nsmallest
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ..domain.errors import unavailable
from .dynamo import code_of, translate


class S3Blobs:
    """ports.Blobs in a bucket."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def put(self, name: str, body: bytes) -> None:
        self._call("put_object", translate, Key=name, Body=body)

    def get(self, name: str) -> bytes | None:
        try:
            body: bytes = self._client.get_object(Bucket=self._bucket, Key=name)["Body"].read()
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and code_of(error) == "NoSuchKey":
                return None
            raise unavailable() from error  # any error: a later try may find the body
        return body

    def delete(self, name: str) -> None:
        self._call("delete_object", translate, Key=name)

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        page = {"Prefix": prefix, "StartAfter": after, "MaxKeys": limit}
        # Any error, likewise: they may be listed another time.
        answer = self._call("list_objects_v2", lambda _: unavailable(), **page)
        return [each["Key"] for each in answer.get("Contents", ())]

    def _call(self, operation: str, refusal: Callable[[Any], Exception], **request: Any) -> Any:
        try:
            return getattr(self._client, operation)(Bucket=self._bucket, **request)
        except (ClientError, BotoCoreError) as error:
            raise refusal(error) from error


class FolderBlobs:
    """ports.Blobs in a folder. A blob is stored completely or not at all, and is on disk before `put` returns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, body: bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            except OSError:  # the disk is full
                os.unlink(file.name)
                raise
        os.replace(file.name, path)

    def get(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unavailable() from error

    def delete(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        files = (path for path in (self._folder / prefix).rglob("*") if path.is_file())
        names = (path.relative_to(self._folder).as_posix() for path in files)
        return nsmallest(limit, (name for name in names if name > after))
