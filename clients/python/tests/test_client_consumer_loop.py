"""One consumer against a service in a few lines: each rule of its loop by itself, without waiting."""

from __future__ import annotations

import asyncio
import queue
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from scripted_service import BUSY, Service, ignored, message

from headrace import Bury, Message, Retry, errors
from headrace import client as client_module
from headrace.calls import encode
from headrace.consume import holdings as holdings_module
from headrace.consume import settling as settling_module
from headrace.consume.consumer import Consumer
from headrace.consume.handlers import bound
from headrace.consume.holdings import Holdings
from headrace.consume.outcomes import ACK, Verdict, verdict_of
from headrace.consume.settings import ConsumerSettings
from headrace.consume.settling import SettleQueue
from headrace.models import Received


def nack(
    *names: str, delay: int | None = None, is_dead: bool = False, reason: str | None = None
) -> tuple[Any, ...]:
    options = {"delay": delay, "dead_letter": is_dead, "reason": reason, "untried": False}
    return ("nack", *names, options)


def test_what_comes_after_a_stop_is_given_back_untried_at_once() -> None:
    ids: list[str] = []
    service = Service([message("a"), message("b")]).run(lambda m: ids.append(m.id))
    assert ids == []
    options = {"delay": None, "dead_letter": False, "reason": None, "untried": True}
    assert [call[-1] for call in service.settled] == [options] * len(service.settled)
    assert [name for call in service.settled for name in call[1:-1]] == ["a", "b"]


def test_it_asks_for_as_many_as_have_a_place_for_its_own_name_and_lease() -> None:
    service = Service((), ()).run(ignored, concurrency=3, prefetch=4, wait=7, lease=5, name="me")
    (registration,) = service.calls_of("put_consumer")
    own = {"consumer": "me", "lease": 5, "instance": registration["instance"]}
    assert service.calls_of("receive") == [{"max": 7, "wait": 7.0, **own}] * 2
    large = Service((), ()).run(ignored, concurrency=800, prefetch=800)
    assert [options["max"] for options in large.calls_of("receive")] == [1000, 1000]


@pytest.mark.parametrize(
    ("mode", "name", "does_leave"),
    [("queue", None, True), ("queue", "me", True), ("broadcast", None, True), ("broadcast", "me", False)],
)
def test_it_leaves_its_group_but_for_a_named_place_in_a_broadcast(
    mode: str, name: str | None, does_leave: bool
) -> None:
    service = Service((), mode=mode).run(ignored, name=name)
    ((registration,), deletions) = (service.calls_of("put_consumer"), service.calls_of("delete_consumer"))
    assert deletions == ([{"name": registration["name"]}] if does_leave else [])
    assert name in (None, registration["name"])


@pytest.mark.parametrize(("own", "groups", "seconds"), [(5, 12, 5), (None, 12, 12), (None, None, 30)])
def test_a_lease_is_its_own_or_the_groups_or_the_topics(
    own: int | None, groups: int | None, seconds: int
) -> None:
    service = Service((), lease_seconds=groups)
    consumer = Consumer(ConsumerSettings("orders", "mailer", lease=own), ignored)
    assert consumer._lease_seconds(cast(Any, service), service.group) == seconds


def test_who_does_not_register_has_no_name() -> None:
    service = Service(()).run(ignored, register=False)
    assert [call for call, _ in service.calls] == ["receive"]
    assert service.calls_of("receive")[0]["consumer"] is None


def test_a_missing_group_is_made_as_it_is_wanted() -> None:
    service = Service((), mode="serial", filter="due || paid")
    service.missing = True
    service.run(ignored, mode="serial", tags=["paid", "due"], begin="latest")
    assert service.calls_of("put_group") == [{"begin": "latest", "mode": "serial", "filter": "paid || due"}]
    service.missing = True
    service.run(ignored, mode="serial", tags=None)
    assert service.calls_of("put_group")[1:] == [{"begin": "earliest", "mode": "serial"}]


def test_who_may_not_make_a_group_is_told_that_it_is_missing() -> None:
    class Closed(Service):
        def put_group(self, topic: str, group: str, **options: Any) -> Any:
            raise errors.Forbidden("SCOPE_MISSING", "admin")

    service = Closed(())
    service.missing = True
    with pytest.raises(errors.GroupNotFound):
        service.run(ignored)


def test_a_group_of_another_mode_or_filter_is_refused() -> None:
    """Two releases with other tags settled each other's messages, which no handler saw."""
    with pytest.raises(ValueError, match="a mode is for life"):
        Service(()).run(ignored, mode="serial")
    change = """'paid'.*'paid || due'.*put_group("orders", "mailer", filter="paid || due").*groups set orders mailer"""
    with pytest.raises(ValueError, match=re.escape(change).replace(r"\.\*", ".*")):
        Service((), filter="paid").run(ignored, tags=["paid", "due"])
    Service((), filter="due || paid").run(ignored, tags=["paid", "due"])


@pytest.mark.parametrize(
    "error",
    [
        errors.TopicNotFound("TOPIC_NOT_FOUND", "There is none."),
        errors.Unauthorized("UNAUTHORIZED", "Unknown token."),
        errors.Forbidden("SCOPE_MISSING", "consume"),
    ],
)
def test_what_is_wrong_at_the_start_is_raised_at_once(error: errors.HeadraceError) -> None:
    class Wrong(Service):
        def get_group(self, topic: str, group: str) -> Any:
            raise error

    with pytest.raises(type(error)):
        Wrong().run(ignored)


def test_a_consumer_that_was_removed_comes_back() -> None:
    removal = errors.ConsumerNotFound("CONSUMER_NOT_FOUND", "offline for long")
    service = Service(removal, ()).run(ignored, name="me")
    first, again = service.calls_of("put_consumer")
    own = {"name": "me", "instance": first["instance"], "expires_after_seconds": None, "begin": None}
    assert first == again == own
    assert [call["instance"] for call in service.calls_of("receive")] == [first["instance"]] * 2


def test_a_name_that_the_client_made_expires_an_hour_after_its_process_died() -> None:
    (registration,) = Service((), ()).run(ignored).calls_of("put_consumer")
    assert registration["expires_after_seconds"] == 3600


def test_a_consumer_that_was_taken_over_ends_and_leaves_the_name_to_the_later_one() -> None:
    service = Service(errors.ConsumerTakenOver("CONSUMER_TAKEN_OVER", "by another process"), ())
    with pytest.raises(errors.ConsumerTakenOver):
        service.run(ignored, name="me")
    assert len(service.calls_of("put_consumer")) == 1
    assert service.calls_of("delete_consumer") == []


def test_what_waiting_does_not_mend_ends_it() -> None:
    service = Service(errors.Forbidden("SCOPE_MISSING", "consume"), ())
    with pytest.raises(errors.Forbidden):
        service.run(ignored, name="me")
    assert service.calls_of("delete_consumer") == [{"name": "me"}], "it leaves all the same"


class Later(Service):
    """Stops the consumer when so many messages were handled."""

    def __init__(self, *messages: Message, enough: int | None = None, **group: Any) -> None:
        super().__init__([*messages], [], **group)
        self.left = len(messages) if enough is None else enough

    def receive(self, topic: str, group: str, **options: Any) -> Received:
        self.calls.append(("receive", options))
        return Received(cast(Any, self.answers.pop(0) if len(self.answers) > 1 else ()))

    def count_down(self) -> None:
        self.left -= 1
        if self.left <= 0:
            assert self.consumer is not None
            self.consumer.stop()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "try_count", "settlement"),
    [
        (None, 1, ("ack", "a")),
        (KeyError("k"), 3, nack("a", reason="KeyError: 'k'")),
        (Bury("no"), 1, nack("a", is_dead=True, reason="no")),
        (Retry(9, "later"), 1, nack("a", delay=9, reason="later")),
        (Retry(0), 1, nack("a", delay=0)),
        (Retry(), 1, nack("a")),
    ],
)
def test_a_failed_handler_is_tried_again_at_once_unless_it_said_what_to_do(
    error: Exception | None, try_count: int, settlement: tuple[Any, ...], is_async: bool
) -> None:
    service = Later(message("a"), enough=try_count)
    times: list[str] = []

    def handle(each: Message) -> None:
        times.append(each.id)
        service.count_down()
        if error:
            raise error

    async def handle_later(each: Message) -> None:
        await asyncio.sleep(0)
        handle(each)

    service.run(handle_later if is_async else handle, local_retries=2)
    assert (len(times), service.settled) == (try_count, [settlement])


def test_a_handler_that_succeeds_at_its_second_try_is_acked() -> None:
    service = Later(message("a"), enough=2)

    def handle(each: Message) -> None:
        service.count_down()
        if service.left:
            raise KeyError

    assert service.run(handle, local_retries=5).settled == [("ack", "a")]


async def _later(each: Message) -> None:
    """A handler behind a `def`."""


async def _layer(each: Message, call: Callable[[Message], Any]) -> Any:
    return call(each)


def _in_parts(each: Message) -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("handler", "middleware", "kind"),
    [
        (lambda each: _later(each), [], "coroutine"),
        (ignored, [_layer], "coroutine"),
        (_in_parts, [], "generator"),
    ],
)
def test_a_handler_that_was_only_begun_has_not_handled_its_message(
    handler: Callable[..., Any], middleware: list[Any], kind: str
) -> None:
    """It was acknowledged, and lost."""
    service = Later(message("a"))
    nack_all = service.nack

    def give_back(*arguments: Any, **options: Any) -> list[Any]:
        service.count_down()
        return nack_all(*arguments, **options)

    service.nack = service.ack = give_back  # type: ignore[method-assign]
    service.run(handler, middleware=middleware)
    ((_, name, options),) = service.settled
    assert name == "a"
    assert options["reason"].startswith(f"TypeError: The handler has not run, it gave a {kind}.")


class OwnBury(Bury):
    """Made without the `__init__` of what it is."""

    def __init__(self, order: int) -> None:
        self.order = order


class OwnRetry(Retry):
    def __init__(self, order: int) -> None:
        self.order = order


@pytest.mark.parametrize(
    ("error", "settlement"), [(OwnBury(188), nack("a", is_dead=True)), (OwnRetry(188), nack("a"))]
)
def test_a_decision_may_be_a_class_of_ones_own(error: Exception, settlement: tuple[Any, ...]) -> None:
    """One without a reason kept its place and its lease for good."""
    assert verdict_of(error) == Verdict(False, None, isinstance(error, Bury), None)
    service = Later(message("a"))

    def handle(each: Message) -> None:
        service.count_down()
        raise error

    assert service.run(handle).settled == [settlement]


@pytest.mark.parametrize("setting", ["concurrency", "prefetch", "local_retries"])
def test_numbers_that_would_handle_nothing_are_refused(setting: str) -> None:
    """With -1 local retries each message was acknowledged, and no handler saw it."""
    with pytest.raises(ValueError, match=f"{setting}.* must be at least"):
        ConsumerSettings("orders", "mailer", **{setting: -1})


def test_annotations_count_inside_a_partial_and_of_an_object() -> None:
    def handle(log: list[Any], order: dict[str, int]) -> None:
        log.append(order)

    class Handler:
        def __init__(self, log: list[Any]) -> None:
            self.log = log

        def __call__(self, order: dict[str, int]) -> None:
            self.log.append(order)

    log: list[Any] = []
    order = msgspec.structs.replace(message("a"), raw_body=msgspec.Raw(b'{"order":188}'))
    for handler in (partial(handle, log), Handler(log), Handler(log).__call__):
        bound(handler, ())(order)
    assert log == [{"order": 188}] * 3


def test_without_acks_of_its_own_it_only_gives_back_what_failed() -> None:
    service = Later(message("good"), message("bad"))

    def handle(each: Message) -> None:
        service.count_down()
        if each.id == "bad":
            raise Bury("bad")

    assert service.run(handle, auto_ack=False).settled == [nack("bad", is_dead=True, reason="bad")]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_whose_lease_ended_before_its_turn_is_not_handled(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """Another consumer has it by then; it is not settled."""
    now = [0.0]
    monkeypatch.setattr(holdings_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    both_are_here = threading.Event()

    def batch() -> Iterator[Message]:
        yield from (message("a"), message("b"))
        both_are_here.set()

    service = Service(cast(Any, batch()), ())
    times: list[str] = []

    def handle(each: Message) -> None:
        assert both_are_here.wait(10)
        times.append(each.id)
        now[0] += 31

    async def handle_later(each: Message) -> None:
        handle(each)

    service.run(handle_later if is_async else handle)
    assert (times, service.settled) == (["a"], [("ack", "a")])


class Moment:
    """A clock of one's own for what is held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(holdings_module, "time", self)

    def monotonic(self) -> float:
        return self.now


def test_a_lease_is_renewed_when_it_is_half_over_and_counts_from_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moment, holdings = Moment(monkeypatch), Holdings(10, None)
    holdings.take(own_message := message("a"))
    ages: list[bool] = []
    for at in (5.0, 5.1, 10.0, 10.2):
        moment.now = at
        ages.append(holdings.ageing() == [own_message])
        if at == 5.1:
            moment.now = 5.3
            holdings.renew(own_message, since=5.1)
    assert ages == [False, True, False, True]
    moment.now = 15.1
    assert holdings.begin(own_message)
    moment.now = 15.2
    assert not holdings.begin(own_message), "another consumer may have it"


def test_a_handler_that_runs_for_too_long_keeps_its_message_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    moment, holdings = Moment(monkeypatch), Holdings(10, 20)
    waiting_message, running_message = message("a"), message("b")
    holdings.take(waiting_message)
    holdings.take(running_message)
    moment.now = 8
    assert holdings.begin(running_message)
    for at, ids in ((28, ["a", "b"]), (28.1, ["a"])):
        moment.now = at
        assert [each.id for each in holdings.ageing()] == ids


def test_there_is_room_for_what_is_through() -> None:
    holdings = Holdings(10, None, 2, 1)
    one, two = message("a"), message("b")
    holdings.take(one)
    assert holdings.wait_for_room(0) == 2
    holdings.take(two)
    assert holdings.wait_for_room(0) == 1
    holdings.take(message("c"))
    holdings.drop(one)
    assert holdings.wait_for_room(0) == 0, "settled, but its handler is at work"
    holdings.done(one)
    assert holdings.wait_for_room(0) == 1
    assert not holdings.begin(one)


@pytest.mark.parametrize(
    ("prefetch", "seconds", "lease", "limit"),
    [(None, 0, 30, 500), (None, 0.1, 30, 80), (None, 0.1, 1, 20), (None, 60, 30, 0), (3, 60, 30, 3)],
)
def test_so_many_wait_as_the_handlers_begin_within_a_second(
    monkeypatch: pytest.MonkeyPatch, prefetch: int | None, seconds: float, lease: int, limit: int
) -> None:
    moment, holdings = Moment(monkeypatch), Holdings(lease, None, 8, prefetch)
    assert holdings.waiting_limit() == (prefetch or 0), "nothing is known yet"
    for _ in range(9):
        holdings.take(message("a"))
        holdings.begin(message("a"))
        moment.now += seconds
        holdings.done(message("a"))
    assert holdings.waiting_limit() == limit
    assert holdings.wait_for_room(0) == 8 + limit


def test_what_waits_for_a_handler_for_ten_seconds_is_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of messages behind a handler that hangs would be renewed for as long."""
    for prefetch, late in ((None, [message("b")]), (1, [])):
        moment, holdings = Moment(monkeypatch), Holdings(30, None, 1, prefetch)
        holdings.take(message("a"))
        assert holdings.begin(message("a"))
        holdings.take(message("b"))
        moment.now = 10.0
        assert holdings.overdue() == []
        moment.now = 10.1
        assert holdings.overdue() == late
        assert holdings.begin(message("b")) == (not late)


@pytest.mark.parametrize("is_async", [False, True])
def test_who_stops_finishes_what_it_has_begun(is_async: bool) -> None:
    service, handled_ids = Later(message("a"), enough=1), list[str]()

    def handle(each: Message) -> None:
        service.count_down()
        handled_ids.append(each.id)

    async def handle_for_long(each: Message) -> None:
        service.count_down()
        for _ in range(2_000):
            await asyncio.sleep(0)
        handled_ids.append(each.id)

    service.run(handle_for_long if is_async else handle)
    assert (handled_ids, service.settled) == (["a"], [("ack", "a")])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_handler_that_runs_beyond_the_limit_loses_its_message(is_async: bool) -> None:
    """It kept its process from its end."""
    service, ends, is_over = Later(message("a"), enough=1), list[str](), threading.Event()

    def handle(each: Message) -> None:
        service.count_down()
        is_over.wait()

    async def handle_later(each: Message) -> None:
        service.count_down()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    service.run(handle_later if is_async else handle, drain=0.05)
    is_over.set()
    assert service.settled == [nack("a", delay=0, reason="The consumer ended before its handler.")]
    assert ends == ["cancelled"] * is_async


def test_a_call_that_hangs_keeps_no_process_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_LEAST_SECONDS", 0)
    is_over = threading.Event()

    class Hanging(Service):
        def get_group(self, topic: str, group: str) -> Any:
            consumers.stop()
            is_over.wait()
            return super().get_group(topic, group)

    consumers = client_module.Consumers()
    consumers.add(ConsumerSettings("orders", "mailer", drain=0), ignored)
    consumers.run(cast(Any, Hanging()), None)
    is_over.set()


def test_who_ends_settles_what_lingers() -> None:
    service = Later(message("a"), message("b"))
    service.run(lambda _: service.count_down(), ack_linger=3600)
    assert sorted(name for call in service.settled for name in call[1:]) == ["a", "b"]


def test_what_is_settled_alike_goes_together_and_in_its_order() -> None:
    service, settled_ids = Service(), list[str]()
    settle_queue = SettleQueue(
        cast(Any, service), "orders", "mailer", 60, lambda each: settled_ids.append(each.id)
    )
    retry = Verdict(ack=False, delay_seconds=3)
    for name, verdict in (("a", ACK), ("b", retry), ("c", ACK), ("d", retry)):
        settle_queue.settle(message(name), verdict)
    settle_queue._queue.put(None)
    settle_queue._work()
    assert sorted(service.settled, key=str) == [("ack", "a", "c"), nack("b", "d", delay=3)]
    assert sorted(settled_ids) == ["a", "b", "c", "d"]


def acknowledge(service: Service, count: int) -> list[str]:
    """Acknowledge so many messages that wait together; the ids of those whose leases are not renewed after that."""
    settled_ids: list[str] = []
    settle_queue = SettleQueue(
        cast(Any, service), "orders", "mailer", 60, lambda each: settled_ids.append(each.id)
    )
    for n in range(count):
        settle_queue.settle(message(f"{n}"), ACK)
    settle_queue._queue.put(None)
    settle_queue._work()
    return settled_ids


@pytest.mark.parametrize(
    "error",
    [errors.GroupNotFound("GROUP_NOT_FOUND", "There is none."), RuntimeError("can't start new thread")],
)
def test_one_call_settles_so_many_and_the_next_one_goes_on_after_an_error(error: Exception) -> None:
    """An error of another kind ended the thread: nothing more was acknowledged, while leases were renewed."""

    class Broken(Service):
        def ack(self, topic: str, group: str, *messages: Message) -> list[Any]:
            super().ack(topic, group, *messages)
            raise error

    service = Broken()
    assert len(acknowledge(service, 501)) == 501
    assert [len(call) - 1 for call in service.settled] == [500, 1]


class Waiting(queue.Queue[Any]):
    """A queue whose waits for more let the time pass; they are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now, self.waits = 0.0, list[float]()
        monkeypatch.setattr(settling_module, "time", self)

    def monotonic(self) -> float:
        return self.now

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.empty() and block:
            if timeout is None:  # it gets no more messages
                return None
            self.waits.append(timeout)
            self.now += timeout
        return super().get(block=False)


@pytest.mark.parametrize(("busy", "pauses"), [(2, [0.5, 1]), (99, [0.5, 1, 2, 4, 8, 15])])
def test_what_a_busy_shard_refuses_is_settled_again_a_little_later(
    monkeypatch: pytest.MonkeyPatch, busy: int, pauses: list[float]
) -> None:
    """It was given up: the message was handled again."""
    stale = {"code": "RECEIPT_STALE", "status": 409, "detail": "Another consumer has it.", "retryable": False}

    class Busy(Service):
        def ack(self, topic: str, group: str, *messages: Message) -> list[Any]:
            super().ack(topic, group, *messages)
            errors = {"a": BUSY if len(self.settled) <= busy else None, "b": stale}
            return [SimpleNamespace(ok=False, error=errors.get(each.id)) for each in messages]

    service, settled_ids, waiting = Busy(), list[str](), Waiting(monkeypatch)
    settle_queue = SettleQueue(
        cast(Any, service), "orders", "mailer", 0, lambda each: settled_ids.append(each.id)
    )
    settle_queue._queue = cast(Any, waiting)
    for name in "abc":
        settle_queue.settle(message(name), ACK)
    settle_queue._work()
    assert service.settled == [("ack", "a", "b", "c")] + [("ack", "a")] * len(pauses)
    assert settled_ids == ["b", "c", "a"]
    assert waiting.waits == pauses


def test_what_an_outage_keeps_from_being_settled_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was given up after three seconds: the message was handled again, though its lease was longer."""
    waiting, settled_ids = Waiting(monkeypatch), list[str]()

    class Away(Service):
        def ack(self, topic: str, group: str, *messages: Message) -> list[Any]:
            if waiting.now < 3600:
                raise errors.NoAnswer("NO_ANSWER", "Connection refused.", retryable=True)
            return super().ack(topic, group, *messages)

    service = Away()
    settle_queue = SettleQueue(
        cast(Any, service), "orders", "mailer", 0, lambda each: settled_ids.append(each.id)
    )
    settle_queue._queue = cast(Any, waiting)
    settle_queue.settle(message("a"), ACK)
    settle_queue._work()
    assert (service.settled, settled_ids) == ([("ack", "a")], ["a"])
    assert len(caplog.records) == 1
    assert max(waiting.waits) == 15


@pytest.mark.parametrize("error", [Bury("x" * 600), Retry(reason="x" * 600), ValueError("x" * 600)])
def test_a_reason_has_a_length_that_the_service_takes(error: Exception) -> None:
    reason = verdict_of(error).reason
    assert reason
    assert len(reason) == 512


class Mute(Exception):
    def __str__(self) -> str:
        raise LookupError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError("caf\udce9.txt"), "OSError: caf?.txt"),  # as Python gives the name of a file
        (Bury("caf\udce9.txt"), "caf?.txt"),
        (Bury(cast(Any, ValueError("no total"))), "no total"),
        (Retry(reason=cast(Any, 404)), "404"),
        (Mute(), "Mute: (Mute has no text)"),
    ],
)
def test_a_reason_is_a_text_that_can_be_sent_whatever_was_raised(error: Exception, reason: str) -> None:
    """What fails to be one ended the thread that settles, or left a place taken for good."""
    verdict = verdict_of(error)
    assert (verdict.reason, msgspec.json.decode(encode(verdict.reason))) == (reason, reason)


def test_who_meets_a_closed_loop_gives_back_what_it_holds_and_ends() -> None:
    """It waited for a handler that had never begun, and the process for its thread."""
    loop = asyncio.new_event_loop()
    loop.close()
    service, ends = Service([message("a")], ()), list[BaseException]()

    async def handle(each: Message) -> None:
        """Never called."""

    def run() -> None:
        consumer = Consumer(ConsumerSettings("orders", "mailer", ack_linger=0), handle)
        service.consumer = consumer
        try:
            consumer.run(cast(Any, service), loop)
        except RuntimeError as error:
            ends.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert [str(error) for error in ends] == ["Event loop is closed"]
    assert [call[:2] for call in service.settled] == [("nack", "a")]
    assert service.settled[0][-1]["untried"]
