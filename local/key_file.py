"""ports.Cipher for one machine: AES-256-GCM with a key in a file that only its owner can read."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from chalicelib.domain.errors import unavailable

_KEY_BYTES = 32
_NONCE_BYTES = 12


class FileCipher:
    """Encrypts with the key in a file, which is made at the first use. The context is authenticated with it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def encrypt(self, plain: bytes, context: Mapping[str, str]) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import (
            AESGCM,  # late: most runs sign nothing at their start
        )

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._key()).encrypt(nonce, plain, _context_bytes(context))

    def decrypt(self, ciphertext: bytes, context: Mapping[str, str]) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, rest = ciphertext[:_NONCE_BYTES], ciphertext[_NONCE_BYTES:]
        try:
            return AESGCM(self._key()).decrypt(nonce, rest, _context_bytes(context))
        except (InvalidTag, ValueError):  # changed, or too short
            raise unavailable(
                f"A stored secret is damaged, of another row, or was encrypted with another key than {self._path}."
            ) from None

    def _key(self) -> bytes:
        try:
            if not self._path.exists():
                self._make()
            return self._path.read_bytes()
        except OSError as error:
            raise unavailable(f"The key in {self._path} cannot be read: {error.strerror}.") from None

    def _make(self) -> None:
        """In one step: of those that begin at once, also threads, one makes the key, and it is never there in part."""
        handle, draft = tempfile.mkstemp(dir=self._path.parent, prefix=f"{self._path.name}.")
        try:
            with open(handle, "wb") as out:
                out.write(os.urandom(_KEY_BYTES))
                out.flush()
                os.fsync(out.fileno())
            with suppress(FileExistsError):
                os.link(draft, self._path)  # closed: Windows links no open file
        finally:
            os.unlink(draft)


def _context_bytes(context: Mapping[str, str]) -> bytes:
    return json.dumps(dict(context), sort_keys=True).encode()
