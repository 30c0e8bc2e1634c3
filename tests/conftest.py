"""What every test may use. Tests of the engine get one DynamoDB Local, in memory, for the whole run."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from chalicelib.store import clients
from local.engine import Engine
from local.fetch import EngineError
from tests.support import environment, examples
from tests.support.short_way import short_way

__all__ = ["examples"]

environment.scrub(os.environ)

_LOCAL = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
}

_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB"
_ENGINE = pytest.StashKey[Engine]()

SOAK = bool(os.environ.get("HEADRACE_SOAK"))
_TOGETHER = (
    "clients/python/",
    "tests/browser/",
    "tests/features/",
    "tests/functional/day/",
    "tests/glue/",
    "tests/infra/",
    "tests/load/",
    "tests/crash/test_enumeration.py",
    "tests/crash/test_transactions.py",
)
_ONE_BY_ONE = ("tests/crash/", "tests/functional/test_", "tests/simulation/")


class Sharing(LoadScopeScheduling):
    """Processes that share the tests leave each of these to one: for one service of the client's, one browser, one
    Spark, one AWS, and one crowd of subscribers at a time, and because enumerations leave out what they have played.
    (The mark `xdist_group` does nothing with this pytest.) Of other files each is left to one, for to hand out a test
    costs as much as a quick one does; but where tests take long, one by one."""

    def _split_scope(self, nodeid: str) -> str:
        one = nodeid if nodeid.startswith(_ONE_BY_ONE) else nodeid.partition("::")[0]
        return next((place for place in _TOGETHER if nodeid.startswith(place)), one)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Sharing:
    return Sharing(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Processes that share the tests share the work of a first import, too, which rewrites each `assert` and is kept:
    each begins with another folder."""
    config = session.config
    process = getattr(config, "workerinput", None)
    if process is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    rooms = sorted(
        {str(Path(*file.parts[:2])) for place in config.args for file in Path(place).rglob("test_*.py")}
    )
    first = len(rooms) * int(process["workerid"].removeprefix("gw")) // process["workercount"]
    config.args = rooms[first:] + rooms[:first]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """A test that uses the engine is marked `engine`, so `-m 'not engine'` needs no Java. One of very many calls is run
    on it in the soak only, and one that is marked `soak` nowhere else: whoever asks for it is told so, and where all
    are run, it is left out, for to skip a test takes as long as a quick one."""
    items.sort(key=lambda item: item.path)  # whatever they began with, processes must tell the same list
    for item in items:
        if "engine" in getattr(item, "fixturenames", ()):
            item.add_marker("engine")
        if item.get_closest_marker("engine") and item.get_closest_marker("many_calls") and not SOAK:
            item.add_marker(pytest.mark.skip(reason="many calls: on the engine in the soak only"))
        if item.get_closest_marker("soak") and not SOAK:
            item.add_marker(pytest.mark.skip(reason="takes long: in the soak only"))
    yield
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        items[:] = [item for item in items if not item.get_closest_marker("skip")]


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector, which looked through it all the time, took a
    twentieth of it."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_configure() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, and so would all that the tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure_node(node: WorkerController) -> None:
    """Processes that share the tests share one engine, too: to become quick costs it 30 s of a processor."""
    engine = node.config.stash.get(_ENGINE, None)
    if engine is None and _ENDPOINT not in os.environ:
        engine = Engine(is_busy=True)
        try:
            engine.start()
        except EngineError:  # `-m 'not engine'` needs none; who does says what is missing
            return
        node.config.stash[_ENGINE] = engine
        node.config.add_cleanup(engine.stop)
    if engine is not None:
        node.workerinput["engine"] = engine.endpoint


@pytest.fixture(scope="session")
def engine(pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of a DynamoDB, which boto3 and pynamodb now use, too. Tests share it: use names of your own.

    It is the one in AWS_ENDPOINT_URL_DYNAMODB, if that is set.
    """
    before = dict(os.environ)
    for name, value in _LOCAL.items():
        os.environ.setdefault(name, value)
    endpoint = getattr(pytestconfig, "workerinput", {}).get("engine")
    if endpoint:
        os.environ[_ENDPOINT] = endpoint
    try:
        with ExitStack() as stack:
            is_ours = endpoint or _ENDPOINT not in os.environ
            if _ENDPOINT not in os.environ:
                os.environ[_ENDPOINT] = stack.enter_context(Engine(is_busy=True)).endpoint
            if is_ours and not SOAK:
                stack.enter_context(short_way(os.environ[_ENDPOINT]))
                clients._session().events.register(
                    "before-parameter-build.dynamodb.CreateTable", _without_stream
                )
            yield os.environ[_ENDPOINT]
    finally:
        os.environ.clear()
        os.environ.update(before)


def _without_stream(params: dict[str, Any], **_: Any) -> None:
    """DynamoDB Local looks through the streams of all stages at each write, which is most of its time once tests have
    made a hundred. Tests of streams make their own; in the soak every stage has them."""
    params.pop("StreamSpecification", None)
