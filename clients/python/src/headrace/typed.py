"""JSON as values of a type, by msgspec.

What msgspec knows of a type is put together when the type is used first, and meanwhile found half done by other threads
that use it: the process dies of it (a segmentation fault; seen with 0.22). So of the first uses only one goes on at a
time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Lock
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T")
_used: set[Any] = set()
_first_use = Lock()

if hasattr(os, "register_at_fork"):  # a child would never see the end of a first use that is under way
    os.register_at_fork(
        before=_first_use.acquire, after_in_parent=_first_use.release, after_in_child=_first_use.release
    )


def decoded(raw: bytes | str, kind: type[_T]) -> _T:
    """JSON text as a value of this type. Raises msgspec.DecodeError, of which ValidationError is one."""
    _know(kind)
    return msgspec.json.decode(raw, type=kind)


def converted(value: object, kind: type[_T]) -> _T:
    """A parsed JSON value as one of this type. Raises msgspec.ValidationError."""
    _know(kind)
    return msgspec.convert(value, kind)


def _know(kind: type[Any]) -> None:
    try:
        if kind in _used:
            return
    except TypeError:  # it has no hash: seldom, and computed each time
        pass
    with _first_use:
        msgspec.json.Decoder(kind)
        with suppress(TypeError):
            _used.add(kind)
