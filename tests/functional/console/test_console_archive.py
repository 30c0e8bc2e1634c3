"""The archive's page, and replays: seen, previewed, started."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chalicelib import wiring
from tests.support.browser import Browser, page
from tests.support.http import Client


def put(day: str, topic: str, **fields: Any) -> None:
    table = {"files": [], "topics": {topic: [1234, ""]}}
    manifest = {
        "until_hour": 24,
        "written_ms": 2_000_000_000_000,
        "shards": [],
        "tables": {"messages": table, "deliveries": table},
        **fields,
    }
    raw = json.dumps({"day": day, "input": "", "v": 1, **manifest}).encode()
    wiring.deps().adapters.blobs.put(f"archive/manifests/{day}.json", raw)


def test_without_an_archive_the_page_says_how_to_make_one(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(wiring.deps().adapters), "archive_days", 400)
    text = page(browser, "archive?to=1999-01-14").text
    assert "The archive of a day is deleted after 400 days." in text
    assert "Nothing is archived of these days." in text
    assert "make archive" in text
    assert "HEADRACE_ARCHIVE is not set" in text
    assert "Earlier days" in text
    page(browser, "archive?to=nonsense")


def test_days_and_topics_show_what_is_proved_open_or_missing(api: Client, browser: Browser) -> None:
    name = api.topic().name
    shard = [name, "u", 0, 0, [], 0, [[1, 7]]]
    put("2020-05-01", name)
    put("2020-05-02", name, shards=[shard], damaged=["journal/x"])
    put("2020-05-03", name, until_hour=9, written_ms=1_588_495_020_000)  # 08:37
    screen = page(browser, "archive?to=2020-05-10")
    assert 'title="2020-05-01"' in screen.html
    assert 'title="2020-05-03 · archived until 08:37"' in screen.html
    assert f"{name} " in screen.text
    assert [screen.html.count(f'class="n {each}"') for each in ("proved", "holes", "open")] == [1, 1, 1]
    assert "\u22127" in screen.text
    assert "2020-05-02: 1 object could not be read" in screen.text
    stranger = Browser(browser.gateway)
    stranger.enter(api.new_token(topics=["others.*"])["token"])
    assert name not in page(stranger, "archive?to=2020-05-10").html
    assert browser.follow(name).url == f"/console/topics/{name}/replays"


def test_a_replay_is_previewed_counted_and_started(api: Client, browser: Browser) -> None:
    topic = api.topic()
    put("2021-05-01", topic.name)
    put("2021-05-02", topic.name, until_hour=9)
    put("2021-05-03", topic.name, written_ms=1_620_085_680_000)  # 23:48
    place = f"topics/{topic.name}/replays"
    assert "Nothing was replayed yet." in page(browser, place).text
    span = "from=2021-04-30T10:00&to=2021-05-03T12:00"
    screen = page(browser, f"{place}?{span}&tag=paid&where=total+%3E+10&rate=7")
    assert "3,702 messages at most" in screen.text
    assert "2021-04-30 not archived" in screen.text
    assert screen.text.count("archived until") == 2
    assert "1,234 · archived until 09:00" in screen.text
    assert "1,234 · archived until 23:48" in screen.text
    assert api.get(f"{topic.path}/replays").expect(200)["items"] == [], "nothing has happened yet"
    count, replay = (form for form in screen.forms if form.fields.get("call") == "create_replay")
    screen = browser.submit(count)
    assert "Made." in screen.text
    assert "only counts" in screen.text
    page(browser, f"{place}?{span}&tag=paid&where=total+%3E+10&rate=7")
    screen = browser.submit(replay)
    assert screen.text.count("make replay ARGS") == 2
    newest = api.get(f"{topic.path}/replays").expect(200)["items"][0]
    assert (newest["from"], newest["to"]) == ("2021-04-30T10:00:00.000Z", "2021-05-03T12:00:00.000Z")
    assert (newest["tag"], newest["where"], newest["rate"], newest["dry_run"]) == (
        "paid",
        "total > 10",
        7,
        False,
    )


def test_progress_and_errors_are_shown(api: Client, browser: Browser) -> None:
    topic = api.topic()
    span = {"from": "2021-05-01T00:00:00Z", "to": "2021-05-02T00:00:00Z"}
    replay = api.post(f"{topic.path}/replays", {**span, "key": "<b>k</b>"}).expect(202)
    progress = {"state": "RUNNING", "matched": 80, "sent": 20}
    api.call("PATCH", f"/v1/replays/{replay['replay_id']}", progress).expect(200)
    screen = page(browser, f"topics/{topic.name}/replays")
    assert '<progress value="20" max="80"' in screen.html
    assert "<b>k</b>" in screen.text
    assert "<b>k" not in screen.html
    failure = {**progress, "state": "FAILED", "error": "the archive is too new"}
    api.call("PATCH", f"/v1/replays/{replay['replay_id']}", failure).expect(200)
    assert "the archive is too new" in page(browser, f"topics/{topic.name}/replays").text


def test_a_preview_names_what_is_wrong(browser: Browser, api: Client) -> None:
    place = f"topics/{api.topic().name}/replays"
    backwards = f"{place}?from=2021-05-02T00:00&to=2021-05-01T00:00"
    assert "must be later" in page(browser, backwards).text
    chinese = browser.get(f"/console/{backwards}", accept_language="zh")
    assert ("须晚于起始时间" in chinese.text, "must be later" in chinese.text) == (True, False)
    assert "where" in page(browser, f"{place}?from=2021-05-01T00:00&to=2021-05-02T00:00&where=x+%2B+1").text
    assert "must be a time" in page(browser, f"{place}?from=x&to=2021-05-02T00:00").text
