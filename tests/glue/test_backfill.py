"""Messages that the journal lost come back from DynamoDB; those that are nowhere are reported."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.domain.message import Draft
from chalicelib.domain.segment import Segment, ShardKey, Written
from chalicelib.domain.times import DAY_MS
from chalicelib.domain.topic import CursorKey
from chalicelib.domain.trace import NOT_ARCHIVED, AttemptOutcome, TraceEntry, TraceRow
from chalicelib.services import journal
from chalicelib.store import codec
from chalicelib.store.control import Control
from chalicelib.store.dynamo import Dynamo
from chalicelib.store.layout import Tables
from chalicelib.store.log import Log, _item
from chalicelib.store.tables import create_missing
from chalicelib.store.traces import Traces, parts
from chalicelib.store.traces import _item as _trace_item
from glue_jobs.archiving import backfill, forgetting, options, trace_rows
from glue_jobs.archiving import log_rows as rows
from glue_jobs.archiving.scan import shard_key
from glue_jobs.common.arguments import DONE, INCOMPLETE
from glue_jobs.common.bucket import Entry
from tests.glue.jobs import read_summary
from tests.glue.journals import DAY, NEXT, NOON_MS, Place, message
from tests.support import factories as make
from tests.support.journaled import DELIVERIES, DRAFTS, FIXTURE, MESSAGES
from tests.support.rarely import rarely

SHARD = ShardKey("orders", "u1", 0)
BATCH = 4


def row_of(log_write: Written) -> Any:
    pack = codec.pack(log_write.segment.drafts) if log_write.segment.drafts else None
    item = _item(log_write.shard, log_write.segment, pack)
    return item | ({"e": {"N": str(log_write.segment.edition)}} if log_write.segment.edition else {})


def test_a_row_is_decoded_as_the_journal_writes_it() -> None:
    lines = [json.loads(line) for log_write in MESSAGES for *_, line in rows.lines_of(row_of(log_write))]
    assert lines == [json.loads(line) for line in (FIXTURE / "messages.jsonl").read_text().splitlines()]


def test_a_row_of_traces_is_decoded_as_the_journal_writes_it() -> None:
    items = [_trace_item(part) for row in DELIVERIES for part in parts(row)]
    lines = [json.loads(line) for item in items for *_, line in trace_rows.lines_of(item)]
    assert lines == [json.loads(line) for line in (FIXTURE / "deliveries.jsonl").read_text().splitlines()]


def test_edits_and_deletions_of_a_dead_letter_have_no_line_and_all_other_outcomes_have_one() -> None:
    entries = tuple(
        TraceEntry(n, 2, outcome, 0, "token") for n, outcome in enumerate([*AttemptOutcome, "LATER"])
    )
    row = replace(DELIVERIES[0], entries=entries)
    lines = [json.loads(line) for part in parts(row) for *_, line in trace_rows.lines_of(_trace_item(part))]
    assert lines == [line for _, line in journal.lines(row)]
    assert {line["outcome"] for line in lines} == {*AttemptOutcome, "LATER"} - NOT_ARCHIVED
    assert [line["detail"] for line in lines if line["outcome"] == "REDRIVEN"] == [""], "the token's id"


def test_bodies_come_out_of_a_row_to_the_letter() -> None:
    bodies = [b'{"a":[1.50,1e5,{"b":"}]\\"\\u00e9"}]}', b"null", b"[]", b'"\\ud83c\\udf0d"', b"-0.0", b'""']
    segment = make.segment(7, [replace(DRAFTS[0], body=body) for body in bodies], accepted_ms=NOON_MS)
    read_bodies = [
        json.loads(line)["body"].encode() for *_, line in rows.lines_of(row_of(Written(SHARD, segment)))
    ]
    assert read_bodies == bodies


class Queue:
    """A log table, and the journal of what is put into it."""

    def __init__(self, place: Place) -> None:
        import boto3

        self.place, self.prefix = place, f"hr-{uuid.uuid4().hex[:8]}"
        client = boto3.client("dynamodb")
        self.raw = boto3.resource("dynamodb")
        tables = Tables(self.prefix)
        create_missing(client, tables)
        dynamo = Dynamo(client, tables, lambda n: None, lambda: uuid.uuid4().hex)
        self.log, self.traces, self.control = Log(dynamo), Traces(dynamo), Control(dynamo)
        self.control.put_topic(make.topic("orders", uid="u1", shards=2), None)

    def put(
        self,
        first: int,
        *,
        accepted_ms: int = NOON_MS,
        row: bool = True,
        line: bool = True,
        shard: ShardKey = SHARD,
    ) -> None:
        segment = make.segment(first, BATCH, accepted_ms=accepted_ms)
        if row:
            self.log.put(shard, segment, self.log.pack(segment.drafts))
        if line:
            self.journal(segment, shard=shard)

    def journal(self, segment: Segment, name: str = "at", shard: ShardKey = SHARD) -> None:
        lines = [line for _, line in journal.lines(Written(shard, segment))]
        self.place.journal(f"{name}-{shard.topic}-{shard.shard}-{segment.first:05}", lines)

    def edit(self, first: int, drafts: Mapping[int, Draft], *, line: bool = False) -> None:
        """Change some messages of a row, as the service does: each with an edition for the whole row."""
        (old,) = self.log.read(SHARD, first, 1)
        new = [drafts.get(n, draft) for n, draft in enumerate(old.drafts)]
        assert self.log.amend(SHARD, old, self.log.pack(new), first, {})
        if line:
            (segment,) = self.log.read(SHARD, first, 1)
            self.journal(segment, "edited")

    def settle(self, name: str, *offsets: int, lines: int = 9, begun_ms: int = NOON_MS + 60_000) -> None:
        """A group's attempts at some offsets, settled together. The journal has so many lines of them."""
        entries = tuple(TraceEntry(offset, 1, "SUCCESS", 5) for offset in offsets)
        row = TraceRow(CursorKey(SHARD, "g1"), name, "c", None, 1, begun_ms, entries, 2**31, "billing")
        self.traces.write([row])
        if journaled := [line for _, line in journal.lines(row)][:lines]:
            self.place.journal(f"tried-{name}", journaled)

    def archive(self, *argv: str, bucket: Any = None) -> int:
        return self.place.archive("--backfill", "yes", "--prefix", self.prefix, *argv, bucket=bucket)

    def journal_objects(self) -> set[Path]:
        return {*self.place.folder.glob("journal/messages/**/*.gz")}

    def bodies(self) -> list[tuple[int, str]]:
        rows = self.place.query('"offset", decode(body) from % order by 1')
        return [(offset, body) for offset, body in rows]

    def offsets(self) -> list[int]:
        return [offset for _, _, offset in self.place.places()]


@pytest.fixture
def queue(engine: str, place: Place) -> Queue:
    return Queue(place)


def test_offsets_that_the_journal_lost_come_from_dynamodb_and_what_is_in_neither_is_told(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(6):
        queue.put(
            n * BATCH, row=n != 2, line=n not in (0, 2, 3, 5)
        )  # at the beginning, between, and at the end
    assert queue.archive() == INCOMPLETE
    summary = read_summary(capsys)
    assert summary["backfilled"] == 3 * BATCH
    (problem,) = summary["problems"]
    assert problem["missing"] == [[2 * BATCH, 3 * BATCH - 1]]
    assert queue.offsets() == [*range(2 * BATCH), *range(3 * BATCH, 6 * BATCH)]


def test_shards_and_days_of_which_the_journal_has_nothing_come_from_dynamodb(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, again = make.topic("gone", uid="u0", shards=1), make.topic("gone", uid="u9", shards=1)
    for topic in (gone, again):
        assert queue.control.put_topic(topic, None)
        assert queue.control.retire_topic(replace(topic, version=1))
    queue.control.delete_topic(gone, 2**31)
    queue.put(0)
    queue.put(0, line=False, shard=ShardKey("orders", "u1", 1))
    for topic in (gone, again):  # deleted; and about to be
        queue.put(0, line=False, shard=topic.shard_key(0))
    queue.put(BATCH, line=False, accepted_ms=NOON_MS + DAY_MS)  # the journal's folder of that day is gone
    assert queue.archive() == DONE
    summary = read_summary(capsys)
    assert (summary["backfilled"], summary["problems"]) == (4 * BATCH, [])
    orders = [("orders", "u1", shard, day) for shard, day in ((0, DAY), (0, NEXT), (1, DAY))]
    lives = [("gone", uid, 0, DAY) for uid in ("u0", "u9")]
    assert (
        queue.place.query("distinct topic, topic_uid, shard, day::text from % order by all") == lives + orders
    )
    queue.place.start = lambda is_small=False: pytest.fail("there is nothing to do")  # type: ignore[method-assign]
    assert queue.archive() == DONE


def harm(path: Path, chance: random.Random) -> str:
    """Do to an object of the journal what accidents do: nothing, or delete, double, cut or misplace it."""
    accident = chance.choice(["keep", "delete", "double", "cut", "misplace", "empty"])
    if accident in ("delete", "misplace"):
        day = chance.choice(["2026-11-20", DAY, NEXT])
        elsewhere = path.parents[2] / f"day={day}/hour={chance.randrange(24):02}" / path.name
        elsewhere.parent.mkdir(parents=True, exist_ok=True)
        path.rename(elsewhere)
        path = elsewhere
    if accident == "delete":
        path.unlink()
    if accident == "double":
        shutil.copy(path, path.with_name(f"again-{path.name}"))
    if accident in ("cut", "empty"):
        path.write_bytes(path.read_bytes()[: 60 if accident == "cut" else 0])
    return accident


@pytest.mark.parametrize("seed", [1, *rarely(*range(2, 9))])
def test_a_journal_that_was_damaged_in_every_way_is_archived_whole(queue: Queue, seed: int) -> None:
    chance = random.Random(seed)
    for shard in (SHARD, ShardKey("orders", "u1", 1)):
        for n in range(12):
            queue.put(n * BATCH, accepted_ms=NOON_MS + DAY_MS * (n // 6), shard=shard)
    accidents = {harm(path, chance) for path in sorted(queue.journal_objects())}
    assert len(accidents) == 6
    for night in range(2):
        is_done = queue.archive("--look-back-days", "3") in (DONE, INCOMPLETE)  # damaged objects are named
        assert is_done, night
        rows = queue.place.query('shard, "offset", day::text from % order by all', files=queue.place.shown())
        days = (DAY, NEXT)
        assert rows == [(shard, n, days[n // 24]) for shard in (0, 1) for n in range(12 * BATCH)]


CANCELLED, EDITED = make.draft(cancelled=True), make.draft("edited")


@pytest.mark.soak  # slow
def test_edits_that_the_journal_lost_come_from_dynamodb_if_they_are_asked_for(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(4):
        queue.put(n * BATCH, accepted_ms=NOON_MS + (DAY_MS if n == 3 else 0))
    queue.edit(0, {1: CANCELLED})
    queue.edit(0, {2: EDITED})
    queue.edit(BATCH, {0: EDITED}, line=True)
    queue.edit(3 * BATCH, {3: EDITED})
    assert queue.archive() == DONE
    assert queue.offsets() == list(range(4 * BATCH))
    before = dict(queue.bodies())
    assert [offset for offset in before if before[offset] == '"edited"'] == [BATCH]
    capsys.readouterr()
    assert queue.archive("--backfill-edits", "yes") == DONE
    summary = read_summary(capsys)
    assert (summary["windows"], summary["backfilled"], summary["backfilled_edits"]) == (2, 0, 2 * BATCH)
    edited = dict.fromkeys([2, BATCH, 4 * BATCH - 1], '"edited"')
    assert dict(queue.bodies()) == {n: edited.get(n, body) for n, body in before.items() if n != 1}
    objects = queue.journal_objects()
    assert queue.archive("--backfill-edits", "yes") == DONE
    assert read_summary(capsys)["backfilled_edits"] == 0
    assert queue.journal_objects() == objects
    assert queue.archive() == DONE
    assert read_summary(capsys)["unchanged"] == 2


def test_attempts_that_the_journal_lost_come_from_dynamodb(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(4):
        queue.put(n * BATCH)
    queue.settle("a", 4, 5)
    queue.settle("b", 0, 1, 2, 3, lines=0)  # before what the journal has
    queue.settle("d", 6, 7, 9, lines=1)  # an object that was cut within a row
    queue.settle("c", 10, 11)
    queue.settle("yesterday", 12, lines=0, begun_ms=NOON_MS - 86_400_000)
    assert queue.archive() == DONE
    summary = read_summary(capsys)
    assert (summary["backfilled_traces"], summary["deliveries"], summary["without_id"]) == (6, 11, 0)
    rows = queue.place.query('"offset" from % order by 1', "deliveries")
    assert [offset for (offset,) in rows] == [*range(8), 9, 10, 11]
    assert queue.archive("--window", DAY) == DONE
    assert read_summary(capsys)["backfilled_traces"] == 0
    assert queue.archive() == DONE
    assert read_summary(capsys)["unchanged"] == 1


class Meanwhile:
    """A bucket in which something happens once attempts have come back from DynamoDB."""

    def __init__(self, place: Place, happens: Callable[[], object]) -> None:
        self._place, self._happens = place, happens
        self._has_happened = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place.bucket, name)

    def entries(self, folder: str) -> list[Entry]:
        if not self._has_happened and [*self._place.folder.glob("journal/deliveries/**/again-*.gz")]:
            self._has_happened = True
            self._happens()
        return self._place.bucket.entries(folder)


def test_what_is_changed_while_attempts_come_back_is_archived_the_next_night(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    def cancel() -> None:
        line = {**message(1, topic_uid="u1"), "edition": 1}
        queue.place.journal("cancelled", [{**line, "void": "cancelled"}])

    queue.put(0)
    queue.settle("a", 0)
    queue.settle("b", 2, lines=0)
    assert queue.archive(bucket=Meanwhile(queue.place, cancel)) == DONE
    assert read_summary(capsys)["backfilled_traces"] == 1
    assert queue.archive() == DONE
    assert queue.offsets() == [0, 2, 3]
    assert queue.archive() == DONE
    assert read_summary(capsys)["unchanged"] == 1


HOME = shard_key("orders", "u1", 0)


def test_a_forgotten_message_is_nowhere_and_its_day_stays_proved(
    queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    place = queue.place
    queue.put(0)
    queue.edit(0, {1: Draft(b'{"n":"secret"}', keys=("anna",))}, line=True)
    queue.edit(0, {1: Draft(b"", keys=("anna",), blob="bodies/b", blob_bytes=10)}, line=True)
    place.bucket.put("bodies/b", b"the secret")
    moved = next(path for path in queue.journal_objects() if "edited" in path.name)
    target = Path(str(moved).replace(DAY, NEXT))
    target.parent.mkdir(parents=True)
    shutil.copy(moved, target)
    queue.settle("t1", 0, 1)
    group = {"pk": "topic#u1", "sk": "group#g", "uid": "g1"}
    letter: dict[str, Any] = {"g": "g1#dead", "k": f"u1/0000/{1:016d}", "m": "secret", "e": 1}
    queue.raw.Table(f"{queue.prefix}-control").put_item(Item=group)
    records = queue.raw.Table(f"{queue.prefix}-records")
    records.put_item(Item=letter)
    assert queue.archive() == DONE
    message = queue.log.read(SHARD, 0, 1)[0].message(0, 1)
    assert message
    argv = ["--topic", "orders", "--id", message.id, "--prefix", queue.prefix, "--bucket", place.name]
    argv += ["--folder", str(place.folder), "--dry-run"]
    for dry_run in ("yes", "no"):
        assert forgetting.run(place.start, place.bucket, options.of_forget(None, [*argv, dry_run])) == DONE
        summary = read_summary(capsys)
        counts = ("rows", "dead_letters", "keys", "bodies", "journal_objects")
        assert [summary[name] for name in counts] == [1, 1, 1, 1, 4]
    assert "m" not in records.get_item(Key={"g": letter["g"], "k": letter["k"]})["Item"]
    assert [offset for offset, _ in queue.bodies()] == [0, 2, 3]
    assert (place.manifest().complete, place.manifest().shards[0].voids) == (True, 1)
    (segment,) = queue.log.read(SHARD, 0, 1)
    assert [draft.cancelled for draft in segment.drafts] == [False, True, False, False]
    everything = [path.read_bytes() for path in place.folder.rglob("*") if path.is_file()]
    plain = b"".join(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw for raw in everything)
    assert b"secret" not in plain
    assert b"anna" not in plain
    argv[3] = "x-0-9"
    with pytest.raises(forgetting.NotThere, match="--place"):
        forgetting.run(place.start, place.bucket, options.of_forget(None, [*argv, "yes"]))


def rows_of_the_log() -> list[dict[str, Any]]:
    segments = [make.segment(n * BATCH, BATCH, accepted_ms=NOON_MS) for n in range(3)]
    return [_item(SHARD, each, codec.pack(each.drafts)) for each in segments]


def offsets_of(lines: Iterable[backfill.Line]) -> list[int]:
    return [json.loads(line)["offset"] for *_, line in lines]


def test_one_row_of_a_later_time_ends_no_look_and_a_page_of_them_does() -> None:
    first, second, third = rows_of_the_log()
    later = {**second, "a": {"N": str(NOON_MS + 1)}}
    assert offsets_of(backfill.lines_of(HOME, [[first, later], [third]], NOON_MS)) == [
        *range(4),
        *range(8, 12),
    ]
    assert offsets_of(backfill.lines_of(HOME, [[first], [later], [third]], NOON_MS)) == [0, 1, 2, 3]


def test_pages_of_which_a_filter_left_nothing_end_no_look() -> None:
    first, _, third = rows_of_the_log()
    pages: list[list[Any]] = [[], [first], [], [third]]
    for until_ms in (None, NOON_MS):
        assert offsets_of(backfill.lines_of(HOME, pages, until_ms)) == [*range(4), *range(8, 12)]


class Table:
    """A client of DynamoDB with these rows of a shard, by offset."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = list(items)

    def query(self, **request: Any) -> dict[str, Any]:
        values = request["ExpressionAttributeValues"]
        first, last = (int(values[name]["N"]) for name in (":first", ":last"))
        items = [item for item in self._items if first <= int(item["o"]["N"]) <= last]
        if not request.get("ScanIndexForward", True):
            items.reverse()
        return {"Items": items[: request.get("Limit")]}


@pytest.mark.parametrize(("gap", "firsts"), [((2, 5), [0, 4]), ((3, 3), [0]), ((4, 4), [4]), ((8, 99), [8])])
def test_a_gap_that_begins_within_a_row_is_filled_from_that_row_on(
    gap: tuple[int, int], firsts: list[int]
) -> None:
    pages = backfill._rows(Table(rows_of_the_log()), "log", HOME, *gap)
    assert [int(item["o"]["N"]) for page in pages for item in page] == firsts
