"""A transaction or topic that cannot be read is refused; the others are listed."""

from __future__ import annotations

import pytest

from chalicelib.domain.errors import Unavailable
from chalicelib.domain.transaction import Transaction, TransactionState
from chalicelib.services.inspect import prepared_list
from chalicelib.services.inspect.filters import Filters
from chalicelib.services.produce.transactions import Checks
from tests.support import factories as make
from tests.support.damage import NEWER, Change, change_control, change_transaction, having, without
from tests.support.desk import Desk
from tests.support.stages import Stage


@pytest.mark.parametrize("damage", [NEWER, without("q"), having("m", {"S": "?"})], ids=range(3))
def test_a_transaction_that_cannot_be_read_is_refused_and_the_others_are_listed(
    stage: Stage, damage: Change
) -> None:
    desk = Desk.at(stage)
    transactor, checks = desk.deps.transactor, Checks("https://example.com", 60)
    transactions = [transactor.prepare(desk.topic, make.draft(n, keys=("k",)), checks)[0] for n in range(3)]
    change_transaction(stage, transactions[1].id, damage)
    with pytest.raises(Unavailable, match="cannot be read"):
        transactor.find(transactions[1].id)
    readable = {transactions[0].message_id, transactions[2].message_id}
    prepared, _ = prepared_list.in_order(stage.adapters.transactions, desk.topic, Filters(), 10, None)
    assert {each.message_id for each in prepared} == readable
    with_key, _ = desk.deps.key_lookup.newest_first(desk.topic, "k", Filters(), 10, None)
    assert {each.message_id for each in with_key if isinstance(each, Transaction)} == readable
    ids = {
        transaction.id for transaction in transactor.of_state(desk.topic, TransactionState.PREPARED, None, 10)
    }
    assert {transactions[0].id, transactions[2].id} <= ids
    assert transactor.decide(transactions[2], TransactionState.COMMITTED).state is TransactionState.COMMITTED


@pytest.mark.parametrize(
    "damage",
    [having("v", {"N": "3"}), having("shards", {"S": "?"}), without("uid")],
)
def test_a_topic_that_cannot_be_read_is_left_out_of_the_list_of_all(stage: Stage, damage: Change) -> None:
    desks = sorted((Desk.at(stage) for _ in range(3)), key=lambda desk: desk.topic.name)
    name = desks[1].topic.name
    change_control(stage, "topics", name, damage)
    control = stage.adapters.control
    before = [topic.name for topic in control.topics(None, 1000)]
    assert name not in before
    assert {desks[0].topic.name, desks[2].topic.name} <= {*before}
    names: list[str] = []
    while page := control.topics(names[-1] if names else None, 1):
        names += [topic.name for topic in page]
    assert names == before, "a page is short at the end only"
    with pytest.raises(Unavailable, match="cannot be read"):
        control.topic(name)
    for job in (desks[0].deps.sweeper, desks[0].deps.expirer, desks[0].deps.checkpointer):
        job.run_once(lambda: True)
