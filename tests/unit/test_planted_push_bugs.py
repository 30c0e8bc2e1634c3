"""Bugs in the runs that push, planted one at a time: each is seen by a quick test."""

from __future__ import annotations

import pytest

from chalicelib.domain import breaker
from chalicelib.domain.push_limit import Claimed
from chalicelib.services.consume.claim import Claimer
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.push import run
from chalicelib.services.push.calls import Calls
from chalicelib.services.push.claims import Claims
from chalicelib.services.push.dispatcher import Dispatcher
from chalicelib.services.push.health import SubscriberHealth
from chalicelib.services.push.run import DispatchRun
from chalicelib.services.push.run_time import RunTime
from chalicelib.services.push.settlements import Settlements
from chalicelib.services.push.sources import Capacity, Sources
from tests.contract.services import test_capacity as capacity
from tests.contract.services import test_in_flight as in_flight
from tests.contract.services import test_push_calls, test_push_circuit, test_push_runs
from tests.contract.services import test_push_comebacks as comebacks
from tests.contract.services import test_shared_slots as shared_slots
from tests.contract.services import test_sharing as sharing
from tests.contract.services import test_troubled as troubled
from tests.contract.services import test_waking as waking
from tests.support.planting import Bug, Planted, assert_seen, on_a_stage
from tests.support.stages import embedded_stage
from tests.unit import test_breaker as breaking


def _in_a_batch(*, is_gone: bool) -> None:
    stage = embedded_stage()
    bodies = troubled.Bodies(stage.adapters.blobs)
    troubled.test_of_a_batch_that_is_pushed_only_the_unreadable_stays_behind(stage, bodies, is_gone)


BUGS: Planted = {
    "what was pulled, taken for pushed": (
        Bug(Claimer, "_token", 'token += "" if claimant.is_called else PULLED', 'token += ""'),
        on_a_stage(
            in_flight.test_what_was_pulled_takes_no_place_whatever_becomes_of_who_pulled_it, "removed"
        ),
    ),
    "a look that begins with the same shard": (
        Bug(Sources, "in_turn", "bisect(shards, (behind or {}).get(numbers[0], -1))", "0"),
        on_a_stage(comebacks.test_the_shards_of_one_run_take_turns_however_many_others_are_empty, 0),
    ),
    "many expired messages, taken for the end": (
        Bug(Claims, "_from_source", "self.has_left_off |= claim.has_left_off", "pass"),
        lambda: test_push_runs.test_i10_what_stands_behind_many_expired_messages_does_not_wait_for_a_sweep(
            has_time=True
        ),
    ),
    "a throttled shard in the way of others": (
        Bug(Claims, "_from_all", "len(self._refused) >= _FAULTS", "True"),
        on_a_stage(troubled.test_a_shard_that_cannot_be_read_stops_no_other_one_of_its_run),
    ),
    "a paused group that is served on": (
        Bug(
            DispatchRun,
            "_find",
            "if group.is_paused(self._context.clock.now_ms()) and not even_paused",
            "if not even_paused and False",
        ),
        on_a_stage(
            test_push_runs.test_what_is_under_way_when_its_group_is_paused_is_settled_and_nothing_else_begins
        ),
    ),
    "an outcome that a pause takes away": (
        Bug(DispatchRun, "_settle", "self._find(even_paused=True)", "self._find()"),
        on_a_stage(
            test_push_runs.test_what_is_under_way_when_its_group_is_paused_is_settled_and_nothing_else_begins
        ),
    ),
    "a bell that nobody hears": (
        Bug(Dispatcher, "_may_end", "run.report.finished and run.was_woken()", "False"),
        on_a_stage(test_push_runs.test_i10_who_is_rung_for_while_it_is_about_to_end_looks_again),
    ),
    "a delivery that failed, in the way of others": (
        Bug(Dispatcher, "deliver", "del self._running[task]", "pass"),
        on_a_stage(
            test_push_runs.test_i10_a_delivery_that_failed_stands_in_nobodys_way, RuntimeError("a bug")
        ),
    ),
    "a run out of time that nobody goes on with": (
        Bug(
            DispatchRun,
            "leave",
            "self._context.waker.start(replace(self.task, is_slow=self._is_slow))",
            "pass",
        ),
        on_a_stage(test_push_calls.test_i19_no_function_is_called_that_could_outlive_the_run),
    ),
    "an open circuit that one process knows of": (
        Bug(SubscriberHealth, "_learn", "_row(after) != _row(before) and", "False and"),
        on_a_stage(test_push_circuit.test_other_processes_hear_of_an_open_circuit),
    ),
    "a batch that nobody answered, cut at once": (
        Bug(run, "is_to_be_split", " and r.is_own_answer", ""),
        on_a_stage(
            test_push_calls.test_a_batch_that_nobody_answered_is_not_cut_at_once_nor_does_a_last_attempt_come_at_once
        ),
    ),
    "a group that goes on where it is taken for paused": (
        Bug(Dispatcher, "_hear", "task.group, consistent=True", "task.group"),
        on_a_stage(waking.test_who_thinks_that_a_group_is_paused_hears_that_it_goes_on),
    ),
    "a seek that a delivery has not heard of": (
        Bug(Dispatcher, "_hear", "claimer.states.read(", "("),
        on_a_stage(waking.test_who_saw_a_cursor_at_the_end_hears_that_it_was_sought_back),
    ),
    "small claims beside others that had everything a moment ago": (
        Bug(Capacity, "is_to_look", "(is_old or sources.most - self._others < sources.few)", "is_old"),
        lambda: shared_slots.test_each_of_several_runs_claims_about_half_an_equal_part_at_a_time_or_more(
            4, False
        ),
    ),
    "a shard between two claims that is taken for idle": (
        Bug(
            Capacity,
            "read_other_runs",
            "slots_for_others(sources.keys, busy_before)",
            "slots_for_others(sources.keys)",
        ),
        lambda: shared_slots.test_each_of_several_runs_claims_about_half_an_equal_part_at_a_time_or_more(
            4, True
        ),
    ),
    "who filled the last slot but saw free ones, and comes to nobody": (
        Bug(Capacity, "read_other_runs", "2 * leases.slots >= part", "leases.slots >= part"),
        on_a_stage(
            in_flight.test_who_filled_the_last_slot_comes_to_whom_it_left_none_though_it_saw_free_ones
        ),
    ),
    "a drained shard that asks for slots all the same": (
        Bug(Claims, "_from_source", "self.capacity.is_limited = was_limited", "pass"),
        lambda: shared_slots.test_a_run_whose_shard_is_drained_does_not_ask_for_slots(),
    ),
    "a run that begins with what others want, too": (
        Bug(
            Capacity,
            "free",
            "self._others if self._others_ms else sources.most - sources.part",
            "self._others",
        ),
        lambda: shared_slots.test_runs_that_begin_together_begin_with_nearly_equal_parts(),
    ),
    "a shard with few messages that is taken for busy": (
        Bug(Capacity, "read_other_runs", ">= many", ">= 1"),
        lambda: shared_slots.test_a_shard_has_what_others_with_few_messages_do_not_use(),
    ),
    "a shard that works at what it returned, taken for idle": (
        Bug(Claimed, "beyond", "max(self.once - before.once, ", "max(self.once - before.once, 0 and "),
        lambda: shared_slots.test_shards_that_work_at_what_they_had_to_return_have_their_parts_soon(),
    ),
    "a shard that is left with its guarantee free": (
        Bug(Claims, "_from_all", " or self._may_have_more", ""),
        lambda: (
            shared_slots.test_who_returns_its_messages_goes_on_where_the_other_run_of_its_shard_has_ended_meanwhile()
        ),
    ),
    "a last look that does not see what others returned": (
        Bug(Claims, "_from_all", "not self._others_have_moved(sources)", "True"),
        lambda: shared_slots.test_who_others_trust_to_come_back_sees_what_they_returned(),
    ),
    "what callers pulled in the way of those that are called": (
        Bug(Claimant, "in_flight", " if not lease.is_pulled", ""),
        on_a_stage(in_flight.test_what_callers_pulled_from_a_shard_takes_no_place_there_either, 8),
    ),
    "counts of others that a clock set back keeps fresh": (
        Bug(
            Capacity,
            "is_to_look",
            "not 0 <= self._context.clock.now_ms()",
            "not self._context.clock.now_ms()",
        ),
        lambda: capacity.test_the_other_runs_are_asked_again_after_a_second_if_they_had_what_we_could_use(
            capacity.new_scene()
        ),
    ),
    "others have all places, and nobody comes back": (
        Bug(
            Capacity,
            "room",
            "max(limits.part - self._others_by.get(consumer.uid, 0), limits.guaranteed_part)",
            "limits.part - self._others_by.get(consumer.uid, 0)",
        ),
        lambda: capacity.test_a_consumer_whose_part_others_have_keeps_its_guarantee(capacity.new_scene()),
    ),
    "a function that outlives its lease": (
        Bug(
            RunTime,
            "lease_seconds",
            "max(self.attempt_seconds(sources, consumer), consumer.busy_seconds)",
            "self.attempt_seconds(sources, consumer)",
        ),
        on_a_stage(
            test_push_calls.test_i4_a_function_whose_caller_died_is_left_alone_until_it_has_ended, None, 910
        ),
    ),
    "a function called again beside itself": (
        Bug(run, "decision_after", "max(due_ms, ended_ms)", "min(due_ms, ended_ms)"),
        on_a_stage(test_push_calls.test_i4_a_function_is_not_called_beside_itself, "queue", None, 910),
    ),
    "a function that outlives its run": (
        Bug(RunTime, "allows_attempt", "< seconds + MARGIN_SECONDS", "< MARGIN_SECONDS"),
        on_a_stage(test_push_calls.test_i19_no_function_is_called_that_could_outlive_the_run),
    ),
    "an unreadable body that fails its neighbours": (
        Bug(
            Calls,
            "_send",
            "self.context.sender.send(consumer, push_batch, seconds) if attempts else ()",
            "[CallResult(Verdict.FAILED)] * len(contents)",
        ),
        lambda: _in_a_batch(is_gone=True),
    ),
    "a settlement that was throttled, forgotten": (
        Bug(Settlements, "settle", "self._owed[receipt] = decisions[receipt]", "pass"),
        on_a_stage(troubled.test_a_settlement_that_is_refused_for_a_while_is_made_up_for, "queue", 3),
    ),
    "a bound on what is under way that each shard has": (
        Bug(Claims, "_within_bounds", "if unsure <= 0:", "if unsure or True:"),
        on_a_stage(
            in_flight.test_deliveries_of_one_group_beside_one_another_keep_to_what_it_allows,
            3,
            1,
            1,
            "while it sends",
        ),
    ),
    "subscribers that get all of a shard": (
        Bug(Claims, "_in_order", "return (*consumers[start:], *consumers[:start])", "return consumers[:1]"),
        on_a_stage(sharing.test_subscribers_get_equal_parts_of_what_one_shard_holds, 2, 60, 60),
    ),
    "a circuit that opens because of messages": (
        Bug(breaker, "after", "if is_own_answer and is_repeated and not half_open:", "if False:"),
        breaking.test_what_failed_before_does_not_add_up_with_what_is_fresh,
    ),
    "a circuit that opens although others succeed meanwhile": (
        Bug(breaker, "after", "if not half_open and health.succeeded_ms is not None and", "if False and"),
        on_a_stage(
            test_push_circuit.test_i17_requests_that_fail_together_after_others_have_succeeded_beside_them_do_not_open_it
        ),
    ),
    "an old request taken for a probe": (
        Bug(breaker, "after", "min(began_ms, now_ms), now_ms", "now_ms, now_ms"),
        breaking.test_a_request_of_before_it_opened_is_no_probe,
    ),
    "a circuit that stays open until whatever time": (
        Bug(breaker, "_is_ahead", " <= latest_ms", ""),
        breaking.test_a_clock_that_was_wrong_keeps_nobody_shut_out,
    ),
    "redriven messages that say nothing about who fails": (
        Bug(
            DispatchRun,
            "_note_health",
            "each.receipt.attempt_since_redrive(each.attempt) > 1",
            "each.attempt > 1",
        ),
        on_a_stage(test_push_circuit.test_what_was_redriven_counts_for_the_circuit_like_a_first_attempt),
    ),
    "a batch whose halves wait": (
        Bug(run, "is_to_be_split", "len(claimed_messages) > 1 and", "len(claimed_messages) > 999 and"),
        on_a_stage(test_push_calls.test_a_batch_with_one_bad_message_is_cut_at_once, 64, 17),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_seen(*BUGS[name], monkeypatch)
