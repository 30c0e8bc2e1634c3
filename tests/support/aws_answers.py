"""Answers in the place of AWS's services, as botocore reads them; and as much of KMS as Headrace needs."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from botocore.awsrequest import AWSResponse


def bytes_answer(request: Any, body: bytes, status: int = 200) -> AWSResponse:
    return AWSResponse(request.url, status, {}, _Raw(body))


def json_answer(request: Any, document: Any, status: int = 200) -> AWSResponse:
    return bytes_answer(request, json.dumps(document).encode(), status)


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._left = body

    def read(self, amount: int | None = None) -> bytes:
        content, self._left = self._left, b""
        return content

    def stream(self) -> Iterator[bytes]:
        yield self.read()


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
