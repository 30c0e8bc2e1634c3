"""The forms of CloudFormation that many resources share."""

from __future__ import annotations

from typing import Any

Statement = dict[str, Any]


def resource(kind: str, **properties: Any) -> dict[str, Any]:
    """A resource that goes with its stack."""
    return {"Type": kind, "Properties": properties}


def retained(kind: str, properties: dict[str, Any]) -> dict[str, Any]:
    """A resource that neither deletion nor replacement of its stack takes away: it holds what users sent."""
    return {
        "Type": kind,
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": properties,
    }


def policy(*statements: Statement) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


def allow(actions: tuple[str, ...], *resources: str) -> Statement:
    """A statement of a role; the resources are texts for Fn::Sub."""
    return {
        "Effect": "Allow",
        "Action": list(actions),
        "Resource": [{"Fn::Sub": resource} for resource in resources],
    }


def role(service: str, statements: list[Statement]) -> dict[str, Any]:
    """A role of a service of AWS, with these rights alone."""
    principal = {"Service": f"{service}.amazonaws.com"}
    trust = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    own = {"PolicyName": "own", "PolicyDocument": policy(*statements)}
    return resource("AWS::IAM::Role", AssumeRolePolicyDocument=policy(trust), Policies=[own])
