"""Answers in the place of an AWS service, as botocore reads them."""

from __future__ import annotations

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
