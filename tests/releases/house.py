"""One stage, and whichever releases happen to answer for it; what its clients know, and whether that holds."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from chalicelib.store.clients import Clients
from chalicelib.store.layout import Tables, definitions
from tests.releases.release import Release
from tests.support.clock import START_MS

_JOBS_MS = 6 * 3_600_000
_MINUTES = 15  # longer than any lease
_MOMENT_MS = 4_000  # what processes keep of one another's doings is younger
Rows = dict[str, list[dict[str, Any]]]
Item = Mapping[str, Any]


@dataclass
class Notes:
    """What clients know: by reader (`topic/group`, in a broadcast `topic/group/consumer`) what it is owed, has done
    with, and found among its dead letters, by label; what they hold, `[reader, label, receipt]`; when a message is
    due, and which id it has."""

    owed: dict[str, list[str]] = field(default_factory=dict)
    done: dict[str, list[str]] = field(default_factory=dict)
    dead: dict[str, list[str]] = field(default_factory=dict)
    held: list[list[str]] = field(default_factory=list)
    due_ms: dict[str, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    transactions: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)  # by an edit: what the label was


class House:
    """One stage. Each request is answered by one of the releases; what only the newest can, the first one does."""

    def __init__(
        self,
        prefix: str,
        releases: Sequence[Release],
        *,
        token: str = "",
        at_ms: int = START_MS,
        notes: Notes | None = None,
        seed: int = 0,
    ) -> None:
        self.prefix = prefix
        self.at_ms = at_ms
        self.notes = notes or Notes()
        self.complaints: list[str] = []
        self.path: list[str] = []
        self.random = random.Random(seed)
        self._releases = releases
        self._inbox: deque[tuple[str, Any]] = deque()
        self.token = token or str(self._ask({"token": True})["token"])

    def _ask(self, request: dict[str, Any], newest: bool = False) -> dict[str, Any]:
        n = 0 if newest else self.random.randrange(len(self._releases))
        answer = self._releases[n].answer({**request, "at_ms": self.at_ms})
        call = request.get("http", (request.get("run"),))[:2]
        self.path.append(f"{(self.at_ms - START_MS) / 1000:.3f} release {n}: {call} {answer.get('status')}")
        self.at_ms = max(self.at_ms, answer["at_ms"])
        self._inbox += [(function, event) for function, event in answer["asked"]]
        for group, consumer, label, _, is_success in answer["calls"]:
            self.came(self.called[group, consumer], label)
            if is_success:
                self.notes.done.setdefault(self.called[group, consumer], []).append(label)
        return answer

    @property
    def called(self) -> dict[tuple[str, str], str]:
        """The readers that are called."""
        return {("hook", "url"): "orders/hook", ("all", "url"): "orders/all/url"}

    def call(
        self, method: str, path: str, body: Any = None, *, expect: int | None = None, newest: bool = False
    ) -> Any:
        """The body of an answer, which must have the status that is expected, or at least none of trouble."""
        answer = self._ask({"http": [method, f"/v1{path}", body, self.token]}, newest)
        status = answer["status"]
        if status != expect if expect else status >= 500:
            self.complaints.append(f"{method} {path} {body}: {status} {answer['body']}")
        return answer["body"] or {}

    def run(self, function: str, event: Any = None) -> Any:
        """A function, and what it starts, and what that starts."""
        schedule_event = dict.fromkeys(("source", "time", "account", "region", "id"), "")
        schedule_event |= {"resources": [], "detail": {}, "detail-type": "Scheduled Event", "version": "0"}  # type: ignore[dict-item]
        report = self._ask({"run": function, "event": schedule_event if event is None else event})["report"]
        while self._inbox:
            function_name, its_event = self._inbox.popleft()
            self._ask({"run": function_name, "event": its_event})
        return report

    def minute(self) -> None:
        """What runs each minute, and the stream."""
        for function in ("mover", "sweep", "assign"):
            self.run(function)
        partitions = {row["s"]["S"] for row in _rows(Tables(self.prefix).log)}
        keys = [{"s": {"S": partition}, "o": {"N": "0"}} for partition in sorted(partitions)]
        self.run("route", {"Records": [{"eventName": "INSERT", "dynamodb": {"Keys": k}} for k in keys]})

    def passes(self, seconds: int) -> None:
        """Time passes, and jobs come by."""
        slot = self.at_ms // _JOBS_MS
        self.at_ms += seconds * 1000
        if self.at_ms // _JOBS_MS > slot:
            for function in ("checkpoint", "expire"):
                self.run(function)
        self.minute()

    # Clients

    def receive(self, reader: str, most: int = 10, consumer: str | None = None) -> list[Any]:
        topic, group, *consumer_names = reader.split("/")
        body: dict[str, Any] = {"max": most, "lease_seconds": 600}
        if consumer_name := consumer or (consumer_names[0] if consumer_names else None):
            body["consumer"] = consumer_name
        messages: list[Any] = self.call("POST", f"/topics/{topic}/groups/{group}/receive", body).get(
            "messages", []
        )
        self.path.append(f"{reader} was given {[message['body'][:8] for message in messages]}")
        for message in messages:
            self.came(reader, message["body"])
        return messages

    def came(self, reader: str, label: str) -> None:
        """A message was given to somebody: may it be?"""
        notes = self.notes
        if label in notes.done.get(reader, ()):
            self.complaints.append(f"{reader} was given {label} again")
        if label not in notes.owed.get(reader, ()):
            self.complaints.append(f"{reader} was given {label}, which nobody owes it")
        if notes.due_ms.get(label, 0) > self.at_ms:
            self.complaints.append(f"{reader} was given {label} before its time")

    def settle(self, reader: str, action: str, messages: Sequence[Any], **fields: Any) -> None:
        """Settle messages as they came; each of them must be the reader's to settle."""
        topic, group, *_ = reader.split("/")
        body = {"receipts": [message["receipt"] for message in messages], **fields}
        answer = self.call("POST", f"/topics/{topic}/groups/{group}/{action}", body)
        labels = [message["body"] for message in messages]
        refusals = [
            label for label, r in zip(labels, answer.get("results", []), strict=False) if not r.get("ok")
        ]
        if refusals or not answer.get("results"):
            self.complaints.append(f"{action} of {reader} was refused for {refusals}: {answer}")
        if action == "ack":
            self.notes.done.setdefault(reader, []).extend(labels)
        if fields.get("dead_letter"):
            self.notes.dead.setdefault(reader, []).extend(labels)

    def drain(self, readers: Iterable[str]) -> None:
        """Everybody takes and acknowledges what there is."""
        for reader in readers:
            looks_left = len(self._releases)  # another process may believe for a moment that all is under way
            while looks_left:
                if messages := self.receive(reader, 100):
                    self.settle(reader, "ack", messages)
                else:
                    looks_left -= 1
                    self.at_ms += _MOMENT_MS * (looks_left > 0)

    def drain_all(self, readers: Iterable[str]) -> None:
        """Everybody takes and acknowledges what comes, until nobody is owed anything; jobs come by all the while. What
        has not come after so many minutes never does: `judge` tells of it."""
        readers = list(readers)
        for _ in range(_MINUTES):
            self.minute()
            self.drain(readers)
            if not any(map(self._still_owed, self.notes.owed)):
                return
            self.at_ms += 60_000

    def _still_owed(self, reader: str) -> list[str]:
        """What a reader is owed and has no end yet."""
        notes = self.notes
        return sorted({*notes.owed[reader]} - {*notes.done.get(reader, ()), *notes.dead.get(reader, ())})

    def judge(self) -> list[str]:
        """What is owed has its end, and the numbers say so."""
        for reader in self.notes.owed:
            topic, group, *_ = reader.split("/")
            if labels := self._still_owed(reader):
                self.complaints.append(f"{reader} was never given {labels}")
            stats = self.call("GET", f"/topics/{topic}", newest=True)["stats"]["groups"][group]
            counts = {name: stats[name] for name in ("backlog", "in_flight", "retrying")}
            if any(counts.values()):
                self.complaints.append(f"{reader} counts {counts} at rest")
        return self.complaints

    # Rows

    def rows(self) -> Rows:
        """All rows of all tables."""
        return {
            _short(definition): _rows(definition["TableName"])
            for definition in definitions(Tables(self.prefix))
        }

    def story(self) -> str:
        return "\n".join([*self.complaints, *self.path[-40:]])

    def told(self) -> dict[str, Any]:
        """What another house needs to go on."""
        return {"token": self.token, "at_ms": self.at_ms, "notes": asdict(self.notes)}


def fill_tables(prefix: str, rows: Rows) -> None:
    """Put rows into the tables of a stage."""
    client = Clients("us-east-1").get("dynamodb")
    for definition in definitions(Tables(prefix)):
        for row in rows.get(_short(definition), ()):
            client.put_item(TableName=definition["TableName"], Item=row)


def _rows(table: str) -> list[dict[str, Any]]:
    client = Clients("us-east-1").get("dynamodb")
    try:
        pages = client.get_paginator("scan").paginate(TableName=table)
        return [row for page in pages for row in page["Items"]]
    except client.exceptions.ResourceNotFoundException:  # older releases have fewer tables
        return []


def _short(definition: Mapping[str, Any]) -> str:
    return str(definition["TableName"].rpartition("-")[2])
