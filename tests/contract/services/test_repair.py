"""Tables are restored to different times: what does not fit together is found and put right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from chalicelib.domain.errors import NotFound
from chalicelib.domain.ladder import Retry
from chalicelib.domain.status import Status
from chalicelib.domain.times import HOUR_MS, SECOND_MS
from chalicelib.domain.topic import Group, cursor_key
from chalicelib.domain.transaction import TransactionState
from chalicelib.functions import checkpoint, sweep
from chalicelib.services.consume.settle import Nack
from chalicelib.services.manage.repair import Finding, Kind
from chalicelib.services.produce.transactions import Checks
from chalicelib.store.attributes import Item
from chalicelib.store.layout import KEYS
from chalicelib.wiring import Deps
from tests.functional.day.conftest import log_to_stdout
from tests.support import factories as make
from tests.support.damage import Damage
from tests.support.desk import Desk, records
from tests.support.stages import Stage

SOON = Nack(delay_ms=HOUR_MS)
BURY = Nack(dead_letter=True)
FOUND: dict[str, set[tuple[Kind, int | None, int, int, int]]] = {
    "log": {
        (Kind.LOG_BEHIND, 0, 3, 4, 1),  # offset 4 is leased, and gone
        (Kind.LOG_BEHIND, None, 0, 1, 0),
    },
    "records": {(Kind.NO_TIMER, 0, 2, 1, 0), (Kind.NO_RECORD, 0, 5, 1, 0)},
    "timers": {(Kind.NO_TIMER, 0, 5, 1, 0)},
    "transactions": {(Kind.NO_CHECK, None, 0, 1, 0)},
}
"""By the table that is older than the others: kind, shard, offset, count and how many were lost."""


def rewound(stage: Stage, table: str, rows: Sequence[Item] = ()) -> None:
    Damage(stage).rewind(table, rows)


def repaired(deps: Deps, desk: Desk, *, dry: bool = False) -> list[Finding]:
    return [*deps.repair.topic(desk.topic, dry=dry), *deps.repair.retries(dry=dry)]


def as_told(findings: Sequence[Finding]) -> set[tuple[Kind, int | None, int, int, int]]:
    return {(each.kind, each.shard, each.offset, each.count, each.lost) for each in findings}


def pass_hours(desk: Desk, hours: int) -> None:
    for _ in range(hours):
        desk.stage.clock.advance(HOUR_MS)
        desk.deps.mover.run_once()


def bodies(desk: Desk, group: Group) -> set[bytes]:
    """What the group gets from now on, in all time."""
    found: set[bytes] = set()
    for _ in range(6):
        while messages := desk.receive(group, 100):
            found |= {each.message.draft.body for each in messages}
            assert set(desk.ack(group, messages)) == {None}
        pass_hours(desk, 1)
    return found


def before_the_backup(desk: Desk, group: Group) -> str:
    """Of three messages the last waits for a retry; one is prepared: its transaction."""
    desk.produce(*make.drafts(3))
    assert desk.nack(group, desk.receive(group, 3)[2:], SOON) == [None]
    half, _ = desk.deps.transactor.prepare(desk.topic, make.draft("half"), Checks(), delay_from_commit=False)
    return half.id


def after_the_backup(desk: Desk, group: Group, half: str) -> None:
    """The retry succeeds. Of four more messages one is leased, one waits for a retry and one is dead."""
    pass_hours(desk, 1)
    desk.deps.transactor.decide(desk.deps.transactor.find(half), TransactionState.ROLLED_BACK)
    assert sorted(desk.drain(group)) == [0, 1, 2]
    desk.produce(*make.drafts(4))
    first, _, third, fourth = desk.receive(group, 4, lease=7200)
    assert desk.ack(group, [first]) == [None]
    assert desk.nack(group, [third], Nack(delay_ms=3 * HOUR_MS)) == [None]
    assert desk.nack(group, [fourth], BURY) == [None]


@pytest.mark.parametrize("table", KEYS)
def test_one_table_is_older_than_the_others(empty_stage: Stage, table: str) -> None:
    desk = Desk.at(empty_stage, retry=Retry(5, (1,), jitter=0.0))
    group, slow = desk.group(), desk.group("slow")
    half = before_the_backup(desk, group)
    backup = Damage(empty_stage).rows(table)
    after_the_backup(desk, group, half)
    rewound(empty_stage, table, backup)

    deps = empty_stage.process()
    looked = as_told(repaired(deps, desk, dry=True))
    assert looked == FOUND.get(table, set())
    assert as_told(repaired(deps, desk)) == looked, "to look changes nothing"
    assert repaired(empty_stage.process(), desk) == []

    fresh = Desk(empty_stage, empty_stage.process(), desk.topic)
    new = make.drafts(3, tag="new")
    places = fresh.produce(*(replace(draft, body=b'"new %d"' % n) for n, draft in enumerate(new)))
    assert min(place.offset or 0 for place in places) >= 7
    wanted = {b'"new 0"', b'"new 1"', b'"new 2"'}
    waiting = {"log": set(), "cursors": {0, 1, 2, 3}}.get(table, {1, 2})  # bodies of offsets 4 and 5
    got = bodies(fresh, group)
    assert wanted <= got
    assert {b'{"n":%d}' % n for n in waiting} <= got, "what was owed is still delivered"
    assert wanted <= bodies(fresh, slow), "also to who stands below the gap"


def test_a_retry_that_has_lost_its_message_becomes_a_dead_letter(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    group = desk.group()
    desk.produce(*make.drafts(2))
    desk.nack(group, desk.receive(group, 2), SOON)
    rewound(empty_stage, "timers")
    rewound(empty_stage, "log")
    findings = repaired(empty_stage.process(), desk)
    gone = [(each.kind, each.offset, each.lost) for each in findings if each.kind is not Kind.LOG_BEHIND]
    assert gone == [(Kind.NO_MESSAGE, 0, 1), (Kind.NO_MESSAGE, 1, 1)]
    assert {each.status for each in records(desk, group).values()} == {Status.DEAD}
    assert empty_stage.adapters.records.count_dead(desk.topic.uid, group.uid).number == 2
    assert repaired(empty_stage.process(), desk) == []


def test_a_dead_letter_that_no_person_deleted_comes_back(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage)
    group = desk.group()
    desk.produce(*make.drafts(2))
    desk.nack(group, desk.receive(group, 2), BURY)
    key, store = cursor_key(desk.topic, group, 0), empty_stage.adapters.records
    lost, deleted = store.dead_letter(key, 0), store.dead_letter(key, 1)
    assert lost
    assert deleted
    assert store.discard(lost)
    desk.deps.dead_letters.discard(desk.topic, group, deleted)
    findings = repaired(empty_stage.process(), desk)
    assert [(each.kind, each.offset) for each in findings] == [(Kind.NO_LETTER, 0)]
    assert store.dead_letter(key, 0) == lost
    assert store.dead_letter(key, 1) is None


def test_a_lane_that_is_longer_than_a_page_is_read_to_its_end(empty_stage: Stage) -> None:
    """Each row of it has two messages: of the first three one is settled, and the record of that is lost."""
    desk = Desk.at(empty_stage, retry=Retry(5, (1,), jitter=0.0))
    group = desk.group()
    for n in range(105):
        desk.produce(*make.drafts(2, tag=str(n)))
        desk.nack(group, desk.receive(group, 2), SOON)
        empty_stage.clock.advance(SECOND_MS)
    empty_stage.clock.advance(HOUR_MS - 105 * SECOND_MS)
    for _ in range(105):
        desk.deps.mover.run_once()
        empty_stage.clock.advance(SECOND_MS)
    backup = Damage(empty_stage).rows("records")
    *_, third = desk.receive(group, 3, lease=600)
    assert desk.ack(group, [third]) == [None]
    assert repaired(empty_stage.process(), desk, dry=True) == []
    rewound(empty_stage, "records", backup)
    findings = repaired(empty_stage.process(), desk, dry=True)
    assert [(each.kind, each.offset) for each in findings] == [(Kind.NO_TIMER, third.message.offset)]


def test_all_tokens_but_one_are_revoked(empty_stage: Stage) -> None:
    deps = empty_stage.process()
    mine, *others = [deps.tokens.create(f"t{n}", ("admin",))[0] for n in range(3)]
    with pytest.raises(NotFound):
        deps.audit_replay.revoke_all_but("another")
    assert deps.audit_replay.revoke_all_but(mine.id) == len(others)
    assert [token.id for token in empty_stage.adapters.control.tokens(None, 9)] == [mine.id]


def test_the_daily_check_comes_by_every_shard_in_a_month_and_is_cheap(empty_stage: Stage) -> None:
    desk = Desk.at(empty_stage, shards=4, retention_days=60)
    group = desk.group()
    desk.produce(*(make.draft(n, shard=n % 4) for n in range(8)))
    desk.nack(group, desk.receive(group, 8)[:3], SOON)
    pass_hours(desk, 1)
    assert len(desk.drain(group)) == 8
    rewound(empty_stage, "log")
    deps = empty_stage.process()
    found: set[tuple[Kind, int | None]] = set()
    for _ in range(120):
        empty_stage.clock.advance(6 * HOUR_MS)
        found |= {(each.kind, each.shard) for each in deps.checkpointer.run_once().findings}
    assert {(Kind.LOG_BEHIND, shard) for shard in (*range(4), None)} <= found

    sound = Desk.at(empty_stage, shards=4)
    owners = [(sound.group(), "")]
    sound.produce(*(make.draft(n, shard=n % 4) for n in range(8)))
    tails = [empty_stage.adapters.log.tail(sound.topic.shard_key(n)) for n in range(4)]
    with empty_stage.adapters.units() as units:
        assert [f for n in range(4) for f in deps.repair.look(sound.topic, owners, n, tails[n], 1)] == []
        of_topic = units.reads
        assert list(deps.repair.look_at_timers(1)) == []
        of_timers = units.reads - of_topic
    assert 1_000 / 30 * of_topic + 4 * of_timers <= 300


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def test_metrics_tell_of_a_log_behind_its_cursor_and_of_what_the_check_found(
    empty_stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stdout()
    desk = Desk.at(empty_stage)
    group = desk.group()
    desk.produce(*make.drafts(3))
    assert desk.drain(group) == [0, 1, 2]
    rewound(empty_stage, "log")
    deps = Deps(replace(empty_stage.another(), stage="prod"))
    Desk(empty_stage, deps, desk.topic).produce(make.draft("below"))
    deps.adapters.marks.note_moving(desk.topic.name)
    sweep(_Context(), deps)
    told = capsys.readouterr().out
    assert '"LogBehind":[1' in told.replace(" ", "")
    assert '"cursor":3' in told.replace(" ", "")
    for _ in range(120):
        empty_stage.clock.advance(6 * HOUR_MS)
        checkpoint({}, _Context(), deps)
    assert '"Findings":[1' in capsys.readouterr().out.replace(" ", "")
