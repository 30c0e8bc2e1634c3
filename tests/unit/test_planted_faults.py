"""What was wrong once, planted again one at a time: each is seen by a quick test."""

from __future__ import annotations

import pytest

from chalicelib.domain import ladder, spans, strict_json
from chalicelib.domain.errors import Malformed
from chalicelib.domain.spans import Span
from chalicelib.domain.topic import Topic
from chalicelib.services.consume.claim import Claimer
from chalicelib.services.consume.claim_plan import ClaimPlanner
from chalicelib.services.consume.claimant import Claimant
from chalicelib.services.consume.lease_settlement import LeaseSettlement
from chalicelib.services.consume.settle import Settler
from chalicelib.services.consume.settle_steps import StepMaker
from chalicelib.services.core.assignments import Assignments
from chalicelib.services.core.log_reader import LogReader
from chalicelib.services.core.marker import Marker
from chalicelib.services.core.readiness import Readiness
from chalicelib.services.core.wake import Waker
from chalicelib.services.inspect import statuses
from chalicelib.services.inspect.key_lookup import KeyLookup
from chalicelib.services.produce import due
from chalicelib.services.produce.delayed import Delayed
from chalicelib.services.push import run
from chalicelib.services.push.calls import Calls
from chalicelib.services.push.capacity import Capacity
from chalicelib.services.push.claims import Claims
from chalicelib.services.push.dispatcher import Dispatcher
from chalicelib.services.push.health import SubscriberHealth
from chalicelib.services.push.run import DispatchRun
from chalicelib.services.push.run_time import RunTime
from chalicelib.services.push.settlements import Settlements
from chalicelib.store.memory import MemoryTimers
from tests.contract.schedules import test_expiring as expiring
from tests.contract.schedules import test_retention as retention
from tests.contract.schedules import test_sweeping as sweeping
from tests.contract.services import test_assigning as assigning
from tests.contract.services import test_burials as burials
from tests.contract.services import test_burying as burying
from tests.contract.services import test_capacity as capacity
from tests.contract.services import test_changes_meanwhile as meanwhile
from tests.contract.services import test_consuming as consuming
from tests.contract.services import test_counts as counts
from tests.contract.services import test_delayed as delayed
from tests.contract.services import test_in_flight as in_flight
from tests.contract.services import test_key_statuses as key_statuses
from tests.contract.services import test_push_batches, test_push_circuit, test_push_functions, test_push_runs
from tests.contract.services import test_shared_slots as shared_slots
from tests.contract.services import test_sharing as sharing
from tests.contract.services import test_statuses as message_statuses
from tests.contract.services import test_troubled as troubled
from tests.contract.services import test_waking as waking
from tests.support.clock import ManualClock
from tests.support.desk import Desk
from tests.support.planting import Bug, Planted, assert_seen
from tests.support.stages import memory_stage
from tests.unit import test_breaker as breaker
from tests.unit import test_ladder_waits as waits
from tests.unit import test_row_ends as row_ends


def _in_a_batch(*, is_gone: bool) -> None:
    stage = memory_stage()
    bodies = troubled.Bodies(stage.adapters.blobs)
    troubled.test_of_a_batch_that_is_pushed_only_the_unreadable_stays_behind(stage, bodies, is_gone)


def _after_retention() -> None:
    stage = memory_stage()
    retention.test_what_a_group_owes_past_its_retention_is_buried_by_the_claim_that_meets_it(
        stage, stage.clock.advance
    )


def _some_are_kept() -> None:
    burials.test_i1_what_is_kept_before_and_behind_what_is_buried_is_delivered_once(memory_stage(), 127)


def _many_are_kept_in_a_lane() -> None:
    stage = memory_stage()
    retention.test_i1_what_lies_in_a_retry_lane_behind_many_that_are_kept_is_buried_with_its_content(
        stage, stage.clock.advance
    )


def _a_tiny_number_is_refused() -> None:
    with pytest.raises(Malformed):
        strict_json.parse(b"1e-999999999999999999999999999999")


def _a_table_is_away() -> None:
    with pytest.raises(Exception, match="timers"):
        Readiness(lambda: "timers", ManualClock()).check()


def _a_lease_in_pieces_is_small() -> None:
    pieces = spans.coalesce([Span(n) for n in range(0, 1_000, 2)])
    assert len(pieces) < 10


def _shows_life(sign: str) -> None:
    desk = Desk.at(memory_stage(), shards=4)
    assigning.test_settling_and_extending_are_signs_of_life(desk, sign, "broadcast")


BUGS: Planted = {
    "a paused group that is served on": (
        Bug(
            DispatchRun,
            "_find",
            "None if group.paused and not even_paused else (topic, group)",
            "(topic, group)",
        ),
        lambda: (
            test_push_runs.test_what_is_under_way_when_its_group_is_paused_is_settled_and_nothing_else_begins(
                memory_stage()
            )
        ),
    ),
    "an outcome that a pause takes away": (
        Bug(DispatchRun, "_settle", "self._find(even_paused=True)", "self._find()"),
        lambda: (
            test_push_runs.test_what_is_under_way_when_its_group_is_paused_is_settled_and_nothing_else_begins(
                memory_stage()
            )
        ),
    ),
    "a bell that nobody hears": (
        Bug(Dispatcher, "_may_end", "run.report.finished and run.was_woken()", "False"),
        lambda: test_push_runs.test_i10_who_is_rung_for_while_it_is_about_to_end_looks_again(memory_stage()),
    ),
    "a delivery that failed, in the way of others": (
        Bug(Dispatcher, "deliver", "del self._running[task]", "pass"),
        lambda: test_push_runs.test_i10_a_delivery_that_failed_stands_in_nobodys_way(memory_stage()),
    ),
    "a run out of time that nobody goes on with": (
        Bug(DispatchRun, "leave", "self._context.waker.start(self.task)", "pass"),
        lambda: test_push_functions.test_i19_no_function_is_called_that_could_outlive_the_run(memory_stage()),
    ),
    "an open circuit that one process knows of": (
        Bug(SubscriberHealth, "_learn", "_row(after) != _row(before) and", "False and"),
        lambda: test_push_circuit.test_other_processes_hear_of_an_open_circuit(memory_stage()),
    ),
    "a waiting message found in another topic": (
        Bug(Delayed, "_find_timed", " if waiting.timer.shard.topic_uid == topic.uid else None", ""),
        lambda: delayed.test_another_topic_does_not_find_it(memory_stage()),
    ),
    "a hurried message that waits for the schedule": (
        Bug(Delayed, "_amend", "self._waker.wake_movers([new])", "pass"),
        lambda: delayed.test_whoever_hurries_it_wakes_a_mover(memory_stage()),
    ),
    "a seat for those that are called": (
        Bug(Assignments, "seat", " if member not in called_uids]", "]"),
        lambda: assigning.test_only_those_that_pull_have_seats_among_one_another(
            Desk.at(memory_stage(), shards=4)
        ),
    ),
    "a retry whose row may go before it": (
        Bug(StepMaker, "_timer", "decision.due_ms + _LANE_SLACK_MS", "decision.due_ms - _LANE_SLACK_MS"),
        lambda: expiring.test_a_retry_that_may_have_to_wait_in_its_lane_takes_the_content_along(
            memory_stage()
        ),
    ),
    "a redriven message whose attempts are forgotten": (
        Bug(StepMaker, "_record", "receipt.attempts_before_redrive,", "0,"),
        lambda: burying.test_a_redriven_message_has_all_its_attempts_again_and_says_so(memory_stage()),
    ),
    "a redriven message that has no attempts of its own": (
        Bug(Claimant, "last_attempt", "draft, attempts_before_redrive)", "draft, 0)"),
        lambda: burying.test_a_redriven_message_has_all_its_attempts_again_and_says_so(memory_stage()),
    ),
    "a receipt that settles twice in one call": (
        Bug(Settler, "_settle", "settled_offsets.discard(receipt.leased_offset)", "pass"),
        lambda: consuming.test_a_receipt_twice_in_one_call_settles_once(memory_stage()),
    ),
    "a burial that drops the message": (
        Bug(StepMaker, "_record", "self._content(receipt) if is_dead else None", "None"),
        lambda: burying.test_a_message_rejected_for_good_is_buried_at_once(memory_stage()),
    ),
    "a cancellation by nobody": (
        Bug(
            Delayed,
            "_cancel",
            'acted(timer.draft, Act("CANCELLED", self._clock.now_ms(), by))',
            "timer.draft",
        ),
        lambda: message_statuses.test_who_cancelled_a_waiting_message_is_told(memory_stage()),
    ),
    "a batch that nobody answered, cut at once": (
        Bug(run, "is_to_be_split", " and r.is_own_answer", ""),
        lambda: (
            test_push_batches.test_a_batch_that_nobody_answered_is_not_cut_at_once_nor_does_a_last_attempt_come_at_once(
                memory_stage()
            )
        ),
    ),
    "a young hole that nobody comes back to": (
        Bug(Claimer, "dues_ms", "[closes_ms] if closes_ms else ()", "()"),
        lambda: waking.test_what_stands_behind_a_hole_comes_when_the_hole_may_be_closed(memory_stage()),
    ),
    "a stale read that a delivery believes": (
        Bug(LogReader, "expect_rows", "in last.items()", "in ()"),
        lambda: waking.test_who_was_woken_for_a_row_does_not_believe_a_read_that_ends_before_it(
            memory_stage()
        ),
    ),
    "a group that goes on where it is taken for paused": (
        Bug(Dispatcher, "_hear", "catalog.forget(topic, group)", "pass"),
        lambda: waking.test_who_thinks_that_a_group_is_paused_hears_that_it_goes_on(memory_stage()),
    ),
    "a seek that a delivery has not heard of": (
        Bug(Dispatcher, "_hear", "claimer.reread(", "("),
        lambda: waking.test_who_saw_a_cursor_at_the_end_hears_that_it_was_sought_back(memory_stage()),
    ),
    "a first subscriber that a router has not heard of": (
        Bug(Waker, "wake_for", "if consumer.is_called:", "if False:"),
        lambda: waking.test_a_message_that_a_router_thinks_is_for_nobody_comes_seconds_later(memory_stage()),
    ),
    "a shard that its new worker has not heard of": (
        Bug(Waker, "wake_after_redivision", "if topic.is_called:", "if False:"),
        lambda: waking.test_a_message_in_a_shard_that_a_worker_thinks_is_not_its_own_comes_seconds_later(
            memory_stage(), 1, waking.grows
        ),
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
            "slots_for_others(sources.keys(), busy_before)",
            "slots_for_others(sources.keys())",
        ),
        lambda: shared_slots.test_each_of_several_runs_claims_about_half_an_equal_part_at_a_time_or_more(
            4, True
        ),
    ),
    "a drained shard that asks for slots all the same": (
        Bug(Claims, "_from_source", "self._capacity.is_limited = was_limited", "pass"),
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
        lambda: test_push_functions.test_i4_a_function_whose_caller_died_is_left_alone_until_it_has_ended(
            memory_stage(), None, 910
        ),
    ),
    "a function called again beside itself": (
        Bug(run, "decision_after", "max(due_ms, ended_ms)", "min(due_ms, ended_ms)"),
        lambda: test_push_functions.test_i4_a_function_is_not_called_beside_itself(
            memory_stage(), "queue", None, 910
        ),
    ),
    "a function that outlives its run": (
        Bug(RunTime, "allows_attempt", "< seconds + MARGIN_SECONDS", "< MARGIN_SECONDS"),
        lambda: test_push_functions.test_i19_no_function_is_called_that_could_outlive_the_run(memory_stage()),
    ),
    "an unreadable body that fails its neighbours": (
        Bug(
            Calls,
            "_send",
            "self._sender.send(consumer, parcel, seconds) if attempts else ()",
            "[CallResult(Verdict.FAILED)] * len(contents)",
        ),
        lambda: _in_a_batch(is_gone=True),
    ),
    "a lease that takes an entry for each offset": (
        Bug(spans, "coalesce", "if len(runs) <= _RUNS:", "if runs or True:"),
        _a_lease_in_pieces_is_small,
    ),
    "a claim for which the cursor has no room": (
        Bug(
            ClaimPlanner,
            "plan_that_fits",
            "not count or cursor_size.has_room(",
            "True or cursor_size.has_room(",
        ),
        lambda: consuming.test_a_claim_takes_no_more_than_its_cursor_has_room_for(memory_stage()),
    ),
    "a settlement that was throttled, forgotten": (
        Bug(Settlements, "settle", "self._owed[receipt] = decisions[receipt]", "pass"),
        lambda: troubled.test_a_settlement_that_is_refused_for_a_while_is_made_up_for(
            memory_stage(), "queue", 3
        ),
    ),
    "a topic that nobody marks": (
        Bug(Marker, "mark", "self._marks.mark(Mark(name, begin_ms))", "pass"),
        lambda: sweeping.test_at_rest_nothing_is_written_and_a_lost_wake_up_is_found_at_the_next_run(10),
    ),
    "an ack that is no sign of life": (
        Bug(Settler, "_settle_texts", "self._note_signs_of_life(topic, group, owners)", "pass"),
        lambda: _shows_life("ack"),
    ),
    "an extension that is no sign of life": (
        Bug(Settler, "extend", "self._note_signs_of_life(topic, group, owners)", "pass"),
        lambda: _shows_life("extend"),
    ),
    "a bound on what is under way that each shard has": (
        Bug(Claims, "_within_bounds", "if unsure <= 0:", "if unsure or True:"),
        lambda: in_flight.test_deliveries_of_one_group_beside_one_another_keep_to_what_it_allows(
            memory_stage(), 3, 1, 1, "while it sends"
        ),
    ),
    "one busy shard that has an equal part only": (
        Bug(Claimant, "room", "max(self.guaranteed - in_flight, self.free)", "self.guaranteed - in_flight"),
        lambda: in_flight.test_one_busy_shard_of_many_may_have_nearly_all_of_it(memory_stage(), 4, 64, 51),
    ),
    "a waiting message that is not there while its time is changed": (
        Bug(
            Delayed,
            "_waiting",
            "if forward is None or forward == previous:",
            "if forward is None or previous is None:",
        ),
        lambda: meanwhile.test_who_looks_or_cancels_while_two_others_change_its_time_finds_it(
            memory_stage(), meanwhile.look
        ),
    ),
    "a key that finds nothing that waits": (
        Bug(KeyLookup, "_message", "passes_before_log(message, filters)", "False"),
        lambda: key_statuses.test_a_key_finds_a_message_in_every_state(memory_stage()),
    ),
    "subscribers that get all of a shard": (
        Bug(
            Claims,
            "_in_order",
            "return (*consumers[start:], *consumers[:start])",
            "return consumers[:1]",
        ),
        lambda: sharing.test_subscribers_get_equal_parts_of_what_one_shard_holds(memory_stage(), 2, 60, 60),
    ),
    "a puller that takes what others came for": (
        Bug(Claimant, "part", "min(most, pull_share.room(round, self.seat, available, now_ms))", "most"),
        lambda: sharing.test_those_that_pull_get_equal_parts_of_what_one_producer_puts_into_one_shard(
            memory_stage(), 4, 10, 1
        ),
    ),
    "a circuit that opens because of messages": (
        Bug(breaker, "after", "if is_own_answer and is_repeated and not half_open:", "if False:"),
        breaker.test_what_failed_before_does_not_add_up_with_what_is_fresh,
    ),
    "redriven messages that say nothing about who fails": (
        Bug(
            DispatchRun,
            "_note_health",
            "each.receipt.attempt_since_redrive(each.attempt) > 1",
            "each.attempt > 1",
        ),
        lambda: test_push_circuit.test_what_was_redriven_counts_for_the_circuit_like_a_first_attempt(
            memory_stage()
        ),
    ),
    "a batch whose halves wait": (
        Bug(run, "is_to_be_split", "len(claimed_messages) > 1 and", "len(claimed_messages) > 999 and"),
        lambda: test_push_batches.test_a_batch_with_one_bad_message_is_cut_at_once(memory_stage(), 64, 17),
    ),
    "a burial that stops at the first that is kept for longer": (
        Bug(
            ClaimPlanner,
            "plan_expiry",
            "else MAX_PASSED_OVER",
            "else 0",
        ),
        _some_are_kept,
    ),
    "what a burial passes over, forgotten": (
        Bug(ClaimPlanner, "plan_expiry", "passed_over=tuple(passed_over)", "passed_over=()"),
        _some_are_kept,
    ),
    "a burial that looks at the first of a lane only": (
        Bug(ClaimPlanner, "_to_bury", "while self._shard is None and", "while False and"),
        _many_are_kept_in_a_lane,
    ),
    "a row that goes before older ones": (
        Bug(
            Topic,
            "expires_s",
            "accepted_ms + self.retention_ms, self.rows_until_ms",
            "accepted_ms + self.retention_ms, 0",
        ),
        row_ends.test_i1_no_row_ends_before_an_older_one,
    ),
    "a retention that only TTL ends": (
        Bug(ClaimPlanner, "_is_over", "ends_ms <= self._now_ms or", "False or"),
        _after_retention,
    ),
    "a broadcast that tells of one consumer": (
        Bug(statuses, "_together", "combined([each.status for each in statuses])", "statuses[-1].status"),
        lambda: message_statuses.test_a_broadcast_that_one_of_two_has_acknowledged_is_under_way(
            memory_stage()
        ),
    ),
    "a delayed message that forgets when it was accepted": (
        Bug(
            due,
            "entered",
            "replace(timer.draft, accepted_ms=accepted_ms, due_ms=timer.due_ms)",
            "timer.draft",
        ),
        lambda: message_statuses.test_a_message_keeps_when_it_was_accepted_and_due_and_what_was_done_to_it(
            memory_stage(), "delay"
        ),
    ),
    "a change that leaves no trace": (
        Bug(Delayed, "_amend", "acted(draft, *self._acts(changes, due_ms, by))", "draft"),
        lambda: message_statuses.test_a_message_keeps_when_it_was_accepted_and_due_and_what_was_done_to_it(
            memory_stage(), "delay"
        ),
    ),
    "what waits, not counted": (
        Bug(MemoryTimers, "count_delayed", "is TimerKind.DELIVER", "is TimerKind.RETRY"),
        lambda: counts.test_what_waits_before_the_log_is_counted(memory_stage()),
    ),
    "a ladder whose last step nobody reaches": (
        Bug(ladder, "wait_seconds", "len(ladder)) - 1", "len(ladder) - 1) - 1"),
        lambda: waits.test_without_jitter_every_ladder_is_walked_exactly("jmq"),
    ),
    "a health check that tells nothing": (
        Bug(Readiness, "check", "if table:", "if table is None:"),
        _a_table_is_away,
    ),
    "a repeated ack called stale": (
        Bug(LeaseSettlement, "repeated", "Already.SETTLED if same else stale()", "stale()"),
        lambda: consuming.test_i20_the_same_settlement_asked_for_again_is_answered_as_done(memory_stage(), 1),
    ),
    "another's settlement called our own": (
        Bug(
            LeaseSettlement,
            "repeated",
            "attempt.outcome == outcome_of(rule(receipt, attempt.attempt).disposition)",
            "True",
        ),
        lambda: consuming.test_i20_the_same_settlement_asked_for_again_is_answered_as_done(memory_stage(), 1),
    ),
    "a number that no other parser can read": (
        Bug(strict_json, "_float", "number == 0.0 and not _is_near(text)", "number != number"),
        _a_tiny_number_is_refused,
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_seen(*BUGS[name], monkeypatch)
