"""ports.Blobs in memory."""

from __future__ import annotations


class MemoryBlobs:
    """ports.Blobs as a dict."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def put(self, name: str, body: bytes) -> None:
        self._blobs[name] = body

    def get(self, name: str) -> bytes | None:
        return self._blobs.get(name)

    def delete(self, name: str) -> None:
        self._blobs.pop(name, None)

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        names = list(self._blobs)  # in one step: others put and delete meanwhile
        return sorted(name for name in names if name.startswith(prefix) and name > after)[:limit]
