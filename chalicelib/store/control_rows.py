"""The rows of the table `control` as PynamoDB models, one for each entity (layout: table `control`).

The models say which attributes there are (the fields of the entity), and what a write expects of the row that it
replaces. Requests go out by store/dynamo: PynamoDB has no way to be given a client, and one of its own would cost each
cold start a second connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Any, Generic, Self, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from pynamodb import attributes
from pynamodb.models import Model

from ..domain import predicate, strict_json
from ..domain.assignment import Assignment
from ..domain.notice import Events
from ..domain.replay import Replay
from ..domain.signing import KeyRing
from ..domain.timer import Schedule
from ..domain.topic import Consumer, Group, Token, Topic
from . import codec
from .attributes import Item
from .layout import CONTROL_FORMAT

T = TypeVar("T")
_OF_ALL = ("version", "epoch")
_KINDS: Sequence[tuple[type, Callable[..., attributes.Attribute[Any]]]] = (
    (bool, attributes.BooleanAttribute),
    (int, attributes.NumberAttribute),
    (float, attributes.NumberAttribute),
    (str, attributes.UnicodeAttribute),
    (tuple, attributes.ListAttribute),
    (object, attributes.MapAttribute),
)


@dataclass(frozen=True, slots=True)
class Key:
    """A row's place in the table."""

    pk: str
    sk: str


class Row(Model, Generic[T]):
    """What all rows have. A model's attributes are its entity's fields."""

    class Meta:
        table_name = "control"  # of which stage: said where the request goes out
        region = "of the client"

    entity: type[T]

    pk = attributes.UnicodeAttribute(hash_key=True)
    sk = attributes.UnicodeAttribute(range_key=True)
    version = attributes.VersionAttribute(null=True)
    v = attributes.NumberAttribute(default=CONTROL_FORMAT)

    @classmethod
    def of(cls, key: Key, entity: T, version: int | None = None) -> Self:
        """The row for `entity`, to be stored over the row with this version (None: to be created)."""
        values = {**msgspec.json.decode(msgspec.json.encode(entity)), "version": version}
        values.pop("epoch", None)  # an assignment's epoch is its row's version
        stored = {name: _stored(value) for name, value in values.items() if value is not None}
        return cls(key.pk, key.sk, **stored)

    @classmethod
    def decoded(cls, item: Item) -> T:
        """The noun of a row. Raises Unreadable."""
        return codec.decoded("control", item, cls._read)

    @classmethod
    def _read(cls, item: Item) -> T:
        values = {name: _plain_value(value) for name, value in item.items() if "NULL" not in value}
        return strict_json.converted({**values, "epoch": values.get("version")}, cls.entity)


def _attributes_of(entity: type) -> dict[str, attributes.Attribute[Any]]:
    """An attribute for each field of the noun; those that may be None may be absent."""
    hints = get_type_hints(entity)
    return {each.name: _attribute(hints[each.name]) for each in fields(entity) if each.name not in _OF_ALL}


def _attribute(hint: Any) -> attributes.Attribute[Any]:
    may_be_absent = get_origin(hint) is UnionType
    kind = next(each for each in get_args(hint) if each is not NoneType) if may_be_absent else hint
    plain = get_origin(kind) or kind
    return next(attribute for each, attribute in _KINDS if issubclass(plain, each))(null=may_be_absent)


def _model(entity: type[T]) -> type[Row[T]]:
    """The model of an entity's rows."""
    return type(f"{entity.__name__}Row", (Row,), {"entity": entity, **_attributes_of(entity)})


@dataclass(frozen=True, slots=True)
class Use:
    """When a token was used, coarsely."""

    id: str
    at_ms: int


TopicRow = _model(Topic)  # in the list of all, or marked as retired
GroupRow = _model(Group)  # in its topic's list, or marked as retired
ConsumerRow = _model(Consumer)
EventsRow = _model(Events)
AssignmentRow = _model(Assignment)  # its `version` is the assignment's epoch
TokenRow = _model(Token)
UseRow = _model(Use)  # in a row of its own: the role that writes it may not write tokens
ScheduleRow = _model(Schedule)
KeyRingRow = _model(KeyRing)


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


def _stored(value: Any) -> Any:
    """A value of JSON as it is stored: a secret or the like in a list without what it does not have."""
    return [_lean(each) for each in value] if isinstance(value, list) else value


def _lean(each: Any) -> Any:
    if not isinstance(each, dict):
        return each
    return {name: part for name, part in each.items() if part not in (None, "")}


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
