"""`headrace listen`: forwards to this machine what a deployment would push.

It pulls with a group of its own: nothing more runs in the deployment, other groups are not disturbed, and no token
leaves this machine.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import Annotated

import typer

from ..calls import is_url
from ..errors import HeadraceError, NotFound, Unavailable
from ..models import GroupFields, Message, Settled
from ..webhook.signing import key_of
from .arguments import AtMost, Topic
from .forward import Forwarder, Result
from .output import Output, visible
from .session import Session, session
from .settling import refusals

_WAIT_SECONDS = 10
_TROUBLE_SECONDS = 2.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: headrace listen orders --forward http://localhost:3000/hooks")(listen)


def listen(
    context: typer.Context,
    topic: Topic,
    forward: Annotated[str, typer.Option(help="The target, as http://localhost:3000/hooks.")],
    group: Annotated[
        str | None, typer.Option(help="An existing group; without it a temporary one, deleted at the end.")
    ] = None,
    begin: Annotated[
        str, typer.Option("--from", help="Where the temporary group begins: latest, earliest, a time.")
    ] = "latest",
    filter: Annotated[
        str | None, typer.Option(help="Tags for the temporary group, as in 'paid || refunded'.")
    ] = None,
    secret: Annotated[
        str | None, typer.Option(help="whsec_… that signs (HEADRACE_WEBHOOK_SECRET); without it a new one.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Requests at a time.")] = 4,
    timeout: Annotated[float, typer.Option(help="Seconds for an answer.")] = 10.0,
    max: AtMost = None,
) -> None:
    """Pull a topic's messages and POST them to a URL on this machine, as the service would push them.

    Headers, body and signature are the same. 2xx acknowledges; 489 makes a dead letter; after any other answer the
    message is retried with the group's delays. Other groups are not affected.
    """
    if not is_url(forward):
        raise typer.BadParameter("--forward must be a whole URL, as http://localhost:3000/hooks.")
    s = session(context)
    text = secret or os.environ.get("HEADRACE_WEBHOOK_SECRET") or _new_secret()
    try:
        key_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with _group(s, topic, group, begin, filter) as name, Forwarder(forward, topic, name, text, timeout) as to:
        s.output.say(f"{topic} → {forward}, as group {name}. Signed with {text}. Ctrl-C ends it.")
        _run(s, topic, name, to, concurrency, max)


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(os.urandom(32)).decode()


@contextlib.contextmanager
def _group(s: Session, topic: str, group: str | None, begin: str, filter: str | None) -> Iterator[str]:
    """The group that is named, or one that lives as long as this."""
    if group:
        s.hr.get_group(topic, group)
        yield group
        return
    name = _own_name()
    settings: GroupFields = {"mode": "queue"}
    if filter:
        settings["filter"] = filter
    is_made = True  # also where no answer came, or a signal
    try:
        try:
            s.hr.put_group(topic, name, begin=begin, **settings)
        except HeadraceError as error:
            is_made = isinstance(error, Unavailable)
            raise
        yield name
    finally:
        if is_made:
            s.output.say(f"Deleting group {name}, which takes seconds.")
            _delete(s, topic, name)


def _delete(s: Session, topic: str, group: str) -> None:
    try:
        s.hr.delete_group(topic, group)
    except NotFound:
        pass
    except (HeadraceError, KeyboardInterrupt) as error:
        reason = error if isinstance(error, HeadraceError) else "interrupted"
        s.output.fail(f"Group {group} is left over ({reason}): headrace groups delete {topic} {group}")


def _own_name() -> str:
    """A name that shows the group's owner, of characters that a name may have."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # of a container that has no names
        user = str(os.getuid())
    host = socket.gethostname().split(".")[0]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"listen-{user[:40]}-{host[:60]}")
    return f"{plain}-{os.getpid()}"


def _run(s: Session, topic: str, group: str, to: Forwarder, concurrency: int, most: int | None) -> None:
    count = 0
    deliver = partial(_deliver, s, topic, group, to, Lock())
    with ThreadPoolExecutor(concurrency) as pool:
        while most is None or count < most:
            room = concurrency if most is None else min(concurrency, most - count)
            try:
                messages = s.hr.receive(topic, group, max=room, wait=_WAIT_SECONDS)
                count += len(messages)
                failures = [*filter(None, pool.map(deliver, messages))]
                if failures:
                    raise min(failures, key=lambda error: error.retryable)
            except HeadraceError as error:
                if not error.retryable:
                    raise
                s.output.say(f"{error}; trying on.")
                time.sleep(_TROUBLE_SECONDS)


def _deliver(
    s: Session, topic: str, group: str, to: Forwarder, settling: Lock, message: Message
) -> HeadraceError | None:
    """Forward a message and settle it: its lease does not wait for a slow answer to another one. What failed."""
    result, failure = to.send(message), None
    try:
        with settling:  # side by side each would find the others' writes in its way
            _settle(s, topic, group, message, result)
    except HeadraceError as error:  # the others of the batch go on
        failure = error
    _tell(s.output, message, result)
    if failure:
        s.output.fail(f"{message.id} was not settled: {failure}")
    return failure


def _settle(s: Session, topic: str, group: str, message: Message, result: Result) -> None:
    settle: Callable[..., list[Settled]] = s.hr.ack
    if not result.done:
        settle = partial(
            s.hr.nack,
            delay=result.retry_after,
            dead_letter=result.never_again,
            reason=result.detail,
        )
    for _, error in refusals([message], partial(settle, topic, group)):
        s.output.fail(f"{message.id} was not settled: {error}")


def _tell(output: Output, message: Message, result: Result) -> None:
    if output.as_json:
        output.document(
            {"id": message.id, "attempt": message.attempt, "status": result.status, "ms": round(result.ms, 1)}
        )
        return
    colour = "green" if result.done else "red"
    output.out.print(
        f"[{colour}]{visible(result.detail)}[/{colour}] {result.ms:.0f} ms  {message.id}  attempt {message.attempt}"
        f"  {visible(', '.join(message.keys))}"
    )
