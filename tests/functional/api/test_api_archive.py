"""What the archive has of each day, as its manifests say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.store.blobs import FolderBlobs
from glue_jobs.archiving.completeness import NAME as PROOF
from glue_jobs.common.bucket import FolderBucket
from glue_jobs.common.manifest import Manifest, Rows, Shard, Table, name_of, save
from tests.support.http import Client, Topic


def put(day: str, **fields: Any) -> None:
    """A day's manifest, as the archive's job writes it."""
    parts = {"orders": (20, 25), "orders.eu": (3, 3)}
    tables = {
        table: Table((), {topic: Rows(rows[n], "") for topic, rows in parts.items()})
        for n, table in enumerate(("messages", "deliveries"))
    }
    over_ms = int((datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1)).timestamp() * 1000)
    plain = {"until_hour": 24, "written_ms": over_ms, "input": "", "tables": tables, "shards": ()}
    manifest_fields: dict[str, Any] = {**plain, **fields}
    with TemporaryDirectory() as folder:
        save(FolderBucket(Path(folder), "headrace"), Manifest(day, **manifest_fields))
        wiring.deps().adapters.blobs.put(name_of(day), Path(folder, name_of(day)).read_bytes())


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


def test_pages_go_back_to_the_first_archived_day_of_all_topics_or_one(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(wiring.deps().adapters), "archive_days", 400)
    for day in ("2026-11-01", "2026-11-05"):
        put(day)
    query = "to=2026-11-06&limit=3&topic=orders"
    page = api.get(f"/v1/archive?{query}").expect(200)
    seen = [*page["items"]]
    while "next_page_token" in page:
        page = api.get(f"/v1/archive?{query}&page_token={page['next_page_token']}").expect(200)
        seen += page["items"]
    assert [day["day"][-2:] for day in seen] == ["06", "05", "04", "03", "02", "01"]
    assert {each["topic"] for day in seen for each in day["topics"]} == {"orders"}
    assert page["archive_days"] == 400


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


STATES = ("waiting", "in_flight", "retrying", "dead")


def counted(topic: Topic, day: str, groups: dict[str, int], until: int = 24) -> None:
    """Counts that tell hour and state: of `waiting` at 09:00 it is 90, or so much more."""
    report: dict[str, Any] = {
        "v": 1,
        "topic": topic.name,
        "day": day,
        "since": "2026-11-14",
        "complete": True,
    }
    report["groups"] = {
        name: {state: [10 * hour + n + more for hour in range(until + 1)] for n, state in enumerate(STATES)}
        for name, more in groups.items()
    }
    blobs = wiring.deps().adapters.blobs
    blobs.put(f"reports/hours/day={day}/{topic.name}.json", json.dumps(report).encode())


def as_of(topic: Topic, at: str) -> dict[str, Any]:
    answer: dict[str, Any] = topic.api.get(f"{topic.path}/as-of?at={at}").expect(200)
    return answer


@pytest.mark.parametrize(
    ("at", "hour", "exact"),
    [
        ("2026-11-21T09:00:00Z", 9, True),
        ("2026-11-21T09:59:59.999Z", 9, False),
        ("2026-11-21T00:30:00.000+00:00", 0, False),
        ("2026-11-22T01:15:00.000%2B02:00", 23, False),
    ],
)
def test_it_is_told_as_it_was_at_the_full_hour_before(api: Client, at: str, hour: int, exact: bool) -> None:
    topic = api.topic()
    counted(topic, "2026-11-21", {"billing": 0})
    answer = as_of(topic, at.replace("+", "%2B"))
    assert answer["counted_at"] == f"2026-11-21T{hour:02}:00:00.000Z"
    assert (answer["exact"], answer["complete"]) == (exact, True)
    assert answer["accepted_since"] == "2026-11-14T00:00:00.000Z"
    assert answer["groups"] == {"billing": {state: 10 * hour + n for n, state in enumerate(STATES)}}


def test_what_nobody_counted_says_how_to_get_it(api: Client) -> None:
    topic, other = api.topic(), api.topic()
    counted(topic, "2026-11-21", {"billing": 0}, until=9)
    assert as_of(topic, "2026-11-21T09:30:00Z")["groups"]
    for name, at in (
        (topic, "2026-11-21T10:00:00Z"),
        (topic, "2026-11-20T10:00:00Z"),
        (other, "2026-11-21T09:00:00Z"),
    ):
        problem = api.get(f"{name.path}/as-of?at={at}").refused(404, "NOT_ARCHIVED")
        assert f"--topic {name.name} --at {at}" in problem["detail"]
    api.get(f"{topic.path}/as-of").refused(400, "VALIDATION")
    api.get(f"{topic.path}/as-of?at=yesterday").refused(400, "VALIDATION")


@pytest.mark.parametrize("raw", [b"{", b"\xff", b"[]", b'{"groups": {"billing": 7}}'])
def test_counts_that_cannot_be_read_are_none(api: Client, raw: bytes) -> None:
    topic = api.topic()
    wiring.deps().adapters.blobs.put(f"reports/hours/day=2026-11-21/{topic.name}.json", raw)
    api.get(f"{topic.path}/as-of?at=2026-11-21T09:00:00Z").refused(404, "NOT_ARCHIVED")


def test_a_token_sees_only_the_groups_that_it_may_use(api: Client) -> None:
    topic = api.topic()
    counted(topic, "2026-11-21", {"billing": 0, "mailer": 1})
    token = api.post("/v1/tokens", {"name": "m", "scopes": ["consume"], "groups": ["mail*"]}).expect(201)
    holder = Client(api.gateway, token["token"])
    answer = holder.get(f"{topic.path}/as-of?at=2026-11-21T09:00:00Z").expect(200)
    assert list(answer["groups"]) == ["mailer"]
