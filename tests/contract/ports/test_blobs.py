"""ports.Blobs: a body comes back byte for byte, or is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from chalicelib.ports.world import Blobs
from chalicelib.store.blobs import FolderBlobs, S3Blobs
from chalicelib.store.clients import Clients
from chalicelib.store.memory import MemoryBlobs


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


def test_a_body_nobody_put_is_not_there(blobs: Blobs) -> None:
    blobs.put("bodies/orders/u1/abc", b"x")
    assert blobs.get("bodies/orders/u1/ab") is None


def test_a_body_put_again_is_replaced_whole(blobs: Blobs) -> None:
    blobs.put("bodies/orders/u1/abc", b"long before")
    blobs.put("bodies/orders/u1/abc", b"new")
    assert blobs.get("bodies/orders/u1/abc") == b"new"


def test_a_body_that_was_deleted_is_not_there_and_to_delete_it_again_is_harmless(blobs: Blobs) -> None:
    blobs.put("bodies/orders/u1/abc", b"x")
    for _ in range(2):
        blobs.delete("bodies/orders/u1/abc")
        assert blobs.get("bodies/orders/u1/abc") is None


def test_names_come_in_order_page_by_page(blobs: Blobs) -> None:
    names = [f"expiring/{day}/{n}" for day in ("2026-12-01", "2026-12-02") for n in "abc"]
    for name in (*reversed(names), "bodies/orders/u1/abc", "expired"):
        blobs.put(name, b"")
    assert blobs.names("expiring/", "", 4) == names[:4]
    assert blobs.names("expiring/", names[3], 4) == names[4:]
    assert blobs.names("expiring/", names[5], 4) == []
    assert blobs.names("nobody/", "", 4) == []
