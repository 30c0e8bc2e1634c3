"""What a soak of a stated length plays: each kind of net, one seed after another."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest

from local.engine.core import Engine
from tests.crash.all_flows import FLOWS
from tests.crash.scenes import complaints as complaints_of
from tests.crash.scenes import play as play_flow
from tests.simulation import hurried, judge, sharing, slow_answers, tenants, unswept, weeks
from tests.simulation.days.plan import LIMITS
from tests.simulation.threads import make_virtual
from tests.simulation.world import World
from tests.support.clock import ManualClock
from tests.support.faults import Fault, Note, without_backoff
from tests.support.flows import SharedTables, chance
from tests.support.short_way import short_way

_PYTEST = ".venv/bin/python -m pytest -n 0"
_CASES = 200  # of the crash enumeration, in one set of tables
_ROOT = Path(__file__).parents[2]


@dataclass
class Played:
    """One seed, played to its end. `again` is the command that plays it once more."""

    steps: int = 0
    faults: int = 0
    complaints: Sequence[str] = ()
    again: str = ""


def _of_world(game: tuple[World, list[str]], command: str) -> Played:
    world, complaints = game
    return Played(len(world.path), world.injected.total(), complaints, command)


def _simulated(test: str, play: Callable[[int], tuple[World, list[str]]]) -> Callable[[int], Played]:
    return lambda seed: _of_world(
        play(seed), f"HEADRACE_SEED={seed} {_PYTEST} tests/simulation/{test} -k from"
    )


def _shares(seed: int) -> Played:
    return _of_world(
        sharing.play(seed), f"HEADRACE_SEED={seed} {_PYTEST} tests/simulation/test_sharing.py -k equal"
    )


def _weeks(seed: int) -> Played:
    days = weeks.play(seed, *[LIMITS] * (seed % 4 == 0))
    command = f"HEADRACE_SEED={seed} {_PYTEST} tests/simulation/test_days.py -k from"
    return Played(len(days.path), days.injected.total(), days.complaints, command)


def _hurried(seed: int) -> Played:
    hurry = hurried.play(seed)
    command = f"HEADRACE_SEED={seed} {_PYTEST} tests/simulation/test_hurried.py -k from"
    return Played(len(hurry.path), hurry.injected.total(), hurry.complaints, command)


def _tenants(number: int) -> Played:
    troubles = sorted(tenants.TROUBLES)
    trouble, seed = troubles[number % len(troubles)], number // len(troubles)
    command = f"HEADRACE_SEED={seed} {_PYTEST} tests/simulation/test_tenants.py -k '{trouble.replace(' ', ' and ')}'"
    return _of_world(tenants.play(trouble, seed), command)


# The crash enumeration


@dataclass
class _Tables:
    """Tables for some hundred cases: an engine forgets nothing else."""

    tables: SharedTables | None = None
    cases: int = 0
    healthy: dict[str, list[Note]] = field(default_factory=dict)

    def ready(self) -> SharedTables:
        if self.tables and self.cases % _CASES == 0:
            self.tables.remove()
            self.tables = None
        if self.tables is None:
            self.tables = SharedTables(f"soak-{uuid4().hex[:8]}", Path(tempfile.mkdtemp()))
            deps = self.tables.deps(ManualClock(), chance("tables"))
            deps.setup()
            assert deps.signing_key
        self.cases += 1
        return self.tables

    def notes(self, tables: SharedTables, name: str) -> list[Note]:
        if name not in self.healthy:
            self.healthy[name] = play_flow(tables, FLOWS[name], name=f"{name} {uuid4().hex[:6]}").plan.notes
        return self.healthy[name]


_tables = _Tables()


def _crash(number: int) -> Played:
    """One fault at one call of one flow."""
    rng = random.Random(f"crash {number}")
    name, fault, tables = rng.choice(sorted(FLOWS)), rng.choice(list(Fault)), _tables.ready()
    points = [at for at, note in enumerate(_tables.notes(tables, name), 1) if fault in note.spoilt_by]
    if not points:
        return Played()
    at = rng.choice(points)
    result = play_flow(tables, FLOWS[name], fault, at)
    wrong = [f"{name}, {fault.name.lower()} at call {at}: {each}" for each in complaints_of(result, fault)]
    test = "tests/crash/test_enumeration.py::test_no_fault_at_any_call_breaks_a_promise"
    command = f"HEADRACE_SOAK=1 {_PYTEST} '{test}[{name}-{fault.name.lower()}]'"
    return Played(len(result.plan.calls), 1, wrong, command)


# Properties


@cache
def _files() -> list[str]:
    """The test files that draw examples."""
    files = (*_ROOT.glob("tests/unit/**/test_*.py"), *_ROOT.glob("tests/contract/**/test_*.py"))
    return sorted(str(file.relative_to(_ROOT)) for file in files if "@given" in file.read_text())


def _properties(number: int) -> Played:
    """The properties of one file, with new examples. A step is an example."""
    file = _files()[number % len(_files())]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "not oracle", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, "--hypothesis-show-statistics", file],
        cwd=_ROOT,
        env={**os.environ, "HYPOTHESIS_PROFILE": "new"},
        capture_output=True,
        text=True,
        check=False,
    )
    examples = sum(map(int, re.findall(r"(\d+) (?:passing|failing)\b", run.stdout)))
    complaints = [f"{file}\n{run.stdout[-6000:]}"] if run.returncode not in (0, 5) else []
    return Played(
        examples, 0, complaints, f"HYPOTHESIS_PROFILE=new {_PYTEST} {file}  # with the blob that is shown"
    )


@dataclass(frozen=True)
class Kind:
    """A kind of net, what it plays, and its part of the time."""

    play: Callable[[int], Played]
    part: int
    by_boto3: bool = False


KINDS = {
    "worlds": Kind(_simulated("test_simulation.py", judge.play), 5),
    "weeks": Kind(_weeks, 4),
    "unswept": Kind(_simulated("test_unswept.py", unswept.play), 2),
    "few slots": Kind(_simulated("test_unswept.py", unswept.play_with_few_slots), 1),
    "answers": Kind(_simulated("test_slow_answers.py", slow_answers.play), 1),
    "hurried": Kind(_hurried, 1),
    "shares": Kind(_shares, 1),
    "tenants": Kind(_tenants, 3),
    "crashes": Kind(_crash, 3, by_boto3=True),
    "properties": Kind(_properties, 2),
}


_ENGINE = {
    "AWS_ENDPOINT_URL_DYNAMODB": "http://embedded.invalid",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
}
_engine = ExitStack()
"""Holds the short way from boto3 to this process's engine."""


def prepare() -> None:
    """What a process needs before it plays anything."""
    without_backoff(pytest.MonkeyPatch())
    os.environ |= _ENGINE
    _engine.enter_context(short_way(_ENGINE["AWS_ENDPOINT_URL_DYNAMODB"], Engine()))


def play(kind: str, number: int) -> tuple[Played, Counter[str]]:
    """Play one seed of a kind; every error there is a complaint."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if not KINDS[kind].by_boto3:
            make_virtual(monkeypatch)
        try:
            result = KINDS[kind].play(number)
        except Exception:  # noqa: BLE001 - a net that falls has seen something
            command = f"python -m tests.soak --only {kind} --first {number} --minutes 1"
            result = Played(complaints=[traceback.format_exc()], again=command)
    return result, Counter(played=1, steps=result.steps, faults=result.faults)
