"""Two threads of one process, interleaved at every pair of calls: one reads, the other makes a change meanwhile.

The reader stops between a call's work and its answer. Then the change is made, up to one of its own calls; the reader
goes on to its end, and then the change does. What the process has cached by then must not hide the change: it has its
effect at once, or without a sweep. In the worlds an answer comes in the moment of its call, so nothing can come
between; and there a router, say, never shares a process with the API, as it does locally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.domain.errors import HeadraceError, Unauthorized
from chalicelib.domain.topic import Group
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core.wake import DispatchTask, news_of, task_of
from tests.simulation.processes import LOCAL, PORTS
from tests.simulation.virtual import Scheduler, Task
from tests.support import factories as make
from tests.support.push import EXACT, PushDesk, fails
from tests.support.stages import Stage, embedded_stage

_COLD_S = 4  # no cache of the process is younger
_SOON_S = 5  # longer than caches and a second wake-up take; no sweep comes by
_FOR_EVER = 1 << 40

Thread = Callable[[], object]


@dataclass(frozen=True)
class Scene:
    """The actions of a reader and a writer, and whether the change has had its effect."""

    reads: Thread
    changes: Thread
    is_right: Callable[[], bool]


class Halt:
    """Stops a thread after one of its calls (0: never), until it is let go."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.calls = 0
        self.task: Task | None = None
        self.is_held = False


class Port:
    """A way to the store: between a call and its answer its thread may be stopped."""

    def __init__(self, port: Any, halts: Halts) -> None:
        self._port = port
        self._halts = halts

    def __getattr__(self, method: str) -> Any:
        work = getattr(self._port, method)
        if method in LOCAL or not callable(work):
            return work

        def call(*args: Any, **kwargs: Any) -> Any:
            answer = work(*args, **kwargs)
            self._halts.after_call()
            return answer

        return call


class Halts:
    """Where the threads of a scene stop."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self._halts: list[Halt] = []

    def after_call(self) -> None:
        """One of the threads has made a call."""
        task = self.scheduler.current()
        for halt in self._halts:
            if task is not None and halt.task is task:
                halt.calls += 1
                if halt.calls == halt.at:
                    halt.is_held = True
                    self.scheduler.park(task)
                    halt.is_held = False

    def begin(self, thread: Thread, at: int) -> Halt:
        """Run a thread up to its halt, or to its end."""
        halt = Halt(at)

        def work() -> None:
            try:
                thread()
            except HeadraceError:  # refused: whether that is right is judged by the effect
                return

        self._halts.append(halt)
        halt.task = self.scheduler.spawn(work)
        self._go_on()
        return halt

    def end(self, halt: Halt) -> None:
        """Run a thread to its end; or until it waits for another."""
        if halt.is_held and halt.task:
            self.scheduler.wake(halt.task)
            self._go_on()

    def _go_on(self) -> None:
        self.scheduler.run(self.scheduler.now + _FOR_EVER)


Setting = Callable[[Stage], Scene]


def _stage(halts: Halts) -> Stage:
    stage = embedded_stage()
    another = stage.another

    def gated() -> Any:
        adapters = another()
        ports: dict[str, Any] = {name: Port(getattr(adapters, name), halts) for name in PORTS}
        return replace(adapters, **ports)

    return replace(stage, another=gated)


def played(setting: Setting, reader_stops: int, change_stops: int) -> tuple[bool, int, int]:
    """Play a scene; whether all is well in the end, and how many calls the reader and the change made."""
    halts = Halts()
    scene = setting(_stage(halts))
    reader = halts.begin(scene.reads, reader_stops)
    change = halts.begin(scene.changes, change_stops)
    halts.end(reader)
    halts.end(change)
    halts.end(reader)  # which may have waited for what the change held
    assert not halts.scheduler.tasks
    return scene.is_right(), reader.calls, change.calls


def wrong(setting: Setting) -> Iterator[tuple[int, int]]:
    """Where the change is lost: at which calls the two stop."""
    _, reads, changes = played(setting, 0, 0)
    for reader_stops in range(1, reads + 1):
        for change_stops in range(changes + 1):
            if not played(setting, reader_stops, change_stops)[0]:
                yield reader_stops, change_stops


# Scenes


def _wakes(desk: PushDesk) -> None:
    """What was woken runs, with its news."""
    while desk.inbox.asked:
        function, event = desk.inbox.asked.popleft()
        if function == "deliver":
            desk.deps.dispatcher.deliver(task_of(event), lambda: 60.0, news_of(event))


def _called(desk: PushDesk, times: int) -> Callable[[], bool]:
    def is_right() -> bool:
        _wakes(desk)
        desk.pass_time(_SOON_S)
        return len(desk.subscribers.calls) == times

    return is_right


def _routes(desk: PushDesk) -> Thread:
    return lambda: desk.deps.waker.route({str(desk.topic.shard_key(0)): None})


def _delivers(desk: PushDesk, group: Group) -> Thread:
    task = DispatchTask(desk.topic.name, group.name)
    return lambda: desk.deps.dispatcher.deliver(task, lambda: 60.0)


def _cold(desk: PushDesk) -> None:
    """What is cached is too old, and the next sweep far."""
    desk.stage.clock.advance(_COLD_S * 1000)
    left_ms = 60_000 - desk.stage.clock.now_ms() % 60_000
    if left_ms <= 4 * _SOON_S * 1000:
        desk.stage.clock.advance(left_ms)
    desk.inbox.asked.clear()


def _comes(stage: Stage) -> Scene:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.produce(make.draft())
    _cold(desk)

    def changes() -> None:
        newcomer = desk.subscriber(group, "one")
        desk.deps.waker.wake_for(desk.topic, group, newcomer)
        _wakes(desk)

    return Scene(_routes(desk), changes, _called(desk, 1))


def _is_resumed(stage: Stage) -> Scene:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.deps.admin.pause(desk.topic, group.name, True)
    desk.produce(make.draft())
    _cold(desk)

    def changes() -> None:
        desk.deps.waker.wake_after_resumption(
            desk.topic, desk.deps.admin.pause(desk.topic, group.name, False)
        )
        _wakes(desk)

    return Scene(_delivers(desk, group), changes, _called(desk, 1))


def _is_sought(stage: Stage) -> Scene:
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.subscriber(group, "one")
    desk.produce(make.draft())
    desk.push()
    _cold(desk)

    def changes() -> None:
        desk.seek(group, "earliest")
        desk.deps.waker.wake_group(desk.topic, group)
        _wakes(desk)

    return Scene(_delivers(desk, group), changes, _called(desk, 2))


def _is_tried_at_once(stage: Stage) -> Scene:
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.subscriber(group, "one", behaviour=fails(1))
    (message,) = desk.produce(make.draft())
    desk.push()
    desk.inbox.asked.clear()
    desk.stage.clock.advance(_COLD_S * 1000)  # it would be tried after ten seconds

    def changes() -> None:
        desk.deps.dead_letters.retry_now(desk.topic, group, message.id)
        desk.deps.waker.wake_group(desk.topic, group)
        _wakes(desk)

    return Scene(_delivers(desk, group), changes, _called(desk, 2))


def _is_given_back(stage: Stage) -> Scene:
    """To the retry lane, where it came from."""
    desk = PushDesk.at(stage, retry=EXACT)
    group = desk.group()
    desk.produce(make.draft())
    desk.nack(group, desk.receive(group), Nack(delay_ms=None))
    desk.stage.clock.advance(11_000)
    messages = desk.receive(group)
    assert messages
    desk.stage.clock.advance(_COLD_S * 1000)
    received: list[Any] = []

    def receives() -> None:
        received.extend(desk.deps.receiver.receive(desk.topic, group, None, 10, 0, 30))

    def is_right() -> bool:
        receives()
        return bool(received)

    return Scene(receives, lambda: desk.nack(group, messages), is_right)


def _is_settled(stage: Stage) -> Scene:
    """Two messages at once: one is done, the other is given back."""
    desk = PushDesk.at(stage)
    group = desk.group()
    desk.produce(make.draft(1), make.draft(2))
    one, other = desk.receive(group, 1), desk.receive(group, 1)
    desk.stage.clock.advance(_COLD_S * 1000)

    def is_right() -> bool:
        return len(desk.receive(group)) == 1

    return Scene(lambda: desk.ack(group, one), lambda: desk.nack(group, other), is_right)


def _is_edited(stage: Stage) -> Scene:
    """Later claims get the edited message; it cannot be edited if the first group has it already."""
    desk = PushDesk.at(stage)
    groups = [desk.group(name) for name in ("billing", "mailer")]
    (message,) = desk.produce(make.draft("old"))
    cold = replace(desk, deps=stage.process())
    cold.stage.clock.advance(_COLD_S * 1000)
    bodies = [b'"old"']

    def changes() -> None:
        stored = cold.deps.lookup.message(cold.topic, message.id)
        cold.deps.amender.amend(cold.topic, stored, {"body": b'"new"'})
        bodies.append(b'"new"')

    def is_right() -> bool:
        return [each.message.draft.body for each in cold.receive(groups[1])] == bodies[-1:]

    return Scene(lambda: cold.receive(groups[0]), changes, is_right)


def _joins(stage: Stage) -> Scene:
    desk = PushDesk.at(stage, shards=2)
    group = desk.group()
    one = desk.consumer(group, "one")
    _cold(desk)
    assignments, registry = desk.deps.assignments, desk.deps.registry

    def is_right() -> bool:
        two = desk.deps.catalog.consumer(desk.topic, group, "two")
        shards = [assignments.shards_for(desk.topic, group, consumer) for consumer in (one, two)]
        return sorted(sum(shards, ())) == [0, 1]

    return Scene(
        lambda: registry.membership(desk.topic, group, one), lambda: desk.consumer(group, "two"), is_right
    )


def _is_revoked(stage: Stage) -> Scene:
    tokens = stage.process().tokens
    token, text = tokens.create("one", ("admin",))

    def is_right() -> bool:
        try:
            tokens.authenticate(text)
        except Unauthorized:
            return True
        return False

    return Scene(lambda: tokens.authenticate(text), lambda: tokens.revoke(token.id), is_right)


def _key_is_rotated(stage: Stage) -> Scene:
    keys = stage.process().signing_keys
    text = keys.sign("test", "text")
    stage.clock.advance(6 * 60_000)

    def is_right() -> bool:
        stage.clock.advance(1)
        return keys.verified("test", text) is None

    return Scene(lambda: keys.live(), lambda: keys.rotate(0), is_right)


SCENES: dict[str, Setting] = {
    "the first subscriber comes beside a router": _comes,
    "a group is resumed beside a run": _is_resumed,
    "a group is sought beside a run": _is_sought,
    "a message is tried at once beside a run": _is_tried_at_once,
    "a message is given back beside a receive": _is_given_back,
    "a message is given back beside an ack": _is_settled,
    "a message is edited beside a receive": _is_edited,
    "a consumer joins beside a heartbeat": _joins,
    "a token is revoked beside its use": _is_revoked,
    "a signing key is rotated beside its use": _key_is_rotated,
}
