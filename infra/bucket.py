"""The bucket: large bodies, the journal, the archive and its reports, each under a prefix of its own."""

from __future__ import annotations

from typing import Any

from .resources import policy, resource, retained

BUCKET = "Bucket"
_FORMER_DAYS = 30
_LATER_DAYS = 30
"""How much longer rows stay than their lists: a late run writes the list of a day again and keeps its files."""
_LISTS, _ROWS = (
    ("archive/catalog/", "archive/manifests/"),
    ("archive/messages/", "archive/deliveries/", "journal/"),
)
_PREFIX = "arn:${AWS::Partition}:s3:::"


def name(prefix: str) -> str:
    """The bucket's name, as text for Fn::Sub: names of buckets are the world's."""
    return f"{prefix}-${{AWS::AccountId}}-${{AWS::Region}}"


def artifacts(account: str = "${AWS::AccountId}", region: str = "${AWS::Region}") -> str:
    """The name of the bucket for what is deployed, one for all stacks of a region; as text for Fn::Sub, or as it is."""
    return f"headrace-artifacts-{account}-{region}"


def bucket(prefix: str, archive_days: int | None = None) -> dict[str, Any]:
    """The bucket and its policy, which refuses all access without TLS. `archive_days`: how long archived days stay
    (None: for ever)."""
    arn = _PREFIX + name(prefix)
    everything = [{"Fn::Sub": arn}, {"Fn::Sub": f"{arn}/*"}]
    tls_only = {
        "Sid": "TlsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": everything,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    by_default = {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    closed = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    properties = {
        "BucketName": {"Fn::Sub": name(prefix)},
        "PublicAccessBlockConfiguration": dict.fromkeys(closed, True),
        "OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]},
        "BucketEncryption": {"ServerSideEncryptionConfiguration": [by_default]},
        "VersioningConfiguration": {"Status": "Enabled"},
        "LifecycleConfiguration": {"Rules": [*_rules(), *_ends(archive_days)]},
    }
    own = resource("AWS::S3::BucketPolicy", Bucket={"Ref": BUCKET}, PolicyDocument=policy(tls_only))
    return {BUCKET: retained("AWS::S3::Bucket", properties), "BucketPolicy": own}


def _rules() -> list[dict[str, Any]]:
    """The lifecycle rules. A body may be needed for years and a dead letter for ever, so age deletes none: it only
    makes storage cheaper. Replaced and deleted objects can be restored for a month: no role may delete a version."""
    return [
        {
            "Id": "former-versions",
            "Status": "Enabled",
            "NoncurrentVersionExpiration": {"NoncurrentDays": _FORMER_DAYS},
            "ExpiredObjectDeleteMarker": True,
        },
        {
            "Id": "unfinished-uploads",
            "Status": "Enabled",
            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
        },
        _moves("bodies/", 30, "INTELLIGENT_TIERING"),
        _moves("journal/", 90, "GLACIER_IR"),
        _expires("athena/", 7),
    ]


def _ends(archive_days: int | None) -> list[dict[str, Any]]:
    """The rules that end the archive and the journal. The proof stays: by it, `expire` lets rows of the log go."""
    if archive_days is None:
        return []
    lists = [_expires(prefix, archive_days) for prefix in _LISTS]
    return [*lists, *(_expires(prefix, archive_days + _LATER_DAYS) for prefix in _ROWS)]


def _expires(prefix: str, days: int) -> dict[str, Any]:
    name = f"{prefix.strip('/').replace('/', '-')}-ends"
    return {"Id": name, "Status": "Enabled", "Prefix": prefix, "ExpirationInDays": days}


def _moves(prefix: str, days: int, to: str) -> dict[str, Any]:
    return {
        "Id": prefix.rstrip("/"),
        "Status": "Enabled",
        "Prefix": prefix,
        "Transitions": [{"TransitionInDays": days, "StorageClass": to}],
    }
