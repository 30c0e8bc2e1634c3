"""Permit accounts, and what topics have spent, on DynamoDB (layout: table `rates`)."""

from __future__ import annotations

from ..domain import token_bucket
from ..domain.times import DAY_SECONDS
from ..domain.token_bucket import Grant
from .attributes import int_of, known_int, number, text, values
from .dynamo import ConditionFailed, TableAccess, write_of
from .layout import FORMAT

_KEEP_SECONDS = DAY_SECONDS
_TRIES = 8


class TokenBuckets(TableAccess, table="rates"):
    """The permits of everything that has a rate limit (a topic by its uid, or the handshakes with a host), and what is
    spent of budgets: one account each, shared by all processes. Permits cost half a read unit and one write unit. A
    lost race returns the account's new state.

    A read that misses the newest write finds too many permits, and its write is refused. A repetition after a lost
    answer is refused too: its permits are lost. An unreadable account counts as an idle one.
    """

    def take(self, account: str, limit: int, count: int, now_ms: int, seconds: int = 1) -> Grant:
        """Up to `count` permits from an account that gets `limit` in so many seconds: one write where no other
        process takes at this moment, none where there is no permit."""
        key = {"r": text(account)}
        item = self._dynamo.get(self._table, key, consistent=False) or {}
        for _ in range(_TRIES):
            before_ns = known_int(item, "t")
            grant, after_ns = token_bucket.take(before_ns, limit, count, now_ms, seconds)
            if not grant.count:
                return grant
            expires_s = now_ms // 1000 + _KEEP_SECONDS
            new = {**key, "t": number(after_ns), "x": number(expires_s), "v": {"N": FORMAT}}
            condition, known = "NOT attribute_type(t, :n) OR t = :t", values(n="N", t=before_ns)
            write = write_of(self._table, item=new, condition=condition, known=known, shows_old=True)
            try:
                self._dynamo.call("put_item", **write)
            except ConditionFailed as error:
                item = error.item or {}
            else:
                return grant
        return Grant(0, 1)  # everybody else was faster: so the account is in use to the full

    def spend(self, account: str, amount: int, expires_s: int) -> int:
        """Add an amount to what all processes have spent; the sum. A write unit. After a lost answer the
        amount may be added twice."""
        key, known = {"r": text(account)}, values(x=expires_s, n=amount, v=int(FORMAT))
        write = write_of(self._table, key=key, update="SET x = :x, v = :v ADD n :n", known=known)
        answer = self._dynamo.call("update_item", **write, ReturnValues="UPDATED_NEW")
        return int_of(answer["Attributes"], "n")
