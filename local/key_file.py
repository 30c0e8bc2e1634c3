"""ports.Cipher for one machine: AES-256-GCM with a key in a file that only its owner can read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
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
        return nonce + AESGCM(self._key()).encrypt(nonce, plain, _told(context))

    def decrypt(self, ciphertext: bytes, context: Mapping[str, str]) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, rest = ciphertext[:_NONCE_BYTES], ciphertext[_NONCE_BYTES:]
        try:
            return AESGCM(self._key()).decrypt(nonce, rest, _told(context))
        except (InvalidTag, ValueError):  # changed, or too short
            raise unavailable(
                f"A stored secret is damaged, of another row, or was encrypted with another key than {self._path}."
            ) from None

    def _key(self) -> bytes:
        try:
            # In one step: of two processes that begin at once, one makes the key, and it is never there in part.
            draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
            if not self._path.exists():
                with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
                    out.write(os.urandom(_KEY_BYTES))
                try:
                    os.link(draft, self._path)
                except FileExistsError:
                    pass
                finally:
                    draft.unlink()
            return self._path.read_bytes()
        except OSError as error:
            raise unavailable(f"The key in {self._path} cannot be read: {error.strerror}.") from None


def _told(context: Mapping[str, str]) -> bytes:
    return json.dumps(dict(context), sort_keys=True).encode()
