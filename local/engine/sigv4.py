"""Checks AWS's Signature Version 4 of a request, as it stands in the header Authorization.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
Signatures in the query, and bodies that are not part of the signature, are refused.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

_ALGORITHM = "AWS4-HMAC-SHA256"
_AUTHORIZATION = re.compile(
    _ALGORITHM
    + r" +Credential=(?P<key>\w+)/(?P<scope>(?P<day>\d{8})/(?P<region>[\w-]+)/(?P<service>\w+)/aws4_request)"
    r", *SignedHeaders=(?P<signed>[a-z0-9;-]+), *Signature=(?P<signature>[0-9a-f]{64})",
    re.ASCII,
)
_DATE = "%Y%m%dT%H%M%SZ"
_SKEW_SECONDS = 15 * 60
_SPACES = re.compile(" +")


@dataclass(frozen=True)
class KeyPair:
    """What signs requests."""

    id: str
    secret: str


def is_signed(
    keys: KeyPair,
    service: str,
    method: str,
    headers: Mapping[str, str],
    body: bytes,
    now_s: float,
) -> bool:
    """Did the holder of the keys sign this request to the path `/`, at most 15 minutes from `now_s`? Names of headers
    are in lower case."""
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    date = headers.get("x-amz-date", "")
    if match is None or match["service"] != service or not _is_fresh(date, now_s) or match["day"] != date[:8]:
        return False
    signed = match["signed"].split(";")
    needed = {"host", "x-amz-date", *(name for name in headers if name.startswith("x-amz-"))}
    if not needed <= set(signed) <= headers.keys():
        return False
    lines = [f"{name}:{_SPACES.sub(' ', headers[name].strip(' '))}" for name in signed]
    canonical = "\n".join([method, "/", "", *lines, "", match["signed"], _hash(body)])
    text = "\n".join([_ALGORITHM, date, match["scope"], _hash(canonical.encode("latin-1"))])
    key = b"AWS4" + keys.secret.encode()
    for part in match["scope"].split("/"):
        key = _mac(key, part)
    is_same = hmac.compare_digest(_mac(key, text).hex(), match["signature"])
    return hmac.compare_digest(match["key"], keys.id) and is_same


def _is_fresh(date: str, now_s: float) -> bool:
    try:
        at = datetime.strptime(date, _DATE).replace(tzinfo=UTC)
    except ValueError:
        return False
    return abs(at.timestamp() - now_s) <= _SKEW_SECONDS


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
