"""Editing and cancelling under every fault at every call (I1, I2, I20): all groups get the same, as was promised."""

from __future__ import annotations

import itertools

import pytest

from chalicelib.domain.errors import Unavailable
from chalicelib.domain.topic import Topic
from chalicelib.services.produce.appender import ProduceResult
from chalicelib.wiring import Deps
from tests.crash.points import FAULTS
from tests.support import factories as make
from tests.support.clock import ManualClock
from tests.support.faults import DEADLY, HARMLESS, WRITES, Death, Fault, FaultPlan
from tests.support.flows import SharedTables, chance

OLD, NEW = b'"old"', b'"new"'
_numbers = itertools.count()


def process(tables: SharedTables, plan: FaultPlan | None = None) -> Deps:
    return tables.deps(ManualClock(), chance("amending", next(_numbers)), plan)


def received(deps: Deps, topic: Topic, group: str) -> list[bytes]:
    consumer_group = deps.catalog.group(topic, group)
    return [d.message.draft.body for d in deps.receiver.receive(topic, consumer_group, None, 10, 0, 30)]


def tried(
    tables: SharedTables, what: str, fault: Fault | None, at: int
) -> tuple[FaultPlan, BaseException | None, list[list[bytes]]]:
    """Change the second of three messages with a fault at one call; how it ended, and what two groups then get, one
    in a process that had read all of them before, and one that had claimed nothing."""
    healthy = process(tables)
    topic, _ = healthy.admin.put_topic(make.uid("t"), {"shards": 1})
    for name in ("begun", "fresh"):
        healthy.admin.put_group(topic, name, {"begin": "earliest"})
    drafts = [make.draft(name) for name in ("first", "old", "last")]
    _, results, _ = healthy.producer.produce(topic, drafts)
    assert isinstance(results, ProduceResult)
    reader = process(tables)
    consumer_group = reader.catalog.group(topic, "begun")
    assert len(reader.receiver.receive(topic, consumer_group, None, 1, 0, 30)) == 1
    plan, error = FaultPlan(fault, at), None
    deps = process(tables, plan)
    try:
        message = deps.lookup.message(deps.catalog.topic(topic.name), results.id)
        if what == "edit":
            deps.amender.amend(topic, message, {"body": NEW})
        else:
            deps.amender.cancel(topic, message)
    except (Death, Exception) as exception:  # noqa: BLE001 - what may be raised is judged below
        error = exception
    bodies = [received(reader, topic, "begun"), received(process(tables), topic, "fresh")[1:]]
    return plan, error, bodies


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("what", ["edit", "cancel"])
def test_no_fault_at_any_call_of_a_change_breaks_a_promise(
    tables: SharedTables, what: str, fault: Fault
) -> None:
    expected = [NEW, b'"last"'] if what == "edit" else [b'"last"']
    healthy, _, _ = tried(tables, what, None, 0)
    for at in (at for at, note in enumerate(healthy.notes, 1) if fault in note.spoilt_by):
        plan, error, bodies = tried(tables, what, fault, at)
        assert plan.fired
        assert bodies[0] == bodies[1], f"call {at}: the groups differ"
        if error is None:
            assert bodies[0] == expected, f"call {at}: answered OK"
        else:
            assert bodies[0] in (expected, [OLD, b'"last"'])
            assert isinstance(error, Death if fault in DEADLY else Unavailable)
            assert fault not in HARMLESS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("before", ["nothing", "it waits", "it waits in another place", "it is due"])
def test_no_fault_at_any_call_of_a_put_loses_or_doubles_a_job(
    tables: SharedTables, before: str, fault: Fault
) -> None:
    def tried_put(
        fault: Fault | None, at: int, again: bool = False
    ) -> tuple[FaultPlan, BaseException | None, list[bytes]]:
        clock, plan, error = ManualClock(), FaultPlan(fault, at), None

        def client(plan: FaultPlan | None = None) -> Deps:
            return tables.deps(clock, chance("jobs", next(_numbers)), plan)

        def put(deps: Deps, value: str, key: str | None = None) -> None:
            draft = make.draft(value, due_ms=clock.now_ms() + 5_000, ordering_key=key)
            deps.named_jobs.put(deps.catalog.topic(topic.name), "job", draft, "token", lambda _: True)

        topic, _ = client().admin.put_topic(make.uid("t"), {"shards": 1})
        client().admin.put_group(topic, "g", {"begin": "earliest"})
        if before != "nothing":
            put(client(), "old")
        if before == "it is due":
            clock.advance(6_000)
            client().mover.run_once()
        try:
            put(client(plan), "new", "k" if before == "it waits in another place" else None)
        except (Death, Exception) as exception:  # noqa: BLE001 - what may be raised is judged below
            error = exception
        if again:
            put(client(), "new")
        clock.advance(6_000)
        client().mover.run_once()
        return plan, error, received(client(), topic, "g")

    healthy, _, _ = tried_put(None, 0)
    writes_and_some_reads = {at for at, call in enumerate(healthy.calls, 1) if call in WRITES or at % 4 == 0}
    for at in (at for at in writes_and_some_reads if fault in healthy.notes[at - 1].spoilt_by):
        again = at % 2 == 1
        plan, error, bodies = tried_put(fault, at, again)
        assert plan.fired
        unheard = [] if before == "nothing" else [OLD]
        assert bodies in ([[NEW]] if again or error is None else [unheard, [NEW]]), f"call {at}"
        assert error is None or isinstance(error, Death if fault in DEADLY else Unavailable)
        assert error is None or fault not in HARMLESS
