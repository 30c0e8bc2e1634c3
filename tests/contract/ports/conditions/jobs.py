"""Races of scheduled jobs, permits and one-time links."""

from __future__ import annotations

from dataclasses import replace

from chalicelib.domain.mark import Bookmark
from chalicelib.domain.token_bucket import Grant
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage


def a_job_goes_on_from_the_place_that_was_read(stage: Stage) -> None:
    rounds, job = stage.adapters.rounds, make.uid("job-")
    first = rounds.keep(job, Bookmark("a"))
    assert first == Bookmark("a", version=1)
    assert rounds.keep(job, Bookmark("b")) is None
    assert rounds.keep(job, replace(first, after="b")) == Bookmark("b", version=2)
    assert rounds.keep(job, first) is None
    assert rounds.bookmark(job) == Bookmark("b", version=2)


def permits_are_given_once(stage: Stage) -> None:
    rates, uid = stage.adapters.token_buckets, make.uid("t")
    assert rates.take(uid, 10, 3, START_MS) == Grant(3)
    assert rates.take(uid, 10, 3, START_MS) == Grant(2, 100)
    assert rates.take(uid, 10, 3, START_MS) == Grant(0, 100)


def a_link_signs_in_once(stage: Stage) -> None:
    tickets, id = stage.adapters.tickets, make.uid("t")
    assert tickets.use(id, START_MS, START_MS // 1000 + 60)
    assert not tickets.use(id, START_MS, START_MS // 1000 + 60)
    assert tickets.use(id + "x", START_MS, START_MS // 1000 + 60), "another one"


SCENES = (
    a_job_goes_on_from_the_place_that_was_read,
    permits_are_given_once,
    a_link_signs_in_once,
)
