"""Bugs about what outlives what, planted one at a time: a few stages over weeks must see each."""

from __future__ import annotations

import pytest

from chalicelib.domain import breaker
from chalicelib.domain.topic import Topic
from chalicelib.scheduler.expirer import Expirer
from chalicelib.scheduler.walk import _Way
from chalicelib.services.consume import retry_lane
from chalicelib.services.consume.claim_plan import ClaimPlanner
from chalicelib.services.core.positions import Positions
from chalicelib.services.core.rate_limiter import RateLimits
from chalicelib.services.core.segment_cache import SegmentCache
from chalicelib.services.core.tails import Tails
from chalicelib.services.inspect import surveyor
from chalicelib.services.inspect.surveyor import Surveyor
from chalicelib.services.manage.admin import Admin
from chalicelib.services.manage.registry import Registry
from chalicelib.services.produce.check_back import Checker
from tests.simulation.seeds import assert_seen
from tests.simulation.weeks import play
from tests.support.planting import Bug, names_of

SEEDS = (
    790,
    4,
    9,
    21,
    26,
    62,
    68,
    346,
    373,
    433,
    596,
    1210,
    *range(450),
)  # those that see them today go first

BUGS: dict[str, Bug] = {
    "an append below a cursor": Bug(Tails, "read", "if given_out - 1 <= tail.offset:", "if True:"),
    "a deletion that does not wait for caches": Bug(
        Admin, "_outwait_caches", "self.clock.sleep((CACHE_MS + _SLACK_MS) / 1000)", "pass"
    ),
    "a job that begins with the first topic each time": Bug(
        _Way, "__init__", "replace(before, is_open=True", "replace(before, after=None, is_open=True"
    ),
    "a retry lane that goes with its rows": Bug(
        Expirer, "run_once", "(*topic.shard_numbers, None)", "topic.shard_numbers"
    ),
    "rows buried by today's retention": Bug(
        Topic,
        "keeps_until_ms",
        "min(of.ends_ms, of.accepted_ms + self.retention_ms)",
        "of.accepted_ms + self.retention_ms",
    ),
    "a lane's entry that outlives the row it points to": Bug(
        retry_lane, "resolve", "min(message.ends_ms, entry.ends_ms)", "entry.ends_ms"
    ),
    "a cancelled message that is given all the same": Bug(
        ClaimPlanner, "_candidate", "is_owed and not draft.cancelled and", "is_owed and"
    ),
    "a check that commits what nobody decided": Bug(
        Checker,
        "_conclude",
        "if answer.decision:",
        "if answer := answer._replace(decision=TransactionState.COMMITTED):",
    ),
    "a kept row that stands for its successor": Bug(
        SegmentCache, "keep", "segment.request_id != old.segment.request_id or", ""
    ),
    "a broadcast's consumer who is owed what came before it": Bug(
        Registry, "register", "group, contact.begin, uid", 'group, "earliest", uid'
    ),
    "a subscriber who is disabled by its first bad minute": Bug(
        breaker, "should_disable", ">= DISABLE_AFTER_MS", ">= 60_000"
    ),
    "retries of who has left that are counted": Bug(
        Surveyor,
        "exact_group",
        "for each in entries if (each.shard, each.consumer_uid) in here",
        "for each in entries",
    ),
    "a dead letter that is counted as a success, too": Bug(
        surveyor,
        "account",
        "settled_count - retrying_count - dead_count - skipped_count",
        "settled_count - retrying_count - skipped_count",
    ),
    "a broadcast that treats the absent as it was made to": Bug(
        Admin, "put_group", 'if k != "begin"', 'if k not in ("begin", "offline")'
    ),
    "a broadcast that keeps what it is to skip": Bug(
        Registry, "_skip_missed", "group.offline == Offline.SKIP", "False"
    ),
    "a broadcast that skips what its consumer works on": Bug(
        Positions, "are_leased", "lease.deadline_ms > now_ms", "False"
    ),
    "a message over the limit that is given all the same": Bug(
        ClaimPlanner, "_candidate", "draft.dead_reason is not None", "False"
    ),
    "a topic that takes nothing more once it was over its limit": Bug(
        RateLimits,
        "take",
        "now_ms < bucket.closed_until_ms",
        "now_ms and bucket.visited_ms < bucket.closed_until_ms",
    ),
    "a rate limit that stays as it was": Bug(
        RateLimits, "_visit", "limit, amount, now_ms", "1_000, amount, now_ms"
    ),
}

SEEN_BY = {
    "a check that commits what nobody decided": 27,
    "a retry lane that goes with its rows": 38,
    "an append below a cursor": 1210,
    "a deletion that does not wait for caches": 62,
    "a job that begins with the first topic each time": 26,
    "rows buried by today's retention": 596,
    "a cancelled message that is given all the same": 21,
    "a broadcast's consumer who is owed what came before it": 62,
    "a broadcast that treats the absent as it was made to": 95,
    "a broadcast that keeps what it is to skip": 433,
    "a broadcast that skips what its consumer works on": 81,
    "a message that is refused, and stored": 3,
    "a message over the limit that is given all the same": 11,
    "a topic that takes nothing more once it was over its limit": 147,
    "a rate limit that stays as it was": 3,
}
"""The seed to begin with."""


RARE = {
    "a kept row that stands for its successor",
    "a lane's entry that outlives the row it points to",
    "a subscriber who is disabled by its first bad minute",
    "retries of who has left that are counted",
}
"""Seen only after many stages: in the soak."""
_MANY = range(450, 10_000)


@pytest.mark.parametrize("name", names_of(BUGS, soak=RARE))
@pytest.mark.soak  # slow
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    first = [SEEN_BY[name]] if name in SEEN_BY else []
    seeds = (*first, *SEEDS, *(_MANY if name in RARE else ()))
    assert_seen(BUGS[name], lambda seed: play(seed).complaints, seeds, monkeypatch)
