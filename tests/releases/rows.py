"""What rows tell by themselves: this release reads each row of the one before, and writes again what it read such that
the one before would read the same."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from chalicelib.domain.append import KeyEntry
from chalicelib.domain.cursor_transitions import extend
from chalicelib.domain.cursor_write import change, replacement
from chalicelib.domain.segment import ShardKey
from chalicelib.domain.timer import UNREADABLE
from chalicelib.domain.topic import CursorKey
from chalicelib.store import codec, control_rows, cursors, keys, log, records, timers, traces, transactions
from chalicelib.store.layout import CONTROL_FORMAT
from tests.releases.house import Rows

Row = dict[str, dict[str, Any]]
OLD_SPAN = re.compile(r"(\d*)(?:\+(\d+))?(?:\*(\d+))?(?:~([^@,]*))?(?:@(\d+))?\Z")  # as 38f1826 reads it
OLD_LEASE = re.compile(
    r"(?P<spans>\d[^;]*);\d+;[0-9a-z]*\Z"
)  # spans, deadline, owner; a fourth field joins the owner
OLD_LEASE_KEY = re.compile(r"[0-9a-z]+\.[0-9a-z]+\Z")  # epoch and a random part
OLD_WAITING_KEY = re.compile(r"\d+\Z")
_MODELS: dict[str, type[control_rows.Row[Any]]] = {
    "topics": control_rows.TopicRow,
    "tokens": control_rows.TokenRow,
    "stage": control_rows.KeyRingRow,
    "group": control_rows.GroupRow,
    "consumer": control_rows.ConsumerRow,
    "assignment": control_rows.AssignmentRow,
}


def complaints(rows: Rows) -> Iterator[str]:
    """What this release would misread, or would write such that the one before misreads it."""
    for table, written_again in _TABLES.items():
        for row in rows[table]:
            try:
                new_row = written_again(row)
            except Exception as error:  # noqa: BLE001 - whatever it is: it cannot be read
                yield f"{table}: {_name(row)} cannot be read: {error!r}"
                continue
            for name, value in row.items():
                if new_row is not None and _plain(new_row.get(name)) != _plain(value):
                    yield f"{table}: {name} of {_name(row)} was {value}, and is {new_row.get(name)}"


def _name(row: Row) -> str:
    return " ".join(
        str(row[key].get("S")) for key in ("g", "c", "s", "f", "k", "t", "pk", "sk") if key in row
    )


def _plain(value: dict[str, Any] | None) -> Any:
    """An attribute; of messages what they say, however they are packed."""
    if value is None:
        return None
    ((kind, content),) = value.items()
    if kind == "B":
        return json.loads(zlib.decompress(content))
    if kind == "S" and content.startswith(("[", "{")):
        return json.loads(content)
    return content


def _cursor(row: Row) -> Row:
    """What was settled needs no place any more; the one before finds an empty map there."""
    cursor = cursors.cursor_of(row)
    new_row = cursors._item(cursor)
    leases = {token: _old(OLD_LEASE, text["S"]) for token, text in new_row["l"]["M"].items()}
    for match in leases.values():
        for span in match["spans"].split(","):
            _old(OLD_SPAN, span)
    for token in leases:
        _old(OLD_LEASE_KEY, token)
    for start, span in new_row["w"]["M"].items():
        _old(OLD_WAITING_KEY, start)
        _old(OLD_SPAN, span["S"])
    assert new_row["d"] == {"M": {}}
    _expressions(cursor)
    return {**row, **new_row, "d": row["d"]}


def _old(grammar: re.Pattern[str], text: str) -> re.Match[str]:
    """The match of a text with the grammar of the release before."""
    match = grammar.match(text)
    assert match, f"{text} is nothing that the release before knows"
    return match


def _expressions(cursor: Any) -> None:
    """Writes of single entries leave the item in the form of whole ones."""
    for token in cursor.leases:
        longer = extend(cursor, token, 1)
        assert longer is not None
        cursors._expressions(change(cursor, longer))
    assert replacement(cursor, cursor).whole


def _segment(row: Row) -> Row | None:
    if row["o"]["N"] == "-1":
        log.tail_of(row)
        return None
    segment = log.segment_of(row)
    assert all(draft.dead_reason is None for draft in segment.drafts), "it counts as damaged"
    topic, _, rest = row["s"]["S"].partition(":")
    uid, _, shard = rest.partition("/")
    item = log._item(ShardKey(topic, uid, int(shard)), segment, codec.pack(segment.drafts, whole=True))
    return {**item, **({"e": row["e"]} if "e" in row else {})}


def _timer(row: Row) -> Row | None:
    if row["t"]["S"].startswith("~"):
        return None
    timer = timers._timer(row)
    assert timer.kind not in UNREADABLE
    assert timer.draft is None or timer.draft.dead_reason is None, "it counts as damaged"
    return timers._item(timer)


def _record(row: Row) -> Row:
    if not row["g"]["S"].endswith("#dead"):
        return {**row, **records._item(records._record(row))}
    uid, shard, *_ = row["k"]["S"].split("/")
    key = CursorKey(ShardKey("", uid, int(shard)), row["g"]["S"].partition("#")[0])
    letter = records._letter(key, row)
    assert letter.reason != "UNDECODABLE"
    return records._letter_item(letter)


def _key(row: Row) -> Row:
    topic_uid, _, key = row["k"]["S"].partition("#")
    entry = keys._entry(topic_uid, key, row)
    assert isinstance(entry, KeyEntry)
    return keys._item(entry)


def _control(row: Row) -> Row | None:
    """Another format is written again: what it tells must be the same. Of the release before it is not read, but told
    from rows it knows (docs/adr/0041)."""
    model = _MODELS.get(row["pk"]["S"]) or _MODELS[row["sk"]["S"].partition("#")[0]]
    noun = model.decoded(row)
    version = int(row["version"]["N"])
    new_row = model.of(control_rows.Key(row["pk"]["S"], row["sk"]["S"]), noun, version).serialize()
    assert new_row["v"] == {"N": str(CONTROL_FORMAT)}
    assert model.decoded(new_row) == noun
    return None


_TABLES: dict[str, Callable[[Row], Row | None]] = {
    "cursors": _cursor,
    "log": _segment,
    "timers": _timer,
    "records": _record,
    "transactions": lambda row: transactions._item(transactions._transaction(row)),
    "traces": lambda row: traces._item(traces.row_of(row)),
    "keys": _key,
    "control": _control,
}
