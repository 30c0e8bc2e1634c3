"""The examples of openapi.json: there is one for each call, of its schema, and taken from a service that runs.

`HEADRACE_WRITE_EXAMPLES=1 pytest tests/functional/front_door/test_documented_examples.py` updates them. Ids and
times stay as they are in the file where nothing else changed, so that the difference shows the change.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

import app
from chalicelib import wiring
from chalicelib.api import openapi
from chalicelib.api.calls import CALLS, JSON
from chalicelib.domain.attention import Attention, Kind
from local.gateway import Gateway
from tests.functional.delivery.receivers import http_receiver
from tests.support import described
from tests.support.clock import SeededRandom
from tests.support.embedded import embedded_adapters
from tests.support.http import Client, Reply, ShiftingClock
from tests.support.push import Inbox
from tests.support.senders import sending

FILE = Path(openapi.__file__).with_name("examples.json")
FUNCTIONS = Path(__file__).parents[3] / "examples" / "functions.py"
SECRETS = {"token": "hr_…", "secret": "whsec_…", "check_secret": "whsec_…", "receipt": "AbCd…"}
HOW_TO_WRITE = (
    "examples.json has other fields or texts than the answers: run with HEADRACE_WRITE_EXAMPLES=1 (see above)"
)
VARYING = re.compile(
    r"\b[0-9a-z]{12,}(-[0-9a-z]+)*\b"
    r"|\d{4}-\d\d-\d\dT[\d:.]+Z"
    r"|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|\b1\d{9}\b|\w{3}, \d\d \w{3} \d{4} [\d:]+ GMT"
    r"|[\w-]{60,}|v1,[\w+/]{43}="
    r"|(?<=127\.0\.0\.1:)\d+|(?<=Python/)[\d.]+"
)
"""Ids and times; page tokens and signatures; a port of this machine, and its Python."""
NOT_SHOWN = {"openapi_document", "docs"}
ORDERS = "/v1/topics/orders"
MAILER = f"{ORDERS}/groups/mailer"


@dataclass(frozen=True)
class Recorder(Client):
    """A client that keeps the first successful exchange of each call."""

    taken: dict[str, Any] = field(default_factory=dict)
    clock: ShiftingClock = field(default_factory=ShiftingClock)

    def call(self, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        self.clock.advance(0.001)  # no two at one time, whose order in a list would be any
        reply = super().call(method, path, body, **more)
        operation = described.operation(method, path.partition("?")[0])
        if operation and reply.status in (200, 201, 202) and operation["operationId"] not in NOT_SHOWN:
            example = self.taken.setdefault(operation["operationId"], {"responses": {}})
            if body:
                example.setdefault("request", _without_secrets(body))
            example["responses"].setdefault(str(reply.status), _without_secrets(reply.json))
        return reply


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_secret(name, each) for name, each in value.items()}
    if isinstance(value, list):
        return [SECRETS["receipt"] if is_receipt(each) else _without_secrets(each) for each in value]
    return value


def _without_secret(name: str, value: Any) -> Any:
    if name == "url" and "?ticket=" in value:
        return value.partition("?ticket=")[0] + "?ticket=…"
    name = "secret" if str(value).startswith("whsec_") else name
    return SECRETS[name] if name in SECRETS and isinstance(value, str) else _without_secrets(value)


def is_receipt(value: Any) -> bool:
    return isinstance(value, str) and len(value) > 60 and " " not in value


@pytest.fixture
def visitor() -> Iterator[Recorder]:
    """A client of an in-memory service of its own."""
    clock = ShiftingClock()
    with sending(clock, "headrace.local", FUNCTIONS) as sender:
        deps = wiring.Deps(embedded_adapters(clock, SeededRandom(3), lambda: sender, Inbox()))
        deps.setup()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wiring, "deps", lambda: deps)
            yield Recorder(Gateway(app.app), deps.tokens.ensure_admin(None), clock=clock)


def tour(visitor: Recorder) -> None:
    """Call every endpoint once, as a user who tries them all."""
    _set_up(visitor)
    message = _produce(visitor)
    _see_and_change(visitor, message)
    _consume(visitor, message)
    _decide(visitor)
    _replay(visitor)
    _schedule(visitor)
    _administer(visitor)
    _look_at_groups(visitor)
    _by_hand(visitor)
    _take_down(visitor)


def _set_up(visitor: Recorder) -> None:
    put, post = visitor.put, visitor.post
    put(ORDERS, {"retention_days": 14, "retry": {"max_attempts": 8, "ladder": "exponential"}}).expect(201)
    put(ORDERS, {"alarm_backlog": 10_000}).expect(200)
    put(MAILER, {"from": "earliest", "filter": "paid || refunded"}).expect(201)
    put(MAILER, {"max_in_flight": 128}).expect(200)
    worker = {"expires_after_seconds": 3600, "instance": "worker-1-7f3a"}
    put(f"{MAILER}/consumers/worker-1", worker).expect(201)
    put(f"{MAILER}/consumers/worker-1", worker).expect(200)
    post(f"{MAILER}/consumers/worker-1/heartbeat", {"instance": worker["instance"]}).expect(200)
    put(f"{ORDERS}/groups/billing", {"from": "earliest"}).expect(201)
    hook = f"{ORDERS}/groups/billing/consumers/hook"
    put(hook, {"url": "http://127.0.0.1:9000/orders"}).expect(201)
    post(f"{hook}/rotate-secret").expect(200)
    put(f"{ORDERS}/groups/billing", {"callbacks": {"hosts": ["api.example.com"]}}).expect(200)
    post(f"{ORDERS}/groups/billing/rotate-secret").expect(200)
    with http_receiver() as receiver:
        put(f"{ORDERS}/groups/billing/consumers/tested", {"url": receiver.url}).expect(201)
        post(f"{ORDERS}/groups/billing/consumers/tested/test").expect(200)


def _produce(visitor: Recorder) -> str:
    """The id of the first message."""
    post = visitor.post
    order = {
        "body": {"order": 188, "total": 19.9},
        "keys": ["order-188"],
        "tag": "paid",
        "dedup_id": "order-188",
    }
    first = post(f"{ORDERS}/messages", order).expect(201)["id"]
    post(f"{ORDERS}/messages", order).expect(200)
    bad_message = {"body": {"order": 190}, "delay_secnds": 30}
    batch = [{"body": {"order": 189}, "tag": "paid", "ordering_key": "customer-7"}, bad_message]
    post(f"{ORDERS}/messages/batch", {"messages": batch}).expect(200)
    publish = {"Content-Type": "text/plain", "Headrace-Tag": "refunded"}
    visitor.call("POST", "/v1/publish/orders", raw=b"188;refunded", headers=publish).expect(201)
    return str(first)


def _administer(visitor: Recorder) -> None:
    get, post = visitor.get, visitor.post
    get("/v1/health").expect(200)
    visitor.call("HEAD", "/v1/health").expect(200)
    get("/v1/stats").expect(200)
    state = Attention(Kind.DISABLED, 1_890_874_800_000, "orders", "mailer", "hook")
    wiring.deps().adapters.marks.note_changes([], [state])
    get("/v1/attention").expect(200)
    visitor.put("/v1/topics/alerts").expect(201)
    visitor.put("/v1/events", {"topic": "alerts", "types": ["headrace.consumer.disabled"]}).expect(200)
    get("/v1/events").expect(200)
    visitor.delete("/v1/events").expect(204)
    get("/v1/ladders/jmq?max_attempts=6").expect(200)
    token = post("/v1/tokens", {"name": "shop", "scopes": ["produce"], "topics": ["orders.*"]}).expect(201)
    get("/v1/tokens").expect(200)
    get(f"/v1/tokens/{token['id']}/made").expect(200)
    post(f"/v1/tokens/{token['id']}/rotate", {"overlap_seconds": 3600}).expect(200)
    post("/v1/sign-in-links").expect(201)
    post("/v1/signing-key/rotate", {"overlap_seconds": 86400}).expect(200)
    _archived(visitor)
    get("/v1/archive?to=2029-12-01&limit=2").expect(200)
    get("/v1/audit?limit=2").expect(200)
    visitor.delete(f"/v1/tokens/{token['id']}").expect(204)


def _look_at_groups(visitor: Recorder) -> None:
    get = visitor.get
    get(f"{MAILER}/consumers/worker-1/attempts").expect(200)
    for path in (
        MAILER,
        f"{MAILER}/rates",
        f"{MAILER}/waiting",
        f"{MAILER}/assignment",
        f"{MAILER}/consumers",
        f"{MAILER}/consumers/worker-1",
    ):
        get(path).expect(200)
    counts = {"waiting": [3] * 25, "in_flight": [1] * 25, "retrying": [0] * 25, "dead": [2] * 25}
    report = {"since": "2026-11-14", "complete": True, "groups": {"billing": counts}}
    blobs = wiring.deps().adapters.blobs
    blobs.put("reports/hours/day=2026-11-21/orders.json", json.dumps(report).encode())
    get(f"{ORDERS}/as-of?at=2026-11-21T09:30:00Z").expect(200)
    for path in (f"{ORDERS}/groups", ORDERS, "/v1/topics", f"{ORDERS}/rates", f"{ORDERS}/due"):
        get(path).expect(200)


def _take_down(visitor: Recorder) -> None:
    post, delete = visitor.post, visitor.delete
    for how in ("pause", "resume"):
        post(f"{MAILER}/{how}").expect(200)
    post(f"{MAILER}/seek", {"to": "2030-01-01T00:00:00.000Z"}).expect(200)
    delete(f"{MAILER}/consumers/worker-1").expect(204)
    delete(MAILER).expect(204)
    delete(f"{ORDERS}?confirm=orders").expect(204)


def _see_and_change(visitor: Recorder, message: str) -> None:
    job = f"{ORDERS}/jobs/order-188"
    for status in (201, 200):
        visitor.put(job, {"body": {"close": 188}, "delay_seconds": 1800}).expect(status)
    visitor.get(job).expect(200)
    visitor.get(f"{ORDERS}/jobs?prefix=order-").expect(200)
    visitor.delete(job).expect(204)
    delayed_message = visitor.post(
        f"{ORDERS}/messages", {"body": {"order": 191}, "delay_seconds": 600}
    ).expect(201)
    change = {"deliver_at": "2030-01-01T00:00:00.000Z"}
    visitor.call("PATCH", f"{ORDERS}/messages/{delayed_message['id']}", change).expect(200)
    visitor.call("PATCH", f"{ORDERS}/messages?tag=paid", {"postpone_seconds": 3600, "dry_run": True}).expect(
        200
    )
    visitor.call(
        "PATCH", f"{ORDERS}/messages", {"cancel": True, "ids": [delayed_message["id"]], "dry_run": True}
    ).expect(200)
    visitor.delete(f"{ORDERS}/messages/{delayed_message['id']}").expect(204)
    visitor.get(f"{ORDERS}/messages?tag=paid").expect(200)
    visitor.get(f"{ORDERS}/messages/{message}").expect(200)


def _consume(visitor: Recorder, message: str) -> None:
    asked = {"max": 10, "wait_seconds": 5, "consumer": "worker-1", "receive_id": "5f0c9a7e21d34b68"}
    reply = visitor.post(f"{MAILER}/receive", asked)
    receipts = {each["id"]: each["receipt"] for each in reply.expect(200)["messages"]}
    mine = receipts.pop(message)
    visitor.post(f"{MAILER}/extend", {"receipts": [mine], "lease_seconds": 60}).expect(200)
    bury = {"receipts": [mine], "dead_letter": True, "reason": "no such customer"}
    visitor.post(f"{MAILER}/nack", bury).expect(200)
    visitor.post(f"{MAILER}/ack", {"receipts": [*receipts.values(), mine]}).expect(200)
    for what in ("trace", "fate"):
        visitor.get(f"{ORDERS}/messages/{message}/{what}").expect(200)
    letters = f"{MAILER}/dead-letters"
    visitor.get(letters).expect(200)
    visitor.get(f"{letters}/{message}").expect(200)
    visitor.call("PATCH", f"{letters}/{message}", {"body": {"order": 188, "customer": 7}}).expect(200)
    patch = {"patch": {"customer": 8}, "dry_run": True}
    visitor.call("PATCH", f"{letters}?reason=REJECTED", patch).expect(200)
    visitor.post(f"{letters}/redrive", {"ids": [message]}).expect(200)
    again = visitor.post(f"{MAILER}/receive", {"wait_seconds": 5}).expect(200)["messages"]
    visitor.post(f"{MAILER}/nack", {**bury, "receipts": [again[0]["receipt"]]}).expect(200)
    visitor.post(f"{ORDERS}/messages/{message}/retry", {"group": "mailer"}).expect(200)
    again = visitor.post(f"{MAILER}/receive", {"wait_seconds": 5}).expect(200)["messages"]
    visitor.post(f"{MAILER}/nack", {**bury, "receipts": [again[0]["receipt"]]}).expect(200)
    visitor.post(f"{MAILER}/retry", {"filter": {"error": "bank is away"}}).expect(200)
    visitor.post(f"{letters}/delete", {"filter": {"error": "no such product"}}).expect(200)
    visitor.delete(f"{letters}/{message}").expect(204)


def _by_hand(visitor: Recorder) -> None:
    order = {"body": {"order": 193}, "tag": "paid"}
    message = visitor.post(f"{ORDERS}/messages", order).expect(201)["id"]
    settle = {"group": "mailer", "outcome": "success", "reason": "mailed by hand"}
    visitor.post(f"{ORDERS}/messages/{message}/settle", settle).expect(200)
    visitor.post(f"{MAILER}/purge", {"confirm": "mailer"}).expect(200)
    visitor.post(f"{ORDERS}/purge", {"confirm": "orders"}).expect(200)


def _decide(visitor: Recorder) -> None:
    message = {"body": {"order": 192}, "tag": "paid", "dedup_id": "order-192"}
    fields = {"message": message, "check_after_seconds": 60}
    transaction_id = visitor.post(f"{ORDERS}/transactions", fields).expect(201)["transaction_id"]
    visitor.post(f"{ORDERS}/transactions", fields).expect(200)
    visitor.get(f"{ORDERS}/transactions").expect(200)
    visitor.get(f"/v1/transactions/{transaction_id}").expect(200)
    visitor.post(f"/v1/transactions/{transaction_id}/commit").expect(200)
    other = visitor.post(f"{ORDERS}/transactions", {"message": {"body": 1}}).expect(201)["transaction_id"]
    visitor.post(f"/v1/transactions/{other}/rollback").expect(200)
    visitor.post("/v1/transactions/recheck", {"topic": "orders"}).expect(200)


def _replay(visitor: Recorder) -> None:
    span = {"from": "2029-12-01T00:00:00.000Z", "to": "2029-12-02T00:00:00.000Z"}
    fields = {**span, "tag": "paid", "where": "total > 10 AND customer.country IN ('CH', 'AT')"}
    replay = visitor.post(f"{ORDERS}/replays", fields).expect(202)["replay_id"]
    archived_message = {
        "id": "0mh2x5c8k1zz-0-1a",
        "shard": 0,
        "body_base64": "eyJvcmRlciI6N30=",
        "tag": "paid",
    }
    message = {**archived_message, "content_type": JSON}
    visitor.post(f"/v1/replays/{replay}/messages", {"messages": [message]}).expect(200)
    progress = {"state": "DONE", "matched": 1, "sent": 1}
    visitor.call("PATCH", f"/v1/replays/{replay}", progress).expect(200)
    visitor.get(f"/v1/replays/{replay}").expect(200)
    visitor.get(f"{ORDERS}/replays").expect(200)


def _schedule(visitor: Recorder) -> None:
    times = {"cron": "0 9 * * mon-fri", "timezone": "Europe/Zurich"}
    visitor.post("/v1/schedules/preview", times).expect(200)
    path, fields = "/v1/schedules/daily-report", {"topic": "orders", "message": {"body": {"report": "sales"}}}
    visitor.put(path, {**fields, **times, "jitter_seconds": 60}).expect(201)
    visitor.put(path, {**fields, **times}).expect(200)
    for how, status in (("pause", 200), ("resume", 200), ("run", 201)):
        visitor.post(f"{path}/{how}").expect(status)
    visitor.get(path).expect(200)
    visitor.get("/v1/schedules").expect(200)


def _archived(visitor: Recorder) -> None:
    """A day as the archive's job leaves it."""
    manifest = {"day": "2029-12-01", "until_hour": 24, "input": "", "shards": [], "v": 1}
    rows = {"messages": 1200, "deliveries": 1260}
    tables = {table: {"files": [], "topics": {"orders": [count, ""]}} for table, count in rows.items()}
    raw = json.dumps({**manifest, "tables": tables, "written_ms": 1_890_874_800_000}).encode()
    wiring.deps().adapters.blobs.put("archive/manifests/2029-12-01.json", raw)


def test_a_tour_of_all_calls_meets_what_the_examples_show(visitor: Recorder) -> None:
    tour(visitor)
    with_answer = {entry.handler.__name__ for entry in CALLS if entry.statuses != (204,)} - NOT_SHOWN
    assert visitor.taken.keys() == with_answer
    examples = json.loads(FILE.read_text())
    if os.environ.get("HEADRACE_WRITE_EXAMPLES"):
        examples = _as_before(examples, dict(sorted(visitor.taken.items())))
        FILE.write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n")
        openapi.document.cache_clear()
        described.forget()
    assert _fields(examples) == _fields(visitor.taken), HOW_TO_WRITE
    assert _texts(examples) == _texts(visitor.taken), HOW_TO_WRITE


def _as_before(old: Any, new: Any, name: str = "") -> Any:
    """The new value, with the old one's ids, times and durations where nothing else changed."""
    if isinstance(new, dict):
        fields = old if isinstance(old, dict) else {}
        return {name: _as_before(fields.get(name), value, name) for name, value in new.items()}
    if isinstance(new, list):
        items = old if isinstance(old, list) and len(old) == len(new) else [None] * len(new)
        return [_as_before(*pair) for pair in zip(items, new, strict=True)]
    if isinstance(new, str) and isinstance(old, str) and VARYING.sub("…", new) == VARYING.sub("…", old):
        return old
    is_duration = name.endswith(("_ms", "_age_seconds"))
    return old if is_duration and isinstance(old, int) and isinstance(new, int) else new


def test_examples_change_only_where_an_answer_changed() -> None:
    old = {"id": "nwcbytt7gqkn-u1m81kz1yq", "at": "2026-11-22T12:23:44.919Z", "tag": "order-188", "n": 1}
    new = {"id": "nwcc0000abcd-u1m81kz1yz", "at": "2026-11-23T09:00:00.000Z", "tag": "order-189", "n": 2}
    assert _as_before([old], [{**new, "more": True}]) == [{**old, "tag": "order-189", "n": 2, "more": True}]
    old = {"oldest_age_seconds": 0, "duration_ms": 5, "lease_seconds": 30}
    new = {"oldest_age_seconds": 1, "duration_ms": 6, "lease_seconds": 60}
    assert _as_before(old, new) == {**old, "lease_seconds": 60}
    assert _as_before({"oldest_age_seconds": None}, {"oldest_age_seconds": 1}) == {"oldest_age_seconds": 1}


def _fields(value: Any, place: str = "") -> set[str]:
    """The places of all fields in a value."""
    if isinstance(value, list):
        return {field for each in value for field in _fields(each, f"{place}[]")}
    if not isinstance(value, dict):
        return set()
    return {f"{place}.{name}" for name in value} | {
        below for name, each in value.items() for below in _fields(each, f"{place}.{name}")
    }


def _texts(value: Any, place: str = "") -> set[tuple[str, str]]:
    """The texts in a value, such as states; ids and times in them are alike."""
    if isinstance(value, list):
        return {text for each in value for text in _texts(each, f"{place}[]")}
    if isinstance(value, dict):
        return {text for name, each in value.items() for text in _texts(each, f"{place}.{name}")}
    return {(place, VARYING.sub("…", value))} if isinstance(value, str) else set()


def test_every_call_has_an_example_and_each_is_of_its_schema() -> None:
    bodies = {entry.handler.__name__: entry.body for entry in CALLS}
    for operation in described.operations():
        name, content = operation["operationId"], operation.get("requestBody", {}).get("content", {})
        if JSON in content and content[JSON]["schema"]["$ref"] != "#/components/schemas/NoBody":
            example = _shown(content[JSON]) or {}
            assert example or not operation["requestBody"]["required"], name
            described.conforms(content[JSON]["schema"], example, f"{name}: request")
            msgspec.convert(example, bodies[name])
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                described.conforms(parameter["schema"], parameter["example"], f"{name}: {parameter['name']}")
        takes_nothing = not operation["parameters"] and operation["responses"].keys() & {"204"}
        assert takes_nothing or '"example' in json.dumps(operation), name
        for status, response in operation["responses"].items():
            media: Mapping[str, Any] = response.get("content", {}).get(JSON, {})
            if media:
                assert "examples" in media or (name, status) in RARE, (name, status)
                if "examples" in media:
                    described.conforms(media["schema"], _shown(media), f"{name}: {status}")


def _shown(media: Mapping[str, Any]) -> Any:
    """The example of a body or an answer; None where it has none."""
    return media.get("examples", {}).get("example", {}).get("value")


RARE = {("publish", "200")}
"""Answers like one that is shown: of a duplicate."""


def test_no_example_shows_a_secret() -> None:
    text = FILE.read_text()
    assert "hr_…" in text
    assert "hr_" not in text.replace("hr_…", "")
    assert "whsec_" not in text.replace("whsec_…", "")
