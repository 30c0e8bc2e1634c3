"""The bucket as the driver sees it, through Hadoop's file systems: S3 on AWS, a folder on one machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Entry:
    """A file: its name within the bucket, its bytes."""

    name: str
    size: int


class Bucket:
    """Names are without `s3://<bucket>/`. Each change is one call, so that a test can stop before any."""

    def __init__(self, spark: SparkSession, bucket: str) -> None:
        self._java: Any = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()
        self._root = f"s3://{bucket}"
        self._files = self._path("").getFileSystem(self._conf)
        self._is_mounted = "ViewFileSystem" in str(self._files.getClass().getName())

    def uri(self, name: str) -> str:
        """The name as Spark reads it."""
        return f"{self._root}/{name}"

    def list(self, folder: str) -> list[Entry]:
        """All files below a folder, by name."""
        found = []
        try:
            for status in (self._walk if self._is_mounted else self._flat)(self._path(folder)):
                path = status.getPath().toUri().getPath().lstrip("/")
                found.append(Entry(path, int(status.getLen())))
        except Py4JJavaError as error:
            if "FileNotFoundException" not in error.java_exception.getClass().getName():
                raise
        return sorted(found, key=lambda entry: entry.name)

    def folders(self, folder: str) -> Sequence[str]:
        """The names, within it, of the folders in a folder."""
        if not self.exists(folder):
            return []
        found = [each for each in self._files.listStatus(self._path(folder)) if each.isDirectory()]
        return sorted(str(each.getPath().getName()) for each in found)

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._path(name)))

    def read(self, name: str) -> str | None:
        """A text; None where there is none."""
        if not self.exists(name):
            return None
        stream = self._files.open(self._path(name))
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace a text in one step."""
        draft = self._path(f"{name}.new")
        self._put(draft, text)
        if not self._files.rename(draft, self._path(name)):  # S3 renames over nothing, but puts in one step
            self._put(self._path(name), text)
            self._files.delete(draft, False)

    def move(self, old: str, new: str) -> None:
        """Give a file another name, in the place of what may be there. Harmless to repeat after it was done."""
        if not self.exists(old):
            return
        target = self._path(new)
        self._files.mkdirs(target.getParent())
        self._files.delete(target, False)
        if not self._files.rename(self._path(old), target):
            raise OSError(f"{old} could not become {new}")

    def delete(self, name: str) -> None:
        """Remove a file or a folder with all that is in it. Harmless where there is none."""
        self._files.delete(self._path(name), True)

    def _flat(self, folder: Any) -> Iterator[Any]:
        """What S3 lists by the thousand."""
        each = self._files.listFiles(folder, True)
        while each.hasNext():
            yield each.next()

    def _walk(self, folder: Any) -> Iterator[Any]:
        """The same, folder by folder: asked flat, a folder on one machine starts two processes for each file."""
        for status in self._files.listStatus(folder):
            if status.isDirectory():
                yield from self._walk(status.getPath())
            else:
                yield status

    def _put(self, path: Any, text: str) -> None:
        stream = self._files.create(path, True)
        stream.write(text.encode())
        stream.close()

    def _path(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(f"{self._root}/{name}")
