"""Bookmarks of scheduled jobs on DynamoDB (layout: table `rounds`)."""

from __future__ import annotations

from dataclasses import replace

from ..domain.rounds import Bookmark
from .attributes import Item, known_int, known_text, number, text
from .dynamo import Dynamo
from .failures import ConditionFailed
from .layout import FORMAT

_HOME = "place"


class Rounds:
    """The bookmarks of scheduled jobs: a run goes on where the last one stopped, in any process. A read costs a read
    unit, a write a write unit. A row that cannot be read counts as absent: the job starts over and replaces it."""

    def __init__(self, dynamo: Dynamo) -> None:
        self._dynamo = dynamo
        self._table = dynamo.tables.rounds

    def bookmark(self, job: str) -> Bookmark:
        """The job's bookmark, read consistently; one of version 0 if the job never ran."""
        answer = self._dynamo.call("get_item", TableName=self._table, Key=_key(job), ConsistentRead=True)
        item: Item = answer.get("Item") or {}
        is_open = bool(item.get("o", {}).get("BOOL"))
        return Bookmark(known_text(item, "a"), known_int(item, "p"), is_open, known_int(item, "e"))

    def keep(self, job: str, bookmark: Bookmark) -> Bookmark | None:
        """Store a bookmark, if the stored one has the same version. Returns it as stored; None: a race was lost."""
        new = replace(bookmark, version=bookmark.version + 1)
        item = {
            **_key(job),
            "p": number(new.passed_ms),
            "o": {"BOOL": new.is_open},
            "e": number(new.version),
            "v": {"N": FORMAT},
        }
        if new.after is not None:
            item["a"] = text(new.after)
        try:
            self._dynamo.call(
                "put_item",
                TableName=self._table,
                Item=item,
                ConditionExpression="e = :e" if bookmark.version else "NOT attribute_type(e, :e)",
                ExpressionAttributeValues={":e": number(bookmark.version) if bookmark.version else text("N")},
            )
        except ConditionFailed:
            return None
        return new


def _key(job: str) -> Item:
    return {"r": text(_HOME), "k": text(job)}
