"""Functions as consumers. A local run finds them by name, with the file in HEADRACE_FUNCTIONS; on AWS each would be a
Lambda function, and is named by its ARN.

    HEADRACE_FUNCTIONS=examples/functions.py make run
    PUT /v1/topics/orders/groups/shop/consumers/till {"function": "ship"}

A function gets {"topic", "group", "messages": [{"id", "body", "keys", "tag", "attempt", …}]}. What it returns is taken
as success, unless it names messages that failed; what it raises fails them all.
"""

from __future__ import annotations

from typing import Any


def ship(event: dict[str, Any]) -> None:
    """All or nothing: one bad order raises, and the whole batch is tried again, in smaller and smaller batches."""
    for message in event["messages"]:
        print(f"shipping order {message['body']['order']} to {message['body']['address']}", flush=True)


def charge(event: dict[str, Any]) -> dict[str, Any]:
    """Partial failures: orders without a total fail, and only they come again."""
    failures = []
    for message in event["messages"]:
        total = message["body"].get("total")
        if total is None:
            failures.append({"itemIdentifier": message["id"]})
        else:
            print(f"charging {total} for order {message['body']['order']}", flush=True)
    return {"batchItemFailures": failures}
