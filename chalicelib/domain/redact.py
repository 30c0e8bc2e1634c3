"""Redaction: parts of bodies that no person sees. A topic's setting `redact` names them by JSON Pointers (RFC 6901) in
which `*` is any member or element.

Consumers, subscribers and the archive get bodies whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from . import strict_json
from .errors import Refused
from .message import Draft, Message, holds_json
from .topic import FormerPointer, Topic

MASK = "•••"
_ANY = "*"
_MASKED_WHOLE = strict_json.dump(MASK)


def pointers(topic: Topic, message: Message) -> tuple[str, ...]:
    """What is hidden in the message's body: by its topic now, by its topic when the message was accepted, and, of a
    copy, by the topic that it comes from."""
    accepted_ms = message.first_accepted_ms
    former = (each.pointer for each in topic.redacted_before if accepted_ms < each.until_ms)
    return tuple(dict.fromkeys((*topic.redact, *former, *message.draft.redact)))


def shown(topic: Topic, message: Message) -> Message:
    """The message as people see it."""
    hidden = pointers(topic, message)
    if not hidden or not message.draft.has_body:
        return message
    body = masked(message.draft, hidden)
    return replace(message, draft=replace(message.draft, body=body, is_json=True))


def masked(draft: Draft, hidden: Iterable[str]) -> bytes:
    """The body with the mask at each pointer. One that is no JSON, in which no pointer leads anywhere, is hidden
    whole."""
    if not holds_json(draft):
        return _MASKED_WHOLE
    value = strict_json.load(draft.body)
    for pointer in hidden:
        value = _masked(value, _steps(pointer))
    return strict_json.exact(value)


def restored(body: bytes, before: Draft, hidden: Sequence[str]) -> bytes:
    """The JSON text of an edit, with what is stored at each hidden place where it has the mask. Raises Refused where
    that place cannot be known: an array has become longer or shorter."""
    if not hidden or MASK not in body.decode():
        return body
    if not holds_json(before):
        raise Refused("MASK_MOVED", f"The stored body is no JSON: give the new one whole, without {MASK}.")
    new, old = strict_json.load(body), strict_json.load(before.body)
    for pointer in hidden:
        new = _restored(new, old, _steps(pointer))
    return strict_json.exact(new)


def after(old: Topic, new: Topic, now_ms: int) -> Topic:
    """The topic after a change of its settings: pointers that were removed go on hiding what was accepted before."""
    removed = [FormerPointer(each, now_ms) for each in removed_pointers(old, new)]
    kept = [each for each in old.redacted_before if each.pointer not in new.redact]
    return replace(new, redacted_before=(*kept, *removed))


def removed_pointers(old: Topic, new: Topic) -> list[str]:
    """The pointers that a change of a topic's settings takes away."""
    return [each for each in old.redact if each not in new.redact]


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _places(value: Any, step: str) -> list[Any]:
    """The keys of an object, or the indices of an array, to which a step leads."""
    keys: Any = range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()
    return [key for key in keys if step in (_ANY, str(key))]


def _masked(value: Any, steps: Sequence[str]) -> Any:
    if not steps:
        return MASK
    for key in _places(value, steps[0]):
        value[key] = _masked(value[key], steps[1:])
    return value


def _restored(new: Any, old: Any, steps: Sequence[str]) -> Any:
    if not steps:
        return old if new == MASK else new
    if steps[0] == _ANY and isinstance(new, list) and len(new) != (len(old) if isinstance(old, list) else -1):
        if _holds_mask(new, steps):
            words = f"An array with {MASK} in it has another length now: give its values whole."
            raise Refused("MASK_MOVED", words)
        return new
    for key in _places(new, steps[0]):
        if key in _places(old, steps[0]):
            new[key] = _restored(new[key], old[key], steps[1:])
    return new


def _holds_mask(value: Any, steps: Sequence[str]) -> bool:
    if not steps:
        return bool(value == MASK)
    return any(_holds_mask(value[key], steps[1:]) for key in _places(value, steps[0]))
