"""`headrace-local restore`: a data folder as `headrace-local backup` has saved it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from chalicelib.domain.topic import ConsumerKind
from chalicelib.store.control import Control
from local.backup import BUCKET, CLOCK, FORMAT, LAST, SECRETS
from local.data_folder import FILE, LOCK, RESTORING, DataFolder, data_folder, make_private, new_private
from local.engine.client import Client
from local.options import add_data
from local.progress import Progress
from local.unusable import Unusable

_BLOCK_BYTES = 1 << 20
Subscriber = tuple[str, str, str]
"""Topic, group, consumer."""

_ALLOWED = (FILE, CLOCK, *SECRETS, LAST)
_CONTROL = "-control"
_PAGE = 100
_DONE = """\
Restored {data}. Tokens that were revoked since the backup are valid again: look through GET /v1/tokens."""
_NO_KEY = """\
The backup has no key, so the secrets that are stored cannot be read. Start the service, and call as an admin:
  POST /v1/signing-key/rotate {"overlap_seconds": 0}"""
_SECRET = '  POST /v1/topics/{0}/groups/{1}/consumers/{2}/rotate-secret {{"overlap_seconds": 0}}'
_NEW_SECRETS = "Give each of these subscribers its new secret. docs/security.md says more."


def main(program: str, arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=program, description="Unpack what `headrace-local backup` has saved into an empty folder."
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the backup")
    add_data(parser)
    options = parser.parse_args(arguments)
    data = Path(options.data or ".data")
    consumers = restore(options.file, data)
    print(_DONE.format(data=data))
    if consumers is not None:
        print(_NO_KEY, *(_SECRET.format(*each) for each in consumers), sep="\n")
        if consumers:
            print(_NEW_SECRETS)
    return 0


def restore(file: Path, data: Path) -> list[Subscriber] | None:
    """Unpack a backup into a folder that is missing or empty. Returns whose secrets cannot be read; None: the backup
    has their key. Raises Unusable."""
    make_private(data)
    _check_empty(data)
    try:
        with file.open("rb") as content, tarfile.open(fileobj=content, mode="r:") as tar:
            members = tar.getmembers()
            _check(tar, members, file)
            with data_folder(data, f"restores {file}") as folder:
                _check_empty(data)
                try:
                    _unpack(tar, members, data)
                    consumers = _subscribers(folder)  # always, so that an unreadable file is found
                except BaseException:
                    _empty(data)
                    raise
            return None if (data / SECRETS[0]).exists() else consumers
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"{file} is no backup of headrace-local, or damaged ({error}).") from None
    except OSError as error:
        place = error.filename or data
        raise Unusable(f"{file} was not restored: {place} cannot be used ({error.strerror}).") from None


def _check_empty(data: Path) -> None:
    if {path.name for path in data.iterdir()} - {LOCK}:
        raise Unusable(
            f"{data} is not empty: a backup is restored into a new folder (--data, HEADRACE_DATA)."
        )


def _empty(data: Path) -> None:
    for path in data.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink()


def _check(tar: tarfile.TarFile, members: Sequence[tarfile.TarInfo], file: Path) -> None:
    """Raises Unusable for anything that no backup has."""
    for member in members:
        path = PurePosixPath(member.name)
        is_in_bucket = path.parts[:1] == (BUCKET,) and len(path.parts) > 1 and path.as_posix() == member.name
        is_safe = not {"..", "."} & {*path.parts} and not {"\\", ":", "\0"} & {*member.name}
        is_file = member.type == tarfile.REGTYPE and not member.issparse()
        if not is_file or not (member.name in _ALLOWED or (is_in_bucket and is_safe)):
            raise Unusable(f"{file} is refused: no backup has {member.name!r} as it is in there.")
    names = [member.name for member in members]
    if len(names) != len(set(names)):
        raise Unusable(f"{file} is refused: it has a file twice.")
    if len(names) < 2 or (names[0], names[-1]) != (FILE, LAST):
        raise Unusable(f"{file} was not written to its end, or is no backup of headrace-local.")
    about = json.loads(_content(tar, members[-1]).read(_BLOCK_BYTES))
    if about["format"] > FORMAT:
        raise Unusable(f"{file} was made by a newer Headrace ({about['headrace']}): update this one.")


def _unpack(tar: tarfile.TarFile, members: Sequence[tarfile.TarInfo], data: Path) -> None:
    """Unpack the members. The engine's file is renamed last, so that an incomplete folder is recognised by its
    absence."""
    progress = Progress("Restoring", sum(member.size for member in members))
    for member in members[:-1]:
        path = data / (RESTORING if member.name == FILE else member.name)
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        with new_private(path) as out:
            source = _content(tar, member)
            while block := source.read(_BLOCK_BYTES):
                out.write(block)
                progress.add(len(block))
            out.flush()
            os.fsync(out.fileno())
    (data / RESTORING).rename(data / FILE)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    content = tar.extractfile(member)
    assert content is not None, "a file"
    return content


def _subscribers(folder: DataFolder) -> list[Subscriber]:
    """The consumers that have a secret. Raises Unusable."""
    from chalicelib.adapters import dynamo_adapters
    from chalicelib.settings import read

    found: list[Subscriber] = []
    with contextlib.closing(folder.engine(lambda: time.time_ns() // 1_000_000)) as engine:
        for table in engine.tables:
            if table.endswith(_CONTROL):
                settings = read({"HEADRACE_PREFIX": table.removesuffix(_CONTROL)})
                found += _subscribers_of(dynamo_adapters(settings, client=Client(engine)).control)
    return found


def _subscribers_of(control: Control) -> Iterator[Subscriber]:
    after: str | None = None
    while topics := control.topics(after, _PAGE):
        after = topics[-1].name
        for topic in topics:
            for group in control.groups(topic):
                for consumer in control.consumers(topic, group):
                    if consumer.kind == ConsumerKind.URL:
                        yield topic.name, group.name, consumer.name
