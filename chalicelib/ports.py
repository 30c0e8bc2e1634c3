"""What services ask of the world: storage, time, chance. Each port has a memory and a DynamoDB form, and one
contract suite (tests/contract) that both pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from .domain.assignment import Assignment
from .domain.cursor import Change, Cursor
from .domain.mark import Mark
from .domain.message import Draft, Message
from .domain.outcome import Outcome, Parcel
from .domain.rate import Grant
from .domain.replay import Replay
from .domain.segment import Segment, ShardKey, Tail
from .domain.timer import Timer
from .domain.topic import Consumer, CursorKey, Group, Token, Topic
from .domain.trace import TraceRow
from .domain.transaction import Answer, State, Transaction


class Clock(Protocol):
    """Time, injected."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class Chance(Protocol):
    """Randomness and ids, injected."""

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        ...

    def id(self, chars: int) -> str:
        """A random Crockford base-32 text."""
        ...

    def secret(self) -> bytes:
        """32 bytes nobody can guess."""
        ...


@dataclass(frozen=True, slots=True)
class Pack:
    """Drafts that fit one segment, encoded once. `size` is the stored payload in bytes."""

    drafts: tuple[Draft, ...]
    payload: bytes | str
    size: int


@dataclass(frozen=True, slots=True)
class DedupEntry:
    """Remembers a dedup id with what it was used for; written in one transaction with the segment."""

    topic_uid: str
    dedup_id: str
    content_hash: str
    message_id: str
    accepted_ms: int
    expires_s: int


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """Says that a message has a business key. Written before the message: one that lost its race leaves entries of
    a message that never was."""

    topic_uid: str
    key: str
    message_id: str
    accepted_ms: int
    expires_s: int

    @property
    def mark(self) -> str:
        """Its place among the key's entries: they sort by time."""
        return f"{self.accepted_ms:015d}#{self.message_id}"


@dataclass(frozen=True, slots=True)
class Stored:
    """The segment is in the log."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Another writer has that offset; `by` is what stands there."""

    by: Segment


@dataclass(frozen=True, slots=True)
class Known:
    """Some dedup ids were used before; nothing was written."""

    entries: tuple[DedupEntry, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """Some of what was to be moved is there no more (or changed): by their places; nothing was written."""

    places: tuple[int, ...]


PutResult = Stored | Taken | Known | Gone


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A buried delivery with its whole message. `edited` says that the body is not the one that was sent;
    `version` rises with each edit."""

    key: CursorKey
    offset: int
    message: Message
    reason: str
    attempts: int
    at_ms: int
    last_error: str | None = None
    edited: bool = False
    version: int = 0


Movable = Timer | DeadLetter | Transaction


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a fragment found. `mark` is where to go on behind; None: that is all."""

    timers: list[Timer]
    mark: str | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """A timer that is no longer where its id says: due at another time, or cancelled (then as it was). `edits` are
    the timer's: two that led to one time at different moments are different."""

    due_ms: int
    cancelled: Timer | None = None
    edits: int = 0


class Log(Protocol):
    """The sharded log. Offsets are dense; a row is changed by `amend` alone."""

    def pack(self, drafts: Sequence[Draft], *, whole: bool = False) -> Pack:
        """Encode the first of the drafts, as many as fit one segment; with `whole`, all, whatever their size."""
        ...

    def tail(self, shard: ShardKey) -> Tail:
        """The shard's last offset, read consistently, and never below its checkpoint. Two round trips."""
        ...

    def put(
        self,
        shard: ShardKey,
        segment: Segment,
        pack: Pack,
        dedup: Sequence[DedupEntry] = (),
        moved: Sequence[Movable] = (),
    ) -> PutResult:
        """Put the segment at its first offset if that is free. Our own earlier write counts as stored.

        `moved` go in the same transaction: a timer; a dead letter of just this version (its record then says
        RETRYING, from the segment's time on); or a transaction of just this version (then COMMITTED at the place of
        its draft, which has the same number among `moved` and in the segment), with the CHECK timer it knows of. A
        transaction of the store holds 100 actions: a timer is one, the others are two.
        """
        ...

    def reserve(self, shard: ShardKey, count: int) -> int | None:
        """Take `count` offsets from the counter of a RESERVED shard; the first. None: no counter is set yet."""
        ...

    def begin_reserving(self, shard: ShardKey, following: int) -> None:
        """Set the counter of a shard that has just turned RESERVED, unless it is set."""
        ...

    def put_tombstone(self, shard: ShardKey, offset: int, accepted_ms: int, expires_s: int) -> Segment:
        """Close one reserved offset nobody wrote; what stands there afterwards."""
        ...

    def read(self, shard: ShardKey, first: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        """At most `rows` segments that begin at or after `first`, in order. A read that is not consistent may
        miss the newest."""
        ...

    def read_back(self, shard: ShardKey, last: int, rows: int, *, consistent: bool = False) -> list[Segment]:
        """At most `rows` segments that begin at or before `last`, newest first."""
        ...

    def amend(
        self,
        shard: ShardKey,
        old: Segment,
        pack: Pack,
        offset: int,
        cursors: Mapping[CursorKey, Cursor | None],
    ) -> bool:
        """Put `pack` into the row that stands as `old`, as its next edition, and note in every one of the cursors
        (None: there is none; it then begins at 0) that the message at `offset` was amended: one transaction.

        False, and nothing was written: the row is gone or another edition, a cursor has claimed the offset or other
        notes than these, or came or went. At most MAX_AMENDED_CURSORS cursors.
        """
        ...

    def keep(self, shard: ShardKey, first: int, until_s: int) -> bool:
        """Let the row that begins at `first` live until then at least. False: it is gone, or lives longer anyway."""
        ...

    def checkpoint(self, shard: ShardKey, tail: Tail) -> None:
        """Remember the tail where no expiry reaches it."""
        ...


class Keys(Protocol):
    """Which messages have a business key."""

    def note(self, entries: Sequence[KeyEntry]) -> None:
        """Store entries, one write unit each. Harmless to repeat."""
        ...

    def newest(
        self,
        topic_uid: str,
        key: str,
        from_ms: int | None,
        to_ms: int | None,
        before: str | None,
        limit: int,
    ) -> list[KeyEntry]:
        """The last entries of a key from the mark `before` back, newest first; both times belong to the range.
        Fewer than `limit` only at the end; read consistently."""
        ...


class Rates(Protocol):
    """The permits of topics that have a rate limit: an account for each, shared by all processes."""

    def take(self, topic_uid: str, limit: int, count: int, now_ms: int) -> Grant:
        """Up to `count` permits from an account that gets `limit` a second: one write where nobody else takes at
        this moment, none where there is no permit."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """How far a job has come on its way round all topics, again and again. `after` is the topic it came to last,
    `passed_ms` when it last came past the end of the list (of the sweeper: it is done with earlier marks),
    `is_open`: a run is under way, or died."""

    after: str | None = None
    passed_ms: int = 0
    is_open: bool = False
    version: int = 0


class Rounds(Protocol):
    """Where the jobs stand that go round all topics: a run goes on where the last one stopped, in any process."""

    def place(self, job: str) -> Place:
        """The job's place, read consistently; one of version 0 where it never ran."""
        ...

    def keep(self, job: str, place: Place) -> Place | None:
        """Store the place, if what is stored has its version; as it is stored. None: another run keeps it."""
        ...


class Marks(Protocol):
    """Where jobs that come by each minute look: marked topics, and those that somebody wants watched. By name."""

    def mark(self, mark: Mark) -> None:
        """Store a mark. Harmless to repeat."""
        ...

    def since(self, from_ms: int) -> Iterator[Mark]:
        """Marks of this time and later (also of times to come), the earliest first; it may be a moment old."""
        ...

    def watch(self, topic: str, version: int) -> None:
        """Have a topic watched, whose settings have this version."""
        ...

    def unwatch(self, topic: str) -> None: ...

    def watched(self) -> dict[str, int]:
        """The topics that are watched, with the versions told; it may be a moment old."""
        ...


class Conflict(Enum):
    """A cursor write that found its conditions not met."""

    LOST = "lost"  # certainly not written
    UNKNOWN = "unknown"  # an answer was lost on the way: perhaps written


@dataclass(frozen=True, slots=True)
class Refused:
    """The write was refused; `current` is the cursor as it stands (None: there is none)."""

    why: Conflict
    current: Cursor | None


@dataclass(frozen=True, slots=True)
class Record:
    """A delivery that did not succeed at once. `status` is RETRYING, DEAD or SUCCESS (late).

    `of` is the cursor key of the message's place in its topic, where it was settled from a retry lane.
    `spent` attempts were made before its present life (see Origin). `message` goes with DEAD: storing the record
    also stores the dead letter. `expires_s` removes the record of what is neither dead nor owed any more.
    """

    shard: int
    offset: int
    status: str
    attempts: int
    at_ms: int
    consumer_uid: str = ""
    reason: str | None = None
    last_error: str | None = None
    next_ms: int | None = None
    spent: int = 0
    of: CursorKey | None = None
    message: Message | None = None
    expires_s: int | None = None

    @property
    def waited_in_cursor(self) -> bool:
        """Was the delivery to be tried again from its shard's cursor? Where that has settled the place, this one is of
        before a seek, and over."""
        return self.status == "RETRYING" and self.next_ms is None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A delivery that failed and is RETRYING or DEAD. `timed`: its next attempt has a time of its own, since it left
    its shard's cursor; of others the cursor tells."""

    shard: int
    offset: int
    status: str
    consumer_uid: str = ""
    timed: bool = False


class Cursors(Protocol):
    """One small item per group and shard, changed by conditional writes."""

    def get(self, key: CursorKey, *, consistent: bool = False) -> Cursor | None:
        """The cursor; None where nothing was ever claimed (it then stands at offset 0)."""
        ...

    def of_owner(
        self, group_uid: str, consumer_uid: str = "", *, consistent: bool = False
    ) -> dict[str, Cursor]:
        """All cursors of a group (in a broadcast: of a consumer) by the log's partition key. One cheap query; unless
        `consistent`, it may be a moment old. What was written before it began is in it for each cursor, but they are
        not all of one moment."""
        ...

    def create(self, key: CursorKey, cursor: Cursor) -> Cursor:
        """Store a first cursor unless there is one; the one that stands."""
        ...

    def write(
        self,
        key: CursorKey,
        change: Change,
        records: Sequence[Record] = (),
        timers: Sequence[Timer] = (),
        *,
        exists: bool = True,
    ) -> Cursor | Refused:
        """Apply a change if its conditions hold, together with delivery records and timers; the cursor afterwards.

        A record lies at `record.of` where that is given (`key` is then a retry lane's), else at `key`.
        """
        ...

    def rebuild(self, key: CursorKey, cursor: Cursor) -> Cursor:
        """Put a cursor in the place of one that is damaged, under an epoch that nobody has seen: the given one's or a
        higher one. Raises Conflict where a later release wrote it, Unavailable where it can be read (by now)."""
        ...

    def close(self, keys: Iterable[CursorKey], until_s: int) -> None:
        """Put CLOSED in the place of cursors, whether they are there or not: what anybody tries on what he knew of them
        is refused, and none can begin anew. They are forgotten some time after `until_s`."""
        ...


class Records(Protocol):
    """Delivery records, by group."""

    def get(self, key: CursorKey, offset: int) -> Record | None:
        """The record of one delivery, read consistently."""
        ...

    def unfinished(self, topic_uid: str, group_uid: str) -> list[Unfinished]:
        """The group's deliveries that have failed and not succeeded since. It may be a moment old."""
        ...

    def count_dead(self, topic_uid: str, group_uid: str) -> int:
        """How many dead letters the group has."""
        ...

    def dead(self, topic: Topic, group: Group, after: str | None, limit: int) -> list[tuple[str, DeadLetter]]:
        """Dead letters by place, each with the mark to go on after it. May be fewer than `limit` only at the end."""
        ...

    def dead_letter(self, key: CursorKey, offset: int) -> DeadLetter | None:
        """One dead letter, read consistently."""
        ...

    def edit(self, letter: DeadLetter) -> bool:
        """Store the letter under the next version, if it still has its own. False: it is gone or was changed."""
        ...

    def discard(self, letter: DeadLetter) -> bool:
        """Delete a dead letter of just this version; its record stays DEAD. False: it is gone or was changed."""
        ...

    def forget(self, group_uid: str) -> None:
        """Delete all records and dead letters of a group that is no more. A write unit for each KB of them."""
        ...


class Timers(Protocol):
    """What is due later, by fragment and due time."""

    def file(self, timers: Sequence[Timer], dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        """Store timers. Harmless to repeat. With dedup ids in one transaction (of at most 100 rows): the entries
        of ids that were used before, and then nothing was stored."""
        ...

    def amend(self, old: Timer, new: Timer, keep_s: int) -> bool:
        """Put `new` in the place of `old`, if that is there unchanged; where its time differs, its id leads from the
        old time to the new until `keep_s`. False: it is gone or was changed."""
        ...

    def cancel(self, timer: Timer, keep_s: int) -> bool:
        """Take the timer away for good, if it is there unchanged; until `keep_s` it can be seen as cancelled, with the
        draft it has here."""
        ...

    def moved(self, timer_id: str) -> Moved | None:
        """Where a timer went that was amended to another time, or cancelled; read consistently."""
        ...

    def look(self, fragment: int, until_ms: int, limit: int, behind: str = "") -> Look:
        """The first timers of a fragment (behind a mark) that are due by then, in order of time, read consistently:
        up to `limit`, and not many more than MAX_LOOK_BYTES."""
        ...

    def behind(self, fragment: int, mark: str, limit: int) -> list[Timer]:
        """The first timers of a fragment that stand behind a mark, in order of time; read consistently."""
        ...

    def count_delayed(self, fragment: int, most: int) -> tuple[dict[str, int], bool]:
        """How many delayed messages of which topic (by uid) are among the first `most` timers of a fragment (or as
        many as one read holds), and whether those are all. It may be a moment old."""
        ...

    def next_ms(self, fragment: int, *, consistent: bool = False) -> int | None:
        """When the fragment's next timer is due. A read that is not consistent may miss the newest."""
        ...

    def find(self, due_ms: int, timer_id: str) -> Timer | None:
        """One timer, read consistently."""
        ...

    def drop(self, timers: Sequence[Timer]) -> None:
        """Remove timers. Harmless where they are gone."""
        ...

    def set_aside(self, timer: Timer) -> None:
        """Take an UNREADABLE row out of the movers' way, as it is. Harmless where it has gone."""
        ...

    def bring_back(self) -> int:
        """File again some of what was set aside, as it was, if it can be read now; how many. Costs half a unit where
        there is nothing."""
        ...

    def hold(self, fragment: int, owner: str, now_ms: int, until_ms: int) -> bool:
        """Take or renew the lease of a fragment; False while another owner's runs."""
        ...

    def let_go(self, fragment: int, owner: str) -> None:
        """Give the lease back, if it is still this owner's."""
        ...


@dataclass(frozen=True, slots=True)
class Counted:
    """A number; where `whole` is False, there are at least so many."""

    number: int
    whole: bool = True


class Transactions(Protocol):
    """Messages that wait for a decision, and what was decided."""

    def prepare(self, transaction: Transaction, dedup: Sequence[DedupEntry] = ()) -> tuple[DedupEntry, ...]:
        """Store it together with its first CHECK timer and its dedup id. The entries of ids that were used before:
        then nothing was stored."""
        ...

    def get(self, transaction_id: str) -> Transaction | None:
        """One transaction, read consistently."""
        ...

    def change(
        self, old: Transaction, new: Transaction, file: Sequence[Timer] = (), drop: Sequence[Timer] = ()
    ) -> bool:
        """Put `new`, as the next version, in the place of `old`, if that has its version; timers are filed and
        dropped with it. False: somebody else changed it."""
        ...

    def listed(self, topic: Topic, state: State, after: str | None, limit: int) -> list[Transaction]:
        """The topic's transactions of a state by time of preparation, behind a mark, without their drafts and
        `keys_until_s`. It may be a moment old."""
        ...

    def count(self, topic: Topic, state: State, most: int) -> Counted:
        """How many they are, looking at some `most` of them. It may be a moment old."""
        ...


@dataclass(frozen=True, slots=True)
class Written:
    """A row of the log as a write left it."""

    shard: ShardKey
    segment: Segment


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stream's record of a row that is damaged, or that only a later release can read; as it came."""

    record: Mapping[str, Any]


class Traces(Protocol):
    """What was tried."""

    def write(self, rows: Sequence[TraceRow]) -> None:
        """Store rows; one write unit for a small one."""
        ...

    def covering(self, key: CursorKey, offset: int, *, consistent: bool = False) -> list[TraceRow]:
        """The rows of a group (all its consumers) that hold an attempt at this offset, in order of time. A read that
        is not consistent may miss the newest."""
        ...


class Sender(Protocol):
    """Out to subscribers. Nothing a subscriber does makes it raise."""

    def send(self, consumer: Consumer, parcel: Parcel, seconds: float) -> tuple[Outcome, ...]:
        """Call a consumer once, within `seconds`; one outcome for each message of the parcel."""
        ...

    def refusal(self, kind: str, target: str) -> str | None:
        """Why a "url" or "function" may not be called, for its registration; None: it may."""
        ...

    def greet(self, url: str) -> Outcome:
        """Ask a URL's owner for consent (the CloudEvents handshake): DONE, or FAILED and why."""
        ...

    def ask(self, transaction: Transaction, secret: bytes, seconds: float) -> Answer:
        """Ask a producer, within `seconds` and signed with `secret`, what became of its transaction."""
        ...


class Invoker(Protocol):
    """Starts one of our own functions, asynchronously and at least once."""

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        """`function` is its name in app.py; `event` is JSON."""
        ...


class Jobs(Protocol):
    """Starts the archive's jobs."""

    def start(self, job: str, arguments: Mapping[str, str]) -> bool:
        """Start a job, by its file's name in `glue_jobs`. False: there is nobody here to run it."""
        ...


@dataclass(frozen=True, slots=True)
class Staffed:
    """A group that has consumers, with these and its stored assignment."""

    group: Group
    consumers: tuple[Consumer, ...]
    assignment: Assignment | None


class Control(Protocol):
    """What is set up on purpose. Read often (cached above), written seldom, always conditionally."""

    def topic(self, name: str, *, consistent: bool = True) -> Topic | None:
        """A read that is not consistent costs half and may be of a moment ago."""
        ...

    def topics(self, after: str | None, limit: int, *, consistent: bool = True) -> list[Topic]:
        """Topics by name. A read that is not consistent costs half and may miss the newest."""
        ...

    def put_topic(self, topic: Topic, old: Topic | None) -> bool:
        """Store if the topic still is `old` (None: absent). False: it is not."""
        ...

    def retire_topic(self, topic: Topic) -> bool:
        """Take the topic out of the list; a mark stays until `delete_topic`. False: it is not as it was read."""
        ...

    def retired_topics(self, name: str) -> list[Topic]:
        """Topics that had the name and are not quite deleted."""
        ...

    def delete_topic(self, topic: Topic) -> None:
        """Remove what stands below this topic, itself, and its mark."""
        ...

    def group(self, topic: Topic, name: str) -> Group | None: ...

    def groups(self, topic: Topic) -> list[Group]: ...

    def put_group(self, topic: Topic, group: Group, old: Group | None) -> bool: ...

    def retire_group(self, topic: Topic, group: Group) -> bool:
        """As `retire_topic`: its consumers stay until `delete_group`."""
        ...

    def retired_groups(self, topic: Topic, name: str | None = None) -> list[Group]:
        """Groups that had the name (None: any) and are not quite deleted."""
        ...

    def delete_group(self, topic: Topic, group: Group) -> None:
        """Remove this group with its consumers, its assignment and its mark."""
        ...

    def consumers(self, topic: Topic, group: Group) -> list[Consumer]: ...

    def put_consumer(self, topic: Topic, group: Group, consumer: Consumer, old: Consumer | None) -> bool: ...

    def delete_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None: ...

    def assignment(self, topic: Topic, group: Group) -> Assignment | None: ...

    def put_assignment(self, topic: Topic, group: Group, new: Assignment) -> bool:
        """Store if what is stored has the epoch before (1: nothing is stored). False: it has not."""
        ...

    def staffed(self, topic: Topic) -> list[Staffed]:
        """The topic's groups that have consumers, by name. One read, not consistent: it may miss the newest."""
        ...

    def token(self, token_id: str) -> Token | None: ...

    def tokens(self, after: str | None, limit: int) -> list[Token]: ...

    def put_token(self, token: Token) -> None: ...

    def delete_token(self, token_id: str) -> bool: ...

    def replay(self, replay_id: str) -> Replay | None: ...

    def replays(self, topic: str, before: str | None, limit: int) -> list[Replay]:
        """Replays of a topic's messages, the newest first: those before an id."""
        ...

    def put_replay(self, replay: Replay, old: Replay | None) -> bool:
        """Store if the replay still is `old` (None: absent). False: it is not."""
        ...

    def signing_key(self, proposal: bytes) -> bytes:
        """The stage's signing key; the first caller's proposal becomes it."""
        ...


class Blobs(Protocol):
    """Bodies too large for the log."""

    def put(self, name: str, body: bytes) -> None: ...

    def get(self, name: str) -> bytes | None:
        """The body; None where it is not there. Unavailable where that cannot be told now."""
        ...
