"""What a page token gives away: it holds no name of what its holder may not see."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from chalicelib.api.calls import CALLS
from chalicelib.domain.times import HOUR_SECONDS
from tests.support.http import Client, Topic

FOREIGN = "foreign"
DAY = {"from": "2030-01-01T00:00:00.000Z", "to": "2030-01-02T00:00:00.000Z"}
PAGED = {
    "/v1/topics": "/v1/topics",
    "/v1/stats": "/v1/stats",
    "/v1/topics/{topic}/replays": "{topic}/replays",
    "/v1/topics/{topic}/groups": "{topic}/groups",
    "/v1/topics/{topic}/groups/{group}/consumers": "{topic}/groups/g/consumers",
    "/v1/topics/{topic}/groups/{group}/dead-letters": "{topic}/groups/g/dead-letters",
    "/v1/topics/{topic}/messages": "{topic}/messages",
    "/v1/topics/{topic}/transactions": "{topic}/transactions",
}


def readings(token: str) -> Iterator[bytes]:
    """All readable contents of a token."""
    yield token.encode()
    for start in range(4):
        part = token[start:]
        yield base64.urlsafe_b64decode(part[: len(part) // 4 * 4])


@pytest.fixture(scope="module")
def topic(api: Client) -> Topic:
    """A topic with two of everything, between foreign ones."""
    prefix = api.topic().name
    mine = Topic(api, f"{prefix}-m.1")
    for name in (f"a-{FOREIGN}", "m", f"z-{FOREIGN}"):
        for number in range(3):
            place = f"/v1/topics/{prefix}-{name}.{number}"
            api.put(place).expect(201)
            for _ in range(2):
                api.post(f"{place}/messages", {"body": 1, "delay_seconds": HOUR_SECONDS}).expect(201)
    for number in range(3):
        group = mine.group(f"g{'' if number == 0 else number}")
        api.put(f"{group.path}/consumers/c{number}").expect(201)
        api.put(f"{mine.path}/groups/g/consumers/d{number}").expect(201)
        mine.produce(number, keys=["k"])
        transaction = {"message": {"body": number}, "check_url": "http://127.0.0.1:9/check"}
        api.post(f"{mine.path}/transactions", transaction).expect(201)
        for into in (mine.name, f"{prefix}-z-{FOREIGN}.0", mine.name):
            api.post(f"{mine.path}/replays", {**DAY, "into": into}).expect(202)
    messages = api.post(f"{mine.path}/groups/g/receive", {"max": 3}).expect(200)["messages"]
    receipts = [message["receipt"] for message in messages]
    api.post(f"{mine.path}/groups/g/nack", {"receipts": receipts, "dead_letter": True}).expect(200)
    return mine


@pytest.fixture(scope="module")
def holder(api: Client, topic: Topic) -> Client:
    """A client whose token is limited to some topics."""
    patterns = [f"{topic.name[:-1]}*", f"{topic.name}-none"]
    grant = {"name": "t", "scopes": ["produce", "consume", "admin"], "topics": patterns}
    return api.with_token(api.post("/v1/tokens", grant).expect(201)["token"])


def walk(client: Client, path: str, limit: int) -> tuple[list[Any], list[str]]:
    """Everything a list shows, and the page tokens on the way."""
    items: list[Any] = []
    tokens: list[str] = []
    page_token: str | None = None
    while page_token is not None or not tokens:
        joint = "&" if "?" in path else "?"
        token = f"&page_token={page_token}" if page_token else ""
        page = client.get(f"{path}{joint}limit={limit}{token}").expect(200)
        items += page["items"]
        page_token = page.get("next_page_token")
        if page_token is None:
            break
        tokens.append(page_token)
    return items, tokens


def test_every_paged_list_is_looked_at() -> None:
    paths = {call.path for call in CALLS if "page_token" in call.query}
    assert paths - {"/v1/tokens", "/v1/audit"} == set(PAGED), "these are listed to nobody who is limited"


@pytest.mark.parametrize(
    "path", [*PAGED.values(), "{topic}/messages?status=DELAYED", "{topic}/messages?key=k"]
)
def test_a_page_token_names_nothing_foreign(holder: Client, topic: Topic, path: str) -> None:
    place = path.format(topic=topic.path)
    whole, _ = walk(holder, place, 200)
    items, tokens = walk(holder, place, 1)
    assert len(items) == len(whole)
    assert len(items) > 1
    assert tokens
    assert FOREIGN not in json.dumps(items)
    for token in tokens:
        assert not [text for text in readings(token) if FOREIGN.encode() in text]


def test_a_limited_list_has_full_pages_and_no_empty_last_one(holder: Client, topic: Topic) -> None:
    for path in ("/v1/topics", "/v1/stats"):
        pages = holder.pages(path, 2)
        assert [len(page) for page in pages] == [2, 1]
        assert [item["topic"][-3:] for page in pages for item in page] == ["m.0", "m.1", "m.2"]
