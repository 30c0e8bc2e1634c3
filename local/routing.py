"""Finds the route of a path, as API Gateway does.

A REST API of API Gateway takes one slash at a path's end for none, so it is left out here, too. A parameter it does not
let be empty: `/v1/topics/` is the list of topics, not a topic without a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from urllib.parse import parse_qs

from chalice.local import MatchResult, RouteMatcher


class Routes(RouteMatcher):
    """Chalice's matcher without its surprises: it reads a path beginning with // as a host name, drops what
    follows a semicolon, lets a parameter be empty, and tries every route each time."""

    def __init__(self, route_urls: Iterable[str]) -> None:
        super().__init__(list(route_urls))
        self._by_length: dict[int, list[tuple[str, list[str]]]] = defaultdict(list)
        for url in self.route_urls:  # sorted: a fixed segment before a parameter
            parts = url.split("/")
            self._by_length[len(parts)].append((url, parts))

    def match_route(self, url: str) -> MatchResult:
        """The route, the parameters in its path as they were sent, and the query. ValueError: no such route."""
        path, _, query = url.partition("?")
        if path.endswith("/") and path.strip("/"):
            path = path[:-1]
        parts = path.split("/")
        for route, pattern in self._by_length.get(len(parts), ()):
            params = _capture(pattern, parts)
            if params is not None:
                return MatchResult(route, params, parse_qs(query, keep_blank_values=True) if query else {})
        raise ValueError("No matching route found")


def _capture(pattern: list[str], parts: list[str]) -> dict[str, str] | None:
    params = {}
    for segment, part in zip(pattern, parts, strict=True):
        if segment[:1] == "{" and part:
            params[segment[1:-1]] = part
        elif segment != part:
            return None
    return params
