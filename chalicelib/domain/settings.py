"""The settings of topics and groups, one row each.

A row is a field of a dataclass: its type and default, what a request may give, its label in the console and its meaning
in the docs. Made from the rows: the types of requests and answers and with them the OpenAPI document (api/settings.py),
the stored rows (store/control_rows.py), the console's forms (console/forms.py), and by `make settings` the tables of
docs/settings.md and the types of the clients.
"""

# ruff: noqa: RUF009  `setting` makes fields: each call is a row of the table

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin

from . import limits
from .ladder import Retry
from .times import DAY_SECONDS


class Mode(StrEnum):
    """How a group's consumers share its messages (chalicelib/modes)."""

    QUEUE = "queue"
    SERIAL = "serial"
    BROADCAST = "broadcast"


class Payload(StrEnum):
    """How a push consumer gets messages: CloudEvents' content modes."""

    BINARY = "binary"
    STRUCTURED = "structured"
    BATCH = "batch"


class Offline(StrEnum):
    """What a broadcast does with a consumer's messages while it is offline."""

    KEEP = "keep"
    SKIP = "skip"


DEFAULT_RETRY = Retry(limits.DEFAULT_MAX_ATTEMPTS, "rocketmq")


@dataclass(frozen=True, slots=True)
class Destination:
    """The topic, of this uid, that gets a message for each message that ends so; with its body if `include_body`."""

    topic: str
    uid: str
    include_body: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """A row. `type` is that of the dataclass's field; `given` is the type in requests: int, float, bool, str, list,
    Retry, Destination or dict (of hosts). A number is from `least` to `most`; a text has `most` characters at most or
    is one of `choices`; a list has `most` texts. `nullable`: null in a request takes the setting away. `label` is in
    the console (empty: no plain field of its form), `help` and `usual` (the default in words) are in the docs."""

    field: str
    name: str
    type: Any
    given: type
    default: Any
    help: str
    label: str = ""
    least: int | float | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()
    nullable: bool = False
    usual: str | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """What a form offers to choose from; empty: any value may be typed."""
        return ("true", "false") if self.given is bool else self.choices

    @property
    def plain_help(self) -> str:
        """The meaning as a sentence, without the links of the docs."""
        text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", self.help)
        return text[0].upper() + text[1:] + "."


_ROW = "setting"


def setting(default: Any = dataclasses.MISSING, **row: Any) -> Any:
    """A field that is a setting. `row` has the fields of its Setting that do not follow from it; `name` is the one in
    requests and answers, if it differs from the field's. A whole number is at least 1, and what is None by itself may
    be taken away, unless the row says otherwise."""
    return dataclasses.field(default=default, metadata={_ROW: row})


@cache
def rows_of(kind: type) -> tuple[Setting, ...]:
    """The table of a dataclass's settings, in its order."""
    fields = dataclasses.fields(kind)
    return tuple(_row(each, each.metadata[_ROW]) for each in fields if _ROW in each.metadata)


def _row(field: "dataclasses.Field[Any]", row: Mapping[str, Any]) -> Setting:
    kinds = [each for each in get_args(field.type) if each is not NoneType] or [field.type]
    kind: Any = float if float in kinds else kinds[0]
    is_enum = isinstance(kind, type) and issubclass(kind, StrEnum)
    derived: dict[str, Any] = {
        "name": field.name,
        "given": str if is_enum else list if get_origin(field.type) is tuple else kind,
        "least": 1 if kind is int else None,
        "nullable": field.default is None,
        "choices": tuple(map(str, kind)) if is_enum else (),
    }
    return Setting(field=field.name, type=field.type, default=field.default, **{**derived, **row})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """A topic's settings. Ordering keys are spread over the first `key_shards`; None: over all."""

    mode: Mode = setting(
        Mode.QUEUE,
        label="Default mode",
        help='the mode of groups that are created without one: "queue", "serial" or "broadcast"',
    )
    shards: int = setting(
        4,
        most=limits.MAX_SHARDS,
        usual="4; 1 for serial",
        label="Shards (may grow)",
        help="how many logs it is divided into: more shards give more throughput and more parallel work; can only grow",
    )
    key_shards: int | None = setting(
        None,
        nullable=False,
        most=limits.MAX_SHARDS,
        usual="as `shards` when the topic was made",
        help="how many of its shards ordering keys use; shown if fewer than `shards`. Raising `shards` does not change "
        "it, so keys keep their shard and their order",
    )
    priorities: int = setting(
        1,
        most=limits.MAX_PRIORITIES,
        label="Priorities (may grow)",
        help="how many [priorities](howto/priority.md) its messages have; can only grow, by more urgent ones. `shards` "
        "counts the shards of the last priority; each other priority has a quarter as many of its own",
    )
    retry: Retry = setting(
        DEFAULT_RETRY,
        usual='`{"max_attempts": 16, "ladder": "rocketmq"}`',
        help="how failed deliveries are [retried](delivery.md#retries): `max_attempts`, `ladder`, `jitter` (0.1), "
        '`steps_from` ("failure" or "start"), and for "exponential" `base_seconds`, `factor`, `cap_seconds`',
    )
    lease_seconds: int = setting(
        30,
        most=limits.MAX_LEASE_SECONDS,
        label="Lease, seconds",
        help="how long a consumer may work on a message before it is delivered again; it can extend the lease",
    )
    retention_days: int | float = setting(
        7,
        least=limits.MIN_RETENTION / timedelta(days=1),
        most=3650,
        label="Retention, days",
        help="how long a message is kept; 0.25 is six hours. After that it is not delivered any more; for groups that "
        "have not settled it, it becomes a dead letter within six hours, reason EXPIRED. A higher value applies to new "
        "messages only",
    )
    dead_letter_days: int | None = setting(
        None,
        most=3650,
        usual="for ever",
        label="Dead letters are kept, days",
        help="how long dead letters are kept; a job that runs each six hours deletes older ones, also those that were "
        "there before the setting",
    )
    alarm_backlog: int | None = setting(
        None,
        most=limits.MAX_OFFSET,
        label="Alarm above a backlog of",
        help="an [alarm](operations.md#health-log-and-metrics) is raised when a group's backlog is larger",
    )
    rate_limit: int | None = setting(
        None,
        most=limits.MAX_RATE_LIMIT,
        label="Messages a second at most",
        help="how many messages per second it accepts",
    )
    on_rate_limit: str = setting(
        "reject",
        choices=("reject", "dead_letter"),
        label="Above that",
        help='what happens above the rate: "reject" answers 429, "dead_letter" stores the messages as dead letters',
    )
    budget_usd: int | float | None = setting(
        None,
        least=0.01,
        most=10_000_000,
        label="Budget, USD a month",
        help="what its calls and deliveries may cost in a [month](cost.md#budgets) (UTC), roughly; only admins see it",
    )
    on_budget: str = setting(
        "warn",
        choices=("warn", "refuse"),
        label="When it is spent",
        help='what happens when the budget is spent: "warn" lists it among what needs attention; "refuse" also answers '
        "429 to new messages, until the month ends",
    )
    max_body_bytes: int = setting(
        256 * 1024,
        most=limits.MAX_BODY_BYTES,
        label="Largest body, bytes",
        help="the largest body of a message",
    )
    dedup_window_seconds: int = setting(
        DAY_SECONDS,
        most=limits.MAX_DEDUP_WINDOW_SECONDS,
        label="Dedup window, seconds",
        help="how long a `dedup_id` is remembered; of a delayed message, from the time for which it was produced, even "
        "if this is changed later",
    )
    redact: tuple[str, ...] = setting(
        (),
        most=limits.MAX_POINTERS,
        label="Hidden in bodies: JSON Pointers",
        help="[parts of bodies that no person sees](security.md#redaction): JSON Pointers such as `/card/number`, in "
        "which `*` is any element. Consumers and the archive get bodies whole",
    )
    wake: str = setting(
        "stream",
        choices=("stream", "direct"),
        label="Wake",
        help='what starts deliveries: "stream", the table\'s stream, or "direct", the produce call itself: faster, for '
        "one more Lambda invocation",
    )

    def is_over_alarm(self, backlog: int) -> bool:
        """Is a group's backlog larger than the topic's alarm allows?"""
        return self.alarm_backlog is not None and backlog > self.alarm_backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """A consumer group's settings. `retry` and `lease_seconds`: None means the topic's. `tags`: None is no filter.
    `begin` is the `from` it was created with."""

    mode: Mode = setting(
        usual="the topic's", help="[how it consumes](glossary.md); fixed when the group is created"
    )
    begin: str = setting(
        "latest",
        name="from",
        help='where it begins: "latest", "earliest", or a time; fixed when the group is created',
    )
    tags: tuple[str, ...] | None = setting(
        None,
        name="filter",
        given=str,
        most=4096,
        usual='"*"',
        label="Filter: tags joined by ||, or *",
        help='tags to deliver, such as "paid || refunded"; "*" or null: all. Other messages count as SUCCESS without a '
        "delivery",
    )
    retry: Retry | None = setting(
        None,
        usual="the topic's",
        help="as of a topic, for this group; what is not given of it stays as it is",
    )
    lease_seconds: int | None = setting(
        None,
        most=limits.MAX_LEASE_SECONDS,
        usual="the topic's",
        label="Lease, seconds",
        help="as of a topic, for this group",
    )
    batch_size: int = setting(
        1,
        most=limits.MAX_BATCH,
        label="Messages a request",
        help='the most messages in one request (with `payload` "batch") or in one event of a function',
    )
    max_in_flight: int = setting(
        64,
        most=limits.MAX_IN_FLIGHT,
        label="In flight at most",
        help="the most messages [in delivery at once](flow_control.md#how-much-at-once) to push consumers",
    )
    rate_limit: int | float | None = setting(
        None,
        least=0.001,
        most=limits.MAX_RATE_LIMIT,
        label="Messages a second at most",
        help="how many messages a second its consumers get, over all shards and processes, retries included; "
        "[further ones wait](howto/peaks.md). 0.5 is one every two seconds",
    )
    key_concurrency: int | None = setting(
        None,
        most=100,
        label="Of one ordering key at most",
        help="in a queue, how many messages of one ordering key are [in flight at once](flow_control.md#of-one-key), "
        "retries included; messages without a key are free",
    )
    tenant_share: int = setting(
        75,
        most=100,
        label="Heavy tenants at most, percent",
        help="the part of the pull consumers, or of `max_in_flight` in a shard, that "
        "[heavy tenants](flow_control.md#tenants) may have while others had messages in the last minute",
    )
    offline: Offline = setting(
        Offline.KEEP,
        label="Who is offline",
        help='in a broadcast, what a consumer gets when it comes back: "keep", all messages that came meanwhile; '
        '"skip", only new ones. Who still works on a message, under its lease, or settles one, was not away',
    )
    assignment: str = setting(
        "mod",
        choices=("mod", "average", "rendezvous"),
        label="Assignment",
        help='how shards are divided among consumers: "mod" and "average" by rank, "rendezvous" with the fewest moves '
        "when a consumer joins or leaves",
    )
    payload: Payload = setting(
        Payload.BINARY,
        label="Payload",
        help='[the form of requests](delivery.md): "binary", "structured" or "batch"',
    )
    auto_ack: bool = setting(
        True,
        label="Acknowledge by any 2xx",
        help="false: a subscriber's 202 settles nothing; the message stays leased until the subscriber "
        "[acknowledges it later](delivery.md#acknowledging-later), or its lease ends",
    )
    keep_answers: bool | None = setting(
        None,
        usual="true; false in a topic with `redact`",
        label="Keep answers",
        help="keep the first 500 bytes of a subscriber's answer to a failed attempt, if it is text, "
        "[with the attempt](inspect.md#what-a-subscriber-answered)",
    )
    metrics: bool = setting(
        False,
        label="Metrics of its own in CloudWatch",
        help="backlog, oldest message, failed attempts and dead letters a minute as "
        "[metrics](operations.md#health-log-and-metrics), 1.20 USD a month; of at most 50 groups of a stage",
    )
    on_dead: Destination | None = setting(
        None,
        label="Destination of dead letters",
        help="a [destination](howto/destinations.md): the topic that gets a message for each that becomes a dead "
        "letter",
    )
    on_success: Destination | None = setting(
        None,
        label="Destination of successes",
        help="as `on_dead`, for each message that ends as SUCCESS; each acknowledgement then costs more",
    )
    callbacks: tuple[str, ...] | None = setting(
        None,
        given=dict,
        label="Hosts of callbacks",
        help="hosts, 16 at most, that a message's [`callback_url`](howto/delay.md#a-url-for-each-job) may name",
    )
