"""A message beside its list: its links hold from the page that shows it. And what was done is undone by a button."""

from __future__ import annotations

from urllib.parse import urljoin

from tests.support.browser import HOST, Browser
from tests.support.http import Client


def test_a_fragments_links_begin_where_it_is_shown(api: Client, browser: Browser) -> None:
    topic = api.topic()
    group = topic.group("mailer")
    id = topic.produce("x")["id"]
    path, at = f"/console/topics/{topic.name}/messages/{id}", f"/console/topics/{topic.name}/messages"
    screen = browser.get(path, hx_request="true", hx_current_url=f"http://{HOST}{at}?tag=x")
    assert "<html" not in screen.html
    for text, where in ((group.name, f"topics/{topic.name}/groups/mailer"), ("raw", f"{path[9:]}?as=raw")):
        assert urljoin(at, screen.links[text]) == f"/console/{where.lstrip('/')}"


def test_a_fragment_that_is_shown_elsewhere_has_the_links_of_its_own_path(
    api: Client, browser: Browser
) -> None:
    topic = api.topic()
    id = topic.produce("x")["id"]
    path = f"/console/topics/{topic.name}/messages/{id}"
    for url in ("https://evil.example/x", "", "http://[", f"http://{HOST}/elsewhere/a/b/c/d"):
        screen = browser.get(path, hx_request="true", hx_current_url=url)
        assert urljoin(path, screen.links["raw"]) == f"{path}?as=raw"


def test_a_pause_is_undone_and_done_again(api: Client, browser: Browser) -> None:
    topic = api.topic()
    group = topic.group("mailer")
    screen = browser.get(f"/console/topics/{topic.name}")
    screen = browser.submit(screen.form("pause_group", group="mailer"))
    (undo,) = [form for form in screen.forms if form.buttons == ["Undo"]]
    screen = browser.submit(undo)
    assert "Resumed." in screen.text
    assert api.get(group.path).expect(200)["paused"] is False
    (undo,) = [form for form in screen.forms if form.buttons == ["Undo"]]
    browser.submit(undo)
    assert api.get(group.path).expect(200)["paused"] is True
