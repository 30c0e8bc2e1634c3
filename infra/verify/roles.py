"""The roles as AWS has them, judged by IAM's own simulation; and the secrets as they lie in the table."""

from __future__ import annotations

import json

from infra import names
from infra.cli import Aws

from .http import Notes

_CONTROL = "control"
_THEFTS: tuple[tuple[str, str, str, str], ...] = (
    # what is stolen, the action, the table, the partition
    ("make a token", "dynamodb:PutItem", _CONTROL, "tokens"),
    ("read a token", "dynamodb:GetItem", _CONTROL, "tokens"),
    ("set up a topic", "dynamodb:PutItem", _CONTROL, "topics"),
    ("replace the signing key", "dynamodb:PutItem", _CONTROL, "stage"),
    ("refill a token's rate limit", "dynamodb:UpdateItem", "rates", "token#x"),
)
_SIGN = {names.API, names.API_URL, names.RECEIVE, names.RECEIVE_URL, "check"}
_OPENERS = {"subscriber": {"deliver"}, "signing-key": _SIGN}
"""Who decrypts which kind of secret."""
_TALKERS = ("deliver", "check", "assign")


def outputs(aws: Aws, prefix: str) -> dict[str, str]:
    """The stack's outputs. Raises StackError."""
    answer = aws.ask("cloudformation", "describe-stacks", "--stack-name", prefix)
    return {each["OutputKey"]: each["OutputValue"] for each in answer["Stacks"][0].get("Outputs", [])}


def verify(aws: Aws, prefix: str, notes: Notes) -> None:
    """Try each theft with each role that calls hosts of others, and each kind of secret with all. Raises StackError."""
    roles = _roles(aws, prefix)
    for function in _TALKERS:
        for theft, action, noun, partition in _THEFTS:
            table = f"arn:aws:dynamodb:{aws.region}:{aws.account}:table/{names.table(prefix, noun)}"
            keys = {"dynamodb:LeadingKeys": [partition]}
            is_allowed = _allows(aws, roles[function], action, table, keys)
            notes.expect(f"{function} does not {theft}", not is_allowed, "IAM allows it")
    for function, role in roles.items():
        for kind, openers in _OPENERS.items():
            is_allowed = _opens(aws, role, prefix, kind)
            notes.expect(
                f"{function} and {kind}s", is_allowed == (function in openers), f"decrypts: {is_allowed}"
            )
    _no_plain_secret(aws, prefix, notes)


def _roles(aws: Aws, prefix: str) -> dict[str, str]:
    """The ARN of each function's role; the functions of URLs are not in every stage."""
    roles = {}
    for name in names.FUNCTIONS:
        function = ("--function-name", names.function(prefix, name))
        answer = aws.ask("lambda", "get-function-configuration", *function, check=name not in names.URLS)
        if answer:
            roles[name] = str(answer["Role"])
    return roles


def _opens(aws: Aws, role: str, prefix: str, kind: str) -> bool:
    context = {
        "kms:EncryptionContext:headrace": [prefix],
        "kms:EncryptionContext:secret": [kind],
        "aws:ResourceTag/headrace": [prefix],
    }
    key = f"arn:aws:kms:{aws.region}:{aws.account}:key/any"
    return _allows(aws, role, "kms:Decrypt", key, context)


def _allows(aws: Aws, role: str, action: str, resource: str, context: dict[str, list[str]]) -> bool:
    entries = [
        f"ContextKeyName={name},ContextKeyType={_kind(name)},ContextKeyValues={','.join(values)}"
        for name, values in context.items()
    ]
    question = ("--policy-source-arn", role, "--action-names", action, "--resource-arns", resource)
    answer = aws.ask("iam", "simulate-principal-policy", *question, "--context-entries", *entries)
    return any(each["EvalDecision"] == "allowed" for each in answer["EvaluationResults"])


def _kind(name: str) -> str:
    return "stringList" if name.endswith("LeadingKeys") else "string"


def _no_plain_secret(aws: Aws, prefix: str, notes: Notes) -> None:
    """No row of control data holds a secret as it is: its ciphertext is in `c`. None is shown."""
    names_of = {"#k": "keys", "#s": "secrets"}
    place = ("--table-name", names.table(prefix, _CONTROL), "--consistent-read")
    projection = (
        "--projection-expression",
        ", ".join(names_of),
        "--expression-attribute-names",
        json.dumps(names_of),
    )
    items = aws.ask("dynamodb", "scan", *place, *projection)["Items"]
    lists = [item[name]["L"] for item in items for name in ("keys", "secrets") if name in item]
    secrets = [each["M"] for row in lists for each in row]
    plain = [each for each in secrets if "c" not in each or "hex" in each]
    notes.expect(f"secrets in rows are encrypted ({len(secrets)})", not plain, f"{len(plain)} are not")
