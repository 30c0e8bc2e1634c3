"""ports.Blobs: a body comes back byte for byte, or is not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from chalicelib.domain.errors import Unavailable
from chalicelib.ports.world import Blobs
from chalicelib.store.blobs import FolderBlobs, S3Blobs
from chalicelib.store.clients import Clients
from local.store import MemoryBlobs


@pytest.fixture(params=["memory", "folder", "bucket"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blobs]:
    if request.param == "bucket":
        with mock_aws():
            client = Clients("us-east-1").get("s3")
            client.create_bucket(Bucket="bodies")
            yield S3Blobs(client, "bodies")
    else:
        yield MemoryBlobs() if request.param == "memory" else FolderBlobs(tmp_path)


@pytest.mark.parametrize("body", [b"", b"\x00\xff", b"x" * 4_194_304], ids=["empty", "bytes", "4 MB"])
def test_a_body_comes_back_byte_for_byte(blobs: Blobs, body: bytes) -> None:
    blobs.put("bodies/orders/u1/abc", body)
    assert blobs.get("bodies/orders/u1/abc") == body


def test_a_body_put_again_is_replaced_whole(blobs: Blobs) -> None:
    blobs.put("bodies/orders/u1/abc", b"long before")
    blobs.put("bodies/orders/u1/abc", b"new")
    assert blobs.get("bodies/orders/u1/abc") == b"new"


def test_a_body_that_was_deleted_is_not_there_and_to_delete_it_again_is_harmless(blobs: Blobs) -> None:
    blobs.put("bodies/orders/u1/abc", b"x")
    for _ in range(2):
        blobs.delete("bodies/orders/u1/abc")
        assert blobs.get("bodies/orders/u1/abc") is None


class Away:
    """A client of S3 whose every call fails like this."""

    def __init__(self, trouble: Exception) -> None:
        self._trouble = trouble

    def __getattr__(self, operation: str) -> Any:
        def fail(**request: Any) -> Any:
            raise self._trouble

        return fail


@pytest.mark.parametrize("trouble", ["SlowDown", "AccessDenied", "NoSuchBucket", ""])
def test_a_body_that_cannot_be_had_now_is_not_taken_for_gone(trouble: str) -> None:
    no_endpoint = EndpointConnectionError(endpoint_url="https://example.com")
    error = ClientError({"Error": {"Code": trouble}}, "GetObject") if trouble else no_endpoint
    blobs = S3Blobs(Away(error), "bodies")
    with pytest.raises(Unavailable):
        blobs.get("bodies/orders/u1/abc")
    if trouble in ("SlowDown", ""):
        for call in (lambda: blobs.put("a", b""), lambda: blobs.delete("a"), lambda: blobs.names("", "", 1)):
            with pytest.raises(Unavailable):
                call()


def test_a_file_that_cannot_be_read_is_not_taken_for_gone(tmp_path: Path) -> None:
    (tmp_path / "bodies").mkdir()
    with pytest.raises(Unavailable):
        FolderBlobs(tmp_path).get("bodies")


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def noting(step: str, call: Callable[..., None]) -> Callable[..., None]:
        def noted(*arguments: Any) -> None:
            steps.append(step)
            call(*arguments)

        return noted

    for step in ("fsync", "replace"):
        monkeypatch.setattr(os, step, noting(step, getattr(os, step)))
    FolderBlobs(tmp_path).put("bodies/abc", b"x")
    assert steps == ["fsync", "replace"]


def test_names_come_in_order_page_by_page(blobs: Blobs) -> None:
    names = [f"expiring/{day}/{n}" for day in ("2026-12-01", "2026-12-02") for n in "abc"]
    for name in (*reversed(names), "bodies/orders/u1/abc", "expired"):
        blobs.put(name, b"")
    assert blobs.names("expiring/", "", 4) == names[:4]
    assert blobs.names("expiring/", names[3], 4) == names[4:]
    assert blobs.names("expiring/", names[5], 4) == []
    assert blobs.names("nobody/", "", 4) == []
