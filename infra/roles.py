"""One role per function, with the actions and the resources that it uses and no other.

The table `control` holds tokens, signing keys, topics and subscribers. Roles name its partitions, so that a function
that calls other hosts (`deliver`, `check`, `assign`) can neither read nor make a token.

A consumer's Lambda function is not named here: its owner allows the call, by a permission on the function for the role
of `deliver` (in one account either side's consent is enough).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import keys, names
from .resources import Statement, allow, role

_READ = "GetItem Query"
_APPEND = "GetItem Query PutItem UpdateItem"  # put segments, count reserved offsets, close holes
_CLAIM = "GetItem PutItem UpdateItem"
_NOTE = "PutItem BatchWriteItem"
_ROWS = "GetItem Query PutItem DeleteItem"

# A part of a table is the partitions of one kind. Settings (with subscribers' secrets, which `deliver` signs with) are
# apart from tokens and from the stage's signing key: a function that calls foreign hosts cannot make a token or forge
# a receipt, even if such a host takes it over.
_PARTS: dict[str, tuple[str, ...]] = {
    "topics": ("topics",),
    "topic": ("topic#*",),  # its groups, their consumers and assignments
    "events": ("events",),  # where operational events go
    "tokens": ("tokens",),
    "schedules": ("schedules",),  # calls alone write them
    "used": ("used",),  # when tokens were last
    "signing-key": ("stage",),
    "retired": ("retired", "deleted"),  # topics that are being deleted, or were
    "replays": ("replays#*",),
    "nothing": ("~nobody",),  # what the health check asks for
    "handshakes": ("handshakes#*",),  # of the table `rates`: how often a host was asked
    "group": ("group#*",),  # of the same: what groups with a rate limit were granted,
    "token": ("token#*",),  # how often tokens with one were used,
    "spent": ("spent#*",),  # what topics with a budget have cost
}

# What calls of messages, topics and groups need, by either of their functions.
_CALLS = {
    "log": _APPEND,
    "cursors": f"{_CLAIM} Query BatchWriteItem",
    "records": "GetItem Query PutItem UpdateItem DeleteItem BatchWriteItem",
    "timers": "GetItem Query PutItem DeleteItem BatchWriteItem",
    "transactions": "GetItem PutItem",
    "transactions/index/by-state": "Query",
    "traces": f"GetItem Query {_NOTE}",
    "dedup": "GetItem PutItem",
    "keys": f"GetItem Query {_NOTE}",
    "rates": "GetItem UpdateItem",
    "rounds": "GetItem Query PutItem DeleteItem",  # that a schedule has stopped is noted for a person
}
_RECEIVES = {
    "log": _APPEND,  # a hole is closed; who begins at the end stores where that is
    "cursors": f"{_CLAIM} Query",
    "records": "PutItem UpdateItem",
    "timers": "PutItem",
    "traces": f"Query {_NOTE}",  # whether a lease was acknowledged before
    "rates#group": "GetItem UpdateItem",
    "rates#token": "GetItem UpdateItem",
    "rates#spent": "UpdateItem",
    "rounds": "PutItem",
    "audit": "PutItem",
    "control#topics": "GetItem",
    "control#topic": f"{_READ} PutItem",  # a consumer's instance and sign of life, an assignment
    "control#signing-key": "GetItem",
    "control#events": "GetItem",
}
_KNOWS_TOKENS = {"control#tokens": "GetItem", "control#used": "PutItem"}

# The API may get items of every table: its health check looks whether they are there.
# Transactions need the actions of their parts. What a table's index needs stands under `table/index/…`.
_TABLES: dict[str, dict[str, str]] = {
    names.API: {
        **_CALLS,
        "audit": "GetItem Query PutItem",
        "control": _ROWS,
    },
    names.API_URL: {
        **_CALLS,
        **_KNOWS_TOKENS,
        "audit": "GetItem PutItem",
        "control#topics": _ROWS,
        "control#topic": _ROWS,
        "control#retired": _ROWS,
        "control#schedules": _ROWS,
        "control#events": "GetItem PutItem DeleteItem",
        "control#replays": "GetItem Query PutItem",
        "control#signing-key": "GetItem PutItem",  # the first call that needs the key makes it
        "control#nothing": "GetItem",
    },
    names.RECEIVE: _RECEIVES,
    names.RECEIVE_URL: {**_RECEIVES, **_KNOWS_TOKENS},
    names.AUTHORIZE: {"control#tokens": "GetItem", "control#used": "PutItem", "audit": "PutItem"},
    "route": {"rounds": "PutItem", "control#topics": "GetItem", "control#topic": _READ},
    "deliver": {
        "log": _APPEND,
        "cursors": f"{_CLAIM} Query",
        "records": "PutItem UpdateItem",
        "timers": "PutItem",
        "traces": _NOTE,
        "rounds": "PutItem",  # a mark, beside a consumer that was removed while it was called
        "rates#handshakes": "GetItem UpdateItem",  # before callbacks
        "rates#group": "GetItem UpdateItem",
        "rates#spent": "UpdateItem",
        "control#topics": "GetItem",
        "control#topic": f"{_READ} PutItem",  # a consumer's health, an assignment
        "control#events": "GetItem",
        "audit": "PutItem",  # that it disabled a consumer
    },
    "check": {
        "log": _APPEND,
        "cursors": "GetItem",
        "timers": "PutItem DeleteItem",
        "transactions": "GetItem PutItem",
        "keys": _NOTE,
        "rounds": "PutItem",
        "rates#handshakes": "GetItem UpdateItem",
        "control#topics": "GetItem",
        "control#topic": "Query",
        "control#signing-key": "GetItem",  # its questions are signed
    },
    "mover": {
        "log": _APPEND,
        "cursors": "GetItem",  # here and below: is the last message of a schedule unfinished?
        "records": _READ,
        "timers": "Query PutItem DeleteItem BatchWriteItem",
        "keys": _NOTE,
        "rounds": "PutItem",
        "rates": "GetItem UpdateItem",  # of a destination, and what topics have spent
        "control#events": "GetItem",
        "control#topics": "GetItem",
        "control#topic": _READ,
        "control#schedules": _READ,
    },
    "sweep": {
        "log": "GetItem Query PutItem",  # a hole is closed on the way to what a group does not get
        "cursors": f"{_CLAIM} Query",
        "records": "Query",
        "timers": "PutItem",  # here and in `expire`: what is told of states and dead letters
        "rounds": f"{_READ} PutItem DeleteItem",
        "control#events": "GetItem",
        "transactions/index/by-state": "Query",  # those that a person has to decide
        "rates#group": "GetItem",
        "rates#spent": "UpdateItem",
        "control#topics": "GetItem",
        "control#topic": _READ,  # the group of a retry lane that it wakes
    },
    "assign": {
        "log": "GetItem Query UpdateItem",  # who agrees late to a broadcast that skips begins at the end
        "cursors": "GetItem PutItem",
        "timers": "PutItem",
        "rounds": f"{_READ} PutItem",
        "rates#handshakes": "GetItem UpdateItem",
        "control#topics": "GetItem",
        "control#topic": f"{_READ} PutItem",  # who agreed to be called, an assignment
    },
    "checkpoint": {
        "log": "GetItem Query UpdateItem",
        "cursors": "GetItem",  # here and below: the daily check
        "records": "GetItem Query",
        "timers": "GetItem Query",
        "traces": "Query",
        "rounds": "GetItem PutItem",
        "control#topics": "GetItem Query",
        "control#topic": "Query",
    },
    "expire": {
        "log": "Query PutItem UpdateItem",
        "cursors": f"{_CLAIM} Query",
        "records": "Query PutItem DeleteItem",  # dead letters end
        "traces": _NOTE,  # the attempts whose leases had run out
        "timers": "GetItem Query PutItem",  # those that schedules have lost; notices
        "control#events": "GetItem",
        "rounds": "GetItem Query PutItem DeleteItem",  # whether the archive is proved needs a person
        "control#topics": _READ,
        "control#topic": "Query",
        "control#schedules": "Query",
    },
    "journal": {},
}

_DELIVERS = ("deliver", names.SLOW)
_STARTS: dict[str, tuple[str, ...]] = {
    names.API: (*_DELIVERS, "check"),
    names.API_URL: (*_DELIVERS, "check"),
    names.RECEIVE: _DELIVERS,  # an acknowledgement lets the next message go to another consumer
    names.RECEIVE_URL: _DELIVERS,
    "route": _DELIVERS,
    "deliver": _DELIVERS,
    "check": _DELIVERS,
    "mover": (*_DELIVERS, "check"),
    "sweep": _DELIVERS,
    "assign": _DELIVERS,
    "checkpoint": ("checkpoint",),
    "expire": ("expire",),
}

WAKES = (
    *(names.API, names.API_URL, names.RECEIVE, names.RECEIVE_URL),
    *("deliver", "check", "mover", "assign", "expire"),
)
"""The functions that send wake-ups of the mover; it alone receives them."""

_JOBS: dict[str, tuple[str, ...]] = {names.API: ("replay",), names.API_URL: ("replay",)}
"""The Glue jobs that a function starts."""

_MAILS = ("sweep",)
"""The functions that send reports to the topic of the alarms."""

_CALLS_OBJECTS: dict[str, tuple[str, ...]] = {
    "bodies/*": ("s3:GetObject", "s3:PutObject"),
    "archive/manifests/*": ("s3:GetObject",),  # which days are archived
    "archive/proved.json": ("s3:GetObject",),
    "reports/hours/*": ("s3:GetObject",),
}
_OBJECTS: dict[str, dict[str, tuple[str, ...]]] = {
    names.API: _CALLS_OBJECTS,
    names.API_URL: _CALLS_OBJECTS,
    **{name: {"bodies/*": ("s3:GetObject",)} for name in (names.RECEIVE, names.RECEIVE_URL, "deliver")},
    "expire": {
        "archive/manifests/*": ("s3:GetObject",),  # the last day that is proved
        "archive/proved.json": ("s3:GetObject",),  # rows that are not in the archive stay for longer
        "bodies/*": ("s3:DeleteObject",),
        "expiring/*": ("s3:PutObject", "s3:DeleteObject"),
    },
    "journal": {"journal/*": ("s3:PutObject",), "expiring/*": ("s3:PutObject",)},
}

_CALLS_SECRETS = {"signing-key": "Encrypt Decrypt", "subscriber": "Encrypt", "callback": "Encrypt Decrypt"}
_SECRETS: dict[str, dict[str, str]] = {
    # Who delivers reads nothing but what it signs with; the API has it send test events, too.
    names.API: _CALLS_SECRETS,
    names.API_URL: _CALLS_SECRETS,
    names.RECEIVE: {"signing-key": "Decrypt"},
    names.RECEIVE_URL: {"signing-key": "Decrypt"},
    "deliver": {"subscriber": "Decrypt", "callback": "Decrypt"},
    "check": {"signing-key": "Decrypt"},
}
"""What a function may do with which kind of secret (`secret` in KMS's encryption context)."""

STREAMS: dict[str, tuple[str, ...]] = {"route": ("log",), "journal": ("log", "traces")}
"""The tables whose streams wake a function."""

_X_RAY: Statement = {  # these two know no resource
    "Effect": "Allow",
    "Action": ["xray:PutTraceSegments", "xray:PutTelemetryRecords"],
    "Resource": "*",
}
_STREAM_ACTIONS = ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")


def roles(prefix: str, bucket: str, streams: Mapping[str, Any], tracing: bool = False) -> dict[str, Any]:
    """The roles as CloudFormation resources `<Function>Role`. `bucket` is the bucket's name, or a text for Fn::Sub
    that makes it. `streams`: the ARN of each table's stream, by noun; one that a function reads and that is not there
    is left out. `tracing`: they may write traces of X-Ray."""
    policies = {name: _policy(name, prefix, bucket) for name in names.FUNCTIONS}
    if tracing:
        for statements in policies.values():
            statements.append(_X_RAY)
    for name, nouns in STREAMS.items():
        arns = [streams[noun] for noun in nouns if noun in streams]
        if arns:
            actions = [f"dynamodb:{action}" for action in _STREAM_ACTIONS]
            policies[name].append({"Effect": "Allow", "Action": actions, "Resource": arns})
    return {role_id(name): role("lambda", statements) for name, statements in policies.items()}


def role_id(name: str) -> str:
    """The logical id of a function's role."""
    return f"{names.logical(name)}Role"


def _policy(name: str, prefix: str, bucket: str) -> list[Statement]:
    log_group = f"log-group:/aws/lambda/{names.function(prefix, name)}:log-stream:*"
    statements = [allow(("logs:CreateLogStream", "logs:PutLogEvents"), names.arn("logs", log_group))]
    for place, actions in _TABLES[name].items():
        table, _, part = place.partition("#")
        noun, _, index = table.partition("/")
        resource = f"table/{names.table(prefix, noun)}" + (f"/{index}" if index else "")
        permissions = tuple(f"dynamodb:{action}" for action in actions.split())
        statement = allow(permissions, names.arn("dynamodb", resource))
        statements.append(statement | (_only(_PARTS[part]) if part else {}))
    statements += [_secrets(prefix, kind, actions) for kind, actions in _SECRETS.get(name, {}).items()]
    function_arns = [
        names.arn("lambda", f"function:{names.function(prefix, f)}") for f in _STARTS.get(name, ())
    ]
    if function_arns:
        statements.append(allow(("lambda:InvokeFunction",), *function_arns))
    if name in WAKES:
        receives = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes") if name == "mover" else ()
        uses = tuple(f"sqs:{action}" for action in ("SendMessage", *receives))
        statements.append(allow(uses, names.arn("sqs", names.wakes(prefix))))
    jobs = [names.arn("glue", f"job/{prefix}-{job}") for job in _JOBS.get(name, ())]
    if jobs:
        statements.append(allow(("glue:StartJobRun",), *jobs))
    if name in _MAILS:
        statements.append(allow(("sns:Publish",), names.arn("sns", names.alarms(prefix))))
    objects = _OBJECTS.get(name, {})
    for key, permissions in objects.items():
        statements.append(allow(permissions, f"arn:${{AWS::Partition}}:s3:::{bucket}/{key}"))
    if any("s3:GetObject" in permissions for permissions in objects.values()):
        # Without it S3 answers "denied", not "no such key", for what is not there.
        statements.append(allow(("s3:ListBucket",), f"arn:${{AWS::Partition}}:s3:::{bucket}"))
    if name not in names.ANSWERING:  # what was invoked asynchronously and is given up
        statements.append(allow(("sqs:SendMessage",), names.arn("sqs", names.failures(prefix))))
    return statements


def _only(partitions: tuple[str, ...]) -> Statement:
    """The condition that all partition keys of a request are of these."""
    return {"Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(partitions)}}}


def _secrets(prefix: str, kind: str, actions: str) -> Statement:
    """Of all keys those with the stage's tag, for one kind of its secrets: a stage that was deleted and made again has
    a new key, and its tables hold what the one before encrypted."""
    context = "kms:EncryptionContext:"
    only = {f"aws:ResourceTag/{keys.TAG}": prefix, f"{context}headrace": prefix, f"{context}secret": kind}
    permissions = tuple(f"kms:{action}" for action in actions.split())
    return allow(permissions, names.arn("kms", "key/*")) | {"Condition": {"StringEquals": only}}
