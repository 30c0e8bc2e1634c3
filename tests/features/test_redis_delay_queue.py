"""Rows of docs/features/redis_delay_queue.md that no other test shows."""

from __future__ import annotations

import threading

import pytest
from headrace import Message, Retry
from headrace.errors import BadRequest, NotFound, Refused, ValidationFailed
from headrace.models import RetryFields
from headrace.testing import LocalHeadrace, Push


@pytest.fixture
def hr(headrace: LocalHeadrace) -> LocalHeadrace:
    headrace.put_topic("orders", retry={"max_attempts": 1000, "ladder": [3600], "jitter": 0})
    return headrace


def test_who_sends_does_not_wait_for_the_work(hr: LocalHeadrace) -> None:
    is_called, may_go_on = threading.Event(), threading.Event()

    def answer(push: Push) -> int:
        is_called.set()
        return 204 if may_go_on.wait(30) else 500

    with hr.subscriber("orders", "coupons", answer):
        message = hr.send("orders", {"order": 188})
        assert is_called.wait(30)
        assert hr.get_message("orders", message.id).deliveries["coupons"].status == "RUNNING"
        may_go_on.set()
        hr.expect("orders").delivered(1)


def test_what_is_due_comes_to_its_own_topic(hr: LocalHeadrace) -> None:
    hr.put_topic("parcels")
    for topic in ("orders", "parcels"):
        hr.put_group(topic, "g", begin="earliest")
        hr.send(topic, topic, delay="5s")
    hr.clock.advance(seconds=6)
    for topic in ("orders", "parcels"):
        assert [message.body for message in hr.receive(topic, "g")] == [topic]


def test_an_unpaid_order_is_closed_and_a_paid_one_is_not(hr: LocalHeadrace) -> None:
    orders = []

    @hr.consumer("orders", group="closer")
    def close(message: Message) -> None:
        orders.append(message.body["order"])

    for order in (188, 189):
        hr.send("orders", {"order": order}, key=f"order-{order}", dedup_id=f"close-{order}", delay="30m")
    (timer,) = hr.list_messages("orders", key="order-188")
    hr.cancel_message("orders", timer.id)  # it was paid
    hr.clock.advance(minutes=30, seconds=1)
    hr.drain()
    assert orders == [189]


def test_who_waits_for_a_refund_looks_again_and_again(hr: LocalHeadrace) -> None:
    looks: list[int] = []

    @hr.consumer("orders", group="refunds")
    def look(message: Message) -> None:
        looks.append(message.attempt)
        if message.attempt < 3:
            raise Retry(in_seconds=["5m", "20m"][message.attempt - 1])  # the bank has not decided yet

    hr.send("orders", {"refund": 7})
    counts = []
    for minutes in (0, 4, 2, 18, 4):
        hr.clock.advance(minutes=minutes)
        hr.drain()
        counts.append(len(looks))
    assert counts == [1, 1, 2, 2, 3]
    hr.expect("orders").delivered(1).empty()


def test_without_a_status_it_looks_again_in_growing_steps(hr: LocalHeadrace) -> None:
    steps: RetryFields = {"base_seconds": 600, "factor": 3, "cap_seconds": 7200}
    hr.put_topic("orders", retry={"ladder": "exponential", **steps, "max_attempts": 10, "jitter": 0})
    looks: list[int] = []

    @hr.consumer("orders", group="bank")
    def look(message: Message) -> None:
        looks.append(message.attempt)
        raise OSError("no status yet")

    hr.send("orders", {"refund": 7})
    hr.drain()
    for n, seconds in enumerate((600, 1800, 5400, 7200, 7200), start=1):
        hr.clock.advance(seconds=seconds - 120)
        hr.drain()
        assert len(looks) == n, "not yet"
        hr.clock.advance(seconds=121)
        hr.drain()
        assert len(looks) == n + 1


def test_what_nobody_takes_for_a_week_is_kept_and_taken_then(hr: LocalHeadrace) -> None:
    hr.put_topic("orders", retention_days=30)
    is_away = True

    def answer(push: Push) -> int:
        return 500 if is_away else 204

    with hr.subscriber("orders", "shop", answer) as shop:
        hr.put_group("orders", "shop", retry={"max_attempts": 1000, "ladder": [86_400]})
        message = hr.send("orders", {"order": 188})
        hr.clock.advance(days=8, hours=1)
        hr.expect("orders").retrying(1).dead(0)
        is_away = False
        hr.clock.advance(days=2)
        hr.expect("orders").delivered(1)
        numbers = [int(push.headers["headrace-attempt"]) for push in shop.pushes]
        assert numbers == list(range(1, len(numbers) + 1))
        assert 8 <= len(numbers) <= 10
        assert {push.headers["webhook-id"] for push in shop.pushes} == {message.id}


@pytest.mark.parametrize("blank", ["", "  "])
def test_neither_topic_nor_id_nor_url_may_be_blank(hr: LocalHeadrace, blank: str) -> None:
    hr.put_group("orders", "shop")
    with pytest.raises((NotFound, BadRequest, ValueError)):
        hr.send(blank, {"order": 188})
    with pytest.raises(ValidationFailed, match="dedup_id"):
        hr.send("orders", {"order": 188}, dedup_id=blank)
    with pytest.raises(Refused, match="TARGET_REFUSED"):
        hr.put_consumer("orders", "shop", "hook", url=blank)
    hr.expect("orders").accepted(0)


def test_an_id_of_ones_own_finds_the_job_and_cancels_it(hr: LocalHeadrace) -> None:
    hr.put_group("orders", "mailer", begin="earliest")
    message = hr.send("orders", {"order": 188}, dedup_id="job-188", delay="1h")
    (job,) = hr.list_messages("orders", dedup_id="job-188")
    assert (job.id, job.status) == (message.id, "DELAYED")
    hr.cancel_message("orders", job.id)
    hr.clock.advance(hours=2)
    assert hr.receive("orders", "mailer") == []
    again = hr.send("orders", {"order": 188}, dedup_id="job-188", delay="1h")
    assert (again.id != message.id, again.duplicate, again.status) == (True, False, "DELAYED")
