"""The judges: the tests of a pytest session, which know the lines that they reach, and run in forks of this process."""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, zip_longest
from pathlib import Path

import coverage
import pytest

_FAILED = 3
Learned = tuple[dict[tuple[str, int], set[int]], list[float]]


class Judges:
    """They learn once what they reach; `kept` is a file for that."""

    def __init__(self, session: pytest.Session, folder: str | None) -> None:
        self._items = session.items
        self._hook = session.config.hook
        session.config.pluginmanager.register(self)
        self._may_fail = True
        self._reach, self._seconds = self._learned(Path(folder or tempfile.mkdtemp(), "learned"))
        self._breadth = Counter(at for tests in self._reach.values() for at in tests)

    def __str__(self) -> str:
        return f"{len(self._items)} tests of {sum(self._seconds):.0f} s"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._may_fail:
            os._exit(_FAILED)

    def of(self, file: str, lines: range, seconds: float) -> list[int]:
        """Those that reach one of the lines, by number; the ones that reach little else first, and of so many seconds
        in all."""
        tests = {at for line in lines for at in self._reach.get((file, line), ())}
        narrowest = sorted(tests, key=self._breadth.__getitem__)
        sums = list(accumulate(self._seconds[at] for at in narrowest))
        return [at for at, total in zip(narrowest, sums, strict=True) if total <= max(seconds, sums[0])]

    def seconds(self, tests: Sequence[int]) -> float:
        return sum(self._seconds[at] for at in tests)

    def verdict(self, tests: Sequence[int], prepare: Callable[[], None]) -> str:
        """Whether these tests pass ("alive"), after something was prepared that only they see."""

        def work() -> None:
            self._may_fail = False
            prepare()
            for _ in self._run(tests):
                pass

        status = _forked(work)
        return "timed out" if os.WIFSIGNALED(status) else "killed" if os.WEXITSTATUS(status) else "alive"

    def _run(self, tests: Sequence[int]) -> Iterator[int]:
        """Run tests; each is yielded before it begins."""
        for at, successor in zip_longest(tests, tests[1:]):
            yield at
            nextitem = None if successor is None else self._items[successor]
            self._hook.pytest_runtest_protocol(item=self._items[at], nextitem=nextitem)

    def _learned(self, file: Path) -> Learned:
        """Which tests reach a line, and how many seconds each takes."""
        if not file.exists() and _forked(lambda: self._learn(file)):
            sys.exit("The tests could not be run.")
        lessons: Learned = pickle.loads(file.read_bytes())
        return lessons

    def _learn(self, target: Path) -> None:
        tracer = coverage.Coverage(
            data_file=None, include=["chalicelib/*"], concurrency=["thread", "greenlet"]
        )
        tracer.start()
        times = []
        for at in self._run(range(len(self._items))):
            tracer.switch_context(str(at))
            times.append(time.process_time())
        tracer.stop()
        data = tracer.get_data()
        reach = {
            (file, line): {int(name) for name in names if name}
            for file in data.measured_files()
            for line, names in data.contexts_by_lineno(file).items()
        }
        seconds = [end - begin for begin, end in pairwise([*times, time.process_time()])]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(pickle.dumps((reach, seconds)))


def _forked(work: Callable[[], None]) -> int:
    """Do it silently in a process of its own; its status."""
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        work()
        os._exit(0)
    finally:
        os._exit(_FAILED)
