"""Bugs planted in how requests are named, tokens changed and answers given; each is seen by a quick test."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chalicelib.api import lists
from chalicelib.domain.request import Request
from chalicelib.services.consume.lease_settlement import LeaseSettlement
from chalicelib.services.core.expiring_cache import BoundedCache, StoreCall, TtlCache
from chalicelib.services.inspect import statuses
from chalicelib.services.manage.admin import Admin
from chalicelib.services.manage.tokens import Tokens
from chalicelib.services.produce import dedup, resend
from chalicelib.services.produce.producer import Producer
from chalicelib.services.produce.resend import ResendLookup, RowsFound
from chalicelib.services.produce.transactions import Transactor
from infra import alarms
from local import wire
from tests.contract.ports import test_dead_letters as dead_letters
from tests.contract.services import test_extending as extending
from tests.contract.services import test_producing as producing
from tests.contract.services import test_rate_limits as rate_limits
from tests.contract.services import test_resending as resending
from tests.contract.services import test_statuses as message_statuses
from tests.infra import test_alarms as alarming
from tests.support.planting import Bug, Planted, assert_seen, on_a_stage
from tests.unit import test_caches as caches
from tests.unit import test_mover_troubles as mover_troubles
from tests.unit import test_tokens as tokens

_NAMES = ("1 own", "2 theirs", "3 own", "4 own")


def _pages_name_nothing_foreign() -> None:
    """Page tokens are readable: only visible rows may mark a page."""
    context = cast(Any, SimpleNamespace(query={"limit": "1"}))

    def read(after: str | None, rows: int) -> Sequence[str]:
        return [name for name in _NAMES if name > (after or "")][:rows]

    names, mark = lists.visible_page(context, "topics", read, lambda name: name.endswith("own"), str)
    assert (names, mark) == (["1 own"], "1 own")


def _who_keeps_the_connection_is_told() -> None:
    answer = wire.encode((200, {}, b"x"), "GET", keep_alive=True)
    assert b"connection: keep-alive\r\n" in answer.lower()


BUGS: Planted = {
    "a repeat that looks for nothing": (
        Bug(ResendLookup, "before", "low is None and self._request.since_ms is None", "low is None"),
        on_a_stage(resending.test_a_repeat_finds_what_the_lost_answer_told),
    ),
    "a repeat that was long on its way looks too short a time back": (
        Bug(ResendLookup, "before", "- SLACK_MS", "- 1_000"),
        on_a_stage(resending.test_a_repeat_that_was_long_on_its_way_finds_it_too, 5_000),
    ),
    "a dedup window that ends within its last second": (
        Bug(dedup, "window_end_ms", "max(accepted_ms, draft.due_ms or 0)", "accepted_ms // 1000 * 1000"),
        on_a_stage(producing.test_i3_the_window_outlives_the_acknowledgement_and_then_ends),
    ),
    "an extension that shortens the lease of others": (
        Bug(LeaseSettlement, "_extend", "lease.attempts().keys() <= offsets", "True"),
        on_a_stage(extending.test_of_messages_received_together_one_cannot_shorten_the_lease_of_the_others),
    ),
    "a repeat whose stored messages take the permits of the others": (
        Bug(Producer, "_limit", "if n not in stored", ""),
        on_a_stage(rate_limits.test_what_a_repeat_has_stored_takes_no_permit, False),
    ),
    "a repeat whose delayed messages take the permits of the others": (
        Bug(Producer, "_stored_before", "if draft.dedup_id and", "if not draft.dedup_id and"),
        on_a_stage(rate_limits.test_what_a_repeat_has_stored_takes_no_permit, True),
    ),
    "everybody's rows taken for its own": (
        Bug(Request, "wrote", "segment.request_id.startswith(self._prefix(key, segment.first))", "True"),
        on_a_stage(resending.test_a_repeat_of_what_never_arrived_stores_it),
    ),
    "a repeat that looks back for ever": (
        Bug(ResendLookup, "before", "rows >= MAX_LOOK_BACK_ROWS", "rows >= 4 * MAX_LOOK_BACK_ROWS"),
        on_a_stage(resending.test_where_too_much_was_stored_since_it_says_so),
    ),
    "a try under way that nobody heads off": (
        Bug(ResendLookup, "_close_hole", "next_segment.allocation is not Allocation.RESERVED", "True"),
        on_a_stage(resending.test_where_offsets_are_reserved_a_try_under_way_is_headed_off),
    ),
    "equal messages of a batch taken for one": (
        Bug(RowsFound, "messages_for", "by_likeness[like].popleft()", "by_likeness[like][0]"),
        on_a_stage(resending.test_equal_messages_of_one_batch_are_each_stored_once),
    ),
    "an edited message that is stored again": (
        Bug(
            RowsFound,
            "messages_for",
            "edits if was_changed else by_likeness",
            "deque() if was_changed else by_likeness",
        ),
        on_a_stage(resending.test_what_was_edited_meanwhile_is_still_the_message),
    ),
    "other content under the same name taken for the same": (
        Bug(resend, "_likeness", "{content_hash(replace(draft, body=body, shard=None))}", ""),
        on_a_stage(resending.test_other_content_under_the_same_name_is_another_message),
    ),
    "a sender that goes to any shard": (
        Bug(Request, "shard", 'self.name.rpartition("-")[0] or self.name', "self.name"),
        on_a_stage(resending.test_one_sender_keeps_to_one_shard),
    ),
    "a token with texts without end": (
        Bug(Tokens, "rotate", "len(former) > MAX_OVERLAPPING_SECRETS", "False"),
        tokens.test_a_token_is_rotated_so_often_at_once_and_no_more,
    ),
    "a token good a millisecond too long": (
        Bug(Tokens, "_hashes", "token.expires_ms <= now_ms", "token.expires_ms < now_ms"),
        tokens.test_a_token_is_good_up_to_its_last_millisecond,
    ),
    "a rubbish token that asks the store": (
        Bug(Tokens, "_parts", "not self._checked or tail == checksum(token_id, body)", "True"),
        tokens.test_a_text_with_a_wrong_checksum_is_refused_without_asking_the_store,
    ),
    "a cache that grows without bound": (
        Bug(BoundedCache, "of", "len(self._held) >= self._most", "False"),
        caches.test_what_can_be_made_anew_is_made_once_and_forgotten_when_there_is_too_much,
    ),
    "a cache that takes what was being read while it was changed": (
        Bug(StoreCall, "keep", "if not self.is_overtaken:", "if True:"),
        caches.test_what_was_being_read_while_it_was_changed_is_answered_but_not_kept,
    ),
    "a cache for as many as come": (
        Bug(TtlCache, "hold", "len(self._held) > self._most", "False"),
        caches.test_what_has_no_age_is_kept_by_any_clock_but_not_without_bound,
    ),
    "a clock's step back that makes what is cached young": (
        Bug(TtlCache, "_is_fresh", "min(ages) >= 0 and ", ""),
        caches.test_a_clock_that_is_set_back_makes_nothing_younger,
    ),
    "a cache that only the wall clock ages": (
        Bug(TtlCache, "_is_fresh", "max(ages) <=", "ages[0] <="),
        lambda: caches.test_a_value_is_as_old_as_either_clock_says(-60, 0),
    ),
    "dead letters of a group that is no more": (
        Bug(Admin, "_close", "self.records.forget(group.uid)", "pass"),
        on_a_stage(dead_letters.test_the_dead_letters_of_a_deleted_group_go_with_it_and_no_others),
    ),
    "a transaction's delay that waits for its body": (
        Bug(Transactor, "prepare", "delay_from_commit, now_ms", "delay_from_commit, self.clock.now_ms()"),
        mover_troubles.test_a_transactions_delay_does_not_run_while_its_body_is_uploaded,
    ),
    "a page that is marked by what was not shown": (
        Bug(lists, "visible_page", "position(items[most - 1])", "after"),
        _pages_name_nothing_foreign,
    ),
    "a client of HTTP/1.0 that is not told": (
        Bug(
            wire, "encode", "lines.append(f\"Connection: {'keep-alive' if keep_alive else 'close'}\")", "pass"
        ),
        _who_keeps_the_connection_is_told,
    ),
    "a dead letter shown while its successor is under way": (
        Bug(
            statuses,
            "_status_of",
            "if state is OffsetState.RUNNING:",
            "if state is OffsetState.RUNNING and record is None:",
        ),
        on_a_stage(
            message_statuses.test_of_two_deliveries_after_a_seek_the_newer_is_shown_while_it_is_under_way
        ),
    ),
    "an alarm for failures that cannot come": (
        Bug(alarms, "_errors", "(_HOUR, 1) if name in names.SELDOM else (_FIVE, 2)", "(_FIVE, 2)"),
        lambda: alarming.test_a_function_that_fails_each_time_is_told_and_one_that_does_not_is_not(
            "expire", 0
        ),
    ),
    "a function that nobody misses": (
        Bug(alarms, "_stopped_alarm", 'missing="breaching"', 'missing="notBreaching"'),
        lambda: alarming.test_a_function_that_is_not_started_is_told_and_one_that_is_late_is_not("mover", 0),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert_seen(*BUGS[name], monkeypatch)
