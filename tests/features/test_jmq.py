"""Rows of docs/features/jmq.md that no other test shows."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

from headrace import Outgoing
from headrace.testing import LocalHeadrace, Push


def test_a_stored_message_says_what_it_is_and_where_it_stands(headrace: LocalHeadrace) -> None:
    headrace.put_topic("orders", shards=2)
    before = headrace.clock.now()
    message = Outgoing(
        body={"order": 188},
        key="order-188",
        tag="paid",
        ordering_key="customer-7",
        headers={"app": "shop", "sent-at": "2026-11-22T09:00:00.000Z"},
    )
    (receipt,) = headrace.send_many("orders", [message])
    assert not isinstance(receipt, Exception)
    stored_message = headrace.get_message("orders", receipt.id)
    assert (stored_message.topic, stored_message.shard, stored_message.offset) == (
        "orders",
        receipt.shard,
        receipt.offset,
    )
    assert (stored_message.keys, stored_message.tag, stored_message.ordering_key) == (
        ["order-188"],
        "paid",
        "customer-7",
    )
    assert stored_message.headers == message.headers
    assert stored_message.size == len(json.dumps(message.body, separators=(",", ":")))
    assert stored_message.accepted_at is not None
    assert timedelta() <= stored_message.accepted_at - before < timedelta(minutes=5)
    (event,) = headrace.get_trace("orders", receipt.id)
    assert event.event == "accepted"
    assert event.by is not None
    assert event.by.name, "the name of the token that sent it"


def test_a_group_works_beside_itself_in_batches(headrace: LocalHeadrace) -> None:
    headrace.put_topic("orders", shards=1)
    headrace.put_group(
        "orders", "shelves", begin="earliest", payload="batch", batch_size=10, max_in_flight=20
    )
    headrace.send_many("orders", range(40))
    under_way: list[int] = []
    most = 0
    lock, beside = threading.Lock(), threading.Event()

    def answer(push: Push) -> int:
        nonlocal most
        with lock:
            under_way.append(len(push.body))
            most = max(most, sum(under_way))
            if len(under_way) > 1:
                beside.set()
        beside.wait(30)
        with lock:
            under_way.remove(len(push.body))
        return 204

    with headrace.subscriber("orders", "shelves", answer) as subscriber:
        headrace.expect("orders", "shelves", within=30).delivered(40)
    assert beside.is_set(), "two requests at a time"
    assert most <= 20
    assert max(len(push.body) for push in subscriber.pushes) == 10


def test_urgent_messages_do_not_wait_behind_a_backlog(headrace: LocalHeadrace) -> None:
    headrace.put_topic("mails", priorities=2)
    headrace.put_group("mails", "sender", begin="earliest")
    headrace.send_many("mails", [f"newsletter {n}" for n in range(50)])
    headrace.send("mails", "new password", priority=0)
    (message,) = headrace.receive("mails", "sender", max=1)
    assert (message.body, message.priority) == ("new password", 0)
