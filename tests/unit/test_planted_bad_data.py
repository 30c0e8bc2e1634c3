"""Bugs planted in what happens where data cannot be read; each is seen by a quick test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.scheduler import walk
from chalicelib.scheduler.assigner import Assigner
from chalicelib.scheduler.expirer import Expirer
from chalicelib.scheduler.scout import Scout
from chalicelib.scheduler.walk import Stretch
from chalicelib.services.consume.lost_entries import LostEntries
from chalicelib.services.core.catalog import Catalog
from chalicelib.services.manage.registry import Registry
from chalicelib.store.control import Control
from tests.contract.services import test_registering as registering
from tests.contract.services.damaged import test_damaged_lanes as lanes
from tests.contract.services.damaged import test_unreadable_control as control
from tests.support.desk import Desk
from tests.support.planting import Bug
from tests.support.stages import embedded_stage


def _removal_is_ended() -> None:
    registering.test_a_removal_that_was_broken_off_is_ended_by_whoever_comes_next(
        Desk.at(embedded_stage(), shards=2), "group deleted"
    )


def _name_is_registered_again() -> None:
    registering.test_a_removal_that_was_broken_off_is_ended_by_whoever_comes_next(
        Desk.at(embedded_stage(), shards=2), "registered again"
    )


def _lost_entry() -> None:
    lanes.test_i15_a_delivery_whose_entry_names_it_nowhere_becomes_a_dead_letter(
        embedded_stage(), False, "not JSON"
    )


BUGS: dict[str, tuple[Bug, Callable[[], object]]] = {
    "a stranger who is asked only while others produce": (
        Bug(Assigner, "restore_mark", "consumer.state == ConsumerState.PENDING", "False"),
        lambda: control.test_who_has_not_agreed_and_whose_mark_was_lost_is_asked_again(embedded_stage()),
    ),
    "a removal that leaves no mark": (
        Bug(Registry, "unregister", "self._control.retire_consumer(topic, group, consumer)", "pass"),
        _removal_is_ended,
    ),
    "a removal that takes another of the name": (
        Bug(
            Control,
            "delete_consumer",
            'self._call_if_unchanged("delete_item", _of_life({"Key": _item_key(key)}, consumer))',
            "self._delete(key)",
        ),
        _name_is_registered_again,
    ),
    "a delivery whose entry is lost, and nobody looks for it": (
        Bug(LostEntries, "records_instead", "if not nameless:", "if True:"),
        _lost_entry,
    ),
    "a delivery that waits in the lane, taken for lost": (
        Bug(LostEntries, "_orphans", "if (record.shard, record.offset) not in entries", "if True"),
        _lost_entry,
    ),
    "a burial that stops at the first cursor that cannot be read": (
        Bug(
            Expirer,
            "run_once",
            "has_time)\n            except Unavailable as error:",
            "has_time)\n            except ZeroDivisionError as error:",
        ),
        lambda: control.test_what_others_owe_is_buried_in_time_though_one_cannot_be_read(
            embedded_stage(), "cursor"
        ),
    ),
    "a topic that is left out in silence": (
        Bug(Stretch, "pass_over", "if trouble not in self.troubles:", "if False:"),
        lambda: control.test_a_topic_that_cannot_be_read_is_told_by_whoever_comes_by_all_of_them(
            embedded_stage()
        ),
    ),
    "tails forgotten because of a group": (
        Bug(
            walk,
            "owners",
            "control.groups(topic, pass_over)",
            "control.groups(topic)",
            also=("chalicelib.scheduler.checkpoint",),
        ),
        lambda: control.test_tails_are_written_down_though_a_group_cannot_be_read(embedded_stage()),
    ),
    "a sweep that stops at a group": (
        Bug(
            Scout,
            "examine",
            "self._control.staffed_groups(topic, findings.unreadable.append)",
            "self._control.staffed_groups(topic)",
        ),
        lambda: control.test_the_sweep_finds_what_neighbours_have_forgotten_and_the_rest_when_it_can_be_read(
            embedded_stage(), "group", "damaged"
        ),
    ),
    "a wake-up that stops at a consumer": (
        Bug(Catalog, "_read_consumers", "(topic, group, unreadable_rows.append)", "(topic, group)"),
        lambda: control.test_a_batch_of_the_stream_wakes_all_whose_rows_can_be_read(
            embedded_stage(), "consumer", "of no kind"
        ),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    bug, check = BUGS[name]
    check()
    bug.plant(monkeypatch)
    with pytest.raises((AssertionError, Exception)):
        check()
