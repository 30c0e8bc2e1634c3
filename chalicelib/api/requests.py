"""The bodies callers send, as types: msgspec checks them, and OpenAPI is generated from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from ..domain import limits as lim
from ..domain.times import DAY_SECONDS

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z"
Name = Annotated[str, Meta(pattern=NAME)]
Mode = Literal["queue", "serial", "broadcast"]
TEXT = r"^[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*\Z"  # no control characters, not blank
Key = Annotated[str, Meta(min_length=1, max_length=lim.MAX_KEY_CHARS, pattern=TEXT)]
TAG = r"^[^|\s\x00-\x1f\x7f-\x9f]+\Z"
Tag = Annotated[str, Meta(min_length=1, max_length=lim.MAX_TAG_CHARS, pattern=TAG)]
HEADER_NAME = rf"^[A-Za-z0-9!#$%&'*+.^_`~-]{{1,{lim.MAX_HEADER_NAME_CHARS}}}\Z"
HeaderName = Annotated[str, Meta(pattern=HEADER_NAME)]
HEADER_VALUE = r"^[^\x00-\x08\x0a-\x1f\x7f-\x9f]*\Z"
HeaderValue = Annotated[str, Meta(max_length=lim.MAX_HEADER_VALUE_CHARS, pattern=HEADER_VALUE)]
LeaseSeconds = Annotated[int, Meta(ge=1, le=lim.MAX_LEASE_SECONDS)]
MessageDelay = Annotated[
    int, Meta(ge=0, extra_json_schema={"maximum": lim.MAX_DELAY_SECONDS})
]  # a message's; parse.check_delay refuses a longer one with 422, not 400
TOPIC_PATTERN = r"^[A-Za-z0-9._*-]{1,128}\Z"
TopicPattern = Annotated[str, Meta(pattern=TOPIC_PATTERN)]
MEDIA_TYPE = r"^[\x20-\x7e]+\Z"
MediaType = Annotated[str, Meta(min_length=1, max_length=lim.MAX_CONTENT_TYPE_CHARS, pattern=MEDIA_TYPE)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
Step = Annotated[int, Meta(ge=1, le=lim.MAX_STEP_SECONDS)]


class Retry(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A retry policy. `ladder` is a name or a list of seconds."""

    max_attempts: Annotated[int, Meta(ge=1, le=lim.MAX_ATTEMPTS)] | UnsetType = UNSET
    ladder: (
        Literal["fixed-30", "jmq", "notify", "rocketmq", "exponential"]
        | Annotated[list[Step], Meta(min_length=1, max_length=lim.MAX_LADDER_STEPS)]
        | UnsetType
    ) = UNSET
    jitter: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    base_seconds: Step | UnsetType = UNSET
    factor: Annotated[float, Meta(ge=1, le=10)] | UnsetType = UNSET
    cap_seconds: Step | UnsetType = UNSET


class TopicBody(Struct, forbid_unknown_fields=True):
    """Settings of a topic; missing settings keep their value (in a new topic, the default)."""

    mode: Mode | UnsetType = UNSET
    shards: Annotated[int, Meta(ge=1, le=lim.MAX_SHARDS)] | UnsetType = UNSET
    key_shards: Annotated[int, Meta(ge=1, le=lim.MAX_SHARDS)] | UnsetType = UNSET
    retry: Retry | UnsetType = UNSET
    lease_seconds: LeaseSeconds | UnsetType = UNSET
    retention_days: Annotated[int, Meta(ge=1, le=lim.MAX_RETENTION_DAYS)] | UnsetType = UNSET
    alarm_backlog: Annotated[int, Meta(ge=1, le=lim.MAX_OFFSET)] | UnsetType | None = UNSET
    rate_limit: Annotated[int, Meta(ge=1, le=lim.MAX_RATE_LIMIT)] | UnsetType | None = UNSET
    on_rate_limit: Literal["reject", "dead_letter"] | UnsetType = UNSET
    max_body_bytes: Annotated[int, Meta(ge=1, le=lim.MAX_BODY_BYTES)] | UnsetType = UNSET
    dedup_window_seconds: Annotated[int, Meta(ge=1, le=lim.MAX_DEDUP_WINDOW_SECONDS)] | UnsetType = UNSET
    wake: Literal["stream", "direct"] | UnsetType = UNSET


class MessageBody(Struct, forbid_unknown_fields=True):
    """A message to produce: `body` (any JSON) or `body_base64` with `content_type`."""

    body: Any | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    content_type: MediaType | None = None
    keys: Annotated[list[Key], Meta(max_length=lim.MAX_KEYS)] = []
    tag: Tag | None = None
    ordering_key: Key | None = None
    shard: Annotated[int, Meta(ge=0)] | None = None
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=lim.MAX_HEADERS)] = {}
    delay_seconds: MessageDelay | None = None
    deliver_at: Time | None = None
    expires_in_seconds: Annotated[int, Meta(ge=1, le=lim.MAX_DELAY_SECONDS)] | None = None
    dedup_id: Annotated[str, Meta(min_length=1, max_length=lim.MAX_DEDUP_ID_CHARS, pattern=TEXT)] | None = (
        None
    )
    retry: Retry | None = None


class TransactionBody(Struct, forbid_unknown_fields=True):
    """A message to prepare, and the URL that is asked for the decision if neither commit nor rollback arrives."""

    message: MessageBody
    check_url: Annotated[str, Meta(max_length=lim.MAX_URL_CHARS)] | None = None
    check_after_seconds: Annotated[int, Meta(ge=1, le=lim.MAX_CHECK_AFTER_SECONDS)] = (
        lim.DEFAULT_CHECK_AFTER_SECONDS
    )


class BatchBody(Struct, forbid_unknown_fields=True):
    """Up to 1,000 messages; each is checked individually."""

    messages: Annotated[list[Any], Meta(min_length=1, max_length=lim.MAX_BATCH)]


class GroupBody(Struct, forbid_unknown_fields=True, rename={"begin": "from"}):
    """Settings of a consumer group; missing settings keep their value. `from` and `mode` are used at creation only."""

    mode: Mode | UnsetType = UNSET
    begin: str | UnsetType = UNSET
    filter: Annotated[str, Meta(max_length=4096)] | UnsetType | None = UNSET
    retry: Retry | UnsetType | None = UNSET
    lease_seconds: LeaseSeconds | UnsetType | None = UNSET
    batch_size: Annotated[int, Meta(ge=1, le=lim.MAX_BATCH)] | UnsetType = UNSET
    max_in_flight: Annotated[int, Meta(ge=1, le=lim.MAX_IN_FLIGHT)] | UnsetType = UNSET
    offline: Literal["keep", "skip"] | UnsetType = UNSET
    assignment: Literal["mod", "average", "rendezvous"] | UnsetType = UNSET
    payload: Literal["binary", "structured", "batch"] | UnsetType = UNSET


class AmendBody(Struct, forbid_unknown_fields=True):
    """Changes of a message that no group has claimed yet."""

    body: Any | UnsetType = UNSET
    deliver_at: Time | UnsetType = UNSET
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=lim.MAX_HEADERS)] | UnsetType = UNSET
    retry: Retry | UnsetType = UNSET


class DelayedBody(Struct, forbid_unknown_fields=True):
    """A change of delayed messages, one of three: a new time for all (`deliver_at`; a past time means now), a later
    time for each (`postpone_seconds`; less than 0: sooner), or `cancel`. It applies to the messages with these ids, or
    to a page of those that match the query. `dry_run`: only show the changes."""

    deliver_at: Time | UnsetType = UNSET
    postpone_seconds: (
        Annotated[int, Meta(ge=-lim.MAX_DELAY_SECONDS, le=lim.MAX_DELAY_SECONDS)] | UnsetType
    ) = UNSET
    cancel: bool = False
    ids: Annotated[list[str], Meta(min_length=1, max_length=lim.MAX_PAGE)] | UnsetType = UNSET
    dry_run: bool = False


class SeekBody(Struct, forbid_unknown_fields=True):
    """A group's new position: "earliest", "latest", a time (RFC 3339) or an offset; on one shard or on all."""

    to: str | Annotated[int, Meta(ge=0, le=lim.MAX_OFFSET)]
    shard: Annotated[int, Meta(ge=0)] | None = None


class ConsumerBody(Struct, forbid_unknown_fields=True):
    """A consumer: `{}` is a pull consumer; `url` or `function` makes a push consumer. `timeout_seconds` is the time-out
    of the Lambda function."""

    url: Annotated[str, Meta(max_length=lim.MAX_URL_CHARS)] | None = None
    secret: Annotated[str, Meta(max_length=256)] | None = None
    function: Annotated[str, Meta(max_length=256)] | None = None
    timeout_seconds: Annotated[int, Meta(ge=1, le=lim.MAX_TIMEOUT_SECONDS)] | None = None


class NoBody(Struct, forbid_unknown_fields=True):
    """No fields: `{}` or no body."""


class ReceiveBody(Struct, forbid_unknown_fields=True):
    """How many messages to claim, how long to wait for the first, and for which consumer."""

    max: Annotated[int, Meta(ge=1, le=lim.MAX_RECEIVE)] = lim.DEFAULT_RECEIVE
    wait_seconds: Annotated[float, Meta(ge=0, le=lim.MAX_RECEIVE_WAIT_SECONDS)] = 0
    consumer: Name | None = None
    lease_seconds: LeaseSeconds | None = None


Receipts = Annotated[list[str], Meta(min_length=1, max_length=lim.MAX_RECEIPTS)]


class AckBody(Struct, forbid_unknown_fields=True):
    """Deliveries that succeeded."""

    receipts: Receipts


class NackBody(Struct, forbid_unknown_fields=True):
    """Deliveries to try again, or to turn into dead letters. Without `delay_seconds` the ladder gives the delay; 0: at
    once. `untried`: nobody began with them, so no attempt is counted; without a delay they come again at once."""

    receipts: Receipts
    delay_seconds: Annotated[int, Meta(ge=0, le=lim.MAX_NACK_DELAY_SECONDS)] | UnsetType = UNSET
    dead_letter: bool = False
    untried: bool = False
    reason: Annotated[str, Meta(max_length=lim.MAX_REASON_CHARS)] | None = None


class ExtendBody(Struct, forbid_unknown_fields=True):
    """Deliveries that need more time."""

    receipts: Receipts
    lease_seconds: LeaseSeconds


class DeadFilter(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A filter for dead letters; `since`: those that became dead letters then or later."""

    reason: str | None = None
    tag: Tag | None = None
    key: Key | None = None
    since: Time | None = None


class RedriveBody(Struct, forbid_unknown_fields=True):
    """Dead letters to redrive: by message ids, by a filter, or all; at most `limit` of them. `page_token`: go on where
    an answer with this filter ended."""

    ids: Annotated[list[str], Meta(min_length=1, max_length=lim.MAX_BATCH)] | UnsetType = UNSET
    filter: DeadFilter | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=lim.MAX_REDRIVE)] = lim.MAX_BATCH
    page_token: str | UnsetType = UNSET


class ReplayBody(Struct, forbid_unknown_fields=True, rename={"begin": "from", "end": "to"}):
    """Archived messages to send again: accepted from `from` on and before `to`, with this tag, key and body."""

    begin: Time
    end: Time
    tag: Tag | None = None
    key: Key | None = None
    where: Annotated[str, Meta(min_length=1, max_length=lim.MAX_WHERE_CHARS)] | None = None
    into: Name | None = None
    group: Name | None = None
    rate: Annotated[int, Meta(ge=1, le=lim.MAX_REPLAY_RATE)] = lim.DEFAULT_REPLAY_RATE
    dry_run: bool = False
    start: bool = True


class ProgressBody(Struct, forbid_unknown_fields=True):
    """The progress that a replay's job reports."""

    state: Literal["RUNNING", "DONE", "FAILED"]
    matched: Annotated[int, Meta(ge=0, le=lim.MAX_COUNT)] | None = None
    sent: Annotated[int, Meta(ge=0, le=lim.MAX_COUNT)] = 0
    error: Annotated[str, Meta(max_length=lim.MAX_REASON_CHARS)] | None = None


class ArchivedBody(Struct, forbid_unknown_fields=True):
    """An archived message."""

    id: Annotated[str, Meta(min_length=1, max_length=lim.MAX_ID_CHARS // 2)]
    shard: Annotated[int, Meta(ge=0, lt=lim.MAX_SHARDS)]
    body_base64: str
    content_type: MediaType
    keys: Annotated[list[Key], Meta(max_length=lim.MAX_KEYS)] = []
    tag: Tag | None = None
    ordering_key: Key | None = None
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(max_length=lim.MAX_HEADERS)] = {}


class BodyBody(Struct, forbid_unknown_fields=True):
    """A new body (any JSON)."""

    body: Any


class MergeBody(Struct, forbid_unknown_fields=True):
    """A JSON merge patch (RFC 7386) for bodies: null removes a member. It applies to the dead letters with these
    ids, or to a page of those that match the query. `dry_run`: only show the changes."""

    patch: dict[str, Any]
    ids: Annotated[list[str], Meta(min_length=1, max_length=lim.MAX_PAGE)] | UnsetType = UNSET
    dry_run: bool = False


class RetryNowBody(Struct, forbid_unknown_fields=True):
    """The group whose delivery is retried."""

    group: Name


class TokenBody(Struct, forbid_unknown_fields=True):
    """A token to create: its scopes, and the topics and groups that it may use (patterns with `*`)."""

    name: Annotated[str, Meta(min_length=1, max_length=128, pattern=TEXT)]
    scopes: Annotated[list[Literal["produce", "consume", "admin"]], Meta(min_length=1, max_length=3)]
    topics: Annotated[list[TopicPattern], Meta(min_length=1, max_length=lim.MAX_TOPIC_PATTERNS)] = field(
        default_factory=lambda: ["*"]
    )
    groups: Annotated[list[TopicPattern], Meta(min_length=1, max_length=lim.MAX_TOPIC_PATTERNS)] = field(
        default_factory=lambda: ["*"]
    )
    expires_in_days: Annotated[int, Meta(ge=1, le=lim.MAX_TOKEN_DAYS)] | None = None
    rate_limit: Annotated[int, Meta(ge=1, le=lim.MAX_RATE_LIMIT)] | None = None


class RotateBody(Struct, forbid_unknown_fields=True):
    """A rotation: how long the old text or secret of a token or consumer stays valid in addition to the new one."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=lim.MAX_OVERLAP_SECONDS)] = DAY_SECONDS


class RotateKeyBody(Struct, forbid_unknown_fields=True):
    """A new signing key: how long signatures of the previous key stay valid."""

    overlap_seconds: Annotated[int, Meta(ge=0, le=lim.MAX_OVERLAP_SECONDS)] = DAY_SECONDS
