"""Fairness among tenants: whose backlog is heavy, and which messages of a claim wait for those of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from ...modes import Candidate, Turn
from ...ports.world import Clock
from ..core.expiring_cache import TtlCache
from .claim_choice import is_settled

_BACKLOG = 10  # messages: a tenant of which fewer wait is not heavy
_RECENT_MS = 60_000
_KNOWN = 2  # tenants that are remembered of a group: enough to say that none is alone


class RecentTenants:
    """The tenants of whom each group had messages in the last minute, as far as this process has seen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: TtlCache[str, dict[str | None, int]] = TtlCache(clock, _RECENT_MS)
        self._heavy: TtlCache[str, bool] = TtlCache(clock, _RECENT_MS)

    def has_heavy(self, group_uid: str) -> bool:
        """Was one of them heavy, beside others? Some consumers are then busy with its messages, or leave them out."""
        return bool(self._heavy.get(group_uid))

    def in_turn(
        self,
        group_uid: str,
        back: Sequence[Candidate],
        new_candidates: Sequence[Candidate],
        *,
        has_more: bool,
        heavy_room: int,
    ) -> tuple[list[Candidate], list[Candidate]]:
        """The candidates with their turns: those of a heavy tenant come after the others', at most `heavy_room` of them
        now while others have messages.

        A tenant is heavy if over half of the messages that were looked at are its own, and others have some, or there
        are more behind them (`has_more`); and as long as messages of it wait that were skipped before."""
        candidates = (*back, *new_candidates)
        counts = Counter(each.tenant for each in candidates if not is_settled(each))
        self._note(group_uid, counts)
        heavy = {each.tenant for each in back if each.is_skipped and not is_settled(each)}
        for tenant, count in counts.most_common(1):
            is_most = count >= _BACKLOG and 2 * count > counts.total()
            if is_most and (has_more or self._has_others(group_uid, tenant)):
                heavy.add(tenant)
        if any(self._has_others(group_uid, tenant) for tenant in heavy):
            self._heavy.put(group_uid, True)
        else:
            heavy_room = len(candidates)
        turned: list[Candidate] = []
        for each in candidates:
            is_heavy = each.tenant in heavy and not is_settled(each)
            turn = Turn.FIRST if not is_heavy else Turn.LAST if heavy_room > 0 else Turn.NOT_NOW
            heavy_room -= is_heavy
            turned.append(replace(each, turn=turn) if is_heavy else each)
        return turned[: len(back)], turned[len(back) :]

    def _note(self, group_uid: str, tenants: Collection[str | None]) -> None:
        seen = {t: at_ms for t, at_ms in (self._seen.get(group_uid) or {}).items() if t not in tenants}
        seen |= dict.fromkeys(tenants, self._clock.monotonic_ms())
        self._seen.put(group_uid, dict([*seen.items()][-_KNOWN:]))

    def _has_others(self, group_uid: str, tenant: str | None) -> bool:
        since_ms = self._clock.monotonic_ms() - _RECENT_MS
        seen = self._seen.get(group_uid) or {}
        return any(each != tenant and at_ms >= since_ms for each, at_ms in seen.items())
