"""Permit accounts, and what topics have spent, on DynamoDB (layout: table `rates`)."""

from __future__ import annotations

from ..domain import token_bucket
from ..domain.times import DAY_SECONDS
from ..domain.token_bucket import Grant
from .attributes import int_of, known_int, text, values
from .dynamo import ConditionFailed, TableAccess, write_of
from .layout import FORMAT

_KEEP_SECONDS = DAY_SECONDS
_TRIES = 8
_MS = 1_000_000


class TokenBuckets(TableAccess, table="rates"):
    """The permits of everything that has a rate limit (a topic by its uid, a group, a token, or the handshakes with a
    host), and what is spent of budgets: one account each, shared by all processes. Permits cost half a read unit and
    one write unit. Of several processes that take at the same moment, all succeed for which there is enough; the others
    learn the account's new state.

    A read that misses the newest write finds too many permits, and its write is refused. A repetition after a lost
    answer takes other permits, or is refused: the first ones are lost. An unreadable account counts as an idle one.
    """

    def take(self, account: str, limit: float, count: int, now_ms: int, *more: float) -> Grant:
        """Up to `count` permits from an account (`more`: as of `token_bucket.take`): one write where there are enough
        for all that take at this moment, none where there is no permit."""
        key = {"r": text(account)}
        item = self._dynamo.get(self._table, key, consistent=False) or {}
        for _ in range(_TRIES):
            before_ns = known_int(item, "t")
            grant, after_ns, latest_ns = token_bucket.take(before_ns, limit, count, now_ms, *more)
            if not grant.count:
                return grant
            if now_ms * _MS <= before_ns <= latest_ns:  # others may take at the same time
                change, test = "t = t + :d", "t <= :l"
                given: dict[str, int | str] = {"d": after_ns - before_ns, "l": latest_ns}
            else:
                change, test = "t = :a", "NOT attribute_type(t, :n) OR t = :t"
                given = {"a": after_ns, "n": "N", "t": before_ns}
            known = values(**given, x=now_ms // 1000 + _KEEP_SECONDS, v=int(FORMAT))
            update = f"SET {change}, x = :x, v = :v"
            write = write_of(self._table, key=key, update=update, condition=test, known=known, shows_old=True)
            try:
                self._dynamo.call("update_item", **write)
            except ConditionFailed as error:
                item = error.item or {}
            else:
                return grant
        return Grant(0, 1)  # everybody else was faster: so the account is in use to the full

    def given_until_ns(self, account: str) -> int:
        """The state of an account, perhaps as it was a moment ago: half a read unit."""
        return known_int(self._dynamo.get(self._table, {"r": text(account)}, consistent=False) or {}, "t")

    def spend(self, account: str, amount: int, expires_s: int) -> int:
        """Add an amount to what all processes have spent; the sum. A write unit. After a lost answer the
        amount may be added twice."""
        key, known = {"r": text(account)}, values(x=expires_s, n=amount, v=int(FORMAT))
        write = write_of(self._table, key=key, update="SET x = :x, v = :v ADD n :n", known=known)
        answer = self._dynamo.call("update_item", **write, ReturnValues="UPDATED_NEW")
        return int_of(answer["Attributes"], "n")
