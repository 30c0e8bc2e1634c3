"""Topics, groups, consumers, assignments, tokens as PynamoDB rows (layout: table `control`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import msgspec
from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from pynamodb.exceptions import DoesNotExist, PynamoDBException
from pynamodb.expressions.condition import Condition
from pynamodb.models import Model

from ..domain import ids
from ..domain.assignment import Assignment
from ..domain.errors import unavailable
from ..domain.replay import Replay
from ..domain.topic import Consumer, Group, Token, Topic
from ..ports.control import Staffed
from .layout import FORMAT

T = TypeVar("T", Topic, Group, Consumer, Token, Assignment, Replay)
V = TypeVar("V", Topic, Group, Consumer, Replay)


_FORMAT = int(FORMAT)


class Row(Model):
    """One thing that was set up: its settings as JSON, its version as the optimistic lock."""

    pk = UnicodeAttribute(hash_key=True)
    sk = UnicodeAttribute(range_key=True)
    doc = UnicodeAttribute()
    version = NumberAttribute(default=0)
    v = NumberAttribute(default=_FORMAT)


def rows_of(client: Any, table: str, region: str) -> type[Row]:
    """The Row model bound to one stage's table, speaking through our client factory's client."""
    meta = type("Meta", (), {"table_name": table, "region": region})
    bound: type[Row] = type("BoundRow", (Row,), {"Meta": meta})
    # PynamoDB would make a client of its own: slower to start, and out of the fault plan's reach.
    bound._get_connection().connection._client = client
    return bound


@dataclass(frozen=True, slots=True)
class _Key:
    pk: str
    sk: str


class DynamoControl:
    """ports.Control. Reads are consistent: they are few, and cached above."""

    def __init__(self, rows: type[Row]) -> None:
        self._rows = rows

    def topic(self, name: str, *, consistent: bool = True) -> Topic | None:
        return self._get(_Key("topics", name), Topic, consistent=consistent)

    def topics(self, after: str | None, limit: int, *, consistent: bool = True) -> list[Topic]:
        return self._list("topics", "", Topic, after, limit, consistent=consistent, skipping=True)

    def put_topic(self, topic: Topic, old: Topic | None) -> bool:
        return self._put(_Key("topics", topic.name), topic, old)

    def retire_topic(self, topic: Topic) -> bool:
        return self._retire(_Key("topics", topic.name), _Key("retired", f"{topic.name}#{topic.uid}"), topic)

    def retired_topics(self, name: str) -> list[Topic]:
        return self._list("retired", f"{name}#", Topic)

    def delete_topic(self, topic: Topic) -> None:
        for row in _call(lambda: list(self._rows.query(_home(topic), consistent_read=True))):
            _call(row.delete)
        held = self.topic(topic.name)
        if held and held.uid == topic.uid:
            self._delete(_Key("topics", topic.name))
        self._delete(_Key("retired", f"{topic.name}#{topic.uid}"))

    def group(self, topic: Topic, name: str) -> Group | None:
        return self._get(_group_key(topic, name), Group)

    def groups(self, topic: Topic) -> list[Group]:
        return self._list(_home(topic), "group#", Group)

    def put_group(self, topic: Topic, group: Group, old: Group | None) -> bool:
        return self._put(_group_key(topic, group.name), group, old)

    def retire_group(self, topic: Topic, group: Group) -> bool:
        return self._retire(_group_key(topic, group.name), _retired_key(topic, group), group)

    def retired_groups(self, topic: Topic, name: str | None = None) -> list[Group]:
        return self._list(_home(topic), f"retired#{name}#" if name else "retired#", Group)

    def delete_group(self, topic: Topic, group: Group) -> None:
        for consumer in self.consumers(topic, group):
            self.delete_consumer(topic, group, consumer)
        self._delete(_assignment_key(topic, group))
        held = self.group(topic, group.name)
        if held and held.uid == group.uid:
            self._delete(_group_key(topic, group.name))
        self._delete(_retired_key(topic, group))

    def consumers(self, topic: Topic, group: Group) -> list[Consumer]:
        return self._list(_home(topic), f"consumer#{group.uid}#", Consumer)

    def put_consumer(self, topic: Topic, group: Group, consumer: Consumer, old: Consumer | None) -> bool:
        return self._put(_consumer_key(topic, group, consumer.name), consumer, old)

    def delete_consumer(self, topic: Topic, group: Group, consumer: Consumer) -> None:
        self._delete(_consumer_key(topic, group, consumer.name))

    def assignment(self, topic: Topic, group: Group) -> Assignment | None:
        return self._get(_assignment_key(topic, group), Assignment)

    def put_assignment(self, topic: Topic, group: Group, new: Assignment) -> bool:
        return self._save(_assignment_key(topic, group), new, new.epoch)

    def staffed(self, topic: Topic) -> list[Staffed]:
        rows: list[Row] = _call(lambda: list(self._rows.query(_home(topic))))
        held = {row.sk: row.doc for row in rows}
        found = []
        for group in _below(held, "group#", Group):
            consumers = _below(held, f"consumer#{group.uid}#", Consumer)
            doc = held.get(_assignment_key(topic, group).sk)
            assignment = msgspec.json.decode(doc, type=Assignment) if doc else None
            if consumers:
                found.append(Staffed(group, tuple(consumers), assignment))
        return found

    def token(self, token_id: str) -> Token | None:
        return self._get(_Key("tokens", token_id), Token)

    def tokens(self, after: str | None, limit: int) -> list[Token]:
        return self._list("tokens", "", Token, after, limit, skipping=True)

    def put_token(self, token: Token) -> None:
        row = self._row(_Key("tokens", token.id), msgspec.json.encode(token).decode(), 0)
        _call(row.save)

    def delete_token(self, token_id: str) -> bool:
        there = self.token(token_id) is not None
        self._delete(_Key("tokens", token_id))
        return there

    def replay(self, replay_id: str) -> Replay | None:
        return self._get(_replay_key(replay_id), Replay)

    def replays(self, topic: str, before: str | None, limit: int) -> list[Replay]:
        home = _replays_of(ids.replay_home(topic))
        return self._list(home, "", Replay, before, limit, descending=True, skipping=True)

    def put_replay(self, replay: Replay, old: Replay | None) -> bool:
        return self._put(_replay_key(replay.id), replay, old)

    def signing_key(self, proposal: bytes) -> bytes:
        key = _Key("stage", "signing-key")
        row = self._find(key)
        if row is None:
            new = self._row(key, proposal.hex(), 0)
            _call(lambda: new.save(condition=self._rows.pk.does_not_exist()))
            row = self._find(key)
        if row is None:
            raise unavailable()
        return bytes.fromhex(row.doc)

    def _row(self, key: _Key, doc: str, version: int) -> Row:
        return self._rows(key.pk, key.sk, doc=doc, version=version)

    def _find(self, key: _Key, *, consistent: bool = True) -> Row | None:
        try:
            row: Row = _call(lambda: self._rows.get(key.pk, key.sk, consistent_read=consistent))
        except DoesNotExist:
            return None
        return row

    def _get(self, key: _Key, kind: type[T], *, consistent: bool = True) -> T | None:
        row = self._find(key, consistent=consistent)
        return _decoded(row, kind) if row else None

    def _list(
        self,
        pk: str,
        prefix: str,
        kind: type[T],
        after: str | None = None,
        limit: int | None = None,
        *,
        consistent: bool = True,
        descending: bool = False,
        skipping: bool = False,
    ) -> list[T]:
        """Up to `limit` rows. Raises Unavailable where one of them cannot be read, unless it may be skipped."""
        sk = self._rows.sk
        where: Condition | None = sk.startswith(prefix) if prefix else None
        if after is not None:
            where = sk < after if descending else sk > after

        def read() -> list[T]:
            rows = self._rows.query(
                pk,
                where,
                consistent_read=consistent,
                page_size=limit,
                scan_index_forward=not descending,
            )
            found = (_readable(row, kind) if skipping else _decoded(row, kind) for row in rows)
            return list(islice((each for each in found if each is not None), limit))

        rows_read: list[T] = _call(read)
        return rows_read

    def _put(self, key: _Key, new: V, old: V | None) -> bool:
        version = 1 if old is None else old.version + 1
        return self._save(key, replace(new, version=version), version)

    def _save(self, key: _Key, new: Topic | Group | Consumer | Assignment | Replay, version: int) -> bool:
        """Store under a version if the one before is there (version 1: if there is none)."""
        row = self._row(key, msgspec.json.encode(new).decode(), version)
        unchanged: Condition = self._rows.version == version - 1
        if version == 1:
            unchanged = self._rows.pk.does_not_exist()
        return bool(_call(lambda: row.save(condition=unchanged)))

    def _retire(self, key: _Key, mark: _Key, old: Topic | Group) -> bool:
        """Delete a row that is as it was read; before that, mark that this was begun."""
        marked = self._row(mark, msgspec.json.encode(old).decode(), 0)
        _call(marked.save)
        row = self._row(key, "", 0)
        return bool(_call(lambda: row.delete(condition=self._rows.version == old.version)))

    def _delete(self, key: _Key) -> None:
        _call(self._row(key, "", 0).delete)


def _home(topic: Topic) -> str:
    return f"topic#{topic.uid}"


def _group_key(topic: Topic, name: str) -> _Key:
    return _Key(_home(topic), f"group#{name}")


def _retired_key(topic: Topic, group: Group) -> _Key:
    return _Key(_home(topic), f"retired#{group.name}#{group.uid}")


def _consumer_key(topic: Topic, group: Group, name: str) -> _Key:
    return _Key(_home(topic), f"consumer#{group.uid}#{name}")


def _assignment_key(topic: Topic, group: Group) -> _Key:
    return _Key(_home(topic), f"assignment#{group.uid}")


def _replay_key(replay_id: str) -> _Key:
    return _Key(_replays_of(ids.home_of(replay_id)), replay_id)


def _replays_of(home: str) -> str:
    return f"replays#{home}"


def _below(held: Mapping[str, str], prefix: str, kind: type[T]) -> list[T]:
    """What stands under a prefix among rows that are at hand, in their order."""
    return [msgspec.json.decode(doc, type=kind) for sk, doc in held.items() if sk.startswith(prefix)]


def _call(request: Callable[[], Any]) -> Any:
    """Run a request; a refused condition answers False, a fault below becomes our error."""
    try:
        answer = request()
    except DoesNotExist:
        raise
    except PynamoDBException as error:
        if getattr(error, "cause_response_code", None) == "ConditionalCheckFailedException":
            return False
        raise unavailable() from error
    return True if answer is None else answer


def _readable(row: Row, kind: type[T]) -> T | None:
    """What the row says; None where nobody can read it. A list of everything goes on with the next."""
    if row.v > _FORMAT:
        return None
    try:
        return msgspec.json.decode(row.doc, type=kind)
    except (msgspec.MsgspecError, TypeError):
        return None


def _decoded(row: Row, kind: type[T]) -> T:
    if (told := _readable(row, kind)) is not None:
        return told
    raise unavailable(f"What is stored of {row.sk!r} in {row.pk!r} cannot be read.")
