"""Subscribers that hang take nothing from those who call: reservations as packaged, in a model of Lambda's account."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from chalicelib.services.core.wake import workers_of
from infra import names
from infra.functions import function_id
from tests.infra.lambda_account import Account, Timeline
from tests.support import factories as make

_LIMIT = 1000  # what an account lends unless it is new
_SECONDS = 30.0
_CALLS_PER_SECOND = 100
_HANGING = 300
_RETRY_SECONDS = 1.0  # the Retry-After of API Gateway's 429
_WAKE_SECONDS = 60.0  # the sweep's
_STEPS = ((names.AUTHORIZE, 0.01), (names.API, 0.04))  # each behind the other; seconds, on average


def functions(packaged: Path) -> dict[str, dict[str, int]]:
    """Reservation and time-out of each function, by its name."""
    told = json.loads(packaged.read_text())["Resources"]
    return {name: told[function_id(name)]["Properties"] for name in names.FUNCTIONS}


def reserved(packaged: Path) -> dict[str, int]:
    found = {name: each.get("ReservedConcurrentExecutions") for name, each in functions(packaged).items()}
    return {name: most for name, most in found.items() if most}


class Stage:
    """Producers that call, and perhaps subscribers that hang, on one account."""

    def __init__(self, reservations: Mapping[str, int]) -> None:
        self.timeline = Timeline()
        self.account = Account(self.timeline, _LIMIT, reservations)
        self.answered: list[float] = []

    def hang(self, subscribers: int, held_seconds: float) -> None:
        """Each has a group of its own on a topic of four shards; each of its deliveries is held for as long as
        `deliver` may run, and begun anew by the sweep."""
        topic = make.topic(shards=4)
        jobs = subscribers * workers_of(topic, make.group(topic))
        for job in range(jobs):
            self.timeline.at(job * 0.001, lambda now: self._deliver(now, held_seconds))

    def _deliver(self, now: float, seconds: float) -> None:
        if not self.account.start("deliver", now, seconds, lambda end: self._deliver(end, seconds)):
            self.timeline.at(now + _WAKE_SECONDS, lambda later: self._deliver(later, seconds))

    def call(self) -> None:
        """Producers call at random times; who is throttled comes again, as it is told to."""
        lot, at = random.Random(8), 1.0
        while at < _SECONDS:
            at += lot.expovariate(_CALLS_PER_SECOND)
            took = [lot.lognormvariate(math.log(mean), 0.5) for _, mean in _STEPS]
            self.timeline.at(at, lambda now, took=took, began=at: self._step(0, now, began, took))  # type: ignore[misc]

    def _step(self, step: int, now: float, began: float, took: list[float]) -> None:
        def next_step(end: float) -> None:
            if step + 1 == len(_STEPS):
                self.answered.append(end - began)
            else:
                self._step(step + 1, end, began, took)

        if not self.account.start(_STEPS[step][0], now, took[step], next_step):
            self.timeline.at(now + _RETRY_SECONDS, lambda later: self._step(0, later, began, took))

    def run(self) -> None:
        self.timeline.run(_SECONDS)

    def p99(self) -> float:
        """Seconds from a call to its answer, tries that were throttled included."""
        return sorted(self.answered)[len(self.answered) * 99 // 100]


def stage(reservations: Mapping[str, int], hanging: int, held_seconds: float) -> Stage:
    made = Stage(reservations)
    made.call()
    made.hang(hanging, held_seconds)
    made.run()
    return made


def test_300_hanging_subscribers_leave_produce_as_it_was(packaged: Path) -> None:
    held = functions(packaged)["deliver"]["Timeout"]
    bulkheads = reserved(packaged)
    quiet, hanging = stage(bulkheads, 0, held), stage(bulkheads, _HANGING, held)
    assert len(quiet.answered) > 0.99 * _CALLS_PER_SECOND * (_SECONDS - 2)
    assert hanging.p99() == quiet.p99() < 0.2
    assert hanging.answered == quiet.answered, "nor is any single call slower"
    assert {name for name, count in hanging.account.throttles.items() if count} == {"deliver"}
    assert hanging.account.most["deliver"] == bulkheads["deliver"]


@pytest.mark.parametrize("without", [("deliver",), (names.API, names.AUTHORIZE)])
def test_a_stage_in_earnest_has_two_bulkheads_of_which_either_would_do(
    packaged: Path, without: Sequence[str]
) -> None:
    bulkheads = {name: most for name, most in reserved(packaged).items() if name not in without}
    made = stage(bulkheads, _HANGING, functions(packaged)["deliver"]["Timeout"])
    held_up = {name for name, count in made.account.throttles.items() if count} - {"deliver"}
    assert not held_up or "prod" not in str(packaged)


def test_without_bulkheads_they_would_stop_it(packaged: Path) -> None:
    held = functions(packaged)["deliver"]["Timeout"]
    made = stage({}, _HANGING, held)
    assert len(made.answered) < len(stage({}, 0, held).answered) / 2
    assert made.account.throttles[names.AUTHORIZE] > 1000


def test_all_reservations_fit_into_an_account(packaged: Path) -> None:
    assert sum(reserved(packaged).values()) <= _LIMIT - 100, "what must stay unreserved"
