"""Dealing shards to consumers: everything is owned once, evenly, or with as little movement as can be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from chalicelib.domain.assignment import EVERYONE, Assignment, Target, deal, is_online
from chalicelib.domain.times import HOUR_MS, MINUTE_MS
from tests.support import factories as make
from tests.support.clock import START_MS

uids = st.text("abcdefghijkmnpqrstvwxyz0123456789", min_size=4, max_size=8)
members = st.lists(uids, min_size=1, max_size=12, unique=True)
shards = st.integers(1, 256)
strategies = st.sampled_from(["mod", "average", "rendezvous"])


@given(strategies, members, shards)
def test_every_shard_has_one_owner_who_is_a_member(strategy: str, there: list[str], count: int) -> None:
    owners = deal(strategy, there, range(count))
    assert len(owners) == count
    assert set(owners) <= set(there)
    assignment = Assignment(1, strategy, tuple(there), owners)
    assert sorted(shard for uid in there for shard in assignment.shards(uid, range(count))) == list(
        range(count)
    )


@given(st.sampled_from(["mod", "average"]), members, shards)
def test_mod_and_average_give_everyone_as_many_but_one(strategy: str, there: list[str], count: int) -> None:
    loads = Counter(dict.fromkeys(there, 0))
    loads.update(deal(strategy, there, range(count)))
    assert max(loads.values()) - min(loads.values()) <= 1


@given(members, shards)
def test_average_gives_blocks_in_the_order_of_ranks(there: list[str], count: int) -> None:
    ranks = [there.index(owner) for owner in deal("average", there, range(count))]
    assert ranks == sorted(ranks)


@given(members, uids, shards)
def test_a_rendezvous_moves_only_the_shards_of_who_leaves_or_joins(
    there: list[str], other: str, count: int
) -> None:
    rest = [uid for uid in there if uid != other]
    without, together = (
        deal("rendezvous", rest, range(count)),
        deal("rendezvous", [*rest, other], range(count)),
    )
    for before, after in zip(without, together, strict=bool(rest)):
        assert after in (before, other)


@given(members, shards)
def test_a_rendezvous_does_not_depend_on_the_order_of_members(there: list[str], count: int) -> None:
    assert deal("rendezvous", there, range(count)) == deal("rendezvous", there[::-1], range(count))


def test_a_rendezvous_of_many_shards_is_fairly_even() -> None:
    loads = Counter(deal("rendezvous", [f"c{n}" for n in range(8)], range(256)))
    assert len(loads) == 8
    assert max(loads.values()) < 64


def test_the_strategies_deal_as_documented() -> None:
    assert "".join(deal("mod", "abc", range(8))) == "abcabcab"
    assert "".join(deal("average", "abc", range(8))) == "aaabbbcc"
    assert "".join(deal("average", "abc", range(2))) == "ab"
    assert "".join(deal("rendezvous", "abc", range(8))) == "acccacbb"  # the same in every process and release


def test_in_a_broadcast_nobody_owns_a_shard_but_everyone_has_a_rank() -> None:
    assignment = Assignment(3, EVERYONE, ("a", "b"), deal(EVERYONE, ("a", "b"), range(4)))
    assert assignment.owners == ()
    assert [assignment.rank(uid) for uid in "abc"] == [0, 1, None]


@given(strategies | st.just(EVERYONE), st.lists(uids, max_size=5, unique=True), shards)
def test_an_assignment_fits_what_it_was_made_for_and_nothing_else(
    strategy: str, there: list[str], count: int
) -> None:
    target = Target(strategy, tuple(there), tuple(there[1:2]), range(count))
    assignment = target.dealt(1, 0)
    assert assignment.fits(target)
    assert not assignment.fits(target._replace(strategy="other"))
    assert not assignment.fits(target._replace(members=(*there, "new")))
    assert not assignment.fits(target._replace(idle=(*there, "new")))
    assert assignment.fits(target._replace(shards=range(count + 1))) is (not there or strategy == EVERYONE)


@given(strategies, st.lists(uids, min_size=2, max_size=5, unique=True), shards)
def test_an_idle_member_keeps_its_rank_and_has_no_shards(strategy: str, there: list[str], count: int) -> None:
    assignment = Target(strategy, tuple(there), tuple(there[:1]), range(count)).dealt(1, 0)
    assert assignment.rank(there[0]) == 0
    assert assignment.shards(there[0], range(count)) == ()
    assert len(assignment.owners) == count


CALLED: dict[str, Any] = {"kind": "url", "target": "https://example.com/hook", "seen_ms": 0}


@pytest.mark.parametrize(
    ("fields", "online"),
    [
        ({"seen_ms": START_MS - 29_999}, True),
        ({"seen_ms": START_MS - 30_000}, False),
        ({"seen_ms": START_MS + MINUTE_MS}, True),
        ({"seen_ms": START_MS + MINUTE_MS + 1}, False),  # a wrong clock noted it
        (CALLED, True),
        (CALLED | {"kind": "function"}, True),
        (CALLED | {"state": "PENDING"}, False),
        (CALLED | {"state": "DISABLED"}, False),
        (CALLED | {"open_until_ms": START_MS + 1}, False),
        (CALLED | {"open_until_ms": START_MS}, True),
        (CALLED | {"open_until_ms": START_MS + HOUR_MS}, True),  # a wrong clock set it
    ],
)
def test_a_consumer_is_online_by_heartbeat_or_as_long_as_it_may_be_called(
    fields: dict[str, Any], online: bool
) -> None:
    consumer = make.consumer(make.group(make.topic()))
    assert is_online(replace(consumer, **fields), START_MS) is online
