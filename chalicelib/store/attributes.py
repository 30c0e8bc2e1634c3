"""Values of DynamoDB's attributes, and their sizes."""

from __future__ import annotations

from typing import Any

Item = dict[str, dict[str, Any]]


def text(value: str) -> dict[str, str]:
    """A string as an attribute value."""
    return {"S": value}


def number(value: int | float) -> dict[str, str]:
    """A number as an attribute value."""
    return {"N": str(value)}


def attributes(**named: str | int | float | None) -> Item:
    """Attributes by their names; what is None is absent."""
    present = {name: value for name, value in named.items() if value is not None}
    return {name: text(of) if isinstance(of, str) else number(of) for name, of in present.items()}


def values(**named: str | int | float) -> Item:
    """The values of an expression, by their names without the colon."""
    return {f":{name}": value for name, value in attributes(**named).items()}


class Fields:
    """Fields of an object that are attributes of its row, under short names."""

    def __init__(self, texts: str, numbers: str = "", sparse: str = "") -> None:
        """`texts` and whole `numbers`: `field:name field:name …`. `sparse`: the names that are absent where they would
        be empty or 0."""
        self.texts = _names(texts)
        self._numbers = _names(numbers)
        self._sparse = sparse

    def packed(self, of: object) -> Item:
        """The attributes; of a field that is None, none."""
        named = {name: getattr(of, field) for field, name in (self.texts | self._numbers).items()}
        kept = {name: value for name, value in named.items() if value or name not in self._sparse}
        return attributes(**kept)

    def unpacked(self, item: Item) -> dict[str, Any]:
        """The fields whose attributes are there."""
        texts = {field: item[name]["S"] for field, name in self.texts.items() if name in item}
        numbers = {field: int(item[name]["N"]) for field, name in self._numbers.items() if name in item}
        return texts | numbers


def _names(pairs: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in pairs.split())


def rows(table: str, where: str, **named: str | int | float) -> dict[str, Any]:
    """The request for the rows of a table whose keys meet a condition, with its values and those of filters."""
    request = {"TableName": table, "KeyConditionExpression": where}
    return {**request, "ExpressionAttributeValues": values(**named)}


def int_of(item: Item, name: str, default: int = 0) -> int:
    """The number in an attribute."""
    return int(item[name]["N"]) if name in item else default


def number_of(item: Item, name: str) -> int | float:
    """The number in an attribute, whole or not; 0 where it is absent."""
    text = item[name]["N"] if name in item else "0"
    return int(text) if text.isdigit() else float(text)


def known_int(item: Item, name: str) -> int:
    """The same for a damaged row: 0 if the attribute is not a number."""
    value = str(item.get(name, {}).get("N", ""))
    return int(value) if value.isdecimal() else 0


def text_of(item: Item, name: str) -> str | None:
    """The string in an attribute; None where it is absent."""
    return str(item[name]["S"]) if name in item else None


def known_text(item: Item, name: str) -> str | None:
    """The same of a damaged row; None for what is no string, too."""
    value: str | None = item.get(name, {}).get("S")
    return value


def kib_of(item: Item) -> int:
    """How many KiB a row begins, and with that its write units: names and values, numbers as half their digits."""
    sizes = (len(name) + _size(value) for name, value in item.items())
    return -(-sum(sizes) // 1024)


def _size(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    if kind == "N":
        return len(content) // 2 + 2
    return len(content) if isinstance(content, bytes) else len(content.encode())


def packed(payload: bytes | str) -> dict[str, Any]:
    """A payload of `codec` as an attribute: text, or bytes if it is compressed."""
    return {"S": payload} if isinstance(payload, str) else {"B": payload}


def payload_of(item: Item) -> bytes | str | None:
    """The payload that `packed` put into the attribute `m`; None if that is missing."""
    return next(iter(item["m"].values())) if "m" in item else None
