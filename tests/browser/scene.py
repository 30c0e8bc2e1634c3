"""A queue with something on every page: topics in each mode, work under way, failures, what waits."""

from __future__ import annotations

from typing import Any, Protocol


class Service(Protocol):
    """What answers calls."""

    def ask(self, method: str, path: str, body: Any = None) -> Any: ...


ORDERS = "/topics/orders"
MAILER = f"{ORDERS}/groups/mailer"
RETURNS = "/topics/returns/groups/desk"
CONSUMED = 120


def play(service: Service) -> str:
    """Put the scene into an empty service; the id of a message that has failed and will be tried again."""
    ask = service.ask
    ask(
        "PUT",
        ORDERS,
        {"shards": 3, "retry": {"max_attempts": 5, "ladder": [900, 1800, 3600, 7200], "jitter": 0}},
    )
    ask("PUT", "/topics/payments", {"mode": "serial"})
    ask("PUT", "/topics/clicks", {"shards": 4})
    ask("PUT", "/topics/invoices", {})
    ask("PUT", MAILER, {"from": "earliest"})
    ask("PUT", f"{ORDERS}/groups/warehouse", {"from": "earliest", "filter": "paid"})
    ask("PUT", "/topics/returns", {})
    ask("PUT", RETURNS, {"from": "earliest"})
    ask("PUT", f"{RETURNS}/consumers/shop", {"url": "http://127.0.0.1:9/hooks"})  # a closed port
    ask("POST", "/topics/returns/messages", {"body": {"return": 1}})
    ask("PUT", "/topics/payments/groups/ledger", {"from": "earliest"})
    ask("PUT", "/topics/clicks/groups/stats", {"from": "earliest"})
    for worker in ("worker-1", "worker-2"):
        ask("PUT", f"{MAILER}/consumers/{worker}")
    for shard in range(3):
        orders = [_order(shard * 80 + n, shard) for n in range(80)]
        ask("POST", f"{ORDERS}/messages/batch", {"messages": orders})
    payments = [{"body": {"payment": n}, "ordering_key": f"customer-{n % 5}"} for n in range(40)]
    ask("POST", "/topics/payments/messages/batch", {"messages": payments})
    ask(
        "POST",
        "/topics/clicks/messages/batch",
        {"messages": [{"body": {"page": f"/p/{n}"}} for n in range(300)]},
    )
    for n in range(6):
        ask("POST", "/topics/invoices/messages", {"body": {"invoice": n}, "delay_seconds": 3600 * (n + 1)})
    _work(service)
    return _fail(service)


def play_long_names(service: Service) -> list[str]:
    """A topic, a group and a consumer with names as long as they may be, and a message with long texts that has failed;
    the paths of their pages."""
    topic, group, consumer = (letter * 128 for letter in "tgc")
    place = f"/topics/{topic}/groups/{group}"
    ask = service.ask
    ask("PUT", f"/topics/{topic}")
    ask("PUT", place, {"from": "earliest"})
    text = "x" * 120
    message = {
        "body": text * 20,
        "keys": [text],
        "tag": text[:60],
        "ordering_key": text,
        "headers": {text: text},
    }
    result = ask("POST", f"/topics/{topic}/messages", message)
    [claimed_message] = _receive(service, place, 1)
    _settle(service, place, "nack", [claimed_message], dead_letter=True, reason="r" * 500)
    ask("PUT", f"{place}/consumers/{consumer}", {"url": "http://127.0.0.1:9/" + "h" * 900})
    console = f"console/topics/{topic}"
    group_page = f"{console}/groups/{group}"
    return [
        console,
        f"{console}/messages/{result['id']}",
        group_page,
        f"{group_page}/consumers/{consumer}",
        f"{group_page}/dead-letters",
        f"{group_page}/many?call=redrive&error={'r' * 200}",
    ]


def go_on(service: Service, minutes: int) -> None:
    """So many minutes of work, by the clock of a local service: then there are rates."""
    for minute in range(minutes):
        service.ask("POST", "/clock", {"advance_seconds": 60})
        orders = [_order(240 + minute * 40 + n, n % 3) for n in range(8 + 7 * minute % 23)]
        service.ask("POST", f"{ORDERS}/messages/batch", {"messages": orders})
        for group in (f"{ORDERS}/groups/warehouse", MAILER):
            _settle(service, group, "ack", _receive(service, group, 10 + 3 * minute, lease_seconds=600))
        for worker in ("worker-1", "worker-2"):
            service.ask("POST", f"{MAILER}/consumers/{worker}/heartbeat")


def _order(n: int, shard: int) -> dict[str, object]:
    tag = "refunded" if n % 4 == 3 else "paid"
    body = {"order": n, "customer": f"c-{n % 17}", "total": round(7.9 + n * 1.37, 2)}
    return {"body": body, "keys": [f"order-{n}"], "tag": tag, "shard": shard}


def _receive(service: Service, group: str, most: int, **fields: object) -> list[dict[str, str]]:
    messages: list[dict[str, str]] = service.ask("POST", f"{group}/receive", {"max": most, **fields})[
        "messages"
    ]
    return messages


def _settle(
    service: Service, group: str, action: str, messages: list[dict[str, str]], **fields: object
) -> None:
    receipts = [message["receipt"] for message in messages]
    service.ask("POST", f"{group}/{action}", {"receipts": receipts, **fields})


def _work(service: Service) -> None:
    for group, number in ((f"{ORDERS}/groups/warehouse", 200), ("/topics/clicks/groups/stats", 300)):
        while number > 0 and (messages := _receive(service, group, 100)):
            _settle(service, group, "ack", messages)
            number -= len(messages)
    _receive(service, "/topics/payments/groups/ledger", 3, lease_seconds=600)


def _fail(service: Service) -> str:
    messages = _receive(service, MAILER, CONSUMED, consumer="worker-1", lease_seconds=600)
    _settle(service, MAILER, "ack", messages[:70])
    _settle(service, MAILER, "nack", messages[70:76], reason="SMTP 451: try again later")
    _settle(service, MAILER, "nack", messages[76:83], dead_letter=True, reason="SMTP 550: no such mailbox")
    _settle(
        service, MAILER, "nack", messages[83:85], dead_letter=True, reason="template 'welcome' is missing"
    )
    _settle(service, MAILER, "ack", messages[95:])
    return messages[70]["id"]
