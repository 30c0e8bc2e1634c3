#!/usr/bin/env python3
"""A message's whole way: pushed to a subscriber, failing, a dead letter, edited, redriven, and its trace.

The shop below takes orders whose total is a number. The second order's is not: each attempt fails, the ladder is short,
and the message becomes a dead letter, which we edit and redrive.

Needs a running Headrace (`make run`) and nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import queue
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from headrace_client import Failed, Headrace, add_options, find_token
from webhook_receiver import Receiver

PATIENCE_SECONDS = 30.0
RETRY = {"max_attempts": 2, "ladder": [1], "jitter": 0}


class Shop:
    """A subscriber. `orders` are those it took."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def take(self, headers: Mapping[str, str], body: bytes) -> bool:
        order = json.loads(body)
        good = isinstance(order["total"], (int, float))
        verdict = "taken" if good else "refused: the total is not a number"
        print(f"  shop: attempt {headers['headrace-attempt']} of {body.decode()}: {verdict}", flush=True)
        if good:
            self.orders.put(order)
        return good

    def wait_for_an_order(self) -> Any:
        try:
            return self.orders.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise Failed(f"No order came within {PATIENCE_SECONDS:g} seconds.") from None


def walk(headrace: Headrace, shop: Shop, receiver: Receiver) -> None:
    topic = f"/v1/topics/orders-{secrets.token_hex(4)}"
    group = f"{topic}/groups/shop"
    headrace.ask("PUT", topic, {"retry": RETRY})
    headrace.ask("PUT", group, {"from": "earliest"})
    try:
        print("A subscriber registers.")
        url = f"http://127.0.0.1:{receiver.server_port}/orders"
        registration = headrace.ask("PUT", f"{group}/consumers/till", {"url": url})
        receiver.secret = registration["secret"]
        print(f"  it is {registration['state']}, and has shards {registration['shards']}")

        print("A good order is sent.")
        headrace.ask("POST", f"{topic}/messages", {"body": {"order": 188, "total": 19.9}})
        shop.wait_for_an_order()

        print("A bad order is sent.")
        message = headrace.ask("POST", f"{topic}/messages", {"body": {"order": 189, "total": "1,50"}})
        letter = wait_for(lambda: first(headrace.ask("GET", f"{group}/dead-letters")["items"]))
        print(
            f"It is a dead letter: {letter['reason']} after {letter['attempts']} attempts, {letter['last_error']}."
        )

        print("Its body is mended, and it is sent again.")
        path = f"{group}/dead-letters/{message['id']}"
        headrace.ask("PATCH", path, {"body": {"order": 189, "total": 1.5}})
        headrace.ask("POST", f"{group}/dead-letters/redrive", {"ids": [message["id"]]})
        shop.wait_for_an_order()

        print("Its trace:")
        trace = f"{topic}/messages/{message['id']}/trace"
        for event in wait_for(lambda: with_success(headrace.ask("GET", trace)["events"])):
            fields = (event[name] for name in ("consumer", "attempt", "outcome", "detail"))
            print(f"  {event['at']}  {event['event']:9}", *(each for each in fields if each is not None))
    finally:
        headrace.ask("DELETE", f"{topic}?confirm={topic.rpartition('/')[2]}")


def wait_for(look: Callable[[], Any]) -> Any:
    """What `look` sees as soon as it sees something."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (result := look()):
        if time.monotonic() > until:
            raise Failed(f"Nothing came of it within {PATIENCE_SECONDS:g} seconds.")
        time.sleep(0.1)
    return result


def first(items: list[Any]) -> Any:
    return items[0] if items else None


def with_success(events: list[Any]) -> list[Any]:
    """The events, once there is a success among them: the trace is written right after the settlement."""
    return events if any(event["outcome"] == "SUCCESS" for event in events) else []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    args = parser.parse_args()
    shop = Shop()
    with Receiver("127.0.0.1", 0, "", shop.take) as receiver:
        threading.Thread(target=receiver.serve_forever, args=(0.05,), daemon=True).start()
        try:
            walk(Headrace(args.url, find_token(args.token)), shop, receiver)
        except Failed as error:
            print(f"push: {error}", file=sys.stderr)
            return 2
        finally:
            receiver.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
