"""Each condition of the store: another write came first, and both stores refuse the same.

Each scene plays one race by hand. With one condition dropped or weakened, one of them fails
(`test_planted_conditions.py`). Each is played once more with every write made twice, as the SDK makes it where the
answer to the first is lost: the end is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectionClosedError

from tests.contract.ports.conditions import control, cursors, dead_letters, jobs, log, timers, transactions
from tests.support.faults import WRITES, Call, FaultPlan, without_backoff
from tests.support.stages import Stage

SCENES: dict[str, Callable[[Stage], None]] = {
    scene.__name__: scene
    for port in (log, cursors, dead_letters, timers, transactions, control, jobs)
    for scene in port.SCENES
}


KNOWN_BY_READING = {
    "settings_are_changed_as_they_were_read",
    "an_assignment_follows_the_one_before",
    "what_was_changed_meanwhile_is_not_retired",
    "a_deletion_takes_only_the_life_that_was_meant",
    "a_job_goes_on_from_the_place_that_was_read",
    "a_link_signs_in_once",
    "a_row_is_kept_longer_and_never_shorter",
}
"""The second write is refused and does not know the first again: its caller reads what is there."""
LOSSY = {
    "only_a_counter_that_is_there_reserves",
    "permits_are_given_once",
    "a_wake_up_is_dropped_as_it_was_read",
}
"""The second write leaves a hole of offsets, takes permits that are not used, or (with many timers) ends the SDK's
allowance of repetitions."""


class _Twice(FaultPlan):
    """Each write that the store carries out is sent again, for its answer is lost."""

    answered = True

    def meet(self, call: Call) -> AWSResponse | None:
        if call.operation not in WRITES or not self.answered:
            self.answered = True
            return None
        answer = call.send(call.request)
        if answer.status_code == HTTPStatus.OK:
            self.answered = False
            raise ConnectionClosedError(endpoint_url=call.request.url)
        return answer


@pytest.fixture(scope="module")
def stage(make_stage: Callable[[], Stage]) -> Stage:
    """Of its own: other tests would find the timers that are left."""
    return make_stage()


@pytest.mark.parametrize("name", SCENES)
def test_whoever_comes_second_changes_nothing(stage: Stage, name: str) -> None:
    SCENES[name](stage)


@pytest.mark.parametrize("name", sorted(SCENES.keys() - KNOWN_BY_READING - LOSSY))
def test_a_write_that_is_made_twice_is_as_one_that_is_made_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    without_backoff(monkeypatch)
    adapters = stage.another()
    _Twice().attach(adapters.log._dynamo.client)
    SCENES[name](replace(stage, adapters=adapters))
