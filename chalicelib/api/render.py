"""Our things as the JSON that callers get."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec import json as msgjson

from ..domain import breaker, ids, ladder
from ..domain.assignment import EVERYONE, Assignment
from ..domain.ladder import Retry
from ..domain.message import Message, holds_json, overall
from ..domain.ranges import total
from ..domain.replay import Replay
from ..domain.signing import seal_receipt
from ..domain.status import OVER
from ..domain.timer import ANY
from ..domain.topic import Consumer, Group, Token, Topic
from ..domain.transaction import Transaction, TransactionState

if TYPE_CHECKING:
    from ..domain.record import DeadLetter
    from ..services.consume.claim import Delivery
    from ..services.inspect.fate import MessageFate
    from ..services.inspect.lookup import GroupStatus, ShardStatus, TopicStats
    from ..services.inspect.statuses import DeliveryStatus
    from ..services.inspect.trace import Event
    from ..services.manage.admin import Membership
    from ..services.produce.appender import Placed
    from ..services.produce.delayed import Waiting


@lru_cache(maxsize=1024)
def at(ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(ms // 1000, UTC).replace(tzinfo=None)
    return f"{moment.isoformat()}.{ms % 1000:03d}Z"


def topic(t: Topic) -> dict[str, Any]:
    return {
        "topic": t.name,
        "mode": t.mode,
        "shards": t.shards,
        **({"key_shards": t.shards_of_keys} if t.shards_of_keys != t.shards else {}),
        "retry": retry(t.retry),
        "lease_seconds": t.lease_seconds,
        "retention_days": t.retention_days,
        "alarm_backlog": t.alarm_backlog,
        "rate_limit": t.rate_limit,
        "on_rate_limit": t.on_rate_limit,
        "max_body_bytes": t.max_body_bytes,
        "dedup_window_seconds": t.dedup_window_seconds,
        "wake": t.wake,
        "created_at": at(t.created_ms),
    }


def retry(r: Retry) -> dict[str, Any]:
    told: dict[str, Any] = {
        "max_attempts": r.max_attempts,
        "ladder": list(r.ladder) if isinstance(r.ladder, tuple) else r.ladder,
        "jitter": r.jitter,
    }
    if r.ladder == ladder.EXPONENTIAL:
        told |= {"base_seconds": r.base_seconds, "factor": r.factor, "cap_seconds": r.cap_seconds}
    return told


def group(g: Group) -> dict[str, Any]:
    return {
        "group": g.name,
        "topic": g.topic,
        "mode": g.mode,
        "from": at(int(g.begin[1:])) if g.begin.startswith("@") else g.begin,
        "filter": " || ".join(g.tags) if g.tags is not None else "*",
        "retry": retry(g.retry) if g.retry else None,
        "lease_seconds": g.lease_seconds,
        "batch_size": g.batch_size,
        "max_in_flight": g.max_in_flight,
        "offline": g.offline,
        "assignment": g.assignment,
        "payload": g.payload,
        "paused": g.paused,
        "created_at": at(g.created_ms),
    }


def stats(s: TopicStats) -> dict[str, Any]:
    """What is in a topic. `at_least` names the numbers that are only known to be no smaller."""
    before = {"delayed": s.delayed, "prepared": s.prepared}
    at_least = [name for name, counted in before.items() if not counted.whole]
    return {
        "accepted": s.accepted,
        **{name: counted.number for name, counted in before.items()},
        **({"at_least": at_least} if at_least else {}),
        "groups": {name: counts(status) for name, status in s.groups.items()},
    }


def counts(status: GroupStatus) -> dict[str, Any]:
    of = status.account
    return {
        "backlog": status.backlog,
        "in_flight": status.in_flight,
        "retrying": status.retrying,
        "dead": status.dead,
        "consumed": of.success,
        "oldest_age_seconds": status.oldest_age_seconds,
        "states": {
            "NEW": of.new,
            "RUNNING": of.running,
            "RETRYING": of.retrying,
            "SUCCESS": of.success,
            "DEAD": of.dead,
            "skipped": of.skipped,
        },
    }


def shard(s: ShardStatus, names: Mapping[str, str], owner: str | None) -> dict[str, Any]:
    """One shard of a group; `names` tells consumers by uid, `owner` whom the shard is assigned to."""
    cursor = s.cursor
    return {
        "shard": s.shard,
        "tail": s.tail,
        "floor": cursor.floor,
        "next": cursor.next,
        "backlog": s.backlog,
        "settled_above_floor": total(cursor.settled),
        "waiting": sum(span.count for span in cursor.waiting),
        "owner": owner,
        **({"consumer": names.get(s.consumer_uid)} if s.consumer_uid else {}),
        "leases": [
            {
                "offsets": sorted([low, high - 1] for span in lease.spans for low, high in span.ranges()),
                "attempt": max(span.attempt for span in lease.spans),
                "consumer": names.get(lease.owner),
                "expires_at": at(lease.deadline_ms),
            }
            for lease in cursor.leases.values()
        ],
    }


def assignment(t: Topic, held: Assignment, consumers: Sequence[Consumer]) -> dict[str, Any]:
    """Who has which shard, and why."""
    online = [c for c in consumers if c.uid in held.members]
    names = {c.uid: c.name for c in consumers}
    return {
        "strategy": held.strategy,
        "epoch": held.epoch,
        "why": _why(held),
        "consumers": [_assigned(t, held, c) for c in online],
        "offline": [
            {"consumer": c.name, "kind": c.kind, "state": c.state, "why": _absence(c)}
            for c in consumers
            if c not in online
        ],
        "shards": [{"shard": s, "owner": owner} for s, owner in enumerate(owners(t, held, names))],
    }


def owners(t: Topic, held: Assignment, names: Mapping[str, str]) -> list[str | None]:
    """The name of each shard's owner."""
    return [names.get(uid) for uid in held.owners[: t.shards]] or [None] * t.shards


def _assigned(t: Topic, held: Assignment, c: Consumer) -> dict[str, Any]:
    shards = range(t.shards) if held.strategy == EVERYONE else held.shards(c.uid)
    return {
        "consumer": c.name,
        "kind": c.kind,
        "state": c.state,
        "rank": held.rank(c.uid),
        "total": len(held.members),
        "shards": list(shards),
    }


def _why(held: Assignment) -> str:
    if held.strategy == EVERYONE:
        return "broadcast: every consumer receives from every shard, with a position of its own"
    if not held.members:
        return "no registered consumer is online: any caller receives from any shard"
    return _STRATEGIES[held.strategy].format(total=len(held.members))


_STRATEGIES = {
    "mod": "shard s belongs to the consumer with rank = s mod {total}; ranks follow the names of those online",
    "average": "the shards are cut into {total} blocks of neighbours, as even as can be, and dealt by rank; "
    "ranks follow the names of those online",
    "rendezvous": "a shard belongs to the one of {total} consumers with the highest hash of (consumer, shard): "
    "when one joins or leaves, the others keep theirs",
}


def _absence(c: Consumer) -> str:
    """Why a consumer is not online."""
    if not c.is_called:
        return f"no heartbeat since {at(c.seen_ms)}"
    if c.state != "ACTIVE":
        return f"{c.state}: {c.why}" if c.why else c.state
    return f"circuit breaker open until {at(c.open_until_ms or 0)}"


def member(m: Membership, now_ms: int) -> dict[str, Any]:
    return {**consumer(m.consumer, now_ms), "rank": m.rank, "total": m.total, "shards": list(m.shards)}


def consumer(c: Consumer, now_ms: int) -> dict[str, Any]:
    return {
        "consumer": c.name,
        "topic": c.topic,
        "group": c.group,
        "kind": c.kind,
        "state": c.state,
        **(_called(c, now_ms) if c.is_called else {"last_seen_at": at(c.seen_ms)}),
        "created_at": at(c.created_ms),
    }


def _called(c: Consumer, now_ms: int) -> dict[str, Any]:
    return {
        c.kind: c.target,
        **({"timeout_seconds": c.timeout_seconds} if c.kind == "function" else {}),
        "why": c.why,
        "failing_since_at": _at(c.failing_ms),
        "disables_at": _at(breaker.disables_ms(c.failing_ms, c.trips, now_ms)),
        "breaker": breaker.state(c.open_until_ms, now_ms),
        "open_until_at": _at(c.open_until_ms),
    }


def _at(ms: int | None) -> str | None:
    return at(ms) if ms is not None else None


def placed(topic_name: str, p: Placed, standing: str | None = None) -> dict[str, Any]:
    """Where a message was stored; `standing` is what has become of one that was stored before."""
    return {
        "id": p.id,
        "topic": topic_name,
        "status": standing or ("NEW" if p.due_ms is None else "DELAYED"),
        "shard": p.shard,
        "offset": p.offset,
        "accepted_at": at(p.accepted_ms),
        **({"deliver_at": at(p.due_ms)} if p.due_ms is not None else {}),
        "duplicate": p.duplicate,
    }


def content(m: Message) -> dict[str, Any]:
    """What the producer gave."""
    draft = m.draft
    shown: dict[str, Any] = {"id": m.id}
    if not draft.is_whole:
        shown |= {"body": None, "undecodable": True}
    elif holds_json(draft):
        shown["body"] = Raw(draft.body)
    else:
        shown["body_base64"] = base64.b64encode(draft.body).decode()
    shown |= {
        "content_type": draft.content_type,
        "keys": draft.keys,
        "tag": draft.tag,
        "ordering_key": draft.ordering_key,
        "headers": draft.headers,
        "shard": m.shard,
        "offset": m.offset,
        "accepted_at": at(m.first_accepted_ms),
    }
    if draft.due_ms is not None:
        shown["deliver_at"] = at(draft.due_ms)
    if draft.expires_ms is not None:
        shown["expires_at"] = at(draft.expires_ms)
    if draft.changed_ms is not None:
        shown["changed_at"] = at(draft.changed_ms)
    return shown


def deliveries(received: list[Delivery], key: bytes) -> bytes:
    """The answer of a receive: messages with their receipts."""
    messages = [
        {**content(d.message), "attempt": d.attempt, "receipt": seal_receipt(key, d.receipt)}
        for d in received
    ]
    return msgjson.encode({"messages": messages})


def facts(m: Message) -> dict[str, Any]:
    """What follows from a message by itself: the bytes of its body, and the transaction it came from."""
    return {"size": m.draft.size, "transaction_id": ids.parse_half_id(m.id)}


def message(t: Topic, m: Message, statuses: Mapping[str, DeliveryStatus]) -> dict[str, Any]:
    """Everything known about a message; as an object for `to_json`, its body is still JSON text."""
    left = [s.retries_left for s in statuses.values() if s.status not in OVER]
    return {
        **content(m),
        **facts(m),
        "topic": t.name,
        "status": overall(m.draft, [s.status for s in statuses.values()]),
        "retries_left": max(left, default=0) if statuses else _retries(t, m),
        "deliveries": {name: status(s) for name, s in statuses.items()},
    }


def _retries(t: Topic, m: Message) -> int:
    """How many retries a message has that nobody has tried yet, where no group says otherwise."""
    return (m.draft.max_attempts or t.retry.max_attempts) - 1


def waiting(t: Topic, w: Waiting, m: Message) -> dict[str, Any]:
    """A message (`m`, with its body) before its log: it waits for its time, or was cancelled. For `to_json`."""
    fixed = w.timer.shard.shard
    return {
        **content(m),
        **facts(m),
        "shard": None if fixed == ANY else fixed,
        "offset": None,
        "deliver_at": at(w.timer.due_ms),
        "topic": t.name,
        "status": "CANCELLED" if w.cancelled else "DELAYED",
        "retries_left": 0 if w.cancelled else _retries(t, m),
        "deliveries": {},
    }


def prepared(topic: Topic, t: Transaction, m: Message) -> dict[str, Any]:
    """A message whose transaction is not committed. For `to_json`."""
    cancelled = t.state is TransactionState.ROLLED_BACK
    return {
        **content(m),
        **facts(m),
        "shard": t.shard,
        "offset": None,
        "topic": topic.name,
        "status": "CANCELLED" if cancelled else "PREPARED",
        "retries_left": 0 if cancelled else _retries(topic, m),
        "deliveries": {},
    }


def transaction(t: Transaction) -> dict[str, Any]:
    """A transaction without its message."""
    return {
        "transaction_id": t.id,
        "message_id": t.message_id,
        "topic": t.topic,
        "state": t.state,
        "shard": t.shard,
        "offset": t.offset,
        **({"deliver_at": at(t.due_ms)} if t.due_ms is not None else {}),
        "prepared_at": at(t.prepared_ms),
        "decided_at": _at(t.decided_ms),
        "check_url": t.check_url,
        "check_after_seconds": t.check_after_ms // 1000,
        "checks": t.checks,
        "last_answer": t.last_answer,
        "next_check_at": at(t.check_ms) if t.check_url and t.state is TransactionState.PREPARED else None,
    }


def replay(r: Replay) -> dict[str, Any]:
    """A replay: what it chooses, where to, and how far it is."""
    from ..domain import predicate  # late, for few calls need it

    return {
        "replay_id": r.id,
        "topic": r.source,
        "from": at(r.from_ms),
        "to": at(r.to_ms),
        "tag": r.tag,
        "key": r.key,
        "where": r.where,
        "predicate": predicate.parse(r.where) if r.where else None,
        "into": r.into,
        "group": r.group,
        "rate": r.rate,
        "dry_run": r.dry_run,
        "state": r.state,
        "matched": r.matched,
        "sent": r.sent,
        "error": r.error,
        "created_at": at(r.created_ms),
        "changed_at": at(r.changed_ms),
    }


def status(s: DeliveryStatus) -> dict[str, Any]:
    return {
        "status": s.status,
        "attempts": s.attempts,
        "next_attempt_at": at(s.next_attempt_ms) if s.next_attempt_ms else None,
        "last_error": s.last_error,
        "retries_left": s.retries_left,
        **({"reason": s.reason} if s.reason else {}),
        **({"consumers": {name: each.status for name, each in s.consumers.items()}} if s.consumers else {}),
    }


def fate(f: MessageFate) -> dict[str, Any]:
    """One group's part in a message's fate: `places` where its delivery is (in a broadcast, where its consumers' are),
    and of one from before a seek what that is still."""
    return {**status(f.status), "places": list(f.places), "older": list(f.older), "adds_up": f.adds_up}


def dead_letter(letter: DeadLetter, whole: Message, names: Mapping[str, str]) -> dict[str, Any]:
    """A dead letter with its whole message; `names` tells consumers by uid. For `to_json`."""
    return {
        **content(whole),
        **facts(whole),
        "reason": letter.reason,
        "attempts": letter.attempts,
        "last_error": letter.last_error,
        "dead_at": at(letter.at_ms),
        "edited": letter.edited,
        **({"consumer": names.get(uid)} if (uid := letter.key.consumer_uid) else {}),
    }


def event(e: Event, names: Mapping[str, str | None]) -> dict[str, Any]:
    """One event of a message's path; `names` tells those of tokens by id (None: it is gone). What people did bears
    `by`, a lease its `owner` and `deadline_at`, a delay its `deliver_at`."""
    fields = asdict(e)
    at_ms, by, owner, deadline_ms, deliver_ms = map(fields.pop, _OF_SOME_EVENTS)
    shown = {"at": at(at_ms), **fields}
    if e.event in _DONE_BY_SOMEBODY:
        shown["by"] = {"id": by, "name": names.get(by)} if by else None
    if deliver_ms is not None:
        shown["deliver_at"] = at(deliver_ms)
    if deadline_ms is not None:
        shown |= {"owner": owner, "deadline_at": at(deadline_ms)}
    return shown


_OF_SOME_EVENTS = ("at_ms", "by", "owner", "deadline_ms", "deliver_ms")
_DONE_BY_SOMEBODY = {
    "prepared", "accepted", "delayed", "edited", "postponed", "cancelled", "redriven", "deleted",
}  # fmt: skip


def to_json(value: Any) -> bytes:
    """JSON text of a value that may hold bodies as JSON text."""
    return msgjson.encode(value)


def token(t: Token) -> dict[str, Any]:
    return {
        "id": t.id,
        "name": t.name,
        "scopes": list(t.scopes),
        "topics": list(t.topics),
        "created_at": at(t.created_ms),
        "expires_at": at(t.expires_ms) if t.expires_ms else None,
    }
