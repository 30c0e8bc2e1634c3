"""One of everything: deeds that leave rows of each kind in each table, and deeds that meet every one of them."""

from __future__ import annotations

from typing import Any

from chalicelib.domain.times import HOUR_SECONDS
from tests.releases.house import House

READERS = ("orders/mail", "orders/late", "orders/all/a", "orders/all/b", "ledger/book", "quiet/slow")
_CALLED = ("orders/hook", "orders/all/url")
IN_LINE = {"tomorrow", "first"}
"""Delayed messages with an ordering key: their ids hold a turn, which releases before it do not know."""


def _sent(house: House, topic: str, label: str, answer: dict[str, Any]) -> str:
    """A producer's note: whoever reads the topic is owed the message."""
    house.notes.ids[label] = answer["id"]
    for reader in (*READERS, *_CALLED):
        if reader.startswith(f"{topic}/"):
            house.notes.owed.setdefault(reader, []).append(label)
    return str(answer["id"])


def send(house: House, topic: str, label: str, **fields: Any) -> str:
    if "delay_seconds" in fields:
        house.notes.due_ms[label] = house.at_ms + fields["delay_seconds"] * 1000
    answer = house.call("POST", f"/topics/{topic}/messages", {"body": label, **fields}, expect=201)
    return _sent(house, topic, label, answer)


def send_all(house: House, topic: str, labels: list[str], **fields: Any) -> None:
    body = {"messages": [{"body": label, **fields} for label in labels]}
    for label, result in zip(
        labels, house.call("POST", f"/topics/{topic}/messages/batch", body)["results"], strict=True
    ):
        _sent(house, topic, label, result)


def found(house: House) -> None:
    """Topics, groups and consumers of every kind."""
    retry = {"max_attempts": 3, "ladder": [5, 2 * HOUR_SECONDS], "jitter": 0}
    house.call("PUT", "/topics/orders", {"shards": 2, "retry": retry}, expect=201)
    house.call("PUT", "/topics/ledger", {"mode": "serial", "shards": 2, "retry": retry}, expect=201)
    house.call("PUT", "/topics/quiet", {"shards": 1, "rate_limit": 100, "retention_days": 30}, expect=201)
    groups: dict[str, dict[str, Any]] = {
        "orders/groups/mail": {},
        "orders/groups/late": {"max_in_flight": 8, "lease_seconds": 60},
        "orders/groups/hook": {"batch_size": 2},
        "orders/groups/all": {"mode": "broadcast"},
        "ledger/groups/book": {},
        "quiet/groups/slow": {},
    }
    for place, settings in groups.items():
        house.call("PUT", f"/topics/{place}", {"from": "earliest", **settings}, expect=201)
    for place, fields in {
        "orders/groups/mail/consumers/c0": {},
        "orders/groups/mail/consumers/c1": {},
        "orders/groups/all/consumers/a": {},
        "orders/groups/all/consumers/b": {},
        "orders/groups/all/consumers/url": {"url": "https://all.example/"},
        "orders/groups/hook/consumers/url": {"url": "https://hook.example/"},
    }.items():
        house.call("PUT", f"/topics/{place}", fields, expect=201)


def fill(house: House) -> None:
    """Leave rows of each kind: of what is done, under way, waiting, failed, dead, delayed, undecided, changed."""
    send(house, "orders", "tagged", tag="paid", keys=["order-1"], headers={"h": "v"}, dedup_id="d1")
    send(house, "orders", "ordered", ordering_key="customer-7", expires_in_seconds=90 * 86_400)
    send_all(house, "orders", [f"many{n:02}-{'x' * 200}" for n in range(12)], shard=0)
    send_all(house, "orders", ["bad0", "bad1", "fine0", "fine1", "fine2"], shard=1)
    send_all(house, "ledger", [f"k{n}" for n in range(4)], ordering_key="k")
    send_all(house, "ledger", [f"l{n}" for n in range(2)], ordering_key="l")
    house.minute()
    _consume(house)
    _wait(house)
    _decide(house)
    _change(house)
    for function in ("checkpoint", "expire"):
        house.run(function)


def _consume(house: House) -> None:
    messages = house.receive("orders/mail", 10, "c0")
    house.settle("orders/mail", "ack", [messages[0], messages[2], messages[4]])
    house.settle("orders/mail", "nack", messages[1:2], delay_seconds=2 * HOUR_SECONDS)
    house.settle("orders/mail", "nack", messages[3:4], delay_seconds=1)
    house.settle("orders/mail", "nack", messages[5:8], dead_letter=True, reason="no good")
    house.notes.held += [["orders/mail", message["body"], message["receipt"]] for message in messages[8:]]
    dead_letters = house.call("GET", "/topics/orders/groups/mail/dead-letters")["items"]
    letters = "/topics/orders/groups/mail/dead-letters"
    house.call("PATCH", f"{letters}/{dead_letters[0]['id']}", {"body": dead_letters[0]["body"]})
    house.call("POST", f"{letters}/redrive", {"ids": [dead_letters[1]["id"]]}, expect=200)
    house.notes.dead["orders/mail"].remove(dead_letters[1]["body"])
    messages = house.receive("orders/all/a", 5)
    house.settle("orders/all/a", "ack", messages[:3])
    house.settle("orders/all/a", "nack", messages[3:], delay_seconds=2 * HOUR_SECONDS)
    book = house.receive("ledger/book", 2)
    house.settle("ledger/book", "nack", book[:1], delay_seconds=HOUR_SECONDS)
    house.notes.held += [["ledger/book", message["body"], message["receipt"]] for message in book[1:]]


def _wait(house: House) -> None:
    send(house, "orders", "soon", delay_seconds=30)
    send(house, "orders", "tomorrow", delay_seconds=30 * HOUR_SECONDS, ordering_key="customer-7")
    send(
        house, "orders", "first", delay_seconds=20 * HOUR_SECONDS, ordering_key="customer-8", keys=["order-2"]
    )
    message_id = send(house, "orders", "moved", delay_seconds=HOUR_SECONDS)
    house.call(
        "PATCH",
        f"/topics/orders/messages/{message_id}",
        {"deliver_at": _at(house, 3 * HOUR_SECONDS)},
        expect=200,
    )
    house.notes.due_ms["moved"] = house.at_ms + 3 * HOUR_SECONDS * 1000
    cancelled_message = house.call(
        "POST", "/topics/orders/messages", {"body": "gone", "delay_seconds": HOUR_SECONDS}, expect=201
    )
    house.call("DELETE", f"/topics/orders/messages/{cancelled_message['id']}", expect=204)


def _decide(house: House) -> None:
    for label, end, fields in (
        ("committed", "commit", {}),
        ("committed for later", "commit", {"delay_seconds": HOUR_SECONDS}),
        ("rolled back", "rollback", {}),
        ("to be committed", "", {"keys": ["order-3"]}),
        ("to be committed for later", "", {"delay_seconds": 4 * HOUR_SECONDS}),
        ("to be rolled back", "", {}),
        ("to be asked", "", {}),
    ):
        body: dict[str, Any] = {"message": {"body": label, **fields}, "check_after_seconds": 3 * HOUR_SECONDS}
        if label == "to be asked":
            body["check_url"] = "https://bank.example/"
        transaction = house.call("POST", "/topics/orders/transactions", body, expect=201)
        house.notes.transactions[label] = transaction["transaction_id"]
        if end:
            house.call("POST", f"/transactions/{transaction['transaction_id']}/{end}", {}, expect=200)
        if "back" not in label:
            _sent(house, "orders", label, {"id": transaction["message_id"]})


def _change(house: House) -> None:
    """Of what lies in the log, and nobody has claimed."""
    for n in range(4):
        send(house, "quiet", f"quiet{n}", dedup_id=f"q{n}")
    ids = house.notes.ids
    _edit(house, "quiet", "quiet1", "edited1")
    house.call("DELETE", f"/topics/quiet/messages/{ids['quiet2']}", expect=204)
    house.notes.owed["quiet/slow"].remove("quiet2")


def _edit(house: House, topic: str, label: str, new: str) -> None:
    """A producer thinks better of it; the message keeps its id."""
    id = house.notes.ids[label]
    path = f"/topics/{topic}/messages/{id}"
    house.call("PATCH", path, {"body": new}, expect=200, newest=label in IN_LINE)
    house.notes.ids[new] = id
    for owed_labels in house.notes.owed.values():
        if label in owed_labels:
            owed_labels[owed_labels.index(label)] = new


def _at(house: House, seconds: int) -> str:
    """A time to come; only these tests' day and hour are needed."""
    from datetime import UTC, datetime

    time = datetime.fromtimestamp(house.at_ms / 1000 + seconds, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def work(house: House) -> None:
    """Meet everything: look at it, change it, settle it, let it come, end it."""
    look(house)
    _settle_what_is_held(house)
    _decide_the_rest(house)
    _change_more(house)
    for seconds in (11, HOUR_SECONDS, 3 * HOUR_SECONDS, 30 * HOUR_SECONDS):
        house.drain(READERS)
        house.passes(seconds)
    house.drain_all(READERS)
    look_at_lists(house, "order-2", "order-3")
    house.judge()
    _end(house)


def look(house: House) -> None:
    """Every list and every message can be seen."""
    look_at_lists(house)
    for reader in ("ledger/book", "orders/mail", "quiet/slow"):
        topic = reader.partition("/")[0]
        for label in house.notes.owed[reader][::4]:
            id = house.notes.ids[label]
            options: dict[str, Any] = {"expect": 200, "newest": label in IN_LINE}
            view = house.call("GET", f"/topics/{topic}/messages/{id}", **options)
            if view.get("body") != label:
                house.complaints.append(f"{label} is shown as {view}")
            house.call("GET", f"/topics/{topic}/messages/{id}/trace", **options)
    for id in house.notes.transactions.values():
        house.call("GET", f"/transactions/{id}", expect=200)


def look_at_lists(house: House, *keys: str) -> None:
    """Every list can be seen; something has these keys."""
    for path in ("/topics", "/stats", "/tokens"):
        house.call("GET", path, expect=200)
    for topic in ("orders", "ledger", "quiet"):
        house.call("GET", f"/topics/{topic}/messages", expect=200)
    for status in ("DELAYED", "PREPARED", "CANCELLED", "DEAD"):
        house.call("GET", f"/topics/orders/messages?status={status}", expect=200, newest=status == "PREPARED")
    for topic, group in sorted({tuple(reader.split("/")[:2]) for reader in (*READERS, *_CALLED)}):
        for part in ("", "/dead-letters", "/consumers"):
            house.call("GET", f"/topics/{topic}/groups/{group}{part}", expect=200)
    for key in ("order-1", *keys):
        path = f"/topics/orders/messages?key={key}"
        if not house.call("GET", path, expect=200, newest=True)["items"]:
            house.complaints.append(f"nothing has the key {key}")


def _settle_what_is_held(house: House) -> None:
    """Receipts of whoever gave them out are everybody's."""
    leases, house.notes.held = house.notes.held, []
    for n, (reader, label, receipt) in enumerate(leases):
        message = {"body": label, "receipt": receipt}
        house.settle(reader, "extend", [message], lease_seconds=1000)
        if n % 2:
            house.settle(reader, "nack", [message], delay_seconds=HOUR_SECONDS)
        else:
            house.settle(reader, "ack", [message])


def _decide_the_rest(house: House) -> None:
    ids = house.notes.transactions
    for label, end in (
        ("to be committed", "commit"),
        ("to be committed for later", "commit"),
        ("to be rolled back", "rollback"),
        ("committed", "commit"),
        ("rolled back", "rollback"),
    ):
        house.call("POST", f"/transactions/{ids[label]}/{end}", {}, expect=200)


def _change_more(house: House) -> None:
    ids, notes = house.notes.ids, house.notes
    answer = house.call("POST", "/topics/quiet/messages", {"body": "quiet3", "dedup_id": "q3"}, expect=200)
    if answer.get("id") != ids["quiet3"]:
        house.complaints.append(f"the dedup id of quiet3 made {answer}")
    _edit(house, "quiet", "quiet3", "edited3")
    _edit(house, "orders", "first", "edited first")
    notes.due_ms["edited first"] = notes.due_ms["first"]
    house.call("DELETE", f"/topics/orders/messages/{ids['tomorrow']}", expect=204, newest=True)
    for reader in (*READERS, *_CALLED):
        if reader.startswith("orders/"):
            notes.owed[reader].remove("tomorrow")
    letters = "/topics/orders/groups/mail/dead-letters"
    dead_letters = house.call("GET", letters)["items"]
    house.call("PATCH", f"{letters}/{dead_letters[0]['id']}", {"body": dead_letters[0]["body"]}, expect=200)
    house.call("POST", f"{letters}/redrive", {"ids": [dead_letters[0]["id"]]}, expect=200)
    notes.dead["orders/mail"].remove(dead_letters[0]["body"])
    house.call("DELETE", f"{letters}/{dead_letters[-1]['id']}", expect=204)
    house.call("POST", "/topics/orders/groups/mail/consumers/c1/heartbeat", {}, expect=200)
    house.call("DELETE", "/topics/orders/groups/mail/consumers/c1", expect=204)
    house.call("POST", "/topics/orders/groups/hook/consumers/url/rotate-secret", {}, expect=200)
    house.call("POST", "/topics/orders/groups/late/pause", {}, expect=200)
    house.call("POST", "/topics/orders/groups/late/resume", {}, expect=200)
    house.call("PUT", "/topics/orders", {"retention_days": 8, "shards": 3}, expect=200)
    for n in range(3):
        send(house, "orders", f"new{n}", ordering_key="customer-7")
        send(house, "ledger", f"k{4 + n}", ordering_key="k")


def _end(house: House) -> None:
    """What is not needed any more is deleted, and made again under its name."""
    house.call("DELETE", "/topics/orders/groups/late", expect=204)
    house.call("PUT", "/topics/orders/groups/late", {"from": "latest"}, expect=201)
    if messages := house.receive("orders/late"):
        house.complaints.append(f"a group that was made again was given {messages}")
    house.call("DELETE", "/topics/orders?confirm=orders", expect=204)
    house.call("PUT", "/topics/orders", {}, expect=201)
    house.call("GET", f"/topics/orders/messages/{house.notes.ids['tagged']}", expect=404)
