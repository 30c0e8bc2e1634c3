"""Every number that has messages behind it leads to them: read from the pages themselves."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urljoin

from tests.functional.console.conftest import Scene

NOT_OF_MESSAGES = {
    "",  # a column of buttons
    *(
        "Attempt",
        "Attempts",
        "Retries left",
        "Checks",
        "Took",
        "Rank",
        "Ends",
        "Kept for",
    ),
    *("Success, 1 h", "p95, 1 h"),
    *("Half took at most", "95 % took at most", "Failing since", "Circuit opened"),
}
"""What is no count of messages, by the words above it or beside it."""
_NOTHING = {"", "0", "\u2013", "0 /s", "\u2013 /s", "up to date", "nothing kept"}


@dataclass(frozen=True)
class Number:
    """What stands in a place for numbers, what it is called there, and where it leads."""

    name: str
    text: str
    link: str | None


class _Numbers(HTMLParser):
    """Numbers in figures, in columns of tables, at the ends of strips and above charts."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[Number] = []
        self._names: list[str] = []  # of a table's columns
        self._name = ""
        self._place: str | None = None  # the tag of the number that is read
        self._words: list[str] = []
        self._link: str | None = None
        self._column = 0
        self._heading = False
        self._within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = (dict(attrs).get("class") or "").split()
        if tag == "thead":
            self._names, self._heading = [], True
        elif tag == "tr":
            self._column = 0
        elif tag in ("th", "td"):
            if not self._heading and tag == "td" and "n" in classes:
                self._begin(tag, self._names[self._column] if self._column < len(self._names) else "")
            elif self._heading:
                self._begin(f"{tag}-name", "")
            self._column += 1
        elif tag in ("dl", "figure"):
            self._within = "figures" if "figures" in classes else tag
        elif tag in ("dd", "dt") and self._within == "figures":
            self._begin(tag, self._name)
        elif (tag == "div" and "ends" in classes) or (tag == "b" and self._within == "figure"):
            self._begin(tag, "ends" if tag == "div" else "chart")
        elif tag == "a" and self._place:
            self._link = dict(attrs).get("href")

    def _begin(self, place: str, name: str) -> None:
        self._place, self._name, self._words, self._link = place, name, [], None

    def handle_data(self, data: str) -> None:
        if self._place and data.strip():
            self._words.append(data.strip())

    def handle_endtag(self, tag: str) -> None:
        if tag == "thead":
            self._heading = False
        if self._place is None or tag != self._place.partition("-")[0]:
            return
        text = " ".join(self._words)
        if self._place.endswith("-name"):
            self._names.append(text)
        elif tag == "dt":
            self._name = text
        elif text not in _NOTHING and any(char.isdigit() for char in text):
            self.numbers.append(Number(self._name, text, self._link))
        self._place = None


def numbers(html: str) -> list[Number]:
    """The numbers of a page."""
    reader = _Numbers()
    reader.feed(html)
    return reader.numbers


def test_every_number_of_messages_leads_to_them(scene: Scene) -> None:
    names_seen: set[str] = set()
    for name, screen in scene.screens():
        for number in numbers(screen.html):
            if number.name in NOT_OF_MESSAGES:
                continue
            names_seen.add(number.name)
            assert number.link, (name, number)
            behind = scene.browser.get(urljoin(screen.url, number.link))
            assert behind.status == 200, (name, number)
            assert "No message fits." not in behind.text, (name, number, number.link)
            assert "No dead letter" not in behind.text, (name, number)
    assert names_seen >= {
        "Accepted",
        "Backlog",
        "In flight",
        "Retrying",
        "Dead",
        "Succeeded",
        "ends",
        "Messages",
        "Here",
        "chart",
    }
