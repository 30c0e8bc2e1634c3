"""A KMS with what Headrace needs: the ciphertext is readable text, and decrypting it needs the same encryption
context."""

from __future__ import annotations

import base64
import json
from typing import Any

from botocore.awsrequest import AWSResponse

from .aws_answers import json_answer

KEY = "arn:aws:kms:us-east-1:000000000000:key/k"


class Kms:
    """Answers in KMS's place; `asked` are the operations, with the kind of secret."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def attach(self, client: Any) -> None:
        """Answer a client's requests; called for every client that is made."""
        client.meta.events.register("before-send.kms", self._answer)

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        request_body = json.loads(request.body)
        self.asked.append((operation, request_body["EncryptionContext"]["secret"]))
        if operation == "Encrypt":
            blob = json.dumps([request_body["Plaintext"], request_body["EncryptionContext"]]).encode()
            return json_answer(request, {"CiphertextBlob": base64.b64encode(blob).decode(), "KeyId": KEY})
        plain, context = json.loads(base64.b64decode(request_body["CiphertextBlob"]))
        if context != request_body["EncryptionContext"]:
            return json_answer(request, {"__type": "InvalidCiphertextException"}, 400)
        return json_answer(request, {"Plaintext": plain, "KeyId": KEY})
