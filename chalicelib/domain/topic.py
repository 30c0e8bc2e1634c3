"""Control data: topics, groups, consumers, tokens."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Self

from . import limits as lim
from .errors import Conflict, Refused
from .message import Draft, Message
from .segment import Segment, ShardKey
from .settings import DEFAULT_RETRY as DEFAULT_RETRY
from .settings import GroupSettings, TopicSettings
from .settings import Mode as Mode
from .settings import Offline as Offline
from .settings import Payload as Payload
from .signing import Secret
from .times import DAY_MS

_ID_CHARS = 128
_FORMER_INSTANCES = 8
# Who claims what is sent to `callback_url`s, where no push consumer owns a shard: its uid and name.
CALLBACKS = "callbacks"
# The beginning of a caller's id without a token.
IAM = "iam:"
EARLIEST = "earliest"
LATEST = "latest"
# The end of a pause that a person ends.
FOR_EVER_MS = 1 << 62
# EARLIEST, LATEST, "@<ms>" for a time, or an offset.
Where = str | int


class ConsumerKind(StrEnum):
    """How messages reach a consumer: it pulls them, or they are pushed to its URL or its Lambda function."""

    PULL = "pull"
    URL = "url"
    FUNCTION = "function"


class ConsumerState(StrEnum):
    """PENDING until a URL's owner has agreed to be called, then ACTIVE; DISABLED after days of failures."""

    PENDING = "PENDING"
    ACTIVE = "ACTIVE"
    DISABLED = "DISABLED"


@dataclass(frozen=True, slots=True)
class FormerPointer:
    """A pointer that `redact` had until a time: it still hides what was accepted before."""

    pointer: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Topic(TopicSettings):
    """A topic with its settings. `uid` distinguishes it from an earlier one of that name. `rows_until_ms`: no new row's
    retention ends before it."""

    name: str
    uid: str
    created_ms: int
    is_called: bool = True  # was a push consumer ever registered? A new topic has False
    redacted_before: tuple[FormerPointer, ...] = ()
    rows_until_ms: int = 0
    version: int = 0  # rises with every write

    @property
    def edition(self) -> int:
        """Rises with every write, and from one life of the name to the next."""
        return self.created_ms + self.version

    @property
    def shard_numbers(self) -> Sequence[int]:
        """The numbers of all its shards, in order: the most urgent come last."""
        if self.priorities == 1:
            return range(self.shards)
        return [number for numbers in reversed(self.classes) for number in numbers]

    @property
    def classes(self) -> Sequence[range]:
        """The numbers of the shards of each priority, the most urgent first. The last priority has the lowest: a new
        one comes on top, and no shard changes its number."""
        few = max(1, self.shards // 4)  # a look at an empty shard costs half a read unit
        firsts = range((self.priorities - 1) * lim.MAX_SHARDS, -1, -lim.MAX_SHARDS)
        return [range(first, first + (few if first else self.shards)) for first in firsts]

    def class_of(self, priority: int | None) -> range:
        """The numbers of the shards of a priority; None: the last. A process may not know the latest ones yet."""
        return self.classes[-1 if priority is None else min(priority, self.priorities - 1)]

    def lacks(self, shard: int | None) -> Refused | None:
        """Why a shard cannot be named; None where the topic has it, or none is named."""
        if shard is None or shard in self.shard_numbers:
            return None
        numbers = " and ".join(f"{each[0]} to {each[-1]}" for each in reversed(self.classes))
        return Refused("NO_SUCH_SHARD", f"Topic {self.name!r} has shards {numbers}.")

    @property
    def shards_of_keys(self) -> int:
        """Over how many shards ordering keys are spread."""
        return self.key_shards or self.shards

    def expires_s(self, accepted_ms: int) -> int:
        """When DynamoDB may remove a row of the topic's log: not before an older row, also after the retention was
        lowered; and after two days at the earliest, in which the archive gets it and `expire` comes by."""
        ends_ms = max(accepted_ms + max(self.retention_ms, DAY_MS), self.rows_until_ms)
        return ends_ms // 1000 + lim.RETENTION_GRACE // timedelta(seconds=1)

    @property
    def retention_ms(self) -> int:
        """How long its messages are kept, in ms."""
        return round(self.retention_days * DAY_MS)

    def keeps_until_ms(self, of: Segment | Message) -> int:
        """When the retention of a row or message ends: by the retention under which it was written, or by today's if
        that is shorter. After it the message cannot be read, even if TTL has not removed the row yet. If its time is
        not known, by the former alone."""
        if not of.accepted_ms:
            return of.ends_ms
        return min(of.ends_ms, of.accepted_ms + self.retention_ms)

    def shard_key(self, shard: int) -> ShardKey:
        """The partition key of one of its shards, in the log and in the cursors."""
        return ShardKey(self.name, self.uid, shard)


@dataclass(frozen=True, slots=True)
class Group(GroupSettings):
    """A consumer group with its settings. `paused_until_ms`: no messages are handed out before this time. Of
    `secrets` come those that sign callbacks."""

    topic: str
    name: str
    uid: str
    created_ms: int
    paused_until_ms: int = 0
    secrets: tuple[Secret, ...] = ()
    version: int = 0

    @property
    def mark(self) -> str:
        """Its key among what is measured each minute; names have no `#`."""
        return f"{self.topic}#{self.name}"

    def is_paused(self, now_ms: int) -> bool:
        """Is the group paused at this time? A pause with an end is over by itself."""
        return now_ms < self.paused_until_ms

    @property
    def pause_ends_ms(self) -> int | None:
        """When its pause ends by itself; None: when a person resumes it."""
        return self.paused_until_ms if self.paused_until_ms < FOR_EVER_MS else None

    def keeps_answers(self, topic: Topic) -> bool:
        """Are subscribers' answers kept? They may quote what the topic hides."""
        return not topic.redact if self.keep_answers is None else self.keep_answers

    def wants(self, draft: Draft) -> bool:
        """Does the message pass its filter, and is it not for another group alone?"""
        return passes_filter(self.tags, draft.tag) and draft.target_group_uid in (None, self.uid)


@dataclass(frozen=True, slots=True)
class Consumer:
    """A registered consumer. `uid` names its cursors in a broadcast group; `seen_ms` is its last heartbeat.

    `target` is the URL, the function's ARN or its local name; `why` is for a state other than ACTIVE, which it has
    since `state_ms`. `failing_ms` is when the present run of failed attempts began; `open_until_ms` is when its circuit
    breaker lets the next probe through, `times_opened` how often in a row it opened. `timeout_seconds` is how long a
    call may take, as registered: of a function, its own timeout.

    What a URL gets beside a message: `headers`, sealed for the row and the URL (none, or one text), of which
    `header_names` may be shown. It gets what `transform` makes of the message; a status of `reject_statuses` is final.
    A batch waits for `batch_wait_seconds` to be filled.

    A pull consumer is removed when it is silent for longer than `expires_after_seconds` (None: never). `received_ms` is
    its last receive, as far as it is noted. `instance` has its name at present, by the token `instance_by` (a push
    consumer's: the token that registered its target); from each of the `former_instances` a later one took the name
    over, the latest first.
    """

    topic: str
    group: str
    name: str
    uid: str
    created_ms: int
    seen_ms: int
    kind: ConsumerKind = ConsumerKind.PULL
    state: ConsumerState = ConsumerState.ACTIVE
    target: str = ""
    secrets: tuple[Secret, ...] = ()
    why: str | None = None
    state_ms: int | None = None
    failing_ms: int | None = None
    open_until_ms: int | None = None
    times_opened: int = 0
    timeout_seconds: int | None = None
    headers: tuple[Secret, ...] = ()
    header_names: tuple[str, ...] = ()
    reject_statuses: tuple[int, ...] = ()
    transform: str | None = None
    batch_wait_seconds: int = 0
    expires_after_seconds: int | None = None
    received_ms: int = 0
    instance: str | None = None
    instance_by: str = ""
    former_instances: tuple[str, ...] = ()
    version: int = 0

    @property
    def busy_seconds(self) -> int:
        """How long the consumer may work on a call after its start, even if we stop waiting: a function runs until its
        own time-out. 0 if a call ends with its connection."""
        if self.kind != ConsumerKind.FUNCTION:
            return 0
        return (self.timeout_seconds or lim.MAX_FUNCTION_SECONDS) + lim.FUNCTION_START_SECONDS

    @property
    def is_called(self) -> bool:
        """Is it a push consumer?"""
        return self.kind != ConsumerKind.PULL

    @property
    def is_slow(self) -> bool:
        """Is it called by `deliver_slow`?"""
        is_active = self.is_called and self.state == ConsumerState.ACTIVE
        return is_active and (self.timeout_seconds or 0) > lim.MAX_QUICK_SECONDS

    def is_expired(self, now_ms: int) -> bool:
        """Was it silent for so long that it counts as removed?"""
        if self.is_called or self.expires_after_seconds is None:
            return False
        return now_ms - self.seen_ms > self.expires_after_seconds * 1000

    def with_instance(self, instance: str | None, by: str, *, takes_back: bool = False) -> Self:
        """The consumer after a call of this instance (None: of none), made with the token `by`. An instance that was
        not seen before takes the name over. Raises Conflict for one that lost the name, unless it `takes_back`."""
        if instance in (None, self.instance) or self.is_called:
            return self
        if instance in self.former_instances and not takes_back:
            fact = f"Another instance, {self.instance!r}, has taken over the name {self.name!r}."
            raise Conflict("CONSUMER_TAKEN_OVER", f"{fact} Stop this one, or register it again.")
        former = [each for each in (self.instance, *self.former_instances) if each and each != instance]
        names = tuple(former[:_FORMER_INSTANCES])
        return replace(self, instance=instance, instance_by=by, former_instances=names)

    def overlap_until_ms(self, now_ms: int) -> int | None:
        """Until when the secret before the last rotation also signs; None: only the present one signs."""
        return max((s.until_ms for s in self.secrets if s.until_ms and s.until_ms > now_ms), default=None)


@dataclass(frozen=True, slots=True)
class Callback(Consumer):
    """A host that is called for messages with a `callback_url`, or who claims them. It is not stored."""


@dataclass(frozen=True, slots=True)
class CursorKey:
    """Whose cursor on which shard; `consumer_uid` is empty unless the group is a broadcast."""

    shard: ShardKey
    group_uid: str
    consumer_uid: str = ""


@dataclass(frozen=True, slots=True)
class FormerHash:
    """The hash of a secret that a token had before it was rotated; it is good until `until_ms`."""

    secret_hash: str
    until_ms: int


class Scope(StrEnum):
    """What a token allows."""

    PRODUCE = "produce"
    CONSUME = "consume"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """An access token as it is stored: the secret only as a hash. `rate_limit`: its calls a second;
    `most_urgent`: no lower priority is for its messages."""

    id: str
    name: str
    secret_hash: str
    scopes: tuple[str, ...]
    topics: tuple[str, ...] = ("*",)
    created_ms: int = 0
    expires_ms: int | None = None
    groups: tuple[str, ...] = ("*",)
    former: tuple[FormerHash, ...] = ()
    rate_limit: int | None = None
    version: int = 0
    jobs: tuple[str, ...] = ("*",)
    most_urgent: int | None = None
    tenant: str | None = None  # all that it sends is for this one


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, from the authorizer's check of the token."""

    token_id: str
    scopes: frozenset[str]
    topics: tuple[str, ...] = field(default=("*",))
    groups: tuple[str, ...] = field(default=("*",))
    expires_ms: int | None = None
    name: str = ""
    rate_limit: int | None = None
    jobs: tuple[str, ...] = ("*",)
    most_urgent: int | None = None
    tenant: str | None = None

    @classmethod
    def with_token(cls, token: Token) -> Self:
        """The caller with this token."""
        same = ("topics", "groups", "expires_ms", "name", "rate_limit", "jobs", "most_urgent", "tenant")
        return cls(token.id, frozenset(token.scopes), **{name: getattr(token, name) for name in same})

    @classmethod
    def of_iam(cls, arn: str) -> Self:
        """The caller that signed with SigV4, by ARN. IAM policies have already allowed the call. An assumed role is
        identified by the role's name, since its session name is chosen freely."""
        resource = arn.split(":", 5)[-1]
        kind, _, name = resource.partition("/")
        if kind == "assumed-role":
            kind, name = "role", name.split("/")[0]
        who = f"{kind}/{name}" if name else kind
        return cls(f"{IAM}{who}"[:_ID_CHARS], frozenset(Scope), name=resource[:_ID_CHARS])

    def seen(self, topic: Topic) -> Topic:
        """The topic as the caller may see it: amounts of money are for admins."""
        return topic if Scope.ADMIN in self.scopes else replace(topic, budget_usd=None)

    def may_use(self, topic: str) -> bool:
        """Do the token's patterns allow this topic?"""
        return _matches_any(topic, self.topics)

    def may_use_group(self, group: str) -> bool:
        """Do the token's patterns allow this group?"""
        return _matches_any(group, self.groups)

    def may_use_job(self, name: str | None) -> bool:
        """Do the token's patterns allow the job of this name? A message that is no job has none."""
        return name is None or _matches_any(name, self.jobs)

    @property
    def has_all_groups(self) -> bool:
        """Is the token for all groups? Only then may it see what concerns all groups together."""
        return "*" in self.groups

    @property
    def has_all(self) -> bool:
        """Is the token for all topics and groups?"""
        return "*" in self.topics and self.has_all_groups

    def excess(self, token: Token) -> str | None:
        """Which right the token would have and its creator has not, in a word; None if there is none."""
        if not self.scopes.issuperset(token.scopes):
            return "scopes"
        for word in ("topics", "groups", "jobs"):
            if not all(_matches_any(pattern, getattr(self, word)) for pattern in getattr(token, word)):
                return word
        if self.tenant not in (None, token.tenant):
            return "tenant"
        if self.expires_ms is not None and (token.expires_ms is None or token.expires_ms > self.expires_ms):
            return "time"
        is_more_urgent = token.most_urgent is None or token.most_urgent < (self.most_urgent or 0)
        return "priorities" if self.most_urgent is not None and is_more_urgent else None

    def behind(self, name: str) -> str | None:
        """Where to continue a list of topics behind `name`: the exclusive start key before the next name that the
        patterns can match, `name` itself or later; None if no later name can match."""
        beginnings = [pattern.partition("*")[0] for pattern in self.topics]
        if any(name.startswith(beginning) for beginning in beginnings):
            return name
        later = min((beginning for beginning in beginnings if beginning > name), default=None)
        return later and f"{later[:-1]}{chr(ord(later[-1]) - 1)}~"  # "~" sorts behind all characters of names


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    """Does one of the patterns cover the name? (Or a pattern: its stars then count as ordinary characters.)"""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def passes_filter(tags: Sequence[str] | None, tag: str | None) -> bool:
    """Does a message with this tag pass a group's filter? No filter passes everything."""
    return tags is None or tag in tags


def lane_of(topic: Topic, group: Group, consumer_uid: str = "") -> Topic:
    """The group's retry lane (in a broadcast: the consumer's): a topic of one shard whose name no user can choose."""
    name, uid = f"{topic.name}~{group.name}", consumer_uid or group.uid
    days, until_ms = topic.retention_days, topic.rows_until_ms
    return Topic(name, uid, group.created_ms, shards=1, retention_days=days, rows_until_ms=until_ms)


def cursor_key(topic: Topic, group: Group, shard: int | None, consumer_uid: str = "") -> CursorKey:
    """The key of a group's (in a broadcast: a consumer's) cursor on a shard of the topic, or on its lane (None)."""
    source = topic.shard_key(shard) if shard is not None else lane_of(topic, group, consumer_uid).shard_key(0)
    return CursorKey(source, group.uid, consumer_uid)


def cursor_keys(topic: Topic, group: Group, consumer_uid: str = "") -> list[CursorKey]:
    """The cursor keys of a group (or of a broadcast's consumer), one for each shard."""
    return [cursor_key(topic, group, shard, consumer_uid) for shard in topic.shard_numbers]
