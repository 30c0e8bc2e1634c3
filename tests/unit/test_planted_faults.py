"""What was wrong once, planted again one at a time: each is seen by a quick test."""

from __future__ import annotations

import pytest

from chalicelib.domain import ladder, spans, strict_json, timer
from chalicelib.domain.errors import Malformed
from chalicelib.domain.spans import Span
from chalicelib.domain.topic import Topic
from chalicelib.scheduler import walk
from chalicelib.scheduler.assigner import Assigner
from chalicelib.scheduler.expirer import Expirer
from chalicelib.services.consume import claim_choice
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
from chalicelib.services.manage.registry import Registry
from chalicelib.services.produce.delayed import Delayed
from chalicelib.services.push.run import DispatchRun
from chalicelib.store import timers
from chalicelib.store.control import Control
from tests.contract.schedules import test_expiring as expiring
from tests.contract.schedules import test_retention as retention
from tests.contract.schedules import test_sweeping as sweeping
from tests.contract.schedules import test_sweeping_groups as sweeping_groups
from tests.contract.services import test_assigning as assigning
from tests.contract.services import test_burying as burying
from tests.contract.services import test_claiming as plans
from tests.contract.services import test_consuming as consuming
from tests.contract.services import test_counts as counts
from tests.contract.services import test_delayed as delayed
from tests.contract.services import test_full_cursors as full_cursors
from tests.contract.services import test_in_flight as in_flight
from tests.contract.services import test_keys as key_statuses
from tests.contract.services import test_registering as registering
from tests.contract.services import test_sharing as sharing
from tests.contract.services import test_statuses as message_statuses
from tests.contract.services import test_troubled as troubled
from tests.contract.services import test_unreadable_rows as unreadable_rows
from tests.contract.services import test_waiting as meanwhile
from tests.contract.services import test_waking as waking
from tests.support.clock import ManualClock
from tests.support.desk import Desk
from tests.support.planting import Bug, Planted, assert_seen, names_of, on_a_stage
from tests.support.stages import embedded_stage
from tests.unit import test_decisions as waits
from tests.unit import test_log_reader as log_reader
from tests.unit import test_times as row_ends


def _after_retention() -> None:
    stage = embedded_stage()
    retention.test_what_a_group_owes_past_its_retention_is_buried_by_the_claim_that_meets_it(
        stage, stage.clock.advance, 1
    )


def _some_are_kept() -> None:
    burying.test_i1_what_is_kept_before_and_behind_what_is_buried_is_delivered_once(embedded_stage(), 127)


def _many_are_kept_in_a_lane() -> None:
    stage = embedded_stage()
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
    desk = Desk.at(embedded_stage(), shards=4)
    assigning.test_settling_and_extending_are_signs_of_life(desk, sign, "broadcast")


def _an_ack_of_who_was_removed_is_answered() -> None:
    desk = Desk.at(embedded_stage(), shards=2)
    registering.test_i20_what_a_consumer_did_counts_though_it_has_been_removed_meanwhile(desk, desk.group())


BUGS: Planted = {
    "a waiting message found in another topic": (
        Bug(Delayed, "_find_timed", " if waiting.timer.shard.topic_uid == topic.uid else None", ""),
        on_a_stage(delayed.test_another_topic_does_not_find_it),
    ),
    "a hurried message that waits for the schedule": (
        Bug(Delayed, "_amend", "self.waker.wake_movers([new])", "pass"),
        on_a_stage(delayed.test_whoever_hurries_it_wakes_a_mover),
    ),
    "a seat for those that are called": (
        Bug(Assignments, "seat", " if member not in called_uids]", "]"),
        lambda: assigning.test_only_those_that_pull_have_seats_among_one_another(
            Desk.at(embedded_stage(), shards=4)
        ),
    ),
    "a retry whose row may go before it": (
        Bug(StepMaker, "_timer", "decision.due_ms + _LANE_SLACK_MS", "decision.due_ms - _LANE_SLACK_MS"),
        on_a_stage(expiring.test_a_retry_that_may_have_to_wait_in_its_lane_takes_the_content_along),
    ),
    "a redriven message whose attempts are forgotten": (
        Bug(StepMaker, "_record", "receipt.attempts_before_redrive,", "0,"),
        on_a_stage(burying.test_a_redriven_message_has_all_its_attempts_again_and_says_so),
    ),
    "a redriven message that has no attempts of its own": (
        Bug(Claimant, "last_attempt", "draft, attempts_before_redrive)", "draft, 0)"),
        on_a_stage(burying.test_a_redriven_message_has_all_its_attempts_again_and_says_so),
    ),
    "a receipt that settles twice in one call": (
        Bug(Settler, "_settle", "settled_offsets.discard(receipt.leased_offset)", "pass"),
        on_a_stage(consuming.test_i5_a_receipt_of_a_lease_that_passed_on_changes_nothing),
    ),
    "a burial that drops the message": (
        Bug(StepMaker, "_record", "self._content(receipt) if is_dead else None", "None"),
        on_a_stage(burying.test_a_message_rejected_for_good_is_buried_at_once),
    ),
    "a cancellation by nobody": (
        Bug(
            Delayed,
            "_cancel",
            'with_acts(timer.draft, Act("CANCELLED", self.clock.now_ms(), by))',
            "timer.draft",
        ),
        on_a_stage(message_statuses.test_who_cancelled_a_waiting_message_is_told),
    ),
    "a young hole that nobody comes back to": (
        Bug(Claimer, "dues_ms", "[closes_ms] if closes_ms else ()", "()"),
        on_a_stage(waking.test_what_stands_behind_a_hole_comes_when_the_hole_may_be_closed),
    ),
    "a stale read that a delivery believes": (
        Bug(LogReader, "expect_rows", "in last.items()", "in ()"),
        on_a_stage(waking.test_who_was_woken_for_a_row_does_not_believe_a_read_that_ends_before_it),
    ),
    "a first subscriber that a router has not heard of": (
        Bug(Waker, "wake_for", "if tasks or consumer.is_called:", "if False:"),
        on_a_stage(waking.test_a_message_that_a_router_thinks_is_for_nobody_comes_seconds_later),
    ),
    "a shard that its new worker has not heard of": (
        Bug(Waker, "wake_after_redivision", "if topic.is_called:", "if False:"),
        on_a_stage(
            waking.test_a_message_in_a_shard_that_a_worker_does_not_know_yet_comes_seconds_later,
            1,
            waking.grows,
            0,
        ),
    ),
    "a lease that takes an entry for each offset": (
        Bug(spans, "coalesce", "if len(runs) <= _RUNS:", "if runs or True:"),
        _a_lease_in_pieces_is_small,
    ),
    "a claim for which the cursor has no room": (
        Bug(
            ClaimPlanner,
            "plan_that_fits",
            "not (count or passed_over) or cursor_size.has_room_for_claim(",
            "True or cursor_size.has_room_for_claim(",
        ),
        on_a_stage(consuming.test_a_claim_takes_no_more_than_its_cursor_has_room_for),
    ),
    "a topic that nobody marks": (
        Bug(Marker, "mark", "self._marks.mark(Mark(name, begin_ms))", "pass"),
        lambda: sweeping.test_at_rest_nothing_is_written_and_a_lost_wake_up_is_found_at_the_next_run(10),
    ),
    "an ack that is no sign of life": (
        Bug(Settler, "_settle_valid", "self._note_signs_of_life(topic, group, owners)", "pass"),
        lambda: _shows_life("ack"),
    ),
    "an extension that is no sign of life": (
        Bug(Settler, "extend", "self._note_signs_of_life(topic, group, owners)", "pass"),
        lambda: _shows_life("extend"),
    ),
    "a cursor that grows by each key that waits": (
        Bug(ClaimPlanner, "plan", "not cursor_size.has_room_for_new(current)", "False"),
        full_cursors.test_in_order_so_many_keys_may_wait_and_then_the_others_wait_for_these,
    ),
    "one busy shard that has an equal part only": (
        Bug(Claimant, "room", "max(self.guaranteed - in_flight, self.free)", "self.guaranteed - in_flight"),
        on_a_stage(in_flight.test_one_busy_shard_of_many_may_have_nearly_all_of_it, 4, 64, 51),
    ),
    "a waiting message that is not there while its time is changed": (
        Bug(
            Delayed,
            "_find_with_due_ms",
            "if forward is None or forward == previous:",
            "if forward is None or previous is None:",
        ),
        on_a_stage(
            meanwhile.test_who_looks_or_cancels_while_two_others_change_its_time_finds_it, meanwhile.look
        ),
    ),
    "a key that finds nothing that waits": (
        Bug(KeyLookup, "_message", "passes_before_log(message, filters)", "False"),
        on_a_stage(key_statuses.test_a_key_finds_a_message_in_every_state),
    ),
    "a puller that takes what others came for": (
        Bug(Claimant, "part", "min(most, pull_share.room(round, self.seat, available, now_ms))", "most"),
        on_a_stage(
            sharing.test_those_that_pull_get_equal_parts_of_what_one_producer_puts_into_one_shard, 4, 10, 1
        ),
    ),
    "a burial that stops at the first that is kept for longer": (
        Bug(ClaimPlanner, "plan_expiry", "else MAX_PASSED_OVER", "else 0"),
        _some_are_kept,
    ),
    "a topic that takes all the time it wants": (
        Bug(
            walk,
            "as_many_as_time_allows",
            "if number and not has_time()",
            "if False",
            ("chalicelib.scheduler.expirer",),
        ),
        on_a_stage(expiring.test_runs_that_have_no_time_for_a_whole_topic_come_by_what_all_its_consumers_owe),
    ),
    "a run that was refused something and comes back to nothing": (
        Bug(
            DispatchRun,
            "leave",
            "if topic_and_group := self._find():",
            "if not self._claims.faults and (topic_and_group := self._find()):",
        ),
        on_a_stage(troubled.test_i10_a_run_that_could_not_read_one_shard_comes_back_to_another_in_time),
    ),
    "a pulled lease that ends sooner than its mark": (
        Bug(Waker, "wake_beside_puller", "self.mark(topic)", "pass"),
        on_a_stage(
            sweeping_groups.test_i10_what_was_pulled_for_hours_is_found_when_it_is_let_go_before, "extend"
        ),
    ),
    "what a burial passes over, forgotten": (
        Bug(ClaimPlanner, "plan_expiry", "passed_over=tuple(passed_over)", "passed_over=()"),
        _some_are_kept,
    ),
    "a burial that looks at the first of a lane only": (
        Bug(ClaimPlanner, "_to_bury", "while self._keeps_entries and", "while False and"),
        _many_are_kept_in_a_lane,
    ),
    "a row that goes before older ones": (
        Bug(Topic, "expires_s", "self.rows_until_ms", "0"),
        row_ends.test_i1_no_row_ends_before_an_older_one,
    ),
    "a retention that only TTL ends": (
        Bug(ClaimPlanner, "_is_over", "ends_ms <= self._now_ms or", "False or"),
        _after_retention,
    ),
    "a broadcast that tells of one consumer": (
        Bug(
            statuses,
            "_broadcast_status",
            "combined([each.status for each in statuses])",
            "statuses[-1].status",
        ),
        on_a_stage(message_statuses.test_a_broadcast_that_one_of_two_has_acknowledged_is_under_way),
    ),
    "a delayed message that forgets when it was accepted": (
        Bug(
            timer,
            "draft_for_log",
            "replace(timer.draft, accepted_ms=accepted_ms, due_ms=timer.due_ms)",
            "timer.draft",
        ),
        on_a_stage(
            message_statuses.test_a_message_keeps_when_it_was_accepted_and_due_and_what_was_done_to_it,
            "delay",
        ),
    ),
    "a change that leaves no trace": (
        Bug(
            Delayed, "_amend", "with_acts(draft, *self._acts_of(old, changes, due_ms, by, since_ms))", "draft"
        ),
        on_a_stage(
            message_statuses.test_a_message_keeps_when_it_was_accepted_and_due_and_what_was_done_to_it,
            "delay",
        ),
    ),
    "what waits, not counted": (
        Bug(timers, "_topic_and_kind", 'item["k"]["S"]', '"retry"'),
        on_a_stage(counts.test_what_waits_before_the_log_is_counted),
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
        Bug(LeaseSettlement, "answer_to_repeat", "Already.SETTLED if same else stale()", "stale()"),
        on_a_stage(consuming.test_i20_the_same_settlement_asked_for_again_is_answered_as_done, 1),
    ),
    "another's settlement called our own": (
        Bug(
            LeaseSettlement,
            "answer_to_repeat",
            "attempt.outcome == outcome_of(rule(receipt, attempt.attempt).disposition)",
            "True",
        ),
        on_a_stage(consuming.test_i20_the_same_settlement_asked_for_again_is_answered_as_done, 1),
    ),
    "a number that no other parser can read": (
        Bug(strict_json, "_float", "number == 0.0 and not _is_near(text)", "number != number"),
        _a_tiny_number_is_refused,
    ),
    "an end of the log that is believed although a row behind it was named": (
        Bug(LogReader, "slots_from", "if at == end and at > self._last_row(shard):", "if at == end:"),
        lambda: log_reader.test_a_read_that_ends_before_a_row_that_was_named_is_repeated(
            log_reader.Scene(), (2,)
        ),
    ),
    "an end of the log where only an answer ended": (
        Bug(LogReader, "_load", "if rows and read_rows.is_end", "if rows"),
        lambda: log_reader.test_an_answer_that_holds_no_more_rows_is_no_end(log_reader.Scene()),
    ),
    "waiting messages of a busy key that fill an answer": (
        Bug(claim_choice, "dues", "if s.unit in units", "", also=("chalicelib.services.consume.claim_plan",)),
        on_a_stage(
            plans.test_i7_large_messages_behind_failed_or_leased_ones_leave_place_for_other_keys,
            is_leased=False,
        ),
    ),
    "a stranger who is asked only while others produce": (
        Bug(Assigner, "restore_mark", "consumer.state == ConsumerState.PENDING", "False"),
        on_a_stage(expiring.test_who_has_not_agreed_and_whose_mark_was_lost_is_asked_again),
    ),
    "a removal that leaves no mark": (
        Bug(Registry, "unregister", "self.control.retire_consumer(topic, group, consumer)", "pass"),
        lambda: registering.test_a_removal_that_was_broken_off_is_ended_by_whoever_comes_next(
            Desk.at(embedded_stage(), shards=2), "group deleted"
        ),
    ),
    "a removal that takes another of the name": (
        Bug(
            Control,
            "delete_consumer",
            'self._call_if_unchanged("delete_item", _of_life({"Key": _item_key(key)}, consumer))',
            "self._delete(key)",
        ),
        lambda: registering.test_a_removal_that_was_broken_off_is_ended_by_whoever_comes_next(
            Desk.at(embedded_stage(), shards=2), "registered again"
        ),
    ),
    "a burial that stops at the first cursor that cannot be read": (
        Bug(
            Expirer,
            "run_once",
            "has_time)\n            except Unavailable as error:",
            "has_time)\n            except ZeroDivisionError as error:",
        ),
        on_a_stage(unreadable_rows.test_a_job_goes_on_with_the_other_shards),
    ),
    "an ack that is refused after it was stored": (
        Bug(Registry, "note_alive", "(Unavailable, NotFound)", "Unavailable"),
        _an_ack_of_who_was_removed_is_answered,
    ),
}


@pytest.mark.parametrize(
    "name",
    names_of(BUGS, {"a row that goes before older ones", "a cursor that grows by each key that waits"}),
)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_seen(*BUGS[name], monkeypatch)
