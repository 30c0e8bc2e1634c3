"""A browser without script: it follows links and redirects, keeps cookies, and sends the forms that pages hold."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin, urlsplit

from tests.support.http import Gateway

HOST = "headrace.test"


@dataclass
class Form:
    """A form as the page holds it."""

    method: str
    action: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[str] = field(default_factory=list)
    disabled: bool = False
    refusal: str = ""
    open_fields: set[str] = field(default_factory=set)
    """What a person fills in or chooses."""


@dataclass
class Screen:
    """What the browser shows; `text` as people read it, without tags and escapes."""

    status: int
    url: str
    headers: Mapping[str, str]
    html: str
    forms: list[Form]
    links: dict[str, str]
    text: str
    tags: list[str]

    def form(self, action: str, **fields: str) -> Form:
        """The form of an action, with these values in it."""
        forms = [
            form
            for form in self.forms
            if form.fields.get("call") == action and form.fields.items() >= fields.items()
        ]
        assert forms, f"no form {action} {fields} among {[f.fields.get('call') for f in self.forms]}"
        return forms[0]

    @property
    def units(self) -> float:
        """The read units that stand in the footer."""
        return float(self.text.rpartition(" read unit")[0].split()[-1])


class Browser:
    """One browser with its cookies, at one service."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.cookies: dict[str, str] = {}
        self.screen: Screen | None = None

    def get(self, path: str, **headers: str) -> Screen:
        return self._go("GET", path, None, headers)

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Screen:
        origin = {"origin": f"http://{HOST}", **headers}
        return self._go("POST", path, urlencode(fields).encode(), origin)

    def submit(self, form: Form, **fields: str) -> Screen:
        """Fill in and send a form of the page that is shown."""
        assert self.screen, "no page is shown"
        assert not form.disabled, form.refusal
        return self.post(urljoin(self.screen.url, form.action), {**form.fields, **fields})

    def follow(self, text: str) -> Screen:
        """Click on a link."""
        assert self.screen, "no page is shown"
        return self.get(urljoin(self.screen.url, self.screen.links[text]))

    def find_in_list(self, path: str, text: str) -> Screen:
        """The page of a list that shows this text: what other tests made is listed, too."""
        screen = self.get(path)
        while text not in screen.text:
            screen = self.follow("More")
        return screen

    def sign_in(self, token: str) -> Screen:
        self.get("/console")
        return self.post("/console/sign-in", {"token": token, "back": ""})

    def enter(self, token: str) -> None:
        """Sign in, and look at no page: the first one counts the messages of all topics, and tests make hundreds."""
        fields = urlencode({"token": token, "back": ""}).encode()
        status, _, _ = self._send("POST", "/console/sign-in", fields, {"origin": f"http://{HOST}"})
        assert status == 303, status

    def _go(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Screen:
        for _ in range(3):
            status, answer_headers, raw = self._send(method, path, body, headers)
            location = answer_headers.get("Location")
            if status != 303 or location is None:
                break
            method, path, body = "GET", urljoin(path, location), None
        html = gzip.decompress(raw) if answer_headers.get("Content-Encoding") == "gzip" else raw
        self.screen = _screen_of(status, path, answer_headers, html.decode())
        return self.screen

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        request_headers = {
            "host": HOST,
            "accept-encoding": "gzip",
            **({"cookie": cookie} if cookie else {}),
            **extra,
        }
        if body is not None:
            request_headers["content-type"] = "application/x-www-form-urlencoded"
        status, answer_headers, raw = self.gateway.handle(method, path, request_headers, body)
        if line := answer_headers.get("Set-Cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
            if "Max-Age=0" in line:
                del self.cookies[name]
        return status, answer_headers, raw


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.links: dict[str, str] = {}
        self.words: list[str] = []
        self.tags: list[str] = []
        self._form: Form | None = None
        self._href: str | None = None
        self._area: str | None = None
        self._button = False
        self._mute = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags.append(tag + "".join(f" {name}" for name in attributes))
        if tag in ("script", "style"):
            self._mute += 1
        if tag == "form":
            self._form = Form(attributes.get("method", "get").upper(), attributes.get("action", ""))
            self.forms.append(self._form)
        elif tag == "a":
            self._href = attributes.get("href")
        elif self._form is not None:
            self._field(tag, attributes)

    def _field(self, tag: str, attributes: dict[str, str]) -> None:
        assert self._form is not None
        fields, name = self._form.fields, attributes.get("name", "")
        if name and not (tag == "input" and attributes.get("type") == "hidden"):
            self._form.open_fields.add(name)
        if (
            tag == "input"
            and name
            and (attributes.get("type") not in ("checkbox", "radio") or "checked" in attributes)
        ):
            fields[name] = attributes.get("value", "")
        elif tag == "textarea":
            self._area = name
            fields[name] = ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and (self._select not in fields or "selected" in attributes):
            fields[self._select] = attributes.get("value", "")
        elif tag == "button":
            self._button = True
            self._form.disabled = "disabled" in attributes
            self._form.refusal = attributes.get("title", "")

    _select = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._mute -= 1
        if tag == "form":
            self._form = None
        elif tag == "a":
            self._href = None
        elif tag == "textarea":
            self._area = None
        elif tag == "button":
            self._button = False

    def handle_data(self, data: str) -> None:
        if self._mute:
            return
        self.words.append(data)
        if self._area is not None and self._form is not None:
            self._form.fields[self._area] += data
        if self._href is not None and data.strip():
            self.links.setdefault(data.strip(), self._href)
        if self._button and self._form is not None:
            self._form.buttons.append(data.strip())


def page(browser: Browser, path: str) -> Screen:
    """A page of the console, which costs at most 20 read units."""
    screen = browser.get(f"/console/{path}")
    assert screen.status == 200, screen.text
    assert screen.units <= 20
    return screen


def _screen_of(status: int, path: str, headers: Mapping[str, str], html: str) -> Screen:
    reader = _Reader()
    reader.feed(html)
    url = urlsplit(path)
    text = " ".join(" ".join(reader.words).split())
    address = f"{url.path}?{url.query}" if url.query else url.path
    return Screen(status, address, headers, html, reader.forms, reader.links, text, reader.tags)
