"""The arguments of a handler, by its annotations."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .. import typed
from ..models import Message
from .outcomes import Bury
from .settings import Middleware

Handler = Callable[..., Any]


def bound(handler: Handler, middleware: Sequence[Middleware]) -> Callable[[Message], Any]:
    """A function of a message alone: the handler with what it wants, inside its middleware."""
    makers = _makers(handler)

    def inner(message: Message) -> Any:
        return handler(*[make(message) for make in makers])

    call: Callable[[Message], Any] = inner
    for layer in reversed(middleware):
        call = partial(_around, layer, call)
    return partial(_awaited if is_async(handler) else _ended, call)


def _ended(call: Callable[[Message], Any], message: Message) -> Any:
    """A coroutine that is never awaited is no success: the message would be lost."""
    result = call(message)
    if inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            f"The handler has not run, it gave a {type(result).__name__}. Where it, or middleware, awaits, write it "
            "with `async def`; `yield` has no place in it."
        )
    return result


async def _awaited(call: Callable[[Message], Any], message: Message) -> Any:
    """A layer may answer by itself, without anything to await."""
    result = call(message)
    return await result if inspect.isawaitable(result) else result


def _around(layer: Middleware, call: Callable[[Message], Any], message: Message) -> Any:
    return layer(message, call)


def is_async(handler: Handler) -> bool:
    """Does calling it give something to await?"""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004  its kind is wanted, not whether it is there
    )


def _makers(handler: Handler) -> list[Callable[[Message], Any]]:
    parameters = [
        p
        for p in inspect.signature(handler).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if not 1 <= len(parameters) <= 2:
        raise TypeError("A handler takes a message, a body with a type, or both.")
    function = _function_of(handler)
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        hints = dict(getattr(function, "__annotations__", {}))
    return [_maker(hints.get(p.name, Message)) for p in parameters]


def _function_of(handler: Handler) -> Any:
    """What has the annotations: the function in a `partial`, the `__call__` of an object."""
    while isinstance(handler, partial):
        handler = handler.func
    return handler if inspect.isroutine(handler) else type(handler).__call__


def _maker(kind: Any) -> Callable[[Message], Any]:
    if kind is Any or isinstance(kind, str) or _is_of_messages(kind):
        return _itself
    return partial(_body, kind)


def _is_of_messages(kind: Any) -> bool:
    """Is it `Message`, or what is more than that, such as an `Event`? (Or one of several in a union.)"""
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    kinds = typing.get_args(kind) if is_union else (kind,)
    return any(isinstance(each, type) and issubclass(each, Message) for each in kinds)


def _itself(message: Message) -> Message:
    return message


def _body(kind: Any, message: Message) -> Any:
    """The body as the type that the handler wants. One that does not fit never will: Bury."""
    validate = getattr(kind, "model_validate_json", None)  # pydantic
    try:
        is_json = message.body_base64 is None
        if validate is not None:
            return validate(bytes(message.raw_body) if is_json else message.body)
        if not is_json:
            return typed.converted(message.body, kind)
        return typed.decoded(message.raw_body, kind)
    except ValueError as error:
        raise Bury(f"The body is no {getattr(kind, '__name__', kind)}: {error}") from error
