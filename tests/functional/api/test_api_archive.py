"""What the archive has of each day, as its manifests say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.store.blobs import FolderBlobs
from glue_jobs.archiving.completeness import NAME as PROOF
from glue_jobs.common.manifest import Manifest, Part, Shard, name_of
from tests.support.http import Client


def put(day: str, **fields: Any) -> None:
    """A day's manifest, as the archive's job writes it."""
    parts = {"orders": (20, 25), "orders.eu": (3, 3)}
    tables = {
        table: tuple(Part(topic, rows[n], "", ()) for topic, rows in parts.items())
        for n, table in enumerate(("messages", "deliveries"))
    }
    over_ms = int((datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1)).timestamp() * 1000)
    plain = {"until_hour": 24, "written_ms": over_ms, "input": "", "tables": tables, "shards": ()}
    manifest_fields: dict[str, Any] = {**plain, **fields}
    raw = json.dumps(asdict(Manifest(day, **manifest_fields)), separators=(",", ":")).encode()
    wiring.deps().adapters.blobs.put(name_of(day), raw)


@pytest.fixture(autouse=True)
def _nothing_is_left(api: Client) -> Iterator[None]:
    yield
    blobs = wiring.deps().adapters.blobs
    assert isinstance(blobs, FolderBlobs)
    for name in blobs.names("archive/", "", 99):
        blobs.delete(name)


def days(api: Client, query: str) -> Any:
    return api.get(f"/v1/archive?{query}").expect(200)["items"]


def proofs(api: Client, day: str) -> dict[str, tuple[str, int]]:
    (view,) = days(api, f"to={day}&limit=1")
    return {each["topic"]: (each["proof"], each["missing"]) for each in view["topics"]}


def test_a_day_is_proved_open_or_has_holes(api: Client) -> None:
    put("2026-11-01")
    put("2026-11-02", until_hour=10)
    shard = Shard(
        topic="orders", topic_uid="uid", shard=0, begin=0, ranges=((0, 9),), missing=((3, 5), (8, 8))
    )
    put("2026-11-03", shards=(shard,))
    assert [each["day"] for each in days(api, "to=2026-11-04&limit=4")][::3] == ["2026-11-04", "2026-11-01"]
    assert proofs(api, "2026-11-01") == {"orders": ("PROVED", 0), "orders.eu": ("PROVED", 0)}
    assert proofs(api, "2026-11-02")["orders"] == ("OPEN", 0)
    assert proofs(api, "2026-11-03") == {"orders": ("HOLES", 4), "orders.eu": ("PROVED", 0)}
    put("2026-11-02", written_ms=1_793_663_999_999)  # in the day's last hour
    assert proofs(api, "2026-11-02")["orders"] == ("OPEN", 0)
    (nothing,) = days(api, "to=2026-11-04&limit=1")
    assert (nothing["until_hour"], nothing["topics"]) == (None, [])
    (first,) = days(api, "to=2026-11-01&limit=1")
    assert first["topics"][0]["messages"] == 20
    assert first["topics"][0]["deliveries"] == 25


def test_what_a_later_day_has_found_is_missing_no_more(api: Client) -> None:
    put(
        "2026-11-03",
        shards=(
            Shard(
                topic="orders", topic_uid="uid", shard=0, begin=0, ranges=((0, 9),), missing=((3, 5), (8, 8))
            ),
        ),
    )
    proof = {"v": 1, "ranges": {"orders:uid/0": [[0, 4], [8, 20]]}, "lost": {}}
    wiring.deps().adapters.blobs.put(PROOF, json.dumps(proof).encode())
    assert proofs(api, "2026-11-03")["orders"] == ("HOLES", 1)


def test_damaged_objects_leave_a_day_unproved(api: Client) -> None:
    put("2026-11-05", damaged=("journal/x",), bodies_missing=("bodies/y", "bodies/z"))
    (view,) = days(api, "to=2026-11-05&limit=1")
    assert (view["damaged"], view["bodies_missing"]) == (1, 2)
    assert proofs(api, "2026-11-05")["orders"][0] == "HOLES"


@pytest.mark.parametrize(
    "raw", [b"{", b"\xff", b"[]", b'{"day": 7}', b'{"day":"2026-11-06","until_hour":24}']
)
def test_a_manifest_that_cannot_be_read_is_damaged(api: Client, raw: bytes) -> None:
    wiring.deps().adapters.blobs.put(name_of("2026-11-06"), raw)
    (view,) = days(api, "to=2026-11-06&limit=1")
    assert (view["day"], view["until_hour"], view["damaged"]) == ("2026-11-06", 0, 1)


def test_a_token_sees_its_own_topics_only(api: Client) -> None:
    put("2026-11-01")
    grant = {"name": "t", "scopes": ["consume"], "topics": ["orders.*"]}
    token = api.post("/v1/tokens", grant).expect(201)["token"]
    assert proofs(api.with_token(token), "2026-11-01").keys() == {"orders.eu"}


@pytest.mark.parametrize(
    "query", ["to=today", "to=2026-13-01", "to=2026-W01", "to=0001-01-01", "limit=32", "limit=0"]
)
def test_what_is_no_day_is_refused(api: Client, query: str) -> None:
    api.get(f"/v1/archive?{query}").refused(400, "VALIDATION")
