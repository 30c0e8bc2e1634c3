"""Static files: each under a name that holds a hash of its content, so that browsers may keep it for good."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_HASH_CHARS = 10


@cache
def _files() -> dict[str, Path]:
    """The files by the names they are served under."""
    return {_hashed_name(path): path for path in _FOLDER.iterdir() if path.suffix in _TYPES}


@cache
def name_of(file: str) -> str:
    """The name under which a file is served."""
    return _hashed_name(_FOLDER / file)


def read(name: str) -> tuple[bytes, str] | None:
    """Content and media type of what is served under a name; None where nothing is."""
    path = _files().get(name)
    return (path.read_bytes(), _TYPES[path.suffix]) if path else None


def _hashed_name(path: Path) -> str:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:_HASH_CHARS]
    return f"{path.stem}.{digest}{path.suffix}"
