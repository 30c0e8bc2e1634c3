"""Resources that a deleted stack leaves behind on purpose: they hold what users sent."""

from __future__ import annotations

from typing import Any


def retained(kind: str, properties: dict[str, Any]) -> dict[str, Any]:
    """A resource that neither deletion nor replacement of its stack takes away."""
    return {
        "Type": kind,
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": properties,
    }
