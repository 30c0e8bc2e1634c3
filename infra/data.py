"""What a stack keeps when it goes, its tables, its bucket and its keys, and how these are deleted for good."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from . import keys, names
from .cli import Aws, Refused

_AT_ONCE = 1000  # objects, S3's limit
_PROGRESS = 50  # of these, a line
_KEYS_UNKNOWN = (
    "The keys of this stage could not be listed: {error}\nEach costs 1 USD a month until it is deleted: look in KMS "
    "for keys whose tag {tag} is {prefix}."
)


class Data:
    """The tables, the bucket and the keys of one prefix."""

    def __init__(self, aws: Aws, prefix: str) -> None:
        self.bucket = f"{prefix}-{aws.account}-{aws.region}"
        self._aws = aws
        self._prefix = prefix

    def tables(self) -> list[str]:
        """The tables that are there."""
        table_names = [names.table(self._prefix, noun) for noun in names.TABLES]
        existing_names = set((self._aws.ask("dynamodb", "list-tables") or {}).get("TableNames", []))
        return [table for table in table_names if table in existing_names]

    def has_bucket(self) -> bool:
        """Refused, where AWS does not say."""
        try:
            self._aws.run("s3api", "head-bucket", "--bucket", self.bucket)
        except Refused as error:
            if "(404)" not in str(error):  # an account's number may have these digits
                raise
            return False
        return True

    def is_left(self) -> bool:
        """Is there anything that `delete` would delete? It may have been stopped on the way."""
        return bool(self.tables() or self.has_bucket() or self._keys())

    def delete(self) -> None:
        """Delete all of it. Refused, where AWS does not let one."""
        targets = [("--table-name", table) for table in self.tables()]
        standing = [table for table in targets if not self._is_going(table)]
        for table in standing:
            self._aws.run("dynamodb", "update-table", "--no-deletion-protection-enabled", *table)
        for table in standing:
            self._aws.run("dynamodb", "wait", "table-exists", *table)  # not while it is being updated
            self._aws.run("dynamodb", "delete-table", *table)
        for table in targets:
            self._aws.run("dynamodb", "wait", "table-not-exists", *table)
        if self.has_bucket():
            self._empty_bucket()
            self._aws.run("s3", "rb", "--force", f"s3://{self.bucket}")
        for key in self._keys():
            self._aws.run("kms", "schedule-key-deletion", "--key-id", key, "--pending-window-in-days", "7")

    def _is_going(self, table: tuple[str, str]) -> bool:
        """Is it being deleted, by a deletion that was stopped?"""
        answer = self._aws.ask("dynamodb", "describe-table", *table)
        return bool(answer["Table"]["TableStatus"] == "DELETING")

    def _keys(self) -> list[str]:
        """The keys that encrypted this stage's secrets: one for each time that the stage was created. Keys pending
        deletion keep their tag until then but cannot be deleted again, so they are left out. If AWS refuses the list, a
        message is printed and the list is empty."""
        tag_filter = ("--tag-filters", f"Key={keys.TAG},Values={self._prefix}")
        kind = ("--resource-type-filters", "kms:key")
        command = ("resourcegroupstaggingapi", "get-resources", *tag_filter, *kind)
        try:
            answer = self._aws.ask(*command) or {}
        except Refused as error:
            print(_KEYS_UNKNOWN.format(error=error, tag=keys.TAG, prefix=self._prefix), file=sys.stderr)
            return []
        arns = [str(each["ResourceARN"]) for each in answer.get("ResourceTagMappingList", [])]
        return [arn for arn in arns if not self._is_doomed(arn)]

    def _is_doomed(self, key: str) -> bool:
        answer = self._aws.ask("kms", "describe-key", "--key-id", key)
        return bool(answer["KeyMetadata"]["KeyState"] == "PendingDeletion")

    def _empty_bucket(self) -> None:
        """All versions of all objects: `aws s3 rb` knows the latest only."""
        count = 0
        while versions := self._versions():
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "doomed.json")
                file.write_text(json.dumps({"Objects": versions, "Quiet": True}))
                place = ("--bucket", self.bucket, "--delete", f"file://{file}")
                errors = (self._aws.ask("s3api", "delete-objects", *place) or {}).get("Errors")
            if errors:
                raise Refused(f"{errors[0]['Key']} could not be deleted: {errors[0].get('Message', '')}")
            count += 1
            if not count % _PROGRESS:
                print(f"  {count * _AT_ONCE:,} objects of {self.bucket} are deleted …", file=sys.stderr)

    def _versions(self) -> list[dict[str, str]]:
        """Some that are there."""
        page = ("--no-paginate", "--max-keys", str(_AT_ONCE))
        found = self._aws.ask("s3api", "list-object-versions", "--bucket", self.bucket, *page) or {}
        versions = [*(found.get("Versions") or ()), *(found.get("DeleteMarkers") or ())]
        return [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in versions][:_AT_ONCE]
