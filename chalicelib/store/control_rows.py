"""The rows of the table `control` as PynamoDB models, one for each entity (layout: table `control`).

The models say which attributes there are, of which type, and what a write expects of the row that it replaces. Requests
go out by store/dynamo, like everybody's: PynamoDB has no way to be given a client, and one of its own would cost each
cold start a second connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any, ClassVar, Generic, Self, TypeVar, get_args, get_origin, get_type_hints

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
from ..domain.message import Draft
from ..domain.replay import Replay
from ..domain.settings import rows_of
from ..domain.signing import KeyRing
from ..domain.timer import Schedule
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


def _attributes_of(entity: type, **lists: type[Attribute[Any]]) -> dict[str, Attribute[Any]]:
    """An attribute for each field of a dataclass but its version; `lists`: of what its lists are, if not of texts."""
    kinds: Mapping[type, Callable[..., Attribute[Any]]] = {
        int: NumberAttribute,
        float: NumberAttribute,
        bool: BooleanAttribute,
        Retry: RetryMap,
        Draft: DynamicMapAttribute,
    }
    given = {row.field: row.given for row in rows_of(entity)}
    attributes: dict[str, Attribute[Any]] = {}
    for name, hint in get_type_hints(entity).items():
        kind = given.get(name) or next((each for each in get_args(hint) if each is not NoneType), hint)
        is_list = tuple in (get_origin(hint), *map(get_origin, get_args(hint)))
        if is_list:
            attributes[name] = ListAttribute(of=lists.get(name, UnicodeAttribute), null=True)
        elif name not in ("version", "epoch"):
            attributes[name] = kinds.get(kind, UnicodeAttribute)(null=True)
    return attributes


class TopicRow(Row[Topic]):
    """A topic: in the list of all, or marked as retired."""

    entity = Topic
    locals().update(_attributes_of(Topic))


class GroupRow(Row[Group]):
    """A consumer group: in its topic's list, or marked as retired."""

    entity = Group
    locals().update(_attributes_of(Group))


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
    locals().update(_attributes_of(Consumer, secrets=SecretMap))


class AssignmentRow(Row[Assignment]):
    """Which consumer has which shard of a group. Its `version` is the assignment's epoch."""

    entity = Assignment
    locals().update(_attributes_of(Assignment))


class FormerMap(MapAttribute[str, Any]):
    """The hash of a secret that was rotated."""

    secret_hash = UnicodeAttribute()
    until_ms = NumberAttribute()


class TokenRow(Row[Token]):
    """An access token."""

    entity = Token
    locals().update(_attributes_of(Token, former=FormerMap))


@dataclass(frozen=True, slots=True)
class Use:
    """When a token was used, coarsely."""

    id: str
    at_ms: int


class UseRow(Row[Use]):
    """The last use of a token, in a row of its own: the role that writes it may not write tokens."""

    entity = Use
    locals().update(_attributes_of(Use))


class ReplayRow(Row[Replay]):
    """A replay of archived messages."""

    entity = Replay

    locals().update(_attributes_of(Replay))

    @classmethod
    def _read(cls, item: Item) -> Replay:
        """Raises also if this release does not understand `where`."""
        replay = super()._read(item)
        if replay.where:
            predicate.parse(replay.where)
        return replay


class ScheduleRow(Row[Schedule]):
    """A schedule, with its message."""

    entity = Schedule
    locals().update(_attributes_of(Schedule))


class KeyRingRow(Row[KeyRing]):
    """The stage's signing keys."""

    entity = KeyRing
    secret = ("keys",)
    locals().update(_attributes_of(KeyRing, keys=SecretMap))


MODELS = (
    TopicRow,
    GroupRow,
    ConsumerRow,
    AssignmentRow,
    TokenRow,
    UseRow,
    ReplayRow,
    ScheduleRow,
    KeyRingRow,
)


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
