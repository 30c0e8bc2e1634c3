"""`headrace-local backup` and `restore`: everything in a data folder as one file, and back.

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
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from chalicelib import __version__
from local import Unusable
from local.data_folder import FILE, HOLDER, LOCK, RESTORING, data_folder, new_private, open_engine
from local.options import add_data

_LAST = "backup.json"
_BUCKET = "bucket"
_CLOCK = "clock"
_SECRETS = ("key", "token")
_FORMAT = 1
# What rows of the log name; one that no restored row names is swept.
_OF_ROWS = ("bucket/bodies/", "bucket/expiring/")
_LOCK_SECONDS = 30.0
_TICK_SECONDS = 0.1  # by as much a file's time may lie before the machine's
_DRAFT = re.compile(r"tmp[a-z0-9_]{8}")  # of a file that is being written
_DONE = "Restored {}. Tokens that were revoked since the backup are valid again: look through GET /v1/tokens."
_NO_KEY = """\
The backup has no key, so the secrets that are stored cannot be read. Start the service, and call as an admin:
  POST /v1/signing-key/rotate {"overlap_seconds": 0}
and for each subscriber, which then gets its new secret (docs/security.md says more):
  POST /v1/topics/{topic}/groups/{group}/consumers/{consumer}/rotate-secret {"overlap_seconds": 0}"""


def backup_main(program: str, arguments: Sequence[str]) -> int:
    """The command line of `backup`."""
    about = "Save everything in a data folder in one file, which only you can read."
    parser = _parser(program, about, "a tar file that is not there yet")
    safe = "also the key of stored secrets, and the first admin token: keep that file as safe as the service"
    parser.add_argument("--with-key", action="store_true", help=safe)
    options = parser.parse_args(arguments)
    save(options.data, options.file, with_key=options.with_key)
    what = "with the key and the admin token: its reader has all secrets of the service"
    if not options.with_key:
        what = "without the key of its secrets and the admin token (--with-key saves them, too)"
    print(f"Saved {options.data} in {options.file}, {what}.")
    return 0


def restore_main(program: str, arguments: Sequence[str]) -> int:
    """The command line of `restore`."""
    about = "Unpack what `headrace-local backup` has saved into an empty folder."
    options = _parser(program, about, "the backup").parse_args(arguments)
    has_key = restore(options.file, options.data)
    print(_DONE.format(options.data), *([] if has_key else [_NO_KEY]), sep="\n")
    return 0


def _parser(program: str, about: str, file: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=about)
    parser.add_argument("file", metavar="FILE", type=Path, help=file)
    add_data(parser)
    return parser


def save(data: Path, file: Path, *, with_key: bool = False) -> None:
    """Save a data folder in a new file. Raises Unusable."""
    if not (data / FILE).exists():
        raise Unusable(
            f"There is nothing to save: {data} has no {FILE}. --data chooses another folder. What DynamoDB Local "
            "stored is saved by a copy of the folder while it is stopped."
        )
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
        raise Unusable(f"{data} was not saved in {file}: {error}.") from None


def _write(data: Path, file: Path, out: IO[bytes], *, with_key: bool) -> None:
    began_s = time.time() - _TICK_SECONDS
    about = {"format": _FORMAT, "headrace": __version__, "made_at": int(began_s), "with_key": with_key}
    with (
        tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        made = Path(folder)
        place = f"{(data / FILE).resolve().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(place, uri=True, timeout=_LOCK_SECONDS)) as connection:
            # As it is at one moment, while others write.
            connection.execute("VACUUM INTO ?", (str(made / FILE),))
        (made / _LAST).write_text(json.dumps(about))
        _add(tar, made / FILE, FILE)
        for name in (_CLOCK, *(_SECRETS if with_key else ())):
            _add(tar, data / name, name)
        for path in _bucket(data / _BUCKET, began_s):
            _add(tar, path, path.relative_to(data).as_posix())
        _add(tar, made / _LAST, _LAST)


def _bucket(folder: Path, until_s: float) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # a body that was deleted meanwhile, as no row names it
            is_kept = path.is_file() and not path.is_symlink() and not _DRAFT.fullmatch(path.name)
            is_of_rows = path.relative_to(folder.parent).as_posix().startswith(_OF_ROWS)
            if is_kept and (is_of_rows or path.stat().st_mtime < until_s):
                yield path


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    with contextlib.suppress(FileNotFoundError), path.open("rb") as content:
        member = tarfile.TarInfo(name)
        member.size, member.mode = os.fstat(content.fileno()).st_size, 0o600
        tar.addfile(member, content)


def restore(file: Path, data: Path) -> bool:
    """Unpack a backup into a folder that is missing or empty. Does it have the key of its secrets? Raises Unusable."""
    try:
        with data_folder(data, f"restores {file}"), tarfile.open(file, "r:") as tar:
            if {path.name for path in data.iterdir()} - {LOCK, HOLDER}:
                raise Unusable(
                    f"{data} is not empty: a backup is restored into a new folder (--data, HEADRACE_DATA)."
                )
            members = tar.getmembers()
            _check(tar, members, file)
            try:
                _unpack(tar, members[:-1], data)
                open_engine(data, lambda: 0).close()  # it can be read
            except BaseException:
                _empty(data)
                raise
            return (data / _SECRETS[0]).exists()
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"{file} is no backup of headrace-local, or damaged ({error}).") from None
    except OSError as error:
        place = error.filename or data
        raise Unusable(f"{file} was not restored: {place} cannot be used ({error.strerror}).") from None


def _empty(data: Path) -> None:
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in (LOCK, HOLDER):
            path.unlink()


def _check(tar: tarfile.TarFile, members: Sequence[tarfile.TarInfo], file: Path) -> None:
    """Raises Unusable for anything that no backup has."""
    for member in members:
        parts = PurePosixPath(member.name).parts
        is_in_bucket = parts[0] == _BUCKET and not {"..", "\\", ":"} & {*parts, *member.name}
        if not member.isreg() or not (is_in_bucket or member.name in (FILE, _CLOCK, *_SECRETS, _LAST)):
            raise Unusable(f"{file} is refused: no backup has {member.name!r} as it is in there.")
    if len(members) < 2 or (members[0].name, members[-1].name) != (FILE, _LAST):
        raise Unusable(f"{file} was not written to its end, or is no backup of headrace-local.")
    about = json.load(_content(tar, members[-1]))
    if about["format"] > _FORMAT:
        raise Unusable(f"{file} was made by a newer Headrace ({about['headrace']}): update this one.")


def _unpack(tar: tarfile.TarFile, members: Sequence[tarfile.TarInfo], data: Path) -> None:
    """Unpack the members. The engine's file is renamed last, so a folder without it is not fully restored."""
    for member in members:
        path = data / (RESTORING if member.name == FILE else member.name)
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        with new_private(path) as out:
            shutil.copyfileobj(_content(tar, member), out)
            out.flush()
            os.fsync(out.fileno())
    (data / RESTORING).rename(data / FILE)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(member)
    assert content is not None, "a file"
    return content
