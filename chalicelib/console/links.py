"""Links between pages: relative, so that they hold behind a stage's prefix and on a domain of one's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

ROOT = "console"
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
_PLACE = re.compile(rf"(?:{_PART}(?:/{_PART})*)?(?:\?[A-Za-z0-9._~%&=+:*-]*)?\Z")


@dataclass(frozen=True, slots=True)
class Links:
    """Links from the page at `path`, which begins with `/`."""

    path: str

    @property
    def up(self) -> str:
        """From here to the folder that holds the console."""
        return "../" * (self.path.rstrip("/").count("/") - 1)

    def to(self, *parts: object, **query: object) -> str:
        """A link to the page below the console's root with these parts; what is None in the query is left out."""
        place = "/".join((ROOT, *(quote(str(part), safe="") for part in parts)))
        return self.up + place + query_text(query)

    def back(self, place: str) -> str:
        """A link to a place that a form names; to the overview, where that is no place of the console's."""
        if not place or not _PLACE.match(place):
            return self.up + ROOT
        return self.up + (f"{ROOT}{place}" if place.startswith("?") else f"{ROOT}/{place}")

    @property
    def here(self) -> str:
        """This page as `back` takes it."""
        return self.path.rstrip("/").partition(f"/{ROOT}")[2].lstrip("/")


def query_text(query: Mapping[str, object]) -> str:
    """The query of a link, with its question mark; nothing where there is none."""
    parameters = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "")}
    return f"?{urlencode(parameters)}" if parameters else ""
