"""A dead letter is found and sent again whatever became of the transaction that it came from."""

from __future__ import annotations

import pytest

from chalicelib.services.consume.settle import Nack
from chalicelib.wiring import Deps
from tests.support import factories as make
from tests.support.damage import NEWER, Change, change_transaction, having
from tests.support.desk import Desk
from tests.support.stages import Stage
from tests.support.transacting import COMMIT, decide, prepare


@pytest.mark.parametrize("damage", [NEWER, having("m", {"S": "?"})], ids=["newer", "damaged"])
def test_a_dead_letter_whose_transaction_cannot_be_read_is_found_and_sent_again_beside_others(
    stage: Stage, damage: Change
) -> None:
    desk = Desk.at(stage)
    group = desk.group()
    transaction = prepare(desk)
    decide(desk.deps, transaction, COMMIT)
    plain = desk.produce(make.draft("plain"))[0].id
    while messages := desk.receive(group, 10):
        desk.nack(group, messages, Nack(dead_letter=True, reason="no such account"))
    change_transaction(stage, transaction.id, damage)
    deps = Deps(stage.another())
    found = deps.letter_lookup.letters_of(desk.topic, group, [transaction.message_id, plain])
    assert {letter.message.id for letter in found} == {transaction.message_id, plain}
    assert deps.dead_letters.redrive(desk.topic, group, found) == 2
