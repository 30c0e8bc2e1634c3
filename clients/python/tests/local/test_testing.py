"""`headrace.testing`: a service of one's own, time in the hand, expectations that hold or say what there is."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import AsyncHeadrace, Bury, Headrace, Message, Retry
from headrace.testing import LocalHeadrace, Push, service

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def _topic(headrace: LocalHeadrace) -> None:
    headrace.put_topic("orders", retry={"max_attempts": 3, "ladder": [60, 600]})


def test_consumers_work_when_the_test_says_so(headrace: LocalHeadrace) -> None:
    bodies = []

    @headrace.consumer("orders", group="mailer")
    def mail(message):
        bodies.append(message.body)

    headrace.send_many("orders", [1, 2, 3])
    assert len(headrace.drain()) == 3
    assert sorted(bodies) == [1, 2, 3]
    headrace.expect("orders").accepted(3).delivered(3).retried(0).dead(0).empty()


def test_consumers_of_the_code_under_test_find_the_service(headrace: LocalHeadrace) -> None:
    with Headrace.from_env() as hr:

        @hr.consumer("orders", group="mailer")
        def mail(message): ...

        hr.send("orders", 1)
        headrace.drain(hr)
    headrace.expect("orders", group="mailer").delivered(1)


def test_async_handlers_share_one_loop_also_where_the_test_has_its_own(headrace: LocalHeadrace) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    hr = AsyncHeadrace(headrace.transport.urls[0], headrace.transport.token)

    @hr.consumer("orders", group="mailer")
    async def mail(message: Message) -> None:
        loops.append(asyncio.get_running_loop())

    async def main() -> None:
        headrace.send("orders", 1)
        headrace.drain(hr)

    asyncio.run(main())
    headrace.send("orders", 2)
    headrace.drain(hr)
    headrace.expect("orders").delivered(2)
    assert loops[0] is loops[1]


def test_retries_come_at_their_time(headrace: LocalHeadrace) -> None:
    @headrace.consumer("orders", group="mailer")
    def mail(message):
        if message.attempt < 3:
            raise ValueError("no post today")

    headrace.send("orders", 1)
    headrace.drain()
    headrace.expect("orders").retrying(1).delivered(0)
    headrace.clock.advance(minutes=2)
    assert [verdict.reason for verdict in headrace.drain()] == ["ValueError: no post today"]
    headrace.clock.advance(minutes=20)
    headrace.drain()
    headrace.expect("orders").delivered(1).retried(1).empty()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_drain_tries_a_handler_again_at_once_as_a_run_does(headrace: LocalHeadrace, is_async: bool) -> None:
    attempts: list[int] = []

    def mail(message: Message) -> None:
        attempts.append(message.attempt)
        if len(attempts) < 3:
            raise ValueError("no post today")

    async def mail_later(message: Message) -> None:
        mail(message)

    headrace.consumer("orders", group="mailer", local_retries=2)(mail_later if is_async else mail)
    headrace.send("orders", 1)
    assert [verdict.ack for verdict in headrace.drain()] == [True]
    assert attempts == [1, 1, 1]
    headrace.expect("orders").delivered(1).retried(0)


def test_a_drain_does_not_try_again_at_once_what_says_when_or_never(headrace: LocalHeadrace) -> None:
    @headrace.consumer("orders", group="mailer", local_retries=2)
    def mail(message: Message) -> None:
        raise Bury("no such customer") if message.body == "bury" else Retry("1h")

    headrace.send_many("orders", ["bury", "retry"])
    assert sorted(verdict.name for verdict in headrace.drain()) == ["bury", "retry"]


def test_a_drain_ends_an_async_handler_whose_time_is_over_as_a_run_does(headrace: LocalHeadrace) -> None:
    @headrace.consumer("orders", group="mailer", max_runtime=0.01)
    async def mail(message: Message) -> None:
        await asyncio.wait([asyncio.ensure_future(asyncio.Event().wait())], timeout=5)

    headrace.send("orders", 1)
    (verdict,) = headrace.drain()
    assert (verdict.ack, (verdict.reason or "").partition(":")[0]) == (False, "TimeoutError")
    headrace.expect("orders").retrying(1)


def test_a_drain_leaves_to_the_handler_what_it_acknowledges_itself(headrace: LocalHeadrace) -> None:
    kept: list[Message] = []

    @headrace.consumer("orders", group="mailer", auto_ack=False)
    def mail(message: Message) -> None:
        if message.body == "bad":
            raise Bury("no such customer")
        kept.append(message)

    headrace.send_many("orders", ["good", "bad"])
    assert sorted(verdict.name for verdict in headrace.drain()) == ["ack", "bury"]
    headrace.expect("orders").delivered(0).dead(1)
    headrace.ack("orders", "mailer", *kept)
    headrace.expect("orders").delivered(1).empty()


def test_what_is_buried_is_dead(headrace: LocalHeadrace) -> None:
    @headrace.consumer("orders", group="mailer")
    def mail(message):
        raise Bury("no such customer")

    headrace.send("orders", 1)
    headrace.drain()
    headrace.expect("orders").dead(1).dead(1, reason="REJECTED").dead(0, reason="EXPIRED")
    assert [letter.last_error for letter in headrace.expect("orders").dead_letters()] == ["no such customer"]


def test_a_retry_at_once_ends_with_the_attempts(headrace: LocalHeadrace) -> None:
    @headrace.consumer("orders", group="mailer")
    def mail(message):
        raise Retry(0)

    headrace.send("orders", 1)
    assert len(headrace.drain()) == 3
    headrace.expect("orders").dead(1, reason="ATTEMPTS_EXHAUSTED")


def test_delays_count_from_the_services_time(headrace: LocalHeadrace) -> None:
    headrace.put_group("orders", "mailer", begin="earliest")
    headrace.clock.advance(days=3)
    headrace.send("orders", 1, delay="30m")
    headrace.expect("orders").delayed(1)
    headrace.clock.advance(minutes=29)
    headrace.expect("orders").delayed(1)
    headrace.clock.advance(minutes=1, seconds=1)
    headrace.expect("orders").delayed(0).accepted(1)


@pytest.mark.parametrize("step", [0.2, 0.5, 1.4])
def test_a_part_of_a_second_passes_as_a_whole_one(headrace: LocalHeadrace, step: float) -> None:
    start = headrace.clock.now()
    assert headrace.clock.advance(seconds=step) >= start + timedelta(seconds=step)


def test_time_goes_forward_only(headrace: LocalHeadrace) -> None:
    with pytest.raises(ValueError, match="forward only"):
        headrace.clock.advance(days=-1)


def test_pushes_have_ended_when_they_are_looked_for(headrace: LocalHeadrace) -> None:
    def answer(push: Push) -> int:
        return 500 if push.headers["headrace-attempt"] == "1" else 204

    with headrace.subscriber("orders", "shop", answer) as shop:
        headrace.send("orders", {"order": 188})
        headrace.expect("orders").retrying(1)
        headrace.clock.advance(minutes=2)
        headrace.expect("orders").delivered(1)
        assert [push.body for push in shop.pushes] == [{"order": 188}] * 2


@pytest.mark.parametrize("answer", [None, "204", 2**20])
def test_a_subscriber_whose_answer_is_no_status_answers_500(
    headrace: LocalHeadrace, capfd: pytest.CaptureFixture[str], answer: object
) -> None:
    with headrace.subscriber("orders", "shop", lambda push: answer) as shop:  # type: ignore[arg-type, return-value]
        headrace.send("orders", 1)
        headrace.clock.settle()
        assert len(shop.pushes) == 1
        (attempt,) = headrace.get_attempts("orders", "shop", "test").items
    assert attempt.detail == "HTTP 500"
    assert capfd.readouterr().err == ""


def test_order_is_that_of_the_attempts(headrace: LocalHeadrace) -> None:
    headrace.put_group("orders", "mailer", begin="earliest", mode="serial")

    @headrace.consumer("orders", group="mailer")
    def mail(message): ...

    for number in (1, 2, 3):
        headrace.send("orders", number, ordering_key="k")
        headrace.drain()
    headrace.expect("orders").in_order(1, 2, 3)
    with pytest.raises(AssertionError, match=r"\[1, 2, 3\] delivered, in this order, expected \[1, 3, 2\]"):
        headrace.expect("orders", within=0).in_order(1, 3, 2)


@pytest.mark.parametrize("group", ["mailer", None])
def test_a_group_that_another_thread_makes_is_waited_for(
    headrace: LocalHeadrace, monkeypatch: pytest.MonkeyPatch, group: str | None
) -> None:
    looked = threading.Event()

    def telling(method):
        def call(*args):
            answer = method(*args)
            looked.set()
            return answer

        return call

    def work() -> None:
        assert looked.wait(30)
        headrace.put_group("orders", "mailer")

    for name in ("get_topic", "list_groups"):
        monkeypatch.setattr(headrace, name, telling(getattr(headrace, name)))
    worker = threading.Thread(target=work)
    worker.start()
    headrace.expect("orders", group, within=30).delivered(0)
    worker.join()


def test_a_failure_tells_what_there_is(headrace: LocalHeadrace) -> None:
    headrace.put_group("orders", "mailer", begin="earliest")
    headrace.send("orders", 1)
    with pytest.raises(AssertionError) as failure:
        headrace.expect("orders", within=0).delivered(1)
    shown = [str(entry.path) for entry in failure.traceback.filter(failure)]
    assert shown == [__file__], "pytest shows the test's line"
    assert str(failure.value).splitlines() == [
        "orders, group mailer: 0 delivered, expected 1",
        "  orders: 1 accepted, 0 delayed",
        "  mailer: 0 delivered, 1 waiting, 0 in flight, 0 retrying, 0 dead",
    ]


def test_a_group_is_named_where_there_are_several(headrace: LocalHeadrace) -> None:
    for group in ("a", "b"):
        headrace.put_group("orders", group)
    with pytest.raises(AssertionError, match=r"2 groups \(a, b\): name one"):
        headrace.expect("orders").delivered(0)


@pytest.mark.parametrize("number", [1, 2])
def test_each_test_begins_with_nothing_at_the_machines_time(headrace: LocalHeadrace, number: int) -> None:
    headrace.expect("orders").accepted(0)
    headrace.send("orders", number)
    headrace.clock.advance(days=1)


def test_without_the_service_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(service.ServiceMissing, match="pip install headrace-local"), service.serving():
        pass


def test_the_page_about_testing_holds(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / "docs/testing.md").read_text(), re.DOTALL
    )
    assert [name for name, _ in blocks] == ["shop.py", "test_shop.py"]
    for name, code in blocks:
        (tmp_path / name).write_text(code)
    path = os.pathsep.join((str(ROOT), str(ROOT / "clients/python/src")))
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "headrace.testing.plugin", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert "3 passed" in process.stdout
