"""Signing in: a pasted token becomes a cookie that does not hold it, and that ends with the token."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.console import session
from chalicelib.console.pages import PAGES
from tests.support.background import Background
from tests.support.browser import HOST, Browser
from tests.support.http import Client, ShiftingClock


def test_without_a_session_there_is_one_form_with_one_password(stranger: Browser) -> None:
    screen = stranger.get("/console")
    assert screen.status == 200
    (form,) = screen.forms
    assert form.method == "POST"
    assert "token" in form.fields
    assert [tag for tag in screen.tags if tag.startswith("input") and "password" in screen.html] != []


def test_the_cookie_does_not_hold_the_token_and_no_script_reads_it(api: Client, stranger: Browser) -> None:
    new_token = api.new_token()
    status, headers, _ = stranger._send(
        "POST", "/console/sign-in", f"token={new_token['token']}".encode(), {}
    )
    cookie = headers["Set-Cookie"]
    assert status == 303
    assert new_token["token"] not in cookie
    assert new_token["token"].split("_")[2] not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert int(cookie.partition("Max-Age=")[2].partition(";")[0]) <= 8 * 3600


def test_over_tls_the_cookie_is_secure_and_bound_to_the_host(api: Client, stranger: Browser) -> None:
    tls = {"x_forwarded_proto": "https"}
    _, headers, _ = stranger._send("POST", "/console/sign-in", f"token={api.token}".encode(), tls)
    cookie = headers["Set-Cookie"]
    assert cookie.startswith("__Host-headrace=")
    assert "Secure" in cookie.split("; ")
    assert stranger.get("/console", **tls).text.startswith("Overview")
    assert "password" in stranger.get("/console").html, "over plain HTTP this cookie does not count"


def test_a_wrong_token_is_refused_and_says_so(stranger: Browser) -> None:
    screen = stranger.sign_in("hr_nobody_xxxxxxxxxxxxxxxx")
    assert screen.status == 401
    assert "not valid" in screen.text
    assert not stranger.cookies


@pytest.mark.parametrize(
    "foreign",
    ['prefs={"a": "b"}', "version=1", "path=/", "name=a b", 'x="half', "list[0]=1", "flag", "", "é=ü"],
)
def test_cookies_of_others_on_the_host_keep_nobody_from_signing_in(browser: Browser, foreign: str) -> None:
    (own,) = browser.cookies.items()
    for cookies in ([foreign, "=".join(own)], ["=".join(own), foreign]):
        screen = Browser(browser.gateway).get("/console/system", cookie="; ".join(cookies))
        assert screen.text.startswith("System"), cookies


def test_a_changed_cookie_is_none(browser: Browser) -> None:
    name, value = browser.cookies.popitem()
    browser.cookies[name] = value[:-1] + ("A" if value[-1] != "A" else "B")
    assert "password" in browser.get("/console").html


def test_a_revoked_token_ends_the_session_at_once(api: Client, stranger: Browser) -> None:
    new_token = api.new_token()
    assert "password" not in stranger.sign_in(new_token["token"]).html
    api.delete(f"/v1/tokens/{new_token['id']}").expect(204)
    assert "password" in stranger.get("/console").html
    assert stranger.get("/console", hx_request="true").status == 401, "a page that polls asks to sign in"


def test_signing_out_ends_it_in_this_browser(browser: Browser) -> None:
    (form,) = [form for form in browser.get("/console").forms if form.action.endswith("sign-out")]
    assert "password" in browser.submit(form).html
    assert not browser.cookies


def link_of(api: Client) -> str:
    url = str(api.post("/v1/sign-in-links").expect(201)["url"])
    assert api.token
    assert api.token.split("_")[2] not in url
    return url.partition(HOST)[2] or url[url.index("/console") :]


def test_a_link_signs_in_once(api: Client, stranger: Browser) -> None:
    link = link_of(api)
    assert "password" not in stranger.get(link).html
    second = Browser(stranger.gateway)
    screen = second.get(link)
    assert screen.status == 401
    assert "This link was used" in screen.text
    assert not second.cookies


def test_a_link_gives_what_its_token_may_and_ends_with_it(api: Client, stranger: Browser) -> None:
    new_token = api.new_token("consume")
    link, late_link = (link_of(api.with_token(new_token["token"])) for _ in range(2))
    stranger.get(link)
    assert "needs a token with the scope 'admin'" in stranger.get("/console/tokens").text
    api.delete(f"/v1/tokens/{new_token['id']}").expect(204)
    assert "password" in stranger.get("/console").html
    assert Browser(stranger.gateway).get(late_link).status == 401


def test_a_link_ends_with_the_text_of_the_token_that_made_it(
    api: Client, stranger: Browser, clock: ShiftingClock
) -> None:
    """Who has a token that is rotated because it leaked has no way in by it."""
    new_token = api.new_token()
    link, late_link = (link_of(api.with_token(new_token["token"])) for _ in range(2))
    api.post(f"/v1/tokens/{new_token['id']}/rotate", {"overlap_seconds": 20}).expect(200)
    assert "password" not in stranger.get(link).html, "both texts are good"
    clock.advance(21)
    assert "password" in stranger.get("/console").html
    assert Browser(stranger.gateway).get(late_link).status == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": f"http://{HOST}.evil.example"},
        {"origin": "http://["},
        {"sec_fetch_site": "cross-site"},
    ],
)
def test_a_form_of_another_site_is_refused(browser: Browser, headers: dict[str, str]) -> None:
    form = browser.get("/console").form("put_topic")
    for path in ("/console/do", "/console/language"):
        screen = browser.post(path, {**form.fields, "topic": "foreign"}, **headers)
        assert (screen.status, "FOREIGN_ORIGIN" in screen.text) == (403, True)


def test_a_form_without_the_sessions_word_is_refused(browser: Browser) -> None:
    fields = {"call": "put_topic", "topic": "forged", "csrf": "0" * 32}
    assert browser.post("/console/do", fields).status == 403
    assert "FORM_EXPIRED" in browser.post("/console/do", fields).text


def test_every_page_but_the_way_in_wants_a_session(stranger: Browser) -> None:
    for entry in PAGES:
        if entry.open:
            continue
        path = entry.path.replace("{", "").replace("}", "")
        if entry.method == "POST":
            assert stranger.post(path, {"csrf": "x"}).status == 401, path
        else:
            assert "password" in stranger.get(path).html, path


def test_pages_run_no_script_but_our_own(browser: Browser) -> None:
    screen = browser.get("/console")
    policy = dict(part.split(" ", 1) for part in screen.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in screen.headers["Content-Security-Policy"]
    assert not [tag for tag in screen.tags if " on" in tag or " style" in tag], "nothing inline"
    assert screen.headers["Cache-Control"] == "no-store"


def test_static_files_are_kept_for_good_under_names_of_their_content(browser: Browser) -> None:
    screen = browser.get("/console")
    names = [part.split('"')[0] for part in screen.html.split('"console/static/')[1:]]
    assert len(names) >= 3
    for name in names:
        file = browser.get(f"/console/static/{name}")
        assert file.status == 200
        assert "immutable" in file.headers["Cache-Control"]
    assert browser.get("/console/static/console.0000000000.js").status == 404
    assert browser.get("/console/static/..%2fhttp.py").status == 404


def test_a_page_with_filters_is_the_same_after_signing_in_and_in_another_language(
    api: Client, stranger: Browser
) -> None:
    page = f"/console/topics/{api.topic().name}/messages?tag=a%2Bb&key=%C3%BC+%26+x"
    screen = stranger.submit(stranger.get(page).forms[0], token=str(api.token))
    assert (screen.status, screen.url) == (200, page)
    (switch,) = [form for form in screen.forms if form.action.endswith("language")]
    screen = stranger.submit(switch, language="zh")
    assert (screen.status, screen.url) == (200, page)


def test_the_language_is_chosen_by_a_form(browser: Browser) -> None:
    browser.post("/console/language", {"language": "zh", "back": ""})
    assert '<html lang="zh"' in browser.get("/console").html
    assert browser.post("/console/language", {"language": "xx"}).status == 400


def test_a_deployed_stage_never_trusts_a_plain_cookie(services: Background) -> None:
    adapters = replace(services.deps.adapters, stage="prod")
    assert session.is_secure(type(services.deps)(adapters), {})
