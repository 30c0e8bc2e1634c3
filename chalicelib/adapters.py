"""One form of every port. The only reader of settings, clock and chance."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import observe, store
from . import settings as environment
from .domain.errors import Unreadable, unavailable
from .domain.ids import ALPHABET
from .domain.limits import MAX_CALLS, MAX_HANDSHAKES
from .domain.times import HOUR_SECONDS
from .ports.world import Blobs, Cipher, Clock, Invoker, Jobs, Random, Sender, Units
from .settings import Settings
from .store.blobs import FolderBlobs, S3Blobs
from .store.clients import Clients, OnClient
from .store.dynamo import count_units
from .store.kms import KmsCipher
from .store.layout import Tables
from .store.tables import create_missing, unreadable

_TOKEN_CHARS = 24  # DynamoDB takes up to 36


class SystemClock:
    """ports.Clock: the machine's time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class SystemRandom:
    """ports.Random: the machine's randomness."""

    def below(self, n: int) -> int:
        return secrets.randbelow(n)

    def id(self, chars: int) -> str:
        bits = secrets.randbits(5 * chars)
        return "".join(ALPHABET[bits >> 5 * i & 31] for i in range(chars))

    def secret(self) -> bytes:
        return secrets.token_bytes(32)


class Nobody:
    """ports.Invoker that starts nothing: a wake-up is only that, and schedules find what was to be done."""

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        return

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        self.invoke("mover", {"Records": [{"body": json.dumps(hint)}]})

    def ask(self, function: str, event: Mapping[str, Any], seconds: int) -> Mapping[str, Any]:
        raise unavailable(f"There is no function {function} here to be asked.")


class NoJobs:
    """A `ports.Jobs` that runs no jobs."""

    def start(self, job: str, arguments: Mapping[str, str]) -> bool:
        return False


@dataclass(frozen=True)
class Adapters:
    """One form of every port."""

    log: store.Log
    cursors: store.Cursors
    records: store.Records
    timers: store.Timers
    transactions: store.Transactions
    traces: store.Traces
    keys: store.Keys
    token_buckets: store.TokenBuckets
    rounds: store.Rounds
    readings: store.Readings
    audit: store.Audit
    tickets: store.Tickets
    marks: store.Marks
    control: store.Control
    blobs: Blobs
    clock: Clock
    random: Random
    create_tables: Callable[[], None]
    unreadable: Callable[[], str | None]  # names a table that cannot be read; None where all can
    sender: Callable[[], Sender]
    invoker: Invoker
    jobs: Jobs
    threads: Callable[[], Executor]
    # Sends a subject and a text to the topic of the stage's alarms, if there is one. Raises Unavailable.
    mail: Callable[[str, str], None]
    # Counts what the requests of this thread inside a block cost.
    units: Callable[[], AbstractContextManager[Units]]
    firings: tuple[int, ...]  # how many messages a second the schedules of one topic may send, and all
    stage: str = ""  # the name under which metrics are told; empty: they are not
    archive: bool = False
    archive_days: int | None = None
    iam: bool = False  # may a caller be known by its signature, which API Gateway has verified?
    cors_origins: frozenset[str] = frozenset()  # the origins of pages whose scripts may call the API
    cipher: Cipher | None = None  # encrypts secrets; None where nothing is kept
    # Logs and counts an unreadable row that a list or a job skips.
    on_skip: Callable[[Unreadable], object] = lambda error: None
    # Is this process about to end? Then no caller is kept waiting for messages.
    is_ending: Callable[[], bool] = lambda: False
    # Has the caller of this thread gone? Only a local service can see that.
    is_caller_gone: Callable[[], bool] = lambda: False


def from_environment() -> Adapters:
    """The ports as this process's environment wants them."""
    settings = environment.read()
    return dynamo_adapters(settings, invoker=_invoker(settings), jobs=_jobs(settings))


def _invoker(settings: Settings) -> Invoker:
    if not settings.deliver or not settings.wakes or not settings.check:
        return Nobody()
    from .delivery.functions import LambdaInvoker

    names = {"deliver": settings.deliver, "deliver_slow": f"{settings.deliver}_slow", "check": settings.check}
    again = {"checkpoint": settings.checkpoint, "expire": settings.expire}  # they start themselves
    names |= {name: deployed_name for name, deployed_name in again.items() if deployed_name}
    clients = Clients(settings.region, clock=SystemClock())
    return LambdaInvoker(
        lambda seconds: clients.get("lambda", seconds), names, lambda: clients.get("sqs"), settings.wakes
    )


def _jobs(settings: Settings) -> Jobs:
    if not settings.jobs:
        return NoJobs()
    from .delivery.functions import GlueJobs

    clients = Clients(settings.region)
    return GlueJobs(lambda: clients.get("glue"), settings.prefix)


def dynamo_adapters(
    settings: Settings,
    clock: Clock | None = None,
    random: Random | None = None,
    on_client: OnClient | None = None,
    invoker: Invoker | None = None,
    jobs: Jobs | None = None,
    cipher: Cipher | None = None,
    client: Any = None,
    blobs: Blobs | None = None,
) -> Adapters:
    """The ports on DynamoDB. `on_client` sees every AWS client before its first use. `cipher`, `client` (of DynamoDB)
    and `blobs` take the place of AWS's."""
    clock, random = clock or SystemClock(), random or SystemRandom()
    clients = Clients(settings.region, on_client, clock)
    stage = settings.prefix if settings.deployed else ""
    on_skip = partial(observe.unreadable, stage)
    dynamo = store.Dynamo(
        client or clients.get("dynamodb"),
        Tables(settings.prefix, settings.fragments),
        lambda n: clock.sleep(0.005 * (1 + random.below(2**n))),
        lambda: random.id(_TOKEN_CHARS),
        on_skip,
    )
    on_tables = _on_tables(dynamo)
    return Adapters(
        **on_tables,
        blobs=blobs or _blobs(settings, clients),
        clock=clock,
        random=random,
        sender=lambda: _sender(settings, clients, clock, on_tables["token_buckets"]),
        invoker=invoker or Nobody(),
        jobs=jobs or NoJobs(),
        threads=partial(ThreadPoolExecutor, MAX_CALLS, thread_name_prefix="send"),
        mail=partial(_publish, settings, clients),
        stage=stage,
        on_skip=on_skip,
        archive=settings.archive,
        archive_days=settings.archive_days,
        firings=settings.firings,
        iam=settings.iam,
        cors_origins=settings.cors_origins,
        cipher=cipher or _cipher(settings, clients),
    )


def _on_tables(dynamo: store.Dynamo) -> dict[str, Any]:
    """The fields of Adapters that stand on the tables."""
    fields = Adapters.__annotations__.items()
    kinds = {name: kind.removeprefix("store.") for name, kind in fields if kind.startswith("store.")}
    return {
        **{name: getattr(store, kind)(dynamo) for name, kind in kinds.items()},
        "create_tables": lambda: create_missing(dynamo.client, dynamo.tables),
        "unreadable": lambda: unreadable(dynamo),
        "units": count_units,
    }


def _blobs(settings: Settings, clients: Clients) -> Blobs:
    return S3Blobs(clients.get("s3"), settings.bucket) if settings.bucket else FolderBlobs(settings.folder)


def _cipher(settings: Settings, clients: Clients) -> Cipher | None:
    if settings.kms_key is None:
        return None
    return KmsCipher(lambda: clients.get("kms"), settings.kms_key, settings.prefix)


def _publish(settings: Settings, clients: Clients, subject: str, text: str) -> None:
    """Publish to the stage's SNS topic of alarms, if it has one."""
    if not settings.alarm_topic:
        return
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        subject = f"{settings.prefix}: {subject}"
        clients.get("sns").publish(TopicArn=settings.alarm_topic, Subject=subject, Message=text)
    except (ClientError, BotoCoreError) as error:
        raise unavailable(f"SNS did not take a report: {type(error).__name__}.") from error


def _sender(settings: Settings, clients: Clients, clock: Clock, token_buckets: store.TokenBuckets) -> Sender:
    from .delivery.addresses import Rules
    from .delivery.egress import Egress
    from .delivery.functions import Functions, LambdaFunctions, LocalFunctions
    from .delivery.sender import Sender as Out

    own_hosts = frozenset({settings.origin})
    rules = Rules(frozenset(settings.ports), own_hosts, settings.allow_loopback, settings.port)
    functions: Functions = LocalFunctions(settings.functions)
    if settings.account:
        functions = LambdaFunctions(
            client=lambda seconds: clients.get("lambda", seconds),
            region=settings.region,
            account=settings.account,
            prefix=settings.prefix,
        )
    egress, real_clock = Egress(rules=rules, monotonic=time.monotonic), SystemClock()

    def may_ask(host: str) -> bool:
        account = f"handshakes#{host.lower()}"
        return bool(token_buckets.take(account, MAX_HANDSHAKES, 1, real_clock.now_ms(), HOUR_SECONDS).count)

    return Out(
        egress=egress,
        functions=functions,
        clock=clock,
        real_clock=real_clock,
        monotonic=time.monotonic,
        origin=settings.origin,
        may_ask=may_ask,
    )
