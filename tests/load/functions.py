"""Consumers that are functions: HEADRACE_FUNCTIONS of the load tests. What they see goes, a line for each message,
to the file in LOAD_SEEN."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from tests.load.behaviours import chance, is_poison


def partial(event: dict[str, Any]) -> dict[str, Any]:
    """Some messages of a batch fail, and sometimes it is unknown which."""
    start = time.time()
    messages = event["messages"]
    lot = chance(event["group"], messages[0]["id"], messages[0]["attempt"])
    if lot < 0.05:
        return _told(event, start, messages, [*(m["id"] for m in messages), "never-sent"])
    failures = [m["id"] for m in messages if is_poison(m["body"]) or chance(m["id"], m["attempt"]) < 0.1]
    return _told(event, start, [m for m in messages if m["id"] in failures], failures)


def _told(
    event: dict[str, Any], start: float, failures: list[dict[str, Any]], answer: list[str]
) -> dict[str, Any]:
    bad = {m["id"] for m in failures}
    end = time.time()
    lines = [
        json.dumps(
            {
                "reader": f"{event['topic']}/{event['group']}",
                "message_id": m["id"],
                "attempt": m["attempt"],
                "began": start,
                "ended": end,
                "fate": "RETRY" if m["id"] in bad else "SUCCESS",
            }
        )
        for m in event["messages"]
    ]
    with open(os.environ["LOAD_SEEN"], "a") as out:
        out.write("".join(line + "\n" for line in lines))
    return {"batchItemFailures": [{"itemIdentifier": id} for id in answer]}
