"""One message is forgotten: its content goes, and its place becomes that of a cancelled message."""

from __future__ import annotations

import argparse
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from typing import Any

from glue_jobs.archiving import backfill, log_rows, options
from glue_jobs.archiving import run as archive_run
from glue_jobs.archiving.scan import Settings
from glue_jobs.archiving.window import Window, inputs
from glue_jobs.common import arguments, manifest
from glue_jobs.common.arguments import progress, summary
from glue_jobs.common.bucket import Bucket, Entry
from glue_jobs.common.failures import JobError, Unreadable
from glue_jobs.common.schemas import JOURNAL_VERSION, MESSAGES
from glue_jobs.common.session import Start

JOB = "forget"
_ID = re.compile(r".+-([0-9a-hjkmnp-tv-z]+)-([0-9a-hjkmnp-tv-z]+)\Z")
Line = dict[str, Any]


class NotThere(JobError):
    """No message has this id at its place."""


@dataclass
class _Message:
    """A place in the log, and what is known of the message there. `lines`: by object of the journal."""

    key: str
    offset: int
    day: date | None = None
    item: log_rows.Item | None = None
    row_line: Line = field(default_factory=dict)
    lines: dict[str, list[Line]] = field(default_factory=dict)

    @property
    def all_lines(self) -> list[Line]:
        """Of the log, where its row is there, and of the journal."""
        own = [self.row_line] if self.row_line else []
        return own + [line for lines in self.lines.values() for line in lines]


def run(start: Start, bucket: Bucket, choices: argparse.Namespace) -> int:
    """Do the job; its exit code. Raises NotThere."""
    settings = Settings(choices.prefix, choices.region, 0, 0, 0)
    message = _found(bucket, settings, choices)
    counts = _Forgetter(bucket, settings, message, choices.dry_run).run()
    assert message.day
    day, code = message.day.isoformat(), arguments.DONE
    is_archived = manifest.load(bucket, day) is not None
    again = ["--window", day, "--open", "yes", "--grace-minutes", "0"]
    if is_archived and not choices.dry_run and choices.folder:
        place = ["--bucket", choices.bucket, "--folder", str(choices.folder), "--prefix", choices.prefix]
        code = archive_run.run(start, bucket, options.of_archive(None, [*place, *again]))
    elif is_archived:
        progress(f'The archive has it until its day is archived again: make archive ARGS="{" ".join(again)}"')
    summary(JOB, dry_run=choices.dry_run, shard=message.key, offset=message.offset, day=day, **counts)
    return code


def _found(bucket: Bucket, settings: Settings, choices: argparse.Namespace) -> _Message:
    """The message, by the rows of the log and the days of the archive. Raises NotThere."""
    shard, offset = choices.place or _place_of(choices.id)
    keys, _ = backfill.shards(*backfill.table_of(settings, "control"))
    log = backfill.table_of(settings, "log")
    for key in keys:
        if key.startswith(f"{choices.topic}:") and key.endswith(f"/{shard}"):
            message = _with_row(_Message(key, offset), *log)
            if message.row_line.get("id") == choices.id:
                message.lines = dict(_journaled(bucket, message))
                return message
    for day in manifest.load_all(bucket):
        for each in day.shards:
            has = any(first <= offset <= last for first, last in each.ranges)
            if has and (each.topic, each.shard) == (choices.topic, shard):
                message = _Message(each.key, offset, date.fromisoformat(day.day))
                message.lines = dict(_journaled(bucket, message))
                if any(line.get("id") == choices.id for line in message.all_lines):
                    return message
    raise NotThere(
        f"Neither the log nor the archive has a message {choices.id} of {choices.topic} in shard {shard} at offset "
        f"{offset}. If it was delayed, add --place SHARD/OFFSET; if it still is, cancel it."
    )


def _place_of(message_id: str) -> tuple[int, int]:
    """Shard and offset, as an id tells them. Raises NotThere."""
    match = _ID.match(message_id)
    if not match:
        raise NotThere(f"The id {message_id} does not say where its message is: add --place SHARD/OFFSET.")
    return log_rows.number_of(match[1]), log_rows.number_of(match[2])


def _with_row(message: _Message, table: str, options: Mapping[str, str]) -> _Message:
    for item in backfill.rows_at(table, options, message.key, message.offset):
        for _, _, text in log_rows.lines_of(item):
            line = json.loads(text)
            if line["offset"] == message.offset:
                message.item, message.row_line = item, line
                message.day = datetime.fromtimestamp(line["accepted_ms"] / 1000, UTC).date()
    return message


def _journaled(bucket: Bucket, message: _Message) -> Iterator[tuple[str, list[Line]]]:
    """The message's lines, by the object of its day, or of one beside it, that has them. Raises Unreadable."""
    assert message.day
    days = (Window(message.day + timedelta(days=n)) for n in (-1, 0, 1))
    for entry in chain.from_iterable(inputs(bucket, day, [MESSAGES])[MESSAGES] for day in days):
        lines = [line for text in _texts(bucket, entry) if (line := _own(message, text))]
        if lines:
            yield entry.name, lines


def _texts(bucket: Bucket, entry: Entry) -> list[bytes]:
    try:
        return gzip.decompress(bucket.get(entry.name) or b"").splitlines(keepends=True)
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(
            f"{entry.name} is damaged, and may have the message: delete or replace it, and run this again."
        ) from error


def _own(message: _Message, text: bytes) -> Line | None:
    """A line of the journal, if it is of this message."""
    if str(message.offset).encode() not in text:
        return None
    try:
        line: Line = json.loads(text)
        key = f"{line['topic']}:{line['topic_uid']}/{line['shard']}"
        return line if (key, line["offset"]) == (message.key, message.offset) else None
    except (ValueError, LookupError, TypeError):
        return None


class _Forgetter:
    """Each step can be done again. What names the content goes last: a run that was stopped finds it again."""

    def __init__(self, bucket: Bucket, settings: Settings, message: _Message, is_dry: bool) -> None:
        self._bucket, self._settings, self._message, self._is_dry = bucket, settings, message, is_dry
        self._client = backfill.client_of(**backfill.client_options(settings.region))
        self._topic_uid = message.key.partition(":")[2].rpartition("/")[0]

    def run(self) -> dict[str, int]:
        full_lines = [line for line in self._message.all_lines if "void" not in line]
        bodies = {line["body_blob"] for line in full_lines if "body_blob" in line}
        keys = {(line["accepted_ms"], line["id"], key) for line in full_lines for key in line.get("keys", ())}
        letters = list(self._letters())
        has_row = bool(self._message.row_line) and "void" not in self._message.row_line
        objects = [name for name, lines in self._message.lines.items() if any("void" not in x for x in lines)]
        if not self._is_dry:
            self._journal_void(full_lines)
            for letter in letters:
                self._strip(letter)
            for accepted_ms, message_id, key in keys:
                place = {
                    "k": {"S": f"{self._topic_uid}#{key}"},
                    "o": {"S": f"{accepted_ms:015d}#{message_id}"},
                }
                self._client.delete_item(TableName=self._table("keys"), Key=place)
            for body in bodies:
                self._bucket.delete(body)
            if has_row:
                self._cancel()
            for name in objects:
                self._rewrite(name)
        return {
            "rows": int(has_row),
            "dead_letters": len(letters),
            "keys": len(keys),
            "bodies": len(bodies),
            "journal_objects": len(objects),
        }

    def _table(self, noun: str) -> str:
        return f"{self._settings.prefix}-{noun}"

    def _journal_void(self, full_lines: list[Line]) -> None:
        """A line of a later edition, by which the archive's next run knows the place."""
        if not full_lines:
            return
        last = max(full_lines, key=lambda line: line.get("edition", 0))
        names = ("topic", "topic_uid", "shard", "offset", "id", "accepted_ms")
        void = {"v": JOURNAL_VERSION, **{name: last[name] for name in names}, "void": "forgotten"}
        void["edition"] = last.get("edition", 0) + 1
        day, hour, text = log_rows.encode_line(void, void["accepted_ms"])
        name = f"journal/{MESSAGES}/day={day}/hour={hour}/forgotten-{void['topic_uid']}-{void['shard']}"
        content = gzip.compress(f"{text}\n".encode(), mtime=0)
        self._bucket.put(f"{name}-{void['offset']}.jsonl.gz", content)

    def _cancel(self) -> None:
        """Write the row of the log again, in its next edition, with the message as a cancelled one."""
        item = self._message.item
        assert item
        wires = log_rows.wires_of(item)
        number = self._message.offset - int(item["o"]["N"])
        kept = {name: wires[number][name] for name in ("n",) if name in wires[number]}
        wires[number] = {"b": "null", "q": "true", **kept}
        array = ",".join("{" + ",".join(f'"{k}":{v}' for k, v in wire.items()) + "}" for wire in wires)
        known = {":r": item["r"], ":m": {"B": zlib.compress(f"[{array}]".encode())}}
        known[":n"] = {"N": str(int(item.get("e", {"N": "0"})["N"]) + 1)}
        condition = "r = :r AND attribute_not_exists(e)"
        if "e" in item:
            condition, known[":e"] = "r = :r AND e = :e", item["e"]
        self._client.update_item(
            TableName=self._table("log"),
            Key={"s": item["s"], "o": item["o"]},
            UpdateExpression="SET m = :m, e = :n",
            ConditionExpression=condition,
            ExpressionAttributeValues=known,
        )

    def _letters(self) -> Iterator[log_rows.Item]:
        """The dead letters that have a copy of the message."""
        shard = int(self._message.key.rpartition("/")[2])
        prefix = f"{self._topic_uid}/{shard:04d}/{self._message.offset:016d}"
        groups = backfill.items(self._client, self._table("control"), "pk = :h", h=f"topic#{self._topic_uid}")
        for group in groups:
            if group["sk"]["S"].partition("#")[0] in ("group", "retired"):
                home = f"{group['uid']['S']}#dead"
                where, table = "g = :h AND begins_with(k, :p)", self._table("records")
                letters = backfill.items(self._client, table, where, h=home, p=prefix)
                yield from (letter for letter in letters if "m" in letter)

    def _strip(self, letter: log_rows.Item) -> None:
        """A dead letter without a message is only counted."""
        self._client.update_item(
            TableName=self._table("records"),
            Key={"g": letter["g"], "k": letter["k"]},
            UpdateExpression="REMOVE m, h, r ADD e :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )

    def _rewrite(self, name: str) -> None:
        """Write an object of the journal without the message's lines."""
        texts = _texts(self._bucket, Entry(name, 0))
        kept = [text for text in texts if "void" in (_own(self._message, text) or {"void": ""})]
        if kept:
            self._bucket.put(name, gzip.compress(b"".join(kept), mtime=0))
        else:
            self._bucket.delete(name)
