"""`headrace send`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from .. import typed
from ..calls import encode
from ..errors import HeadraceError, Unavailable
from ..models import Sent
from ..outgoing import BATCH_BYTES, DedupUntil, Outgoing
from .arguments import CallbackUrl, Topic, headers_of, parsed
from .session import PARTLY, REFUSED, Session, session

_CHUNK = 100
_STDIN = "standard input"
_RAW = " --raw sends text as it is."
_Placed = tuple[str, Outgoing]
"""Where a message comes from, for people, and the message."""
_Body = Annotated[
    str | None, typer.Argument(help="The body, JSON. Without it (or with -): JSON lines from standard input.")
]
_Files = Annotated[
    list[Path] | None, typer.Option("--file", "-f", help="JSON lines: a body on each line. Repeatable.")
]
_Tenant = Annotated[str | None, typer.Option(help="Whom it is for: tenants do not delay one another.")]
_DedupId = Annotated[str | None, typer.Option(help="A message sent twice with this id is stored once.")]
_Until = Annotated[
    DedupUntil | None, typer.Option(help="done: the id is free once every group has ended its message.")
]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """With --messages, a message on a line."""

    body: Any
    keys: list[str] | None = None
    tag: str | None = None
    tenant: str | None = None
    ordering_key: str | None = None
    priority: int | None = None
    headers: dict[str, str] | None = None
    dedup_id: str | None = None
    dedup_until: DedupUntil | None = None
    callback_url: str | None = None


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: headrace send orders '{\"order\": 188}' --key order-188 --delay 15m")(send)


def send(
    context: typer.Context,
    topic: Topic,
    body: _Body = None,
    file: _Files = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Send the body, or each whole file, unchanged; not JSON.")
    ] = False,
    messages: Annotated[
        bool, typer.Option("--messages", help='Lines are whole messages: {"body": …, "keys": […], "tag": …}.')
    ] = False,
    key: Annotated[str | None, typer.Option(help="A key to find the message by.")] = None,
    tag: Annotated[str | None, typer.Option(help="A tag that groups may filter by.")] = None,
    tenant: _Tenant = None,
    ordering_key: Annotated[str | None, typer.Option(help="Messages that share it keep their order.")] = None,
    priority: Annotated[int | None, typer.Option(help="0 is the most urgent (the last one).")] = None,
    delay: Annotated[str | None, typer.Option(help="A delay: 30s, 15m, 2h, 7d.")] = None,
    at: Annotated[str | None, typer.Option(help="When to deliver it: 2030-01-01T00:00:00Z.")] = None,
    dedup_id: _DedupId = None,
    dedup_until: _Until = None,
    callback_url: CallbackUrl = None,
    header: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None,
    content_type: Annotated[str | None, typer.Option(help="With --raw (text/plain).")] = None,
) -> None:
    """Send one message, or many: from files or standard input, in batches.

    With exit code 0 all messages are durable. Refused messages are printed with their line numbers; the exit code is 6,
    or 1 if all are refused. What ends it earlier leaves what was sent before: it says from where to go on.
    """
    _check_use(body, file, raw=raw, messages=messages, content_type=content_type)
    s = session(context)
    options: dict[str, Any] = {
        "key": key,
        "tag": tag,
        "tenant": tenant,
        "ordering_key": ordering_key,
        "priority": priority,
        "delay": delay,
        "deliver_at": at,
        "dedup_id": dedup_id,
        "dedup_until": dedup_until,
        "callback_url": callback_url,
        "headers": headers_of(header),
        "content_type": (content_type or "text/plain; charset=utf-8") if raw else None,
    }
    if body is not None and body != "-":
        _tell(s, s.hr.send(topic, body.encode() if raw else parsed(body, hint=_RAW), **options))
    else:
        _many(s, topic, _messages_from(file, options, raw=raw, messages=messages))


def _check_use(
    body: str | None, file: list[Path] | None, *, raw: bool, messages: bool, content_type: str | None
) -> None:
    """Raises BadParameter for options that would be ignored."""
    if body not in (None, "-") and (file or messages):
        raise typer.BadParameter("Give a body, or lines: --file and --messages are for these.")
    if raw and messages:
        raise typer.BadParameter("Choose --raw or --messages.")
    if content_type and not raw:
        raise typer.BadParameter("--content-type goes with --raw: all else is JSON.")


def _messages_from(
    files: list[Path] | None, options: dict[str, Any], *, raw: bool, messages: bool
) -> Iterable[_Placed]:
    """The messages in files, or on standard input: whole files (`raw`), lines that are messages, or lines that are
    bodies. Files to be sent whole are all read before the first is sent."""
    if raw:
        contents = [(str(path), path.read_bytes()) for path in files or ()]
        contents = contents or [(_STDIN, sys.stdin.buffer.read())]
        return ((place, Outgoing(body=content, **options)) for place, content in contents)
    return (
        (place, _message_of(line, options) if messages else Outgoing(body=line, **options))
        for place, line in _lines(files)
    )


def _tell(s: Session, receipt: Sent) -> None:
    fields = [(name, getattr(receipt, name)) for name in ("id", "status", "shard", "offset", "deliver_at")]
    s.output.one(receipt, [*fields, ("duplicate", receipt.duplicate or None)])


def _many(s: Session, topic: str, messages: Iterable[_Placed]) -> None:
    """Batch by batch, so that a pipe is sent as it comes and nothing is held in memory."""
    number, refusals, last, is_open = 0, 0, "", False
    with s.output.progress() as progress:
        task = progress.add_task("sent", total=None)
        try:
            for part in _parts(messages):
                is_open = True
                answers = s.hr.send_many(topic, [message for _, message in part], chunk=_CHUNK)
                # what is printed may end it, as in `… | head`
                is_open, last, begin = False, part[-1][0], number + 1
                number += len(answers)
                refusals += sum(isinstance(answer, HeadraceError) for answer in answers)
                for n, answer in enumerate(answers, begin):
                    if isinstance(answer, HeadraceError):
                        s.output.fail(f"message {n}: {answer}")
                    elif s.output.as_json:
                        s.output.document(answer)
                progress.update(task, completed=number)
        except BaseException as error:  # also Ctrl-C
            if last:
                s.output.say(f"{_count(number, refusals)}, up to {last}: go on behind it.")
            if is_open and isinstance(error, KeyboardInterrupt | Unavailable):
                s.output.say(
                    f"The {'next' if last else 'first'} {len(part)} may be stored: sent again, only a dedup id "
                    "keeps them from being stored twice."
                )
            raise
    s.output.say(_count(number, refusals))
    if refusals:
        raise typer.Exit(PARTLY if refusals < number else REFUSED)


def _count(number: int, refusals: int) -> str:
    return f"{number - refusals} sent" + (f", {refusals} refused" if refusals else "")


def _parts(messages: Iterable[_Placed]) -> Iterator[list[_Placed]]:
    """Each is one call: what ends it early leaves none of them half sent."""
    part: list[_Placed] = []
    room = BATCH_BYTES
    for place, message in messages:
        size = len(encode(message.fields())) + 1
        if part and size > room:
            yield part
            part, room = [], BATCH_BYTES
        part.append((place, message))
        room -= size
        if len(part) == _CHUNK:
            yield part
            part, room = [], BATCH_BYTES
    if part:
        yield part


def _lines(files: list[Path] | None) -> Iterator[tuple[str, Any]]:
    """Where each line is, and its JSON; empty lines are skipped."""
    if not files and sys.stdin.isatty():
        raise typer.BadParameter("Give a body, --file, or JSON lines on standard input.")
    sources: list[Path | None] = [*files] if files else [None]
    for path in sources:
        with open(path, encoding="utf-8") if path else sys.stdin as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    place = f"{path or _STDIN}, line {number}"
                    yield place, parsed(line, f"{place},", _RAW)


def _message_of(line: Any, options: dict[str, Any]) -> Outgoing:
    """The message on a line: what it does not say, the command's options say."""
    try:
        message = typed.converted(line, _Line)
    except msgspec.ValidationError as error:
        names = ", ".join(sorted(_Line.__struct_fields__))
        raise typer.BadParameter(
            f"With --messages a line is an object of body and any of: {names}. ({error})"
        ) from None
    fields = {name: value for name, value in msgspec.structs.asdict(message).items() if value is not None}
    return Outgoing(**{**options, "body": None, **fields})
