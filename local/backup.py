"""`headrace-local backup`: everything in a data folder as one file, while a service runs on it or not.

A tar file: `engine.db` (a snapshot), `clock`, `bucket/…` and, where asked for, `key` and `token`; last of all
`backup.json`, without which a file was not written to its end. The snapshot comes first: a row that it has names a body
that is in the bucket already. Of the journal and the archive, what is later than the snapshot is left out: its
messages are not in the restored log, whose next messages take their places.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

from chalicelib import __version__
from local.data_folder import FILE, DataFolder, new_private
from local.options import add_data
from local.progress import Progress
from local.unusable import Unusable

LAST = "backup.json"
BUCKET = "bucket"
CLOCK = "clock"
SECRETS = ("key", "token")
FORMAT = 1
_OF_ROWS = ("bodies/", "expiring/")  # what rows of the log name; one that no restored row names is swept
_PAGES = 2000  # of the snapshot at a time: 8 MB
_LOCK_SECONDS = 30.0
_TICK_SECONDS = 0.1  # by as much a file's time may lie before the machine's
_DRAFT = re.compile(r"tmp[a-z0-9_]{8}")  # of a file that is being written


class _File(NamedTuple):
    """A file to save."""

    name: str
    path: Path
    size: int


def main(program: str, arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=program, description="Save everything in a data folder in one file, which only you can read."
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="a tar file that is not there yet")
    add_data(parser)
    parser.add_argument(
        "--with-key",
        action="store_true",
        help="also the key that opens stored secrets, and the first admin token: keep that file as safe as the service",
    )
    options = parser.parse_args(arguments)
    data = Path(options.data or ".data")
    save(data, options.file, with_key=options.with_key)
    what = "with the key and the admin token: its reader has all secrets of the service"
    if not options.with_key:
        what = "without the key of its secrets and the admin token (--with-key saves them, too)"
    print(f"Saved {data} in {options.file}, {what}.")
    return 0


def save(data: Path, file: Path, *, with_key: bool = False) -> None:
    """Save a data folder in a new file. Raises Unusable."""
    if DataFolder(data).is_amazons:
        raise Unusable(
            f"{data} holds what DynamoDB Local stored, which no command saves: stop it and copy the folder."
        )
    if not (data / FILE).exists():
        raise Unusable(f"There is nothing to save: {data} has no {FILE}. --data chooses another folder.")
    if file.resolve().is_relative_to(data.resolve()):
        raise Unusable(f"{file} is in the folder that it would save: choose another place.")
    try:
        with new_private(file) as out:
            try:
                _write(data, file, out, with_key=with_key)
            except BaseException:
                file.unlink()
                raise
    except FileExistsError:
        raise Unusable(f"{file} is there already: name a new file.") from None
    except (OSError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise Unusable(f"{data} was not saved in {file}: {why}.") from None


def _write(data: Path, file: Path, out: IO[bytes], *, with_key: bool) -> None:
    began_s = time.time() - _TICK_SECONDS
    with (
        tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        snapshot = Path(folder) / FILE
        _take_snapshot(data / FILE, snapshot)
        names = (CLOCK, *SECRETS) if with_key else (CLOCK,)
        files = [
            *_there(snapshot, FILE),
            *(each for name in names for each in _there(data / name, name)),
            *_bucket(data / BUCKET, began_s),
        ]
        progress = Progress("Saving", sum(each.size for each in files))
        for each in files:
            _add(tar, each, progress)
        about = {"format": FORMAT, "headrace": __version__, "made_at": int(began_s), "with_key": with_key}
        _put(tar, LAST, json.dumps(about).encode())


def _take_snapshot(source: Path, target: Path) -> None:
    """Copy the engine's file as it is at one moment, while others write into it. Raises sqlite3.Error."""
    new_private(target).close()
    with (
        contextlib.closing(_opened(source)) as old,
        contextlib.closing(_opened(target)) as new,
    ):
        old.execute("BEGIN")
        old.execute(
            "SELECT count(*) FROM sqlite_master"
        ).fetchone()  # what is read from here on is of this moment
        (page_bytes,) = old.execute("PRAGMA page_size").fetchone()
        (pages,) = old.execute("PRAGMA page_count").fetchone()
        progress = Progress("Copying the engine's file", pages * page_bytes)
        left = pages

        def tell(status: int, remaining: int, total: int) -> None:
            nonlocal left
            progress.add((left - remaining) * page_bytes)
            left = remaining

        old.backup(new, pages=_PAGES, progress=tell, sleep=0)


def _opened(file: Path) -> sqlite3.Connection:
    """A database that is there already."""
    return sqlite3.connect(
        f"{file.resolve().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=_LOCK_SECONDS
    )


def _bucket(folder: Path, until_s: float) -> Iterator[_File]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or _DRAFT.fullmatch(path.name):
            continue
        for file in _there(path, f"{BUCKET}/{name}"):
            if name.startswith(_OF_ROWS) or path.stat().st_mtime < until_s:
                yield file


def _there(path: Path, name: str) -> list[_File]:
    """The file, if there is one."""
    return [_File(name, path, path.stat().st_size)] if path.is_file() else []


def _add(tar: tarfile.TarFile, file: _File, progress: Progress) -> None:
    try:
        content = file.path.open("rb")
    except FileNotFoundError:  # a body that was deleted meanwhile, as nothing names it
        return
    with content:
        member = tarfile.TarInfo(file.name)
        member.size, member.mode = os.fstat(content.fileno()).st_size, 0o600
        tar.addfile(member, content)
        progress.add(member.size)


def _put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o600
    tar.addfile(member, BytesIO(content))
