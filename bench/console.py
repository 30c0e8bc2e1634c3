"""How long the console's pages take, as a browser at the local server waits for them, and what each weighs."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from statistics import quantiles
from urllib.parse import urlencode

from tests.browser import pages
from tests.browser.scene import play

from .figures import Figure, at_most
from .local_server import LocalServer, serve
from .stage import say, stage

_ROUNDS = 20
_MOST_MS = 100
_MOST_KB = 15


def measure(endpoint: str, verbose: bool = False) -> Iterator[Figure]:
    """Every page of the pictures' scene; the first round, which loads the templates, is not counted. The server's CPU
    time hardly depends on what else the machine does; the clock does."""
    with stage(endpoint) as target, serve(target) as server:
        paths = pages.paths(play(server.client()))
        say(f"console: {len(paths)} pages, {_ROUNDS} times each")
        browser = _Browser(server)
        for path in paths.values():
            browser.get(path)
        times_ms: dict[str, list[float]] = {name: [] for name in paths}
        sizes: dict[str, int] = {}
        cpu: dict[str, float] = {}
        for name, path in paths.items():
            before = server.cpu_seconds()
            for _ in range(_ROUNDS):
                start = time.perf_counter()
                sizes[name] = browser.get(path)
                times_ms[name].append((time.perf_counter() - start) * 1_000)
            cpu[name] = (server.cpu_seconds() - before) * 1_000 / _ROUNDS
        p95 = {name: quantiles(times, n=20)[-1] for name, times in times_ms.items()}
        slowest = max(p95, key=lambda name: p95[name])
        everything = quantiles([each for times in times_ms.values() for each in times], n=20)[-1]
        if verbose:
            lines = sorted(p95, key=lambda name: -p95[name])
            for name in lines:
                say(f"{p95[name]:6.1f} ms p95 {cpu[name]:5.1f} ms CPU {sizes[name]:6,} bytes  {name}")
        busiest = max(cpu, key=lambda name: cpu[name])
        note = (
            f"{sum(cpu.values()) / len(cpu):.1f} ms of the server's CPU; most, {cpu[busiest]:.1f}: {busiest}"
        )
        yield at_most("a page of the console, all pages: p95", everything, _MOST_MS, "ms", note)
        yield at_most("the slowest page of the console: p95", p95[slowest], _MOST_MS, "ms", slowest)
        heaviest = max(sizes, key=lambda name: sizes[name])
        yield at_most(
            "the heaviest page of the console, gzipped", sizes[heaviest] / 1_000, _MOST_KB, "KB", heaviest
        )


class _Browser:
    """A kept-alive connection with the cookie of a session."""

    def __init__(self, server: LocalServer) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        form = urlencode({"token": server.token, "back": ""})
        origin = f"http://127.0.0.1:{server.port}"
        headers = {"Origin": origin, "Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", "/console/sign-in", form, headers)
        answer = self._connection.getresponse()
        answer.read()
        self._headers = {
            "Cookie": str(answer.getheader("Set-Cookie")).partition(";")[0],
            "Accept-Encoding": "gzip",
        }

    def get(self, path: str) -> int:
        """How many bytes a page has. RuntimeError where it is none."""
        self._connection.request("GET", f"/{path}", headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"/{path}: {answer.status}")
        return len(body)
