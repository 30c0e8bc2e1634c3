"""What the local service says when it serves."""

from __future__ import annotations

import json
import os
from datetime import timedelta

from local.options import DYNAMODB_LOCAL, MOVABLE, Options

HELLO = """\
Headrace serves on {url}
Admin token: {token}

    export HEADRACE_TOKEN={token}
    export HEADRACE_URL={url}
    H="Authorization: Bearer $HEADRACE_TOKEN"; U=$HEADRACE_URL/v1

    curl -X PUT  -H "$H" $U/topics/orders
    curl -X PUT  -H "$H" $U/topics/orders/groups/mailer -H 'Content-Type: application/json' -d '{{"from": "earliest"}}'
    curl -X POST -H "$H" $U/topics/orders/messages -H 'Content-Type: application/json' \\
         -d '{{"body": {{"order": 188}}, "keys": ["order-188"], "tag": "paid"}}'
    curl -X POST -H "$H" $U/topics/orders/groups/mailer/receive -H 'Content-Type: application/json' \\
         -d '{{"wait_seconds": 5}}'
    curl -X POST -H "$H" $U/topics/orders/groups/mailer/ack -H 'Content-Type: application/json' \\
         -d '{{"receipts": ["…"]}}'

Every call: {url}/docs. Pages: {url}/console. More in examples/."""
_UNKNOWN_TOKEN = "<made at an earlier start and not kept in {file}; set HEADRACE_TOKEN to choose one>"
_LINK = """\
Signed in, once and within a minute: {link}
    (another one: make console)"""
_CLOCK = """\
Three days pass, and what is due on the way happens:
    curl -X POST -H "$H" $U/clock -H 'Content-Type: application/json' -d '{"advance_seconds": 259200}'"""


_OPEN = (
    "DynamoDB Local is open to the whole network: it listens on every interface of this machine, and asks for no "
    "password. Store nothing that is not public."
)


def hello(
    options: Options, token: str | None, ending: str, ahead: timedelta, ticket: str | None = None
) -> str:
    """The text. `token`: the admin token, None if unknown; `ending`: what happens to the messages when the service
    ends; `ahead`: by how much its time was moved; `ticket` signs a browser in."""
    if options.as_json:
        return json.dumps({"url": options.url, "token": token})
    text = token or _UNKNOWN_TOKEN.format(file=options.data / "token")
    lines = [HELLO.format(url=options.url, token=text)]
    if ticket:
        lines.append(_LINK.format(link=f"{options.url}/console/sign-in?ticket={ticket}"))
    if options.clock == MOVABLE:
        lines.append(_CLOCK)
    lines.append(f"Ctrl-C stops it; {ending}.")
    if options.engine == DYNAMODB_LOCAL and not options.endpoint:
        lines.append(_OPEN)
    if ahead:
        lines.append(
            f"Its time is {ahead} ahead, as POST /v1/clock left it ({options.data}/clock keeps that)."
        )
    if os.environ["HEADRACE_ALLOW_LOOPBACK"] == "1":
        lines.append(
            "Subscriber URLs may be http on this machine; HEADRACE_ALLOW_LOOPBACK=0 forbids it, as AWS does."
        )
    return "\n".join(lines)
