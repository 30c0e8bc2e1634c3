"""Races for a timer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from chalicelib.domain.append import AlreadyMoved, DedupEntry, Stored, Successor
from chalicelib.domain.timer import Fired, Moved, Timer, TimerKind, firing_of
from tests.contract.ports.conditions.common import (
    KEEP_SECONDS,
    filed,
    is_remembered_for_its_window,
    put,
    there,
)
from tests.support import factories as make
from tests.support.clock import START_MS
from tests.support.stages import Stage

Take = Callable[[Stage, Timer], bool]


def moves(stage: Stage, timer: Timer) -> bool:
    result = put(stage, make.shard(), make.segment(0, 1), timer)
    assert result in (Stored(), AlreadyMoved((0,)))
    return result == Stored()


def edits(stage: Stage, timer: Timer) -> bool:
    return stage.adapters.timers.amend(timer, replace(timer, draft=make.draft("new")), KEEP_SECONDS)


def _postpones(stage: Stage, timer: Timer) -> bool:
    return stage.adapters.timers.amend(timer, replace(timer, due_ms=timer.due_ms + 5), KEEP_SECONDS)


def _cancels(stage: Stage, timer: Timer) -> bool:
    return stage.adapters.timers.cancel(timer, KEEP_SECONDS)


def _is_taken_as_it_was_read(stage: Stage, take: Take) -> None:
    for edits, current in ((0, 1), (1, 2), (2, 1)):
        timer = replace(filed(stage, current), edits=edits)
        assert not take(stage, timer), f"known after {edits} changes, there after {current}"
        assert there(stage, timer) == current
        assert take(stage, replace(timer, edits=current))
        assert not take(stage, replace(timer, edits=current)), "it is gone"
    fresh = filed(stage)
    assert take(stage, fresh)
    assert not take(stage, fresh), "it is gone"
    assert not take(stage, make.timer())


def a_timer_is_moved_as_it_was_read(stage: Stage) -> None:
    _is_taken_as_it_was_read(stage, moves)


def a_timer_is_edited_as_it_was_read(stage: Stage) -> None:
    _is_taken_as_it_was_read(stage, edits)
    timer = filed(stage)
    assert edits(stage, timer)
    assert stage.adapters.timers.find_moved(timer.id) is None


def a_timer_is_postponed_as_it_was_read(stage: Stage) -> None:
    _is_taken_as_it_was_read(stage, _postpones)
    timer = filed(stage)
    assert _postpones(stage, timer)
    assert stage.adapters.timers.find_moved(timer.id) == Moved(timer.due_ms + 5, edits=1)


def a_timer_is_cancelled_as_it_was_read(stage: Stage) -> None:
    _is_taken_as_it_was_read(stage, _cancels)


def a_retry_is_settled_as_it_was_read(stage: Stage) -> None:
    _is_taken_as_it_was_read(stage, lambda stage, timer: _exchanges(stage, timer, None))


def a_retry_is_changed_as_it_was_read(stage: Stage) -> None:
    def postpones(stage: Stage, timer: Timer) -> bool:
        return _exchanges(stage, timer, replace(timer, due_ms=timer.due_ms + 5))

    _is_taken_as_it_was_read(stage, postpones)
    _is_taken_as_it_was_read(stage, lambda stage, timer: _exchanges(stage, timer, timer))


def _exchanges(stage: Stage, timer: Timer, new: Timer | None) -> bool:
    key, record = make.cursor_key(), make.record(5, "RETRYING")
    is_done = stage.adapters.timers.exchange(timer, new, key, [record], [])
    assert (stage.adapters.records.get(key, 5) is not None) is is_done
    if is_done and new:
        assert there(stage, new) == timer.edits + 1
    return is_done


def retries_are_dropped_if_all_wait(stage: Stage) -> None:
    def drops(*timers: Timer) -> bool:
        retries = [(timer.due_ms, timer.id) for timer in timers]
        return stage.adapters.timers.take(retries, make.cursor_key(), [make.record(5, "SKIPPED")])

    one, two, three = filed(stage), filed(stage, 1), filed(stage)
    assert drops(one, two)
    assert (there(stage, one), there(stage, two)) == (None, None)
    assert not drops(three, one), "one of them is gone"
    assert there(stage, three) == 0


def a_wake_up_is_dropped_as_it_was_read(stage: Stage) -> None:
    """The process that stored it again may not have seen what the first one woke (I10)."""
    timers, delayed = stage.adapters.timers, make.timer(stored_ms=START_MS)
    wake = make.timer(kind=TimerKind.WAKE, stored_ms=START_MS - 9)
    again = replace(wake, stored_ms=START_MS - 5)
    timers.store([wake])
    timers.store([again, delayed])
    timers.drop([wake, replace(delayed, stored_ms=START_MS + 1)])
    assert timers.find(wake.due_ms, wake.id) == again
    assert there(stage, delayed) is None
    for _ in range(2):
        timers.drop([again])
        assert timers.find(wake.due_ms, wake.id) is None
    timers.store([again])
    timers.drop([replace(again, stored_ms=0)])
    assert timers.find(wake.due_ms, wake.id) is None


def a_delayed_message_has_its_dedup_id_once(stage: Stage) -> None:
    def files(entry: DedupEntry) -> tuple[DedupEntry, ...]:
        timer = make.timer(START_MS + 60_000)
        known_entries = stage.adapters.timers.store([timer], [entry])
        assert (there(stage, timer) is None) is bool(known_entries)
        return known_entries

    is_remembered_for_its_window(files)


def _schedules(stage: Stage, timer: Timer) -> bool:
    schedule = make.schedule(make.uid("s"))
    is_stored = stage.adapters.control.put_schedule(schedule, None, timer, then := make.timer())
    assert (stage.adapters.timers.find(then.due_ms, then.id) is not None) is is_stored
    return is_stored


def _unschedules(stage: Stage, timer: Timer) -> bool:
    control, schedule = stage.adapters.control, make.schedule(make.uid("s"))
    assert control.put_schedule(schedule, None, None, make.timer())
    return control.delete_schedule(replace(schedule, version=1), timer)


def _is_skipped(stage: Stage, timer: Timer) -> bool:
    return stage.adapters.timers.succeed(timer, make.timer())


def _fires(stage: Stage, timer: Timer) -> bool:
    then = make.schedule(make.uid("s")).timer(START_MS, "", START_MS)
    result = put(stage, make.shard(), make.segment(0, 1), Fired(timer, then))
    row = stage.adapters.timers.find(then.due_ms, then.id)
    assert result in (Stored(), AlreadyMoved((0,)))
    assert (row is not None) is (result == Stored())
    if row:
        assert firing_of(row).last_id
        stage.adapters.timers.drop([row])
    return result == Stored()


def a_schedule_goes_on_from_its_timer(stage: Stage) -> None:
    for take in (_schedules, _unschedules, _is_skipped, _fires):
        _is_taken_as_it_was_read(stage, take)


def a_timer_that_is_there_is_not_lost(stage: Stage) -> None:
    timers, timer = stage.adapters.timers, make.schedule(make.uid("s")).timer(START_MS, "", START_MS)
    timers.restore(timer)
    timers.restore(replace(timer, stored_ms=1))
    assert timers.find(timer.due_ms, timer.id) == timer


def a_name_passes_on_from_the_message_that_had_it(stage: Stage) -> None:
    timers, log = stage.adapters.timers, stage.adapters.log

    def cancels(successor: Successor) -> bool:
        return timers.cancel(filed(stage), KEEP_SECONDS, successor)

    def postpones(successor: Successor) -> bool:
        timer = filed(stage)
        return timers.amend(timer, replace(timer, due_ms=timer.due_ms + 5), KEEP_SECONDS, successor[1])

    def amends(successor: Successor) -> bool:
        shard, row = make.shard(), make.segment(0, 1)
        assert put(stage, shard, row) == Stored()
        return log.amend(shard, row, log.pack(make.drafts(1), whole=True), 0, {}, successor)

    def uses(end: Callable[[Successor], bool], entry: DedupEntry) -> tuple[DedupEntry, ...]:
        timer = make.timer(START_MS + 60_000)
        known = log.dedup_entry(entry.topic_uid, entry.dedup_id)
        is_done = end((timer, entry))
        assert (there(stage, timer) is not None) is (is_done and end is not postpones)
        return () if is_done or known is None else (known,)

    for end in (cancels, postpones, amends):
        is_remembered_for_its_window(partial(uses, end))


SCENES = (
    a_schedule_goes_on_from_its_timer,
    a_timer_that_is_there_is_not_lost,
    a_name_passes_on_from_the_message_that_had_it,
    a_wake_up_is_dropped_as_it_was_read,
    a_timer_is_moved_as_it_was_read,
    a_timer_is_edited_as_it_was_read,
    a_timer_is_postponed_as_it_was_read,
    a_timer_is_cancelled_as_it_was_read,
    a_retry_is_settled_as_it_was_read,
    a_retry_is_changed_as_it_was_read,
    retries_are_dropped_if_all_wait,
    a_delayed_message_has_its_dedup_id_once,
)
