"""The tables, told in prose before any code. Every row carries `v`, the version of its format (now 1).

The format changes when a release begins to write what the one before would misread; to add an attribute does not
change it. A row in a newer format is unreadable, like a damaged one (docs/adr/0030).

Attribute names are short because a row is billed by its size, names included.

**log** · the messages. Written once by producers; read by claims, lookups and lists. Its stream carries the new rows.
    s  S   partition key: `<topic>:<topic uid>/<shard>`. The uid tells a topic from an earlier namesake.
    o  N   sort key: offset of the segment's first message. The condition "this key is free" is the lock.
    n  N   how many offsets the segment covers
    m  S/B the messages as a JSON array, zlib-compressed (B) where that is smaller; absent in a tombstone
    r  S   request id of the append: tells our own write after a lost answer, and is part of message ids
    a  N   accepted at, ms
    x  N   expires at, s: DynamoDB's TTL removes the row for nothing, a day or more after its retention has ended
    y  N   what x was, where the row is kept for longer: its retention ends all the same
    w  S   "r" where the offset was reserved from the counter (or is the row that turned the shard so)
    p  S   id of the token the messages were produced with, and behind spaces the producer's app and address; all, or
           app and address, are left out where they would begin another KiB
    e  N   edition, where a message was changed: written in one transaction with the cursors of all groups
  Row o = -1 of a shard is its memory, and has no expiry: every other row may be gone one day.
    t  N   checkpoint of the tail: an empty log continues after it, never again at 0
    c  N   next offset to reserve, where offsets are reserved
    w  S   "r" where offsets are reserved
  It sorts before all segments, so one descending read finds the last row, or this one where no other is left.
  A tail is the higher of the two: TTL removes rows in no order.

**cursors** · what a group has done with a shard: one small item, see domain/cursor.
    c  S   partition key: `<group uid>` or, in a broadcast, `<group uid>:<consumer uid>`
    s  S   sort key: the log's partition key
    e  N   epoch; claims and seeks are conditional on it and raise it by one
    f  N   floor        x  N  next        b  N  begin        g  N  where the segment that holds `next` begins
    k  N   how many offsets from `b` on were settled because nobody wants them
    n  N   1: the retry lane may have leased messages of this shard: claims that count keys look there. Else 0 or absent
    l  M   leases: token → `spans;deadline ms;owner`. Settle and extend are conditional on their own entry. A token that
           ends in `-` is of a pulled lease.
    w  M   waiting spans: first offset → rest of the span
    a  S   where messages were changed in the log: `start[+count]` of each range, with commas. A change is conditional
           on it, raises the epoch, and expects `next` not to have passed the offset.
    r  S   how pull consumers share the shard (domain/pull_share): `epoch;began ms;left;rank.taken.ms after.asked,…`.
           Only their claims write it; losing it does no harm.
    z  N   only in the row that takes the place of a deleted group's cursor (its `next` is above any offset): when TTL
           may remove it, s
  What is below `x`, neither leased nor waiting, is settled.
  A span reads `[start][+count or %mask][*attempt][~unit][@due ms]`, defaults left out. In a lease, a span's start is
  left out if the span before ends there. The unit `!` is of a heavy tenant's messages, skipped or granted last. A mask
  has a bit for each offset from the start on, six in a character, the lowest first. The item stays below 8 KB: claims
  and what is given back expect so many entries in `w` at most. Maps,
  not sets or lists, so that one expression can add and remove entries beside each other, and two writers never touch
  the same entry.

**records** · a delivery whose first attempt failed (rare). Written in one transaction with the cursor.
    g  S   partition key: `<group uid>`, or `<group uid>#dead` for the dead letters, `#purged` for notes of purges
    k  S   sort key: `<topic uid>/<shard>/<offset>[/<consumer uid>]`, numbers padded so that they sort
    n  N   attempts      a  N  at      q  S  reason      h  S  last error      r  S  the subscriber's answer, as JSON
  in a record also
    j  S   status RETRYING, DEAD, SUCCESS (late, or by hand) or SKIPPED (by a purge, from a timer or the retry lane)
    d  N   next attempt at      p  N  attempts spent in earlier lives      x  N  expires at (TTL)
  and in a dead letter, which has a copy of the message and does not need the log,
    m S/B  the message, as a segment of one      i  S  its id      c  N  accepted at
    e  N   edition: rises with each edit. A write that moves, edits or discards a letter is conditional on its edition
           and on the time at which it became a dead letter.
    w  BOOL  edited
  A letter without a message (its log row expired before it was buried) is only counted.
  A note of a purge says which offsets it dropped from a cursor (`o`: `<low>-<high>,…`; `x`: TTL); its key has the last
  one's end. Statuses alone read it, and a seek deletes it.

**timers** · everything that is due later. Stored with the cursor, or alone; removed in the transaction that appends
  its segment to the log.
    f  S   partition key: the fragment's number, a hash of the timer's id (see `fragment_of`)
    t  S   sort key: `<due ms, 15 digits>#<timer id>`. The ids of messages whose order is
           kept begin with a number that rises with their acceptance (docs/adr/0021).
    k  S   kind      s  S  the shard, as the log's partition key      m S/B  the draft, as a segment of one; of an
           OUTBOX (`out.…`, `event.…`) all drafts: what is not moved yet stays
    d  N   days to keep the row that the draft becomes
    g  S   group uid and c  S  consumer uid: for whom the shard is woken
           A WAKE of shard -1 is for a whole topic: storing its mark had failed, so the mark is stored then.
    a  N   stored at: a wake-up is dropped only as it was read, so one that was stored again meanwhile stays. For
           timers that were stored long before their time, the mover's schedule sends the wake-ups.
    e  N   how often it was changed: moving and changing it are conditional on that
    y  N   ms after which it comes again (CHECK)
  The id of a schedule's timer is `<uid>.<version>`; its draft says for which time it is, and the id of the message
  before. One of a schedule that has no next time is due in the year 2286.
  Row `~<timer id>`, at a timer's first time, says to which time it was changed (`u`; `e`: by which change), or that it
  was cancelled (`j`); `x` is its TTL. It sorts behind all timers.

**transactions** · messages under a decision. Prepared after a CHECK timer; committed with the segment, or the DELIVER
  timer, that the message becomes. Its index `by-state`, which only lists, has none of `m`, `n`, `p`, `r`.
    t  S   partition key: transaction id
    g  S   the index's partition key: `<topic uid>#<state>`, from format 2 on `<topic uid>#<state>#<v>`: the index has
           no `v`, so each format is listed by itself      o  S  in a list: `<prepared at, ms, 15 digits>#<t>`
    e  N   version: every write is conditional on it and raises it by one
    q  S   topic's name      a  N  prepared at      z  N  decided at      k  N  s to keep it from then on
    c  N   when its CHECK timer is due      i  N  ms between checks      b  N  checks made      w  S  the last answer
    u  S   check URL      l  N  delay, ms      d  N  due at      h  N  shard      f  N  offset      x  N  TTL
    n  N   until when (s) its keys find it: they are noted again with a commit that outlives this
    r  N   by when the answer to the last check should be stored, until it is: from then on it may be made again
    p  S   the id of the token that committed it. `r` and `p` are left out where the row would take one more write unit
    m S/B  the draft, as a segment of one, until it is committed

**traces** · attempts: a row for each batch that was settled together. The table's stream has new rows only.
    k  S   partition key: `<group uid>/<topic uid>/<shard>`
    o  S   sort key: `<first offset, padded>#<id>`. A row spans at most MAX_RECEIVE offsets, so that all that may
           cover an offset are in one range of keys.
    t  S   topic's name      g  S  group's name: so a reader of the stream needs no other table
    w  S   consumer      u  S  its uid, in a broadcast      r  N  rank, where it has one      n  N  of how many
    a  N   started at      x  N  expires at (TTL)
    m S/B  the attempts, compressed where that is smaller: a JSON array of runs of neighbours with one outcome:
           `[offset - first offset, count, attempt, outcome, duration ms, detail, answer]`

**dedup** · which dedup ids were used. Written in one transaction with the segment.
    d  S   partition key: `<topic uid>#<dedup id>`; of a job, `<topic uid>#<U+001E><its name>`
    h  S   hash of the content      i  S  message id      a  N  accepted at
    e  N   window's end, ms      x  N  the same in s, rounded up (TTL)
  A repeat replaces the row of a message that was cancelled (a job: or ended by every group), on the condition that `i`
  is still that message. A job's row lasts 30 days longer, and is written again where it is postponed beyond that.
  A row `ticket#<id>` says that a link that signs in was used (`a`: when); `x` is when it would have ended.

**keys** · which messages have a business key. Written before the message, without a transaction.
    k  S   partition key: `<topic uid>#<key>`
    o  S   sort key: `<accepted ms, 15 digits>#<message id>`, so the newest are last
    x  N   expires at, s, as the message's row
  An entry without a message at the offset that its id names was left by a writer that lost a race, or died.

**rates** · the permits of what has a rate limit (a topic, group or token), or of the handshakes with a host: one row.
  And what a topic with a budget has spent in a month.
    r  S   partition key: topic uid, `group#<group uid>#<its rate>`, `token#<id>`, `handshakes#<host>`, or `spent#<topic
           uid>#<year>-<month>`
    n  N   spent, USD / 1e9: all processes add to it
    t  N   the time up to which permits have been given out, ns (domain/token_bucket.py). Changes are conditional on it.
    x  N   expires at, s: a bucket whose time is long past is full, as one without a row

**rounds** · what the scheduled jobs need to know to visit topics.
    r  S   partition key: `place`, `mark`, `watched` or `meter#<topic uid>#<level>`
    k  S   sort key: of a bookmark (`place`) the job; of a mark `<ms, 15 digits>#<topic's name>`; of a reading `<begin
           of its hour, ten minutes or minute, ms, 15 digits>`; else a topic's name, `~<name>`, `!<rank><name>` or
           `#<state's key>`
  A bookmark says how far a job has come in the list of all topics.
    a  S   the topic visited last      p  N   when the job last reached the end of the list, ms; of the sweeper: earlier
           marks are done      o  BOOL  a run is under way, or died
    e  N   version: changes are conditional on it
  A mark says that from this time on a topic may have messages that nobody works on. It is written before the append,
  once in two minutes. The sweeper reads marks from its bookmark on; TTL (`x`) removes them.
  `watched` lists the topics with an `alarm_backlog` (`e`: the edition of their settings), the topics in use, whose
  meters are read (`~<name>`), and those with a trouble when the meter reader last read them (`!<9 - rank><name>`, the
  worst first). A state in which work waits for a person is there from when it is seen until it is seen to be over:
    `#<topic>#<kind>#<group>#<consumer>` (parts may be empty), `s` N since, ms, `a` N noted, ms.
  A reading of meters is kept once, with the first of the levels `h`, `t`, `m` that has none of this hour, ten minutes,
  minute; TTL removes it (`x`).
    a  N   read at, ms      n  N  messages accepted in the topic's life
    g  S   JSON: by group's name `[settled, backlog, retries handed out]`
    b  S   JSON: in the order of `g` the backlog's parts by shard, `[]` where nothing is behind, or the row would become
           longer than half a KB: those with the largest backlogs come first
  The sum of all topics (`meter#stage#h`) is written again in each minute in which any of them moved.

**audit** · who changed what: a row for each call that did, or tried to.
    d  S   partition key: the month, UTC: `2026-11`      k  S  sort key: `<at, ms, 15 digits>#<request id>`
    a  N   at, ms      b  S  token's id      n  S  its name then      m  S  method      p  S  route      o  S  object
    r  S   result: `OK`, or the error's code      q  S  request id      t  S  topic      f  S  the caller's address
    x  N   expires at (TTL)

**control** · topics, groups, consumers, assignments, tokens, replays, the signing key: PynamoDB's models in
  store/control_rows, with an attribute for each field of the noun.
    pk S   `topics`, `retired`, `deleted`, `schedules`, `tokens`, `used` (when a token was last), `stage`, `events`,
           `topic#<topic uid>`, or
           `replays#<home>`: a replay's id begins with the home of its topic's replays, and goes on with the time
    sk S   name or id, of a retired topic `<name>#<uid>`; below a topic `group#<name>`, `retired#<name>#<group uid>`,
           `consumer#<group uid>#<name>`, `left#<group uid>#<name>#<consumer uid>` and `assignment#<group uid>`
  Subscribers' secrets, those of callbacks and the signing keys are encrypted, each for its row (docs/adr/0053).
  A retired topic or group is in no list any more; the mark says that its deletion was begun, until it is ended. So
  does `left#` of a broadcast's consumer whose cursors may still be open. Of a deleted topic the archive reads the
  shards, as long as its log has rows (`x`, TTL).
    version N  optimistic lock: rises with each write, which expects the one before (an assignment's is its epoch)
    v   N  2
    secrets, keys  L   in each: `c` the secret, encrypted, `f` its fingerprint (where a stage has no cipher, `hex`), and
           `until_ms`, its end, where it has one
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..domain.segment import ShardKey
from ..domain.timer import sort_key_of
from ..domain.topic import CursorKey
from .attributes import Item, number, text

FORMAT = "1"
CONTROL_FORMAT = 2  # of the table `control`
META_OFFSET = -1
BY_STATE = "by-state"
# The key attributes of each table, with their types.
KEYS = {
    "log": {"s": "S", "o": "N"},
    "cursors": {"c": "S", "s": "S"},
    "records": {"g": "S", "k": "S"},
    "timers": {"f": "S", "t": "S"},
    "transactions": {"t": "S"},
    "traces": {"k": "S", "o": "S"},
    "dedup": {"d": "S"},
    "keys": {"k": "S", "o": "S"},
    "rates": {"r": "S"},
    "rounds": {"r": "S", "k": "S"},
    "audit": {"d": "S", "k": "S"},
    "control": {"pk": "S", "sk": "S"},
}


FRAGMENTS = 8  # how many fragments of timers a stage has, unless its setting says more


class Tables:
    """The table names of one stage, and the fragments of its table `timers`."""

    def __init__(self, prefix: str, fragments: Sequence[int] = (FRAGMENTS,)) -> None:
        """`fragments`: how many there are, then how many there were before, while timers may be left from then. All
        are powers of two, so that the fragments of a smaller number are among those of a larger one."""
        self.prefix = prefix
        self.fragments = tuple(fragments)

    def __getattr__(self, name: str) -> str:
        """The name of a table of `KEYS`."""
        if name not in KEYS:
            raise AttributeError(name)
        return f"{self.prefix}-{name}"

    def fragments_of(self, timer_id: str) -> list[int]:
        """The fragments that may have a timer of this id: that of new ones is the first."""
        return list(dict.fromkeys(fragment_of(timer_id, count) for count in self.fragments))


def definitions(tables: Tables) -> list[dict[str, Any]]:
    """CreateTable requests; `infra/` declares the same for AWS."""
    more = {"log": _with_stream, "traces": _with_stream, "transactions": _with_index}
    return [more.get(name, dict)(_table(f"{tables.prefix}-{name}", keys)) for name, keys in KEYS.items()]


def expiring_tables(tables: Tables) -> dict[str, str]:
    """The tables whose rows DynamoDB's TTL removes, and by which attribute."""
    by_x = {f"{tables.prefix}-{name}": "x" for name in KEYS}
    return {**by_x, tables.cursors: "z"}


def _with_stream(table: dict[str, Any]) -> dict[str, Any]:
    return {**table, "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}}


def _with_index(transactions: dict[str, Any]) -> dict[str, Any]:
    index = _table("", {"g": "S", "o": "S"})
    attributes = transactions["AttributeDefinitions"] + index["AttributeDefinitions"]
    by_state = {
        "IndexName": BY_STATE,
        "KeySchema": index["KeySchema"],
        "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": list("eqazkcibwuldhf")},
    }
    return {**transactions, "AttributeDefinitions": attributes, "GlobalSecondaryIndexes": [by_state]}


def _table(name: str, keys: Mapping[str, str]) -> dict[str, Any]:
    pairs = zip(keys, ("HASH", "RANGE"), strict=False)
    schema = [{"AttributeName": key, "KeyType": kind} for key, kind in pairs]
    types = [{"AttributeName": key, "AttributeType": type_} for key, type_ in keys.items()]
    table = {"TableName": name, "BillingMode": "PAY_PER_REQUEST"}
    return {**table, "KeySchema": schema, "AttributeDefinitions": types}


def shard_of(key: str) -> ShardKey:
    """The shard whose `str()` is the key."""
    topic, _, rest = key.partition(":")
    topic_uid, _, number = rest.rpartition("/")
    return ShardKey(topic, topic_uid, int(number))


def segment_key(shard: ShardKey, first: int) -> Item:
    """The key of a segment in the table `log`: the shard, and the segment's first offset."""
    return {"s": text(str(shard)), "o": number(first)}


def cursor_item_key(key: CursorKey) -> Item:
    """The key of a cursor in the table `cursors`: its owner and its shard."""
    return {"c": text(cursor_owner(key.group_uid, key.consumer_uid)), "s": text(str(key.shard))}


def cursor_owner(group_uid: str, consumer_uid: str) -> str:
    """The partition of cursors: the group, in a broadcast the group and the consumer."""
    return f"{group_uid}:{consumer_uid}" if consumer_uid else group_uid


def record_prefix(shard: ShardKey, offset: int) -> str:
    """How the sort keys of the records of a message's deliveries begin."""
    return f"{shard.topic_uid}/{shard.shard:04d}/{offset:016d}"


def record_key(key: CursorKey, offset: int, *, dead: bool = False) -> Item:
    """The key of a delivery's record. `dead`: of its dead letter, which has a row of its own."""
    sort_key = record_prefix(key.shard, offset)
    return {
        "g": text(f"{key.group_uid}#dead" if dead else key.group_uid),
        "k": text(f"{sort_key}/{key.consumer_uid}" if key.consumer_uid else sort_key),
    }


def fragment_of(text: str, count: int = FRAGMENTS) -> int:
    """The fragment, of so many, of a timer's id, or of a name of a unit of order: the same in every process and
    release."""
    return zlib.crc32(text.encode()) % count


def timer_key(fragment: int, due_ms: int, timer_id: str) -> Item:
    """The key of a timer in the table `timers`: its fragment and its due time."""
    return {"f": text(str(fragment)), "t": text(sort_key_of(due_ms, timer_id))}


def forward_key(fragment: int, timer_id: str) -> Item:
    """The key of the row that leads from a timer's first id to its present due time."""
    return {"f": text(str(fragment)), "t": text(f"~{timer_id}")}


def state_home(topic_uid: str, state: str) -> str:
    """The index's partition of a topic's transactions in one state. Each format after the first has its own, for the
    index does not hold `v`: no release lists what only a later one can read."""
    return f"{topic_uid}#{state}"


def trace_home(key: CursorKey) -> str:
    """The partition of a group's traces on one shard."""
    return f"{key.group_uid}/{key.shard.topic_uid}/{key.shard.shard}"


def dedup_key(topic_uid: str, dedup_id: str) -> Item:
    """The key of a dedup id's entry in the table `dedup`."""
    return {"d": text(f"{topic_uid}#{dedup_id}")}


def key_home(topic_uid: str, key: str) -> str:
    """The partition of a business key's entries."""
    return f"{topic_uid}#{key}"
