"""The queue of the mover's wake-ups, and how it starts the mover."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from . import names, roles
from .resources import policy, resource

QUEUE = "WakeQueue"
_FAILED = "FailedWakeQueue"
AT_ONCE = 2  # movers beside the schedule's: more would only race
BATCH = 10
_TRIES = 5
_MOVER_SECONDS = 60
_HIDDEN_SECONDS = 6 * _MOVER_SECONDS  # as Lambda advises
_KEPT_SECONDS = 3600  # the delay of 15 minutes and all tries
_FAILED_KEPT_SECONDS = 2 * _KEPT_SECONDS  # from when it was first sent; the alarm ends with it


def wakes(prefix: str, function_names: Collection[str]) -> dict[str, Any]:
    """The queue, its failure queue, its policy and its mapping to the mover."""
    senders = [name for name in roles.WAKES if name in function_names]
    if "mover" not in senders:
        return {}
    failed_arn = {"Fn::GetAtt": [_FAILED, "Arn"]}
    redrive = {"deadLetterTargetArn": failed_arn, "maxReceiveCount": _TRIES}
    own = {"VisibilityTimeout": _HIDDEN_SECONDS, "RedrivePolicy": redrive}
    return {
        QUEUE: queue(names.wakes(prefix), _KEPT_SECONDS, own),
        _FAILED: queue(names.failed_wakes(prefix), _FAILED_KEPT_SECONDS),
        f"{QUEUE}Policy": resource(
            "AWS::SQS::QueuePolicy", Queues=[{"Ref": QUEUE}], PolicyDocument=_policy(senders)
        ),
        "MoverFromWakes": resource(
            "AWS::Lambda::EventSourceMapping",
            FunctionName={"Ref": names.logical("mover")},
            EventSourceArn={"Fn::GetAtt": [QUEUE, "Arn"]},
            BatchSize=BATCH,
            ScalingConfig={"MaximumConcurrency": AT_ONCE},
        ),
    }


def queue(name: str, kept_seconds: int, own: dict[str, Any] | None = None) -> dict[str, Any]:
    """A queue of the stack, encrypted, which goes with it."""
    return {
        "Type": "AWS::SQS::Queue",
        "DeletionPolicy": "Delete",
        "UpdateReplacePolicy": "Delete",
        "Properties": {
            "QueueName": name,
            "MessageRetentionPeriod": kept_seconds,
            "SqsManagedSseEnabled": True,
            **(own or {}),
        },
    }


def _policy(senders: Iterable[str]) -> dict[str, Any]:
    """Whoever may use SQS in this account may not use this queue: its messages start functions."""
    arns = [{"Fn::GetAtt": [roles.role_id(name), "Arn"]} for name in senders]
    mover = {"Fn::GetAtt": [roles.role_id("mover"), "Arn"]}
    return policy(
        _deny("sqs:SendMessage", {"ArnNotEquals": {"aws:PrincipalArn": arns}}),
        _deny("sqs:ReceiveMessage", {"ArnNotEquals": {"aws:PrincipalArn": mover}}),
        _deny("sqs:DeleteMessage", {"ArnNotEquals": {"aws:PrincipalArn": mover}}),
        _deny("sqs:*", {"Bool": {"aws:SecureTransport": "false"}}),
    )


def _deny(action: str, condition: dict[str, Any]) -> dict[str, Any]:
    return {
        "Effect": "Deny",
        "Principal": "*",
        "Action": action,
        "Resource": {"Fn::GetAtt": [QUEUE, "Arn"]},
        "Condition": condition,
    }
