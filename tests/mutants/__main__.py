"""Mutants: each small change of the code is judged by the tests that reach its lines, and those that live are listed.

Tests are collected once. For each mutant a fork of that process takes the changed code into its functions and runs the
tests that reach it, those that reach little else first, up to the first that fails. Tests that need DynamoDB Local
judge nothing. Options that are not listed are pytest's.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import random
import resource
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from .changes import MANY, Mutant, mutants
from .judges import Judges

_WORLDS = "tests/simulation/test_simulation.py::test_whatever_happens_every_message_has_its_end[from-0]"
_TESTS = ["tests/unit", "tests/contract", _WORLDS]
_MEMORY = 3 << 30
Swaps = Sequence[tuple[FunctionType, CodeType]]


class Loop:
    """In place of pytest's loop over tests: one over mutants."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Examples that fail need not be made smaller."""
        from hypothesis import Phase, settings

        settings.register_profile("whole", settings(), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("whole")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._judges = Judges(session, self._options.learned)
        print(self._judges, flush=True)
        sums: Counter[str] = Counter()
        with Path(self._options.out).open("a") as out:
            for path in _modules(self._options.modules):
                counts: Counter[str] = Counter()
                for mutant, fate in self._judged(path):
                    counts[fate] += 1
                    row = {"id": mutant.id, "fate": fate, "before": mutant.before, "after": mutant.after}
                    print(json.dumps(row), file=out, flush=True)
                    if fate in ("alive", "unreached"):
                        print(f"{fate}: {mutant.id}\n    {mutant.before}\n    {mutant.after}", flush=True)
                print(f"{path}: {counts.total()} mutants {dict(counts)}", flush=True)
                sums += counts
        print(f"all: {sums.total()} mutants {dict(sums)}", flush=True)
        return True

    def _judged(self, path: Path) -> Iterator[tuple[Mutant, str]]:
        chance = random.Random(self._options.seed)
        file = str(path.resolve())
        importlib.import_module(".".join(path.with_suffix("").parts))  # some are first imported by a test
        functions = defaultdict(list)
        gc.unfreeze()  # what tests have frozen is not listed
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename == file:
                functions[each.__code__].append(each)
        codes = list(_codes(compile(path.read_text(), file, "exec")))
        assert functions or not codes, f"none of the functions of {path} is found"
        for mutant in mutants(path):
            share = self._options.many if mutant.operator in MANY else self._options.share
            if chance.random() < share and (not self._options.only or mutant.id in self._options.only):
                mutant_codes = _codes(compile(mutant.source, file, "exec"))
                pairs = zip(codes, mutant_codes, strict=True)
                swaps = [(function, new) for old, new in pairs if old != new for function in functions[old]]
                yield mutant, self._fate(file, mutant, swaps) if swaps else "same code"

    def _fate(self, file: str, mutant: Mutant, swaps: Swaps) -> str:
        tests = self._judges.of(file, mutant.lines, self._options.seconds)
        seconds = int(self._judges.seconds(tests))

        def take_over() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (3 * seconds + 5, 3 * seconds + 6))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            signal.alarm(20 * seconds + 60)
            for function, code in swaps:
                function.__code__ = code

        return self._judges.verdict(tests, take_over) if tests else "unreached"


def _modules(names: Sequence[str]) -> Iterator[Path]:
    for path in (Path("chalicelib", name) for name in names):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of every function that is in no other, in their order."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            is_class = not const.co_flags & 0x2  # CO_NEWLOCALS
            yield from _codes(const) if is_class else (const,)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument(
        "modules", nargs="*", default=["domain", "modes", "services"], help="below chalicelib"
    )
    parser.add_argument("--tests", nargs="+", default=_TESTS, help="the judges")
    parser.add_argument("--share", type=float, default=1.0, help="of the mutants")
    parser.add_argument(
        "--many", type=float, default=0.1, help="share of those that drop an argument or a value"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the choice")
    parser.add_argument("--seconds", type=float, default=5.0, help="of tests, at most, for one mutant")
    parser.add_argument("--only", nargs="+", help="mutants, by id")
    parser.add_argument(
        "--learned", help="folder that keeps what tests reach; for the same tests of the same code"
    )
    parser.add_argument("--out", default="build/mutants.jsonl", help="gets a line for each mutant")
    options, others = parser.parse_known_args()
    Path(options.out).parent.mkdir(exist_ok=True)
    arguments = ["-q", "-s", "-p", "no:cacheprovider", "-m", "not oracle", *options.tests, *others]
    pytest.main(arguments, plugins=[Loop(options)])


if __name__ == "__main__":
    main()
