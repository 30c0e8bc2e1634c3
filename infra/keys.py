"""The KMS key that encrypts secrets in their rows: subscribers', and the stage's signing key."""

from __future__ import annotations

from typing import Any

from .resources import policy, resource, retained

KEY = "SecretsKey"
TAG = "headrace"


def key(prefix: str) -> dict[str, Any]:
    """The key, with a name for people. It outlives the stack, as the tables do whose secrets it encrypted."""
    account = {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}}
    # The account's own policies decide: each function's role (roles.py), and its administrators.
    everybody = {"Effect": "Allow", "Principal": account, "Action": "kms:*", "Resource": "*"}
    description = {
        "Description": f"Secrets of Headrace, {prefix}",
        "EnableKeyRotation": True,
        "KeyPolicy": policy(everybody),
        "Tags": [{"Key": TAG, "Value": prefix}],
    }
    return {
        # A creation that fails takes its key with it: each costs 1 USD a month.
        KEY: {**retained("AWS::KMS::Key", description), "DeletionPolicy": "RetainExceptOnCreate"},
        f"{KEY}Name": resource("AWS::KMS::Alias", AliasName=f"alias/{prefix}", TargetKeyId={"Ref": KEY}),
    }
