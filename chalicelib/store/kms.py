"""ports.Cipher by AWS KMS: the key never leaves it, and its log (CloudTrail) names the place of each secret."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ..domain.errors import Unavailable, unavailable
from .dynamo import code_of


class KmsCipher:
    """Encrypts with one key, bound to the stage and to what the caller names (KMS's encryption context); both are free
    for a role to be limited to. `client` makes the client at its first use: a cold start pays for none."""

    def __init__(self, client: Callable[[], Any], key: str, stage: str) -> None:
        self._client = client
        self._key = key
        self._stage = {"headrace": stage}

    def encrypt(self, plain: bytes, context: Mapping[str, str]) -> bytes:
        return self._ask("encrypt", "CiphertextBlob", context, KeyId=self._key, Plaintext=plain)

    def decrypt(self, ciphertext: bytes, context: Mapping[str, str]) -> bytes:
        # Which key it was, KMS reads from the ciphertext: a stage that was deleted and made again has a new one.
        return self._ask("decrypt", "Plaintext", context, CiphertextBlob=ciphertext)

    def _ask(self, operation: str, answer: str, context: Mapping[str, str], **request: Any) -> bytes:
        client = self._client()
        try:
            response = getattr(client, operation)(EncryptionContext={**self._stage, **context}, **request)
        except ClientError as error:
            raise _refusal(operation, code_of(error)) from error
        except BotoCoreError as error:
            raise unavailable() from error
        return bytes(response[answer])


def _refusal(operation: str, code: str) -> Unavailable:
    if code == "InvalidCiphertextException":
        return unavailable("A stored secret is damaged, or was encrypted for another row.")
    return unavailable(f"KMS did not {operation} a secret ({code}).")
