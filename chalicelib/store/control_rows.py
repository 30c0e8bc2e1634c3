"""The rows of the table `control` as PynamoDB models, one for each entity (layout: table `control`).

The models say which attributes there are, of which type, and what a write expects of the row that it replaces. Requests
go out by store/dynamo, like everybody's: PynamoDB has no way to be given a client, and one of its own would cost each
cold start a second connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec
from pynamodb.attributes import (
    Attribute,
    BooleanAttribute,
    DynamicMapAttribute,
    ListAttribute,
    MapAttribute,
    NumberAttribute,
    UnicodeAttribute,
    VersionAttribute,
)
from pynamodb.models import Model

from ..domain import predicate, strict_json
from ..domain.assignment import Assignment
from ..domain.ladder import Retry
from ..domain.replay import Replay
from ..domain.settings import GroupSettings, TopicSettings, rows_of
from ..domain.signing import KeyRing
from ..domain.topic import Consumer, Group, Token, Topic
from . import codec
from .attributes import Item
from .layout import CONTROL_FORMAT

T = TypeVar("T")
_NULL = {"NULL": True}


@dataclass(frozen=True, slots=True)
class Key:
    """A row's place in the table."""

    pk: str
    sk: str


class Row(Model, Generic[T]):
    """What all rows have. A model's attributes have the names of its entity's fields; `attr_name` is the row's, where
    it is another."""

    class Meta:
        table_name = "control"  # of which stage: said where the request goes out
        region = "of the client"

    entity: type[T]
    secret: ClassVar[tuple[str, ...]] = ()
    """Its lists of secrets."""

    pk = UnicodeAttribute(hash_key=True)
    sk = UnicodeAttribute(range_key=True)
    version = VersionAttribute(null=True)
    v = NumberAttribute(default=CONTROL_FORMAT)

    @classmethod
    def of(cls, key: Key, entity: T, version: int | None = None) -> Self:
        """The row for `entity`, to be stored over the row with this version (None: to be created)."""
        fields = {**msgspec.json.decode(msgspec.json.encode(entity)), "version": version}
        fields.pop("epoch", None)  # an assignment's epoch is its row's version
        fields |= {
            name: [SecretMap.of(each) for each in fields[name]] for name in cls.secret if name in fields
        }
        return cls(key.pk, key.sk, **{name: value for name, value in fields.items() if value is not None})

    @classmethod
    def decoded(cls, item: Item) -> T:
        """The noun of a row. Raises Unreadable."""
        return codec.decoded("control", item, cls._read)

    @classmethod
    def _read(cls, item: Item) -> T:
        values = {
            name: _plain_value(item[attribute.attr_name])
            for name, attribute in cls.get_attributes().items()
            if "NULL" not in item.get(attribute.attr_name, _NULL)
        }
        values |= {
            name: [SecretMap.read(each) for each in values[name]] for name in cls.secret if values.get(name)
        }
        return strict_json.converted({**values, "epoch": values.get("version")}, cls.entity)


class RetryMap(DynamicMapAttribute):
    """A retry policy. Its `ladder` is a name, or the steps' seconds: so it has no type here."""

    max_attempts = NumberAttribute()
    jitter = NumberAttribute()
    base_seconds = NumberAttribute()
    factor = NumberAttribute()
    cap_seconds = NumberAttribute()
    steps_from = UnicodeAttribute()


def _attributes_of(settings: type) -> dict[str, Attribute[Any]]:
    """The attributes of a table of settings, by the names of its fields."""
    kinds: Mapping[type, Callable[..., Attribute[Any]]] = {
        int: NumberAttribute,
        float: NumberAttribute,
        bool: BooleanAttribute,
        str: UnicodeAttribute,
        Retry: RetryMap,
    }
    return {
        row.field: ListAttribute(of=UnicodeAttribute, null=row.may_be_none)
        if row.field == "tags"
        else kinds[row.given](null=row.may_be_none)
        for row in rows_of(settings)
    }


class TopicRow(Row[Topic]):
    """A topic: in the list of all, or marked as retired."""

    entity = Topic

    name = UnicodeAttribute()
    uid = UnicodeAttribute()
    created_ms = NumberAttribute()
    locals().update(_attributes_of(TopicSettings))
    is_called = BooleanAttribute()
    rows_until_ms = NumberAttribute(null=True)


class GroupRow(Row[Group]):
    """A consumer group: in its topic's list, or marked as retired."""

    entity = Group

    topic = UnicodeAttribute()
    name = UnicodeAttribute()
    uid = UnicodeAttribute()
    created_ms = NumberAttribute()
    locals().update(_attributes_of(GroupSettings))
    paused_until_ms = NumberAttribute()


class SecretMap(MapAttribute[str, Any]):
    """A signing secret: encrypted, with its fingerprint; in hex where a stage has no cipher."""

    ciphertext = UnicodeAttribute(attr_name="c", null=True)
    fingerprint = UnicodeAttribute(attr_name="f", null=True)
    hex = UnicodeAttribute(null=True)
    until_ms = NumberAttribute(null=True)

    @classmethod
    def of(cls, secret: Mapping[str, Any]) -> dict[str, Any]:
        """A secret's fields as they are stored."""
        form = ("ciphertext", "fingerprint") if secret["ciphertext"] else ("hex",)
        return {name: secret[name] for name in (*form, "until_ms") if secret[name] is not None}

    @staticmethod
    def read(attributes: Mapping[str, Any]) -> dict[str, Any]:
        """A secret's fields."""
        until_ms = {"until_ms": attributes.get("until_ms")}
        if "c" in attributes:
            return {"ciphertext": attributes["c"], "fingerprint": attributes["f"], **until_ms}
        return {"hex": attributes["hex"], **until_ms}


class ConsumerRow(Row[Consumer]):
    """A registered consumer."""

    entity = Consumer
    secret = ("secrets",)

    topic = UnicodeAttribute()
    group = UnicodeAttribute()
    name = UnicodeAttribute()
    uid = UnicodeAttribute()
    created_ms = NumberAttribute()
    seen_ms = NumberAttribute()
    kind = UnicodeAttribute()
    state = UnicodeAttribute()
    target = UnicodeAttribute()
    secrets = ListAttribute(of=SecretMap)
    why = UnicodeAttribute(null=True)
    state_ms = NumberAttribute(null=True)
    failing_ms = NumberAttribute(null=True)
    open_until_ms = NumberAttribute(null=True)
    times_opened = NumberAttribute(attr_name="trips")
    timeout_seconds = NumberAttribute(null=True)
    expires_after_seconds = NumberAttribute(null=True)
    received_ms = NumberAttribute()
    instance = UnicodeAttribute(null=True)
    instance_by = UnicodeAttribute()
    former_instances = ListAttribute(of=UnicodeAttribute)


class AssignmentRow(Row[Assignment]):
    """Which consumer has which shard of a group. Its `version` is the assignment's epoch."""

    entity = Assignment

    strategy = UnicodeAttribute()
    members = ListAttribute(of=UnicodeAttribute)
    owners = ListAttribute(of=UnicodeAttribute)
    idle = ListAttribute(of=UnicodeAttribute)
    at_ms = NumberAttribute()


class FormerMap(MapAttribute[str, Any]):
    """The hash of a secret that was rotated."""

    secret_hash = UnicodeAttribute()
    until_ms = NumberAttribute()


class TokenRow(Row[Token]):
    """An access token."""

    entity = Token

    id = UnicodeAttribute()
    name = UnicodeAttribute()
    secret_hash = UnicodeAttribute()
    scopes = ListAttribute(of=UnicodeAttribute)
    topics = ListAttribute(of=UnicodeAttribute)
    created_ms = NumberAttribute()
    expires_ms = NumberAttribute(null=True)
    groups = ListAttribute(of=UnicodeAttribute)
    former = ListAttribute(of=FormerMap)
    rate_limit = NumberAttribute(null=True)
    jobs = ListAttribute(of=UnicodeAttribute, null=True)


@dataclass(frozen=True, slots=True)
class Use:
    """When a token was used, coarsely."""

    id: str
    at_ms: int


class UseRow(Row[Use]):
    """The last use of a token, in a row of its own: the role that writes it may not write tokens."""

    entity = Use

    id = UnicodeAttribute()
    at_ms = NumberAttribute()


class ReplayRow(Row[Replay]):
    """A replay of archived messages."""

    entity = Replay

    id = UnicodeAttribute()
    source = UnicodeAttribute()
    into = UnicodeAttribute()
    created_ms = NumberAttribute()
    from_ms = NumberAttribute()
    to_ms = NumberAttribute()
    rate = NumberAttribute()
    into_uid = UnicodeAttribute(null=True)
    group = UnicodeAttribute(null=True)
    group_uid = UnicodeAttribute(null=True)
    tag = UnicodeAttribute(null=True)
    key = UnicodeAttribute(null=True)
    where = UnicodeAttribute(null=True)
    dry_run = BooleanAttribute()
    state = UnicodeAttribute()
    matched = NumberAttribute(null=True)
    sent = NumberAttribute()
    error = UnicodeAttribute(null=True)
    changed_ms = NumberAttribute()

    @classmethod
    def _read(cls, item: Item) -> Replay:
        """Raises also if this release does not understand `where`."""
        replay = super()._read(item)
        if replay.where:
            predicate.parse(replay.where)
        return replay


class KeyRingRow(Row[KeyRing]):
    """The stage's signing keys."""

    entity = KeyRing
    secret = ("keys",)

    keys = ListAttribute(of=SecretMap)


MODELS = (TopicRow, GroupRow, ConsumerRow, AssignmentRow, TokenRow, UseRow, ReplayRow, KeyRingRow)


def _plain_value(value: Mapping[str, Any]) -> Any:
    """An attribute's value as JSON has it. (pynamodb's own reading takes seven times as long.)"""
    ((kind, content),) = value.items()
    if kind == "N":
        return msgspec.json.decode(content)
    if kind == "M":
        return {name: _plain_value(each) for name, each in content.items() if "NULL" not in each}
    if kind == "L":
        return [_plain_value(each) for each in content]
    return content
