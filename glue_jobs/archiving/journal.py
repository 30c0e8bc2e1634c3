"""The journal of a window as Spark reads it: its lines, and what is damaged in it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from glue_jobs.archiving.transforms import READABLE
from glue_jobs.archiving.window import Window, digest_of, inputs
from glue_jobs.common.arguments import progress
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.manifest import TooNew
from glue_jobs.common.schemas import JOURNAL, JOURNAL_VERSION, TABLES
from glue_jobs.common.session import empty_table

_BROKEN = (
    "EOFException",
    "ZipException",
    "incorrect header",
    "invalid block",
    "incorrect data",
    "invalid stored",
)

T = TypeVar("T")


class Journal:
    """The objects of a window as they are now. `damaged_objects` gathers the names of those that cannot be read to the
    end."""

    def __init__(self, spark: SparkSession, bucket: Bucket, window: Window) -> None:
        self._spark, self._bucket, self._window = spark, bucket, window
        self._entries: dict[str, list[Entry]] = {}
        self.damaged_objects: set[str] = set()
        self.look_again()

    @property
    def digest(self) -> str:
        return digest_of(self._entries)

    def look_again(self, tables: Iterable[str] = TABLES) -> None:
        """The journal of these tables was added to."""
        self._entries |= inputs(self._bucket, self._window, tables)
        self.damaged_objects |= {entry.name for entry in self._all_entries if not entry.size}
        self._is_broken = False

    @property
    def _all_entries(self) -> list[Entry]:
        return [entry for entries in self._entries.values() for entry in entries]

    def has(self, table: str) -> bool:
        """Whether the window has any objects of a table."""
        return bool(self._entries[table])

    def lines(self, table: str, hours: Sequence[str] = ()) -> DataFrame:
        """A table's lines, of the window or of other hours."""
        home = f"journal/{table}"
        hours = hours or self._window.hours
        folders = {
            f"{day}/{hour}"
            for day in {hour.partition("/")[0] for hour in hours}
            for hour in self._bucket.folders(f"{home}/{day}")
        }
        uris = [self._bucket.uri(f"{home}/{hour}") for hour in hours if hour in folders]
        if not uris:
            return empty_table(self._spark, JOURNAL[table])
        reader = self._reader.schema(JOURNAL[table]).option("pathGlobFilter", "*.gz")
        return reader.option("recursiveFileLookup", True).json(uris)

    def read_despite_damage(self, read: Callable[[], T]) -> T:
        """Read; where objects are broken, find out which, and read what can be read."""
        try:
            return read()
        except Exception as error:  # Spark reports a broken object in many ways
            if not any(sign in str(error) for sign in _BROKEN):
                raise
        self.damaged_objects |= self._broken_objects()
        progress(f"{self._window.name}: {len(self.damaged_objects)} journal objects are damaged")
        self._is_broken = True
        return read()

    def check(self, lines: DataFrame, newest: int | None, unreadable: int) -> None:
        """Check lines that were read: their highest version, and how many are unreadable. Raises TooNew."""
        if (newest or 0) > JOURNAL_VERSION:
            raise TooNew(
                f"The journal of {self._window.name} was written by a newer Headrace: update the jobs."
            )
        if unreadable:
            names = lines.where(f"not ({READABLE})").select(F.input_file_name()).distinct()
            self.damaged_objects |= {self._name(row[0]) for row in names.collect()}

    def bytes_of(self, table: str) -> int:
        """How many its objects have."""
        return sum(entry.size for entry in self._entries[table])

    @property
    def _reader(self) -> DataFrameReader:
        return self._spark.read.option("ignoreCorruptFiles", self._is_broken)

    def _broken_objects(self) -> set[str]:
        uris = [self._bucket.uri(entry.name) for entry in self._all_entries if entry.size]
        files = self._spark.read.format("binaryFile").load(uris).select("path", "content")
        paths = (
            files.rdd.filter(lambda row: not _is_whole(bytes(row.content)))
            .map(lambda row: row.path)
            .collect()
        )
        return {self._name(path) for path in paths}

    def _name(self, uri: str) -> str:
        return uri.removeprefix(self._bucket.uri(""))


def _is_whole(content: bytes) -> bool:
    try:
        gzip.decompress(content)
    except (EOFError, OSError, zlib.error):
        return False
    return True
