"""The conditions under which the store writes: each has a name, each can be weakened on its way out, and something can
happen just before it is asked."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

CONDITION = "ConditionExpression"
_EXPRESSIONS = (CONDITION, "UpdateExpression", "KeyConditionExpression")
_NO_VALUE = re.compile(r"[:#]\w+")
_EVENT = "provide-client-params.dynamodb"
_STORE = "/chalicelib/store/"
_FLIPPED = {" <= ": " < ", " < ": " <= ", " > ": " >= ", " >= ": " > "}

Watcher = Callable[[str], object]
CLAUSES: dict[str, str] = {
    "control.delete_consumer: delete in control if uid = :uid": (
        "what_was_made_again_under_its_name_is_another"
    ),
    "control.put_assignment: put in control if attribute_not_exists(version)": "an_assignment_follows_the_one_before",
    "control.put_assignment: put in control if version = :": "an_assignment_follows_the_one_before",
    "control.put_consumer: put in control if attribute_not_exists(version)": "settings_are_changed_as_they_were_read",
    "control.put_consumer: put in control if version = :": "settings_are_changed_as_they_were_read",
    "control.put_consumer: put in control if uid = :uid": ("what_was_made_again_under_its_name_is_another"),
    "control.put_group: put in control if attribute_not_exists(version)": "settings_are_changed_as_they_were_read",
    "control.put_group: put in control if version = :": "settings_are_changed_as_they_were_read",
    "control.put_group: put in control if uid = :uid": ("what_was_made_again_under_its_name_is_another"),
    "control.put_key_ring: put in control if attribute_not_exists(version)": "settings_are_changed_as_they_were_read",
    "control.put_key_ring: put in control if version = :": "settings_are_changed_as_they_were_read",
    "control.put_replay: put in control if attribute_not_exists(version)": "settings_are_changed_as_they_were_read",
    "control.put_replay: put in control if version = :": "settings_are_changed_as_they_were_read",
    "control.put_token: put in control if attribute_not_exists(version)": "settings_are_changed_as_they_were_read",
    "control.put_token: put in control if version = :": "settings_are_changed_as_they_were_read",
    "control.put_topic: put in control if attribute_not_exists(version)": "settings_are_changed_as_they_were_read",
    "control.put_topic: put in control if version = :": "settings_are_changed_as_they_were_read",
    "control.put_topic: put in control if uid = :uid": ("what_was_made_again_under_its_name_is_another"),
    "control.put_schedule: delete in timers if attribute_exists(f)": "a_schedule_goes_on_from_its_timer",
    "control.put_schedule: delete in timers if attribute_not_exists(e)": "a_schedule_goes_on_from_its_timer",
    "control.put_schedule: delete in timers if e = :e": "a_schedule_goes_on_from_its_timer",
    "control.delete_schedule: delete in timers if attribute_exists(f)": "a_schedule_goes_on_from_its_timer",
    "control.delete_schedule: delete in timers if attribute_not_exists(e)": "a_schedule_goes_on_from_its_timer",
    "control.delete_schedule: delete in timers if e = :e": "a_schedule_goes_on_from_its_timer",
    "timers.succeed: delete in timers if attribute_exists(f)": "a_schedule_goes_on_from_its_timer",
    "timers.succeed: delete in timers if attribute_not_exists(e)": "a_schedule_goes_on_from_its_timer",
    "timers.succeed: delete in timers if e = :e": "a_schedule_goes_on_from_its_timer",
    "timers.restore: put in timers if attribute_not_exists(f)": "a_timer_that_is_there_is_not_lost",
    "control.put_schedule: put in control if attribute_not_exists(version)": "settings_are_changed_as_they_were_read",
    "control.put_schedule: put in control if version = :": "settings_are_changed_as_they_were_read",
    "control.put_schedule: put in control if uid = :uid": "what_was_made_again_under_its_name_is_another",
    "control.delete_schedule: delete in control if version = :": "what_was_changed_meanwhile_is_not_retired",
    "control.delete_schedule: delete in control if uid = :uid": "what_was_made_again_under_its_name_is_another",
    "control.retire_group: delete in control if version = :": "what_was_changed_meanwhile_is_not_retired",
    "control.retire_group: delete in control if uid = :uid": (
        "what_was_made_again_under_its_name_is_another"
    ),
    "control.retire_topic: delete in control if version = :": "what_was_changed_meanwhile_is_not_retired",
    "control.retire_topic: delete in control if uid = :uid": (
        "what_was_made_again_under_its_name_is_another"
    ),
    "cursors.create: put in cursors if attribute_not_exists(e)": "a_cursor_is_created_once",
    "cursors.write: put in cursors if attribute_not_exists(e)": "a_cursor_is_created_once",
    "cursors.write: put in cursors if e = :e": "a_cursor_is_replaced_in_the_epoch_that_was_read",
    "cursors.write: put in cursors if l = :l": "a_large_change_loses_nothing_of_others",
    "cursors.write: update in cursors if e = :": "a_claim_is_made_from_the_epoch_that_was_read",
    "cursors.write: update in cursors if l.#l = :": "a_settlement_needs_its_lease",
    "cursors.write: update in cursors if size(w) <= :": "a_change_has_room_for_what_waits",
    "log.amend: put in dedup if attribute_not_exists(d) OR e <= :ms OR i = :i": (
        "a_name_passes_on_from_the_message_that_had_it"
    ),
    "log.amend: put in dedup if attribute_not_exists(d) OR e <= :ms": (
        "a_name_passes_on_from_the_message_that_had_it"
    ),
    "log.amend: put in cursors if attribute_not_exists(e)": "a_cursor_that_moved_on_refuses_an_amendment",
    "log.amend: update in cursors if (x <= :o OR b > :o)": "a_cursor_that_moved_on_refuses_an_amendment",
    "log.amend: update in cursors if a = :a": "a_cursor_that_moved_on_refuses_an_amendment",
    "log.amend: update in cursors if attribute_not_exists(a)": "a_cursor_that_moved_on_refuses_an_amendment",
    "log.amend: update in log if attribute_not_exists(e)": "an_amendment_replaces_what_was_read",
    "log.amend: update in log if e = :e": "an_amendment_replaces_what_was_read",
    "log.amend: update in log if r = :r": "an_amendment_replaces_what_was_read",
    "log.begin_reserving: update in log if attribute_not_exists(c)": "only_a_counter_that_is_there_reserves",
    "log.checkpoint: update in log if attribute_not_exists(t) OR t < :t": "a_checkpoint_rises",
    "log.keep: update in log if x < :x": "a_row_is_kept_longer_and_never_shorter",
    "log.put: delete in records if a = :a": "a_letter_is_redriven_as_it_was_read",
    "log.put: delete in records if e = :e": "a_letter_is_redriven_as_it_was_read",
    "log.put: delete in timers if attribute_exists(f)": "a_timer_is_moved_as_it_was_read",
    "log.put: delete in timers if attribute_not_exists(e)": "a_timer_is_moved_as_it_was_read",
    "log.put: delete in timers if e = :e": "a_timer_is_moved_as_it_was_read",
    "log.put: put in dedup if attribute_not_exists(d) OR e <= :ms": (
        "an_appended_message_has_its_dedup_id_once"
    ),
    "log.put: put in dedup if attribute_not_exists(d) OR e <= :ms OR i = :i": (
        "an_appended_message_has_its_dedup_id_once"
    ),
    "log.put: put in log if attribute_not_exists(o)": "an_append_never_replaces_a_row",
    "log.put: put in transactions if e = :e": "a_transaction_is_decided_as_it_was_read",
    "log.put_tombstone: put in log if attribute_not_exists(o)": "a_tombstone_replaces_nothing",
    "log.raise_counter: update in log if c < :c": "a_counter_rises_and_is_not_made",
    "log.reserve: update in log if attribute_exists(c)": "only_a_counter_that_is_there_reserves",
    "tokenbuckets.take: update in rates if NOT attribute_type(t, :n) OR t = :t": "no_permit_is_given_again",
    "tokenbuckets.take: update in rates if t <= :l": "no_permit_is_given_again",
    "records.discard: delete in records if a = :a": "a_letter_is_discarded_as_it_was_read",
    "records.discard: delete in records if e = :e": "a_letter_is_discarded_as_it_was_read",
    "timers.send_later: delete in records if a = :a": "a_letter_is_redriven_later_as_it_was_read",
    "timers.send_later: delete in records if e = :e": "a_letter_is_redriven_later_as_it_was_read",
    "records.edit: put in records if a = :a": "a_letter_is_edited_as_it_was_read",
    "records.edit: put in records if e = :e": "a_letter_is_edited_as_it_was_read",
    "records.restore: put in records if a = :a": "a_record_is_restored_as_it_was_read",
    "records.restore: put in records if attribute_not_exists(g)": "a_record_is_restored_as_it_was_read",
    "rounds.keep: put in rounds if NOT attribute_type(e, :e)": "a_job_goes_on_from_the_place_that_was_read",
    "rounds.keep: put in rounds if e = :e": "a_job_goes_on_from_the_place_that_was_read",
    "tickets.use: put in dedup if attribute_not_exists(d)": "a_link_signs_in_once",
    "timers.amend: put in dedup if attribute_not_exists(d) OR e <= :ms OR i = :i": (
        "a_name_passes_on_from_the_message_that_had_it"
    ),
    "timers.amend: put in dedup if attribute_not_exists(d) OR e <= :ms": (
        "a_name_passes_on_from_the_message_that_had_it"
    ),
    "timers.amend: delete in timers if attribute_exists(f)": "a_timer_is_postponed_as_it_was_read",
    "timers.amend: delete in timers if attribute_not_exists(e)": "a_timer_is_postponed_as_it_was_read",
    "timers.amend: delete in timers if e = :e": "a_timer_is_postponed_as_it_was_read",
    "timers.amend: put in timers if attribute_exists(f)": "a_timer_is_edited_as_it_was_read",
    "timers.amend: put in timers if attribute_not_exists(e)": "a_timer_is_edited_as_it_was_read",
    "timers.amend: put in timers if e = :e": "a_timer_is_edited_as_it_was_read",
    "timers.cancel: put in dedup if attribute_not_exists(d) OR e <= :ms OR i = :i": (
        "a_name_passes_on_from_the_message_that_had_it"
    ),
    "timers.cancel: put in dedup if attribute_not_exists(d) OR e <= :ms": (
        "a_name_passes_on_from_the_message_that_had_it"
    ),
    "timers.cancel: delete in timers if attribute_exists(f)": "a_timer_is_cancelled_as_it_was_read",
    "timers.cancel: delete in timers if attribute_not_exists(e)": "a_timer_is_cancelled_as_it_was_read",
    "timers.cancel: delete in timers if e = :e": "a_timer_is_cancelled_as_it_was_read",
    "timers.drop: delete in timers if a = :a": "a_wake_up_is_dropped_as_it_was_read",
    "timers.exchange: delete in timers if attribute_exists(f)": "a_retry_is_settled_as_it_was_read",
    "timers.exchange: delete in timers if attribute_not_exists(e)": "a_retry_is_settled_as_it_was_read",
    "timers.exchange: delete in timers if e = :e": "a_retry_is_settled_as_it_was_read",
    "timers.exchange: put in timers if attribute_exists(f)": "a_retry_is_changed_as_it_was_read",
    "timers.exchange: put in timers if attribute_not_exists(e)": "a_retry_is_changed_as_it_was_read",
    "timers.exchange: put in timers if e = :e": "a_retry_is_changed_as_it_was_read",
    "timers.take: delete in timers if attribute_exists(f)": "retries_are_dropped_if_all_wait",
    "timers.store: put in dedup if attribute_not_exists(d) OR e <= :ms": (
        "a_delayed_message_has_its_dedup_id_once"
    ),
    "timers.store: put in dedup if attribute_not_exists(d) OR e <= :ms OR i = :i": (
        "a_delayed_message_has_its_dedup_id_once"
    ),
    "transactions.change: put in transactions if e = :e": "a_transaction_is_decided_as_it_was_read",
    "transactions.prepare: put in transactions if attribute_not_exists(t)": "a_transaction_is_put_once",
    "transactions.prepare: put in dedup if attribute_not_exists(d) OR e <= :ms": (
        "a_transaction_has_its_dedup_id_once"
    ),
    "transactions.prepare: put in dedup if attribute_not_exists(d) OR e <= :ms OR i = :i": (
        "a_transaction_has_its_dedup_id_once"
    ),
}
"""Each clause of each condition that the store sends, and the scene (of `tests/contract`) that sees it missing."""


@dataclass(frozen=True)
class Weakness:
    """`clause`, one of a condition's clauses, named by who asks it of which table, loses `part`; or all of it."""

    clause: str
    part: str = ""

    def of(self, text: str) -> str | None:
        """What becomes of a clause's text; None: nothing is left."""
        if not self.part:
            return None
        if self.part in _FLIPPED:
            return text.replace(self.part, _FLIPPED[self.part])
        rest = " OR ".join(each for each in _alternatives(text) if _nameless(each) != self.part)
        return f"({rest})" if text.startswith("(") else rest

    def __str__(self) -> str:
        return f"{self.clause} without {self.part.strip() or 'it'}"


def weaknesses(clause: str) -> Iterator[Weakness]:
    """All that can be wrong with a clause: it is missing, an alternative is, or its bound is one off."""
    yield Weakness(clause)
    text = clause.partition(" if ")[2]
    yield from (Weakness(clause, part) for part in _alternatives(text) if " OR " in text)
    yield from (Weakness(clause, sign) for sign in _FLIPPED if sign in text)


def _alternatives(text: str) -> list[str]:
    return (text[1:-1] if text.startswith("(") else text).split(" OR ")


def is_planted(clause: str) -> None:
    """Raise AssertionError for a clause without a planted bug."""
    assert clause in CLAUSES, f"plant a bug in this condition: {clause}"


def watch(client: Any, watcher: Watcher = is_planted) -> None:
    """Tell each clause of each condition that this client sends."""

    def look(params: dict[str, Any], **_: Any) -> None:
        for action, request in _actions(params):
            for _text, clause in _clauses(action, request):
                watcher(clause)

    client.meta.events.register(_EVENT, look)


@contextmanager
def weakened(client: Any, weakness: Weakness) -> Iterator[list[str]]:
    """Send conditions with the weakness; the list fills with what was weakened."""
    clauses: list[str] = []

    def weaken(params: dict[str, Any], **_: Any) -> None:
        for action, request in _actions(params):
            pairs = list(_clauses(action, request))
            if any(clause == weakness.clause for _, clause in pairs):
                clauses.append(request[CONDITION])
                rest = (weakness.of(text) if clause == weakness.clause else text for text, clause in pairs)
                _rewrite(request, " AND ".join(text for text in rest if text))

    with _registered(client, weaken):
        yield clauses


@contextmanager
def before(client: Any, table: str, act: Callable[[], object]) -> Iterator[None]:
    """Act just before the client's next conditional write to a table."""
    actions = [act]

    def happen(params: dict[str, Any], **_: Any) -> None:
        has_condition = any(_table(of) == table and CONDITION in of for _, of in _actions(params))
        if has_condition and actions:
            actions.pop()()

    with _registered(client, happen):
        yield


@contextmanager
def _registered(client: Any, handler: Callable[..., None]) -> Iterator[None]:
    client.meta.events.register_first(_EVENT, handler)
    try:
        yield
    finally:
        client.meta.events.unregister(_EVENT, handler)


def _actions(params: dict[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    if "TransactItems" in params:
        return [next(iter(action.items())) for action in params["TransactItems"]]
    kind = "Update" if "UpdateExpression" in params else "Put" if "Item" in params else "Delete"
    return [(kind, params)] if CONDITION in params else []


def _clauses(action: str, request: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each clause of a request's condition, with its name."""
    if CONDITION not in request:
        return
    names = request.get("ExpressionAttributeNames", {})
    asked_by = _asked_by()
    for text in request[CONDITION].split(" AND "):
        plain = re.sub(r"#\d+", lambda placeholder: names[placeholder[0]], text)
        yield text, f"{asked_by}: {action.lower()} in {_table(request)} if {_nameless(plain)}"


def _nameless(text: str) -> str:
    return re.sub(r"([:#][a-z]*)\d+", r"\1", text).replace(" (", "(")


def _table(request: dict[str, Any]) -> str:
    return str(request["TableName"]).rpartition("-")[2]


def _asked_by() -> str:
    """The store's method in which we are: the outermost of its functions around us."""
    name, frame = "", sys._getframe(1)
    while frame.f_back and (not name or _is_store(frame.f_back)):
        frame = frame.f_back
        if _is_store(frame):
            name = frame.f_code.co_qualname
    return name.lower()


def _is_store(frame: FrameType) -> bool:
    return _STORE in frame.f_code.co_filename.replace("\\", "/")


def _rewrite(request: dict[str, Any], condition: str) -> None:
    """Replace the condition of a request; values that are no longer used go, since the store refuses them."""
    if condition:
        request[CONDITION] = condition
    else:
        del request[CONDITION]
    names = {name for each in _EXPRESSIONS for name in _NO_VALUE.findall(request.get(each, ""))}
    for field in ("ExpressionAttributeValues", "ExpressionAttributeNames"):
        if field in request:
            request[field] = {name: value for name, value in request[field].items() if name in names}
            if not request[field]:
                del request[field]
