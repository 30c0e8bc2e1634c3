"""What every test may use: the embedded engine behind boto3 (`engine`), and DynamoDB Local beside it (`oracle`)."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from local.engine.core import Engine
from local.engine.dynamodb_local import dynamodb_local
from local.engine.server import serving
from tests.support import environment, examples
from tests.support.short_way import short_way

__all__ = ["examples"]

environment.scrub(os.environ)

LOCAL = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
}

_ENDPOINT = "AWS_ENDPOINT_URL_DYNAMODB"
_ORACLE = "dynamodb-local"
_ON_ORACLE = ("tests/oracle/", "tests/functional/test_local_streams.py")

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
        if _ORACLE in nodeid or nodeid.startswith(_ON_ORACLE):
            return _ORACLE
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
    """A test that uses DynamoDB Local is marked `oracle`, so `-m 'not oracle'` needs no Java for it. One that is marked
    `soak` runs in the soak only: a run that names it skips it with a reason, and a full run leaves it out, since
    skipping a test takes as long as a quick one."""
    items.sort(key=lambda item: item.path)  # all processes must report the same list
    for item in items:
        if "oracle" in getattr(item, "fixturenames", ()):
            item.add_marker("oracle")
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


@pytest.fixture(scope="session")
def credentials() -> Iterator[None]:
    """Credentials and a region, which boto3 asks for on an engine on this machine, too."""
    before = dict(os.environ)
    for name, value in LOCAL.items():
        os.environ.setdefault(name, value)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def engine(credentials: None) -> Iterator[str]:
    """The URL of an embedded engine, which boto3 and pynamodb now use, too. Tests share it: use names of your own.

    It is the one in AWS_ENDPOINT_URL_DYNAMODB, if that is set.
    """
    with ExitStack() as stack:
        if _ENDPOINT not in os.environ:
            engine = Engine()
            stack.callback(engine.close)
            os.environ |= stack.enter_context(serving(engine))
            stack.enter_context(short_way(os.environ[_ENDPOINT], engine))
        yield os.environ[_ENDPOINT]


@pytest.fixture(scope="session")
def oracle(credentials: None) -> Iterator[str]:
    """The URL of DynamoDB Local, in memory: of one process only, whichever runs the tests that use it."""
    with dynamodb_local() as oracle:
        yield oracle.endpoint
