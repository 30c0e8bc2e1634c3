"""JSON merge patches (RFC 7386) on the texts of bodies: what a patch does not name stays as it is, to the digit."""

from __future__ import annotations

from typing import Any

from . import strict


def merged(text: bytes, patch: bytes) -> bytes:
    """The compact text of a JSON value that a patch was applied to. Both are checked JSON texts."""
    return strict.exact(_merged(strict.load(text), strict.load(patch)))


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result
