"""Subscribers that hang take nothing from those who call: reservations as packaged, in a model of Lambda's account."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from chalicelib.domain.topic import ConsumerKind, Mode
from chalicelib.services.core.wake import as_pushed, workers_of
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
Steps = Sequence[tuple[str, float]]
_STEPS: Steps = ((names.AUTHORIZE, 0.01), (names.API, 0.04))  # each behind the other; seconds, on average
_WAIT_SECONDS = 20.0
_FLOOD = 1000  # anonymous calls at once
_REFUSED_SECONDS = 0.01
_AGAIN_SECONDS = 0.2
_FLOODED_SECONDS = 10.0
PAGE = Path("docs/deploy.md").read_text()


def functions(template_file: Path) -> dict[str, dict[str, int]]:
    """Reservation and time-out of each function, by its name."""
    resources = json.loads(template_file.read_text())["Resources"]
    return {name: resources[function_id(name)]["Properties"] for name in names.ALL}


def reserved(template_file: Path) -> dict[str, int]:
    reservations = {
        name: each.get("ReservedConcurrentExecutions") for name, each in functions(template_file).items()
    }
    return {name: most for name, most in reservations.items() if most}


class Stage:
    """Producers that call, and perhaps subscribers that hang, on one account."""

    def __init__(self, reservations: Mapping[str, int], steps: Steps = _STEPS) -> None:
        self.steps = steps
        self.timeline = Timeline()
        self.account = Account(self.timeline, _LIMIT, reservations)
        self.answers: dict[str, list[float]] = {"produce": [], "ack": []}

    @property
    def answered(self) -> list[float]:
        return self.answers["produce"]

    def hang(self, subscribers: int, held_seconds: float) -> None:
        """Each has a group of its own on a topic of four shards; each of its deliveries is held for as long as
        `deliver` may run, and begun again by the sweep."""
        topic = make.topic(shards=4)
        jobs = subscribers * workers_of(topic, make.group(topic))
        for job in range(jobs):
            self.timeline.at(job * 0.001, lambda now: self._deliver(now, held_seconds))

    def _deliver(self, now: float, seconds: float) -> None:
        if not self.account.start("deliver", now, seconds, lambda end: self._deliver(end, seconds)):
            self.timeline.at(now + _WAKE_SECONDS, lambda later: self._deliver(later, seconds))

    def hold(self, function: str, now: float) -> None:
        """A call that hangs for fourteen minutes."""
        self.account.start(function, now, 840)

    def wait(self, consumers: int, function: str) -> None:
        """Each waits for messages on an empty queue, again and again."""
        for consumer in range(consumers):
            self.timeline.at(consumer * 0.001, lambda now: self._wait(now, function))

    def _wait(self, now: float, function: str) -> None:
        def again(pause: float, since: float) -> None:
            self.timeline.at(since + pause, lambda later: self._wait(later, function))

        if not self.account.start(function, now, _WAIT_SECONDS, partial(again, _AGAIN_SECONDS)):
            again(_RETRY_SECONDS, now)

    def flood(self, function: str) -> None:
        """So many connections make anonymous calls, each as fast as it can."""
        for connection in range(_FLOOD):
            self.timeline.at(connection * 0.0001, lambda now: self._flood(now, function))

    def _flood(self, now: float, function: str) -> None:
        if not self.account.start(function, now, _REFUSED_SECONDS, lambda end: self._flood(end, function)):
            self.timeline.at(now + _AGAIN_SECONDS, lambda later: self._flood(later, function))

    def call(self) -> None:
        """Producers send and consumers acknowledge at random times; a throttled one comes again after the stated
        wait."""
        for seed, answers in enumerate(self.answers.values(), 8):
            lot, at = random.Random(seed), 1.0
            while at < _SECONDS:
                at += lot.expovariate(_CALLS_PER_SECOND)
                durations = [lot.lognormvariate(math.log(mean), 0.5) for _, mean in self.steps]
                self.timeline.at(at, partial(self._step, 0, start=at, durations=durations, answers=answers))

    def _step(
        self, step: int, now: float, start: float, durations: list[float], answers: list[float]
    ) -> None:
        rest = partial(self._step, start=start, durations=durations, answers=answers)

        def next_step(end: float) -> None:
            if step + 1 == len(self.steps):
                answers.append(end - start)
            else:
                rest(step + 1, end)

        if not self.account.start(self.steps[step][0], now, durations[step], next_step):
            self.timeline.at(now + _RETRY_SECONDS, partial(rest, step))

    def run(self, seconds: float = _SECONDS) -> Stage:
        self.timeline.run(seconds)
        return self

    def p99(self, call: str = "produce") -> float:
        """Seconds from a call to its answer, tries that were throttled included."""
        return sorted(self.answers[call])[len(self.answers[call]) * 99 // 100]


def stage(reservations: Mapping[str, int], hanging_count: int, held_seconds: float) -> Stage:
    new_stage = Stage(reservations)
    new_stage.call()
    new_stage.hang(hanging_count, held_seconds)
    new_stage.run()
    return new_stage


def test_300_hanging_subscribers_leave_produce_as_it_was(template_file: Path) -> None:
    held_seconds = functions(template_file)["deliver"]["Timeout"]
    bulkheads = reserved(template_file)
    quiet_stage, stage_with_hanging = (
        stage(bulkheads, 0, held_seconds),
        stage(bulkheads, _HANGING, held_seconds),
    )
    assert len(quiet_stage.answered) > 0.99 * _CALLS_PER_SECOND * (_SECONDS - 2)
    assert stage_with_hanging.p99() == quiet_stage.p99() < 0.2
    assert stage_with_hanging.answered == quiet_stage.answered, "nor is any single call slower"
    assert {name for name, count in stage_with_hanging.account.throttles.items() if count} == {"deliver"}
    assert stage_with_hanging.account.most["deliver"] == bulkheads["deliver"]


@pytest.mark.parametrize("without", [("deliver",), (names.API, names.AUTHORIZE)])
def test_a_stage_in_earnest_has_two_bulkheads_of_which_either_would_do(
    template_file: Path, without: Sequence[str]
) -> None:
    bulkheads = {name: most for name, most in reserved(template_file).items() if name not in without}
    stage_without = stage(bulkheads, _HANGING, functions(template_file)["deliver"]["Timeout"])
    held_up = {name for name, count in stage_without.account.throttles.items() if count} - {"deliver"}
    assert not held_up or "prod" not in str(template_file)


def waiting(reservations: Mapping[str, int], consumers: int, function: str) -> Stage:
    """A stage in which so many consumers wait in a function."""
    new_stage = Stage(reservations)
    new_stage.call()
    new_stage.wait(consumers, function)
    return new_stage.run()


def test_600_waiting_consumers_leave_produce_and_ack_as_they_were(template_file: Path) -> None:
    consumers, bulkheads = 600, reserved(template_file)
    quiet, busy = (waiting(bulkheads, count, names.RECEIVE) for count in (0, consumers))
    for call, answers in quiet.answers.items():
        assert busy.p99(call) <= 1.2 * quiet.p99(call)
        assert len(busy.answers[call]) == len(answers)
    if "prod" in str(template_file):
        produce, ack = (f"{1000 * busy.p99(call):.0f} ms" for call in busy.answers)
        bulkheads[names.API] += bulkheads.pop(names.RECEIVE)  # one function, with what both reserve
        share = len(waiting(bulkheads, consumers, names.API).answered) / len(quiet.answered)
        assert f"| {consumers} | {produce} | {ack} | {100 * share:.0f} % |\n" in PAGE


def test_1000_anonymous_calls_at_once_at_each_url_leave_the_rest_api_as_it_was(template_file: Path) -> None:
    quiet, flooded = Stage(reserved(template_file)), Stage(reserved(template_file))
    for door in names.URLS:
        flooded.flood(door)
    for each in (quiet, flooded):
        each.call()
        each.wait(100, names.RECEIVE)
        each.run(_FLOODED_SECONDS)
    assert flooded.p99() <= 1.2 * quiet.p99()
    assert len(flooded.answered) == len(quiet.answered)
    assert all(flooded.account.throttles[door] > 1000 for door in names.URLS)
    assert flooded.account.throttles[names.RECEIVE] == quiet.account.throttles[names.RECEIVE]


def push_p99(reservations: Mapping[str, int], function: str, shards: int) -> float:
    """Seconds until another topic's message is pushed, while slow consumers of this function hang on so many shards.
    What is throttled comes with the sweep."""
    other = Stage(reservations, (("deliver", 0.1),))
    for shard in range(shards):
        other.timeline.at(shard * 0.001, lambda now: other.hold(function, now))
    other.call()
    other.run()
    return other.p99() if other.answered else math.inf


def test_300_hanging_slow_shards_leave_the_push_of_other_topics_as_it_was(template_file: Path) -> None:
    bulkheads = reserved(template_file)
    quiet = push_p99(bulkheads, names.SLOW, 0)
    assert push_p99(bulkheads, names.SLOW, 300) <= 1.2 * quiet
    assert push_p99(bulkheads | {"deliver": 300}, "deliver", 300) > 1.2 * quiet, "the model would show it"
    topic = make.topic(shards=256)
    slow = make.consumer(make.group(topic), kind=ConsumerKind.URL, timeout_seconds=840)
    for mode in Mode:
        group = make.group(topic, mode=mode, max_in_flight=10_000)
        runs = [
            as_pushed(group, [slow] * count).max_in_flight * (count if mode == "broadcast" else 1)
            for count in (1, 9, 25)
        ]
        assert max(runs) <= bulkheads[names.SLOW] // 4, "a group may hold a quarter"
        assert as_pushed(group, [replace(slow, timeout_seconds=60)]) == group


def test_without_bulkheads_they_would_stop_it(template_file: Path) -> None:
    held_seconds = functions(template_file)["deliver"]["Timeout"]
    stage_without = stage({}, _HANGING, held_seconds)
    assert len(stage_without.answered) < len(stage({}, 0, held_seconds).answered) / 2
    assert stage_without.account.throttles[names.AUTHORIZE] > 1000


def test_all_reservations_fit_into_an_account(template_file: Path) -> None:
    assert sum(reserved(template_file).values()) <= _LIMIT - 100, "what must stay unreserved"
