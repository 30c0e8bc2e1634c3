"""`headrace spool`: messages that a producer left on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ..errors import NoAnswer
from ..producer import Producer
from ..spool import Spool
from .arguments import Limit, Noun
from .output import number_of, short
from .profiles import Unusable
from .session import PARTLY, REFUSED, session

app = typer.Typer(cls=Noun, name="spool", help="Messages that a producer left on disk: list, send.")
File = Annotated[
    Path, typer.Argument(help="The producer's spool.", exists=True, dir_okay=False, show_default=False)
]


@app.command("list", epilog="Example: headrace spool list orders.spool")
def list_spool(
    context: typer.Context,
    file: File,
    limit: Limit = 20,
) -> None:
    """List unsent messages, in order, and messages refused for good, with the reason."""
    s = session(context)
    with _open_spool(file) as spool:
        entries = spool.contents(limit)
    messages = [(each, msgspec.json.decode(each.message)) for each in entries]
    rows = (
        (
            {"number": each.number, "topic": each.topic, "message": message, "refused": each.reason},
            (each.number, each.topic, message.get("keys"), each.reason or "waits", short(_body(message))),
        )
        for each, message in messages
    )
    s.output.many(("NUMBER", "TOPIC", "KEYS", "STATE", "BODY"), rows, "Nothing waits.")


@app.command("send", epilog="Example: headrace spool send orders.spool --refused")
def send_spool(
    context: typer.Context,
    file: File,
    with_refused: Annotated[bool, typer.Option("--refused", help="Also the refused messages.")] = False,
    timeout: Annotated[float, typer.Option(help="For how many seconds to try.")] = 60.0,
) -> None:
    """Send the unsent messages, in order, each once. Messages that cannot be sent stay in the file."""
    s = session(context)
    with _open_spool(file) as spool:
        if with_refused:
            spool.readmit()
        total, aside_before = spool.count(), spool.count_refused()
    producer = Producer(s.hr, spool=file)
    through = False
    try:
        through = producer.flush(timeout)
    finally:  # also at Ctrl-C
        remainder = producer.pending
        producer.close(timeout=0)
        if not through:
            s.output.say(f"{remainder} of {number_of(total, 'message')} still in {file}.")
    if not through:
        raise NoAnswer("NO_ANSWER", f"Not all were sent within {timeout:g} seconds.", retryable=True)
    with _open_spool(file) as spool:
        aside = spool.count_refused() - aside_before
    s.output.one({"sent": total - aside, "refused": aside}, [("sent", total - aside)])
    if aside:
        s.output.fail(f"{aside} refused and kept in {file}.")
        raise typer.Exit(PARTLY if aside < total else REFUSED)


@contextlib.contextmanager
def _open_spool(file: Path) -> Iterator[Spool]:
    try:
        spool = Spool(file)
    except (BlockingIOError, ValueError) as error:
        raise Unusable(str(error)) from None
    try:
        yield spool
    finally:
        spool.close()


def _body(message: dict[str, Any]) -> Any:
    return message.get("body", message.get("body_base64"))
