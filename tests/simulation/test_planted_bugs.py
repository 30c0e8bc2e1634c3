"""Bugs that real queues have had, planted one at a time: a few seeds must see each."""

from __future__ import annotations

import pytest

from chalicelib.domain import cursor_transitions as transitions
from chalicelib.domain import ids
from chalicelib.modes.serial import Serial
from chalicelib.scheduler import mover
from chalicelib.scheduler.sweeper import Sweeper
from chalicelib.services.consume import claim_plan
from chalicelib.services.consume.claim_plan import ClaimPlanner
from chalicelib.services.consume.lease_settlement import LeaseSettlement
from chalicelib.services.core.rate_limiter import RateLimits
from chalicelib.services.inspect import surveyor
from chalicelib.services.inspect.lookup import Filters
from chalicelib.services.inspect.surveyor import Surveyor
from chalicelib.services.manage import admin
from chalicelib.services.produce.check_back import Checker
from chalicelib.services.produce.delayed import Delayed
from chalicelib.services.produce.due import Due
from chalicelib.services.produce.transactions import Transactor
from chalicelib.services.push.calls import Calls
from chalicelib.services.push.claims import Claims
from chalicelib.store import cursors, log, records, timers
from chalicelib.store.log import Log
from chalicelib.store.timers import Timers
from chalicelib.store.transactions import Transactions
from tests.simulation.judge import play
from tests.simulation.plan import plan_of_flow, plan_of_seeks
from tests.simulation.seeds import assert_seen
from tests.support.planting import Bug, names_of

SEEDS = (4, 7, 15, 2, 1, 3, 5, 0, 19, 20, 22, 27, 58, 90, 191, 337, 487, *range(400))
"""Those that see most of them, in a short time, go first."""

_UNDER_ANOTHER_NAME = ("entry.dedup_id)", "entry.dedup_id + entry.message_id)")
_OLD_OR_NOT = '"Item": {**_item(new), "e": number(old.version + 1)}'

BUGS: dict[str, Bug] = {
    "a settlement without its fence": Bug(
        cursors,
        "_expressions",
        'f"{paths[t]} = {value(text(lease_text(old)))}" for t, old in change.expected_leases',
        "'attribute_exists(e)' for t, old in change.expected_leases",
    ),
    "a claim without its epoch": Bug(
        cursors, "_expressions", 'f"e = {value(number(change.known_epoch))}"', "'attribute_exists(e)'"
    ),
    "a mover that does not delete": Bug(Log, "_move", "[timer_delete(tables, promotable)]", "[]"),
    "a redrive that does not delete": Bug(
        records, "letter_move", '"Delete"', '"ConditionCheck"', ("chalicelib.store.log",)
    ),
    "attempt numbers that begin again in the lane": Bug(
        claim_plan, "attempts_before", "draft.origin.attempts if draft.origin else 0", "0"
    ),
    "a retry that is due a second early": Bug(
        transitions, "due_spans", "s.due_ms <= now_ms", "s.due_ms <= now_ms + 1000"
    ),
    "a unit that its dead message never lets go": Bug(
        Serial, "select", "settled_ranges.append((offset, offset + 1))\n", "grants.stop(unit)\n"
    ),
    "an expired lease that nobody takes back": Bug(
        transitions, "lapse", "lease.deadline_ms <= now_ms]", "lease.deadline_ms <= 0]"
    ),
    "a lease that is over a little too early": Bug(
        transitions, "lapse", "overdue = [", "now_ms += 3000\n    overdue = ["
    ),
    "a dedup id that is not remembered": Bug(log, "dedup_put", *_UNDER_ANOTHER_NAME),
    "a sweeper that does not see the last message": Bug(
        Sweeper, "_owner", "> cursor.next", "> cursor.next + 1"
    ),
    "an attempt that waited too long for its thread": Bug(
        Calls, "_send", "waited_ms > ", "waited_ms > 1000 * "
    ),
    "a failure that is forgotten when its timer should be filed": Bug(
        LeaseSettlement, "_write", "[step.timer for step in steps if step.timer]", "[]"
    ),
    "a mover that appends, and then deletes": Bug(
        Due,
        "append",
        "messages = [message for message in self.producer.move(home, members) if message]",
        "drafts = [replace(draft, due_ms=None, dedup_id=None) for _, draft in members]\n"
        "    messages = self.producer.produce(home, drafts)\n"
        "    if any(not hasattr(message, 'shard') for message in messages):\n"
        "        return 0\n"
        "    self.timers.drop(timers)",
    ),
    "a mover that takes what is nearly due": Bug(
        mover.MoverRun, "_move_due", "if timer.due_ms <= now_ms]", "]"
    ),
    "a mover that is seconds late": Bug(
        Timers, "first_due", "{until_ms + 1:015d}", "{until_ms - 4_999:015d}"
    ),
    "a mover that writes what was edited meanwhile": Bug(
        timers,
        "_if_unchanged",
        "if not timer.edits:",
        "if True:\n        return {'ConditionExpression': 'attribute_exists(f)'}\n    if not timer.edits:",
    ),
    "a postponed message that stays at its first time, too": Bug(
        Timers, "amend", "timer_delete(self._tables, old),", ""
    ),
    "a cancel that does not ask whether the timer is there": Bug(
        Timers,
        "cancel",
        "timer_delete(tables, timer)",
        '{"Delete": {"TableName": self._table, "Key": key_of(self._tables, timer)}}',
    ),
    "a dedup id looked up after the append": Bug(
        Log,
        "put",
        'actions = [{"Put": request}, ',
        'self._dynamo.call("put_item", **request)\n'
        '            there = {"Key": segment_key(shard, segment.first), "TableName": self._table}\n'
        '            actions = [{"ConditionCheck": there | {"ConditionExpression": "attribute_exists(o)"}}, ',
    ),
    "a dedup id that delayed messages forget": Bug(timers, "dedup_put", *_UNDER_ANOTHER_NAME),
    "a decision whatever was decided": Bug(
        Transactions,
        "change",
        "transaction_write(self._dynamo.tables, old, new)",
        f'{{"Put": {{"TableName": self._table, {_OLD_OR_NOT}}}}}',
    ),
    "a check that is believed after the decision": Bug(
        Transactor,
        "decide",
        "if transaction.state in states.DECIDED:",
        "if transaction.state in states.DECIDED and not (answer and transaction.state is not decision):",
    ),
    "a check that is made after the decision": Bug(
        Checker,
        "_check",
        "transaction is None or transaction.state is not TransactionState.PREPARED",
        "transaction is None",
    ),
    "a transaction that nobody checks": Bug(
        Transactions,
        "prepare",
        'self._dynamo.put(tables.timers, [timer_put(tables, check_timer(transaction))["Put"]["Item"]])',
        "pass",
    ),
    "a check too many": Bug(Checker, "_conclude", "new.checks >= MAX_CHECKS", "new.checks > MAX_CHECKS"),
    "a check that nobody counts": Bug(
        Checker,
        "_conclude",
        "states.answered(transaction, answer)",
        "replace(states.answered(transaction, answer), checks=transaction.checks)",
    ),
    "names in a line that do not sort by their turns": Bug(
        ids,
        "sequence_name",
        "base32(sequence).zfill(REQUEST_ID_CHARS) + random",
        "random + base32(sequence).zfill(REQUEST_ID_CHARS)",
    ),
    "keys that move when their topic grows": Bug(
        admin,
        "_default_key_shards",
        'old.shards_of_keys if settings.get("shards", old.shards) > old.shards else old.key_shards',
        "None",
    ),
    "dead letters that count as passed over": Bug(
        ClaimPlanner,
        "_plan",
        "skipped=ranges.total(selection.settled) - len(records)",
        "skipped=ranges.total(selection.settled)",
    ),
    "what waits in its cursor, left out of the count": Bug(
        surveyor, "account", "retrying=tried_count + retrying_count", "retrying=retrying_count"
    ),
    "a list that goes by the state over all groups": Bug(
        Filters,
        "passes",
        "status = look(self.group)",
        "status = look(self.group) and look(None)",
    ),
    "a retry of before a seek that is still counted": Bug(
        Surveyor, "exact_group", "if each.timed or each.status != Status.RETRYING", "if True"
    ),
    "an extension that is answered, and forgotten": Bug(
        LeaseSettlement, "_extend", "lease.deadline_ms == until_ms", "lease.deadline_ms <= until_ms"
    ),
    "a bound on what is under way that each shard has": Bug(
        Claims, "_within_bounds", "if unsure <= 0:", "if unsure or True:"
    ),
    "a waiting message that is not there while its time is changed": Bug(
        Delayed,
        "_find_with_due_ms",
        "if forward is None or forward == previous:",
        "if forward is None or previous is None:",
    ),
}

SOUGHT: dict[str, Bug] = {
    "a letter from before a seek, counted beside its message": Bug(
        surveyor, "account", "if offset_state(cursor, offset)[0] is OffsetState.SETTLED", ""
    ),
}
"""Seen where somebody counts all the time beside seeks."""

FLOW: dict[str, tuple[int, Bug]] = {
    "a shard that does not look at what the lane has leased": (
        14,
        Bug(transitions, "beside_lane", "in_lane=1", "in_lane=0"),
    ),
    "claims that ask for no permits": (
        0,
        Bug(RateLimits, "permits", "if group.rate_limit is None", "if True"),
    ),
}
"""With a seed of those whose flow is controlled."""


FIRST = {
    "an attempt that waited too long for its thread": (0,),
    "what waits in its cursor, left out of the count": (0,),
    "a list that goes by the state over all groups": (20, 0),
    "a sweeper that does not see the last message": (1, 3),
    "a unit that its dead message never lets go": (1, 3),
    "a mover that takes what is nearly due": (14, 30, 40),
    "a retry of before a seek that is still counted": (487,),
    "a mover that appends, and then deletes": (27, 34, 40),
    "an extension that is answered, and forgotten": (133,),
    "a bound on what is under way that each shard has": (839, 1015),
    "a waiting message that is not there while its time is changed": (2, 14),
    "a retry that is due a second early": (24, 32, 54),
    "a check that is made after the decision": (25, 11, 15),
    "keys that move when their topic grows": (16, 30, 7),
    "a failure that is forgotten when its timer should be filed": (9, 4, 15),
}
"""The seeds that see what few worlds see, or what those of `SEEDS` see late."""

SLOW = {
    "a mover that writes what was edited meanwhile",
    "a check that is believed after the decision",
    "a decision whatever was decided",
    "a cancel that does not ask whether the timer is there",
    "a mover that does not delete",
    "a dedup id that delayed messages forget",
    "a dedup id that is not remembered",
}
"""Seen only after many worlds, or in the longest: in the soak."""


@pytest.mark.parametrize("name", names_of(BUGS, soak=SLOW))
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seeds = (*FIRST.get(name, ()), *SEEDS)
    assert_seen(BUGS[name], lambda seed: play(seed)[1], seeds, monkeypatch)


@pytest.mark.parametrize("name", SOUGHT)
def test_a_planted_bug_is_seen_beside_seeks(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    SOUGHT[name].plant(monkeypatch)
    assert any(play(seed, plan_of_seeks(seed))[1] for seed in range(20))


@pytest.mark.parametrize("name", FLOW)
def test_a_planted_bug_is_seen_where_flow_is_controlled(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seed, bug = FLOW[name]
    bug.plant(monkeypatch)
    assert play(seed, plan_of_flow(seed))[1]
