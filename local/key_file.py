"""ports.Cipher for one machine: AES-256-GCM with a key in a file that only its owner can read."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from chalicelib.domain.errors import unavailable
from local.data_folder import write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_BYTES = 32
_NONCE_BYTES = 12


class FileCipher:
    """Encrypts with the key in a file, which is made at the first use. The context is authenticated with it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def encrypt(self, plain: bytes, context: Mapping[str, str]) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher().encrypt(nonce, plain, _context_bytes(context))

    def decrypt(self, ciphertext: bytes, context: Mapping[str, str]) -> bytes:
        from cryptography.exceptions import InvalidTag

        nonce, rest = ciphertext[:_NONCE_BYTES], ciphertext[_NONCE_BYTES:]
        try:
            return self._cipher().decrypt(nonce, rest, _context_bytes(context))
        except (InvalidTag, ValueError):  # changed, or too short
            raise unavailable(
                f"A stored secret is damaged, of another row, or was encrypted with another key than {self._path}."
            ) from None

    def _cipher(self) -> AESGCM:
        # Late: most runs sign nothing at the start.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            with self._lock:
                if not self._path.exists():
                    write_private(self._path, os.urandom(_KEY_BYTES))
            return AESGCM(self._path.read_bytes())
        except OSError as error:
            raise unavailable(f"The key in {self._path} cannot be read: {error.strerror}.") from None


def _context_bytes(context: Mapping[str, str]) -> bytes:
    return json.dumps(dict(context), sort_keys=True).encode()
