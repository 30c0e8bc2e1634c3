"""What is cached grows old even in constant use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.domain.times import DAY_MS
from chalicelib.services.core.catalog import Catalog
from chalicelib.services.core.expiring_cache import BoundedCache, TtlCache
from chalicelib.store.control import Control
from tests.support import factories as make
from tests.support.clock import ManualClock
from tests.support.embedded import embedded_dynamo


def test_a_value_is_kept_until_it_is_too_old() -> None:
    clock = ManualClock()
    cache: TtlCache[str, int] = TtlCache(clock, 100)
    assert cache.get("a") is None
    assert cache.put("a", 1) == 1
    clock.advance(100)
    assert cache.get("a") == 1
    clock.advance(1)
    assert cache.get("a") is None


def test_the_oldest_make_room_and_dropping_forgets() -> None:
    cache: TtlCache[str, int] = TtlCache(ManualClock(), 100, most=2)
    for n, key in enumerate("abac"):
        cache.put(key, n)
    assert [cache.get(key) for key in "abc"] == [2, None, 3]
    cache.drop("a")
    cache.drop("never there")
    assert cache.get("a") is None


class SetClock(ManualClock):
    """Its time can be set; its monotonic time cannot, but it stands still while the process is `frozen`."""

    set_ms = frozen_ms = 0

    def now_ms(self) -> int:
        return self.at_ms + self.set_ms

    def monotonic_ms(self) -> int:
        return self.at_ms - self.frozen_ms


@pytest.mark.parametrize(("set_ms", "frozen_ms"), [(-60, 0), (-1, 0), (0, 101), (0, 60), (1, 1)])
def test_a_value_is_as_old_as_either_clock_says(set_ms: int, frozen_ms: int) -> None:
    clock = SetClock()
    cache: TtlCache[str, int] = TtlCache(clock, 100)
    cache.put("a", 1)
    clock.advance(101)
    clock.set_ms, clock.frozen_ms = set_ms, frozen_ms
    assert cache.get("a") is None


def test_a_clock_that_is_set_back_makes_nothing_younger() -> None:
    clock = ManualClock()
    cache: TtlCache[str, int] = TtlCache(clock, 100)
    cache.put("a", 1)
    clock.advance(-10_000)
    assert cache.get("a") is None, "else it would be kept for ten seconds more"
    cache.put("a", 2)
    assert cache.get("a") == 2


def test_what_was_being_read_while_it_was_changed_is_answered_but_not_kept() -> None:
    """A change drops what it replaces; a slow reader would bring it back for as long as it may be kept."""
    cache: TtlCache[str, int] = TtlCache(ManualClock(), 100)
    for change in (lambda: cache.drop("a"), lambda: cache.put("a", 7)):
        with cache.calling("a") as slow:
            change()
            after = cache.get("a")
            assert slow.keep(1) == 1
        assert cache.get("a") == after
    with cache.calling("a") as read, cache.calling("b") as other:
        cache.drop("c")
        assert [read.keep(2), other.keep(3)] == [cache.get("a"), cache.get("b")] == [2, 3]


def test_of_two_changes_at_once_nobody_knows_the_later_one() -> None:
    cache: TtlCache[str, int] = TtlCache(ManualClock(), 100)
    with cache.calling("a") as one, cache.calling("a") as other:
        assert other.replace(2) == 2
        assert cache.get("a") == 2
        assert one.replace(1) == 1
    assert cache.get("a") is None
    with cache.calling("a") as alone:
        assert alone.replace(3) == cache.get("a") == 3


def test_a_call_that_failed_is_under_way_no_more() -> None:
    cache: TtlCache[str, int] = TtlCache(ManualClock(), 100)
    with pytest.raises(KeyError), cache.calling("a"):
        raise KeyError
    assert not cache._under_way


def test_what_has_no_age_is_kept_by_any_clock_but_not_without_bound() -> None:
    clock = ManualClock()
    cache: TtlCache[int, int] = TtlCache(clock, None, most=3)
    for n in range(5):
        cache.put(n, n)
        clock.advance(DAY_MS if n % 2 else -DAY_MS)
    assert [cache.get(n) for n in range(5)] == [None, None, 2, 3, 4]


def test_what_can_be_made_anew_is_made_once_and_forgotten_when_there_is_too_much() -> None:
    numbers: list[int] = []
    few: BoundedCache[str, int] = BoundedCache(most=2)

    def make_one() -> int:
        numbers.append(len(numbers))
        return numbers[-1]

    assert [few.of(key, make_one) for key in "aabbac"] == [0, 0, 1, 1, 0, 2]
    assert few.of("a", make_one) == 3


def test_a_change_of_a_topic_or_group_in_constant_use_is_noticed_in_seconds() -> None:
    clock, control = ManualClock(), Control(embedded_dynamo())
    catalog = Catalog(control, clock)
    topic = make.topic()
    control.put_topic(topic, None)
    stored_topic = replace(topic, version=1)
    group = make.group(stored_topic)
    control.put_group(stored_topic, group, None)
    catalog.topic(topic.name)
    catalog.group(stored_topic, group.name)
    control.put_topic(replace(stored_topic, rate_limit=1), stored_topic)
    paused_group = replace(group, paused_until_ms=1 << 62, version=1)
    control.put_group(stored_topic, paused_group, replace(group, version=1))
    for _ in range(10):
        clock.advance(500)
        settings_seen = (
            catalog.topic(topic.name).rate_limit,
            catalog.group(stored_topic, group.name).is_paused(0),
        )
    assert settings_seen == (1, True)
