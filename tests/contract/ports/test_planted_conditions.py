"""Every condition of the store is needed, and so is each of its parts: with one of them missing, a race is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chalicelib import store
from chalicelib.domain.topic import Consumer, Group, Topic
from tests.contract.ports.test_conditions import SCENES
from tests.support import conditions
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.conditions import CLAUSES, Weakness
from tests.support.stages import Stage

Scene = Callable[[Stage], None]


def _dynamo(stage: Stage) -> Any:
    return stage.adapters.log._dynamo


def before(stage: Stage, table: str, act: Callable[[], object]) -> AbstractContextManager[None]:
    return conditions.before(_dynamo(stage).client, table, act)


# Calls that read before they write.


def no_permit_is_given_again(stage: Stage) -> None:
    rates, uid = stage.adapters.token_buckets, make.uid("t")
    for now_ms in (START_MS, START_MS + 10_000):
        with before(stage, "rates", partial(rates.take, uid, 10, 2, now_ms)):
            assert rates.take(uid, 10, 9, now_ms).count == 3
    others, now_ms = stage.another().token_buckets, START_MS + 20_000
    with ExitStack() as races:

        def take_and_come_again() -> None:
            others.take(uid, 10, 2, now_ms)
            races.enter_context(before(stage, "rates", partial(others.take, uid, 10, 2, now_ms)))

        races.enter_context(before(stage, "rates", take_and_come_again))
        assert rates.take(uid, 10, 9, now_ms).count == 1, "the race was lost a second time"


def what_was_made_again_under_its_name_is_another(stage: Stage) -> None:
    control = stage.adapters.control
    topic = make.topic(make.uid("orders-"))
    group = make.group(topic)
    consumer = make.consumer(group)
    calls: list[tuple[Any, Callable[..., bool], Callable[..., bool]]] = [
        (topic, control.put_topic, control.retire_topic),
        (group, partial(control.put_group, topic), partial(control.retire_group, topic)),
        (consumer, partial(control.put_consumer, topic, group), partial(_is_deleted, stage, topic, group)),
        (
            make.schedule(make.uid("s")),
            lambda new, old: control.put_schedule(new, old, None, make.timer()),
            lambda old: control.delete_schedule(old, None),
        ),
    ]
    for noun, put, remove in calls:
        first, other = replace(noun, version=1), replace(noun, uid=make.uid("other"), version=1)
        assert put(noun, None)
        assert not put(other, other)
        assert put(first, first)
        assert not remove(replace(other, version=2))
        assert remove(replace(noun, version=2))


def _is_deleted(stage: Stage, topic: Topic, group: Group, consumer: Consumer) -> bool:
    stage.adapters.control.delete_consumer(topic, group, consumer)
    return stage.adapters.control.consumer(topic, group, consumer.name) is None


RACES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        no_permit_is_given_again,
        what_was_made_again_under_its_name_is_another,
    )
}


HARMLESS = {
    # who writes the tail that stands there changes nothing
    Weakness("log.checkpoint: update in log if attribute_not_exists(t) OR t < :t", " < "),
}


# The nets


@pytest.fixture(scope="module")
def stage(make_stage: Callable[[], Stage]) -> Stage:
    """Of its own: other tests would find what is left."""
    return make_stage()


@pytest.mark.parametrize("name", RACES)
def test_whoever_comes_between_is_seen(stage: Stage, name: str) -> None:
    RACES[name](stage)


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_condition_that_lacks_a_part_is_seen(stage: Stage, clause: str) -> None:
    scene = {**SCENES, **RACES}[CLAUSES[clause]]
    for weakness in conditions.weaknesses(clause):
        if weakness in HARMLESS:
            continue
        with conditions.weakened(_dynamo(stage).client, weakness) as clauses:
            assert _fails(scene, stage), f"nobody misses {weakness}"
        assert clauses, f"nobody asks {weakness.clause}"


def test_every_condition_in_the_source_is_known() -> None:
    """One that no test comes by would be unknown to the watch, too."""
    stores = {clause.partition(":")[0].partition(".")[0] for clause in CLAUSES} | {"dedup", "dynamo"}
    for path in sorted(Path(store.__file__).parent.glob("*.py")):
        source = path.read_text()
        names = {path.stem, *map(str.lower, re.findall(r"^class (\w+)", source, re.MULTILINE))}
        if re.search(r"\bConditionExpression|\bcondition=", source):
            assert stores & names, f"{path.name}: plant a bug in its conditions"


def _fails(scene: Scene, stage: Stage) -> bool:
    try:
        scene(stage)
    except Exception:  # noqa: BLE001 - any result of a planted bug
        return True
    return False
