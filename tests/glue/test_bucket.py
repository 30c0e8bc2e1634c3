"""The bucket is the same to the jobs, whether it is a folder or S3."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto import mock_aws

from glue_jobs.common.bucket import Bucket, Entry, FolderBucket, S3Bucket


@pytest.fixture(params=["folder", "s3"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bucket]:
    if request.param == "folder":
        yield FolderBucket(tmp_path, "here")
        return
    with mock_aws():
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
        client = boto3.client("s3", "us-east-1", **keys)
        client.create_bucket(Bucket="here")
        yield S3Bucket(client, "here")


def test_files_and_folders_are_listed(bucket: Bucket) -> None:
    for name in ("a/x", "a/day=1/y", "a/day=1/hour=2/z", "ab/other"):
        bucket.write(name, name)
    assert bucket.entries("a") == [Entry("a/day=1/hour=2/z", 16), Entry("a/day=1/y", 9), Entry("a/x", 3)]
    assert (bucket.folders("a"), bucket.folders("a/day=1")) == (["day=1"], ["hour=2"])
    assert (bucket.entries("nowhere"), bucket.folders("nowhere")) == ([], [])


def test_a_draft_that_goes_while_files_are_listed_is_none_of_them(tmp_path: Path) -> None:
    """The service gives a new object of the journal its name when it is whole. A link that leads nowhere is met as
    such a draft is: by its name, and not there any more."""
    bucket = FolderBucket(tmp_path, "here")
    bucket.write("a/b", "content")
    (tmp_path / "a/draft").symlink_to("gone")
    assert bucket.entries("a") == [Entry("a/b", 7)]


def test_a_text_is_put_over_another(bucket: Bucket) -> None:
    assert bucket.read("a/b") is None
    for text in ("first", "ä second"):
        bucket.write("a/b", text)
        assert bucket.read("a/b") == text
    assert [entry.name for entry in bucket.entries("a")] == ["a/b"]


def test_a_file_is_brought_to_this_machine_if_it_is_there(bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "brought"
    assert not bucket.get_file("a/b", path)
    assert not path.exists()
    bucket.write("a/b", "content")
    assert bucket.get_file("a/b", path)
    assert path.read_text() == "content"


def test_a_file_that_may_not_be_brought_is_not_said_to_be_gone(tmp_path: Path) -> None:
    with mock_aws():
        client = boto3.client("s3", "us-east-1", aws_access_key_id="local", aws_secret_access_key="local")
        with Stubber(client) as stub:
            stub.add_client_error("head_object", "403", http_status_code=403)
            with pytest.raises(ClientError):
                S3Bucket(client, "here").get_file("a/b", tmp_path / "brought")


def test_a_file_that_goes_while_it_is_brought_is_not_there(tmp_path: Path) -> None:
    with mock_aws():
        client = boto3.client("s3", "us-east-1", aws_access_key_id="local", aws_secret_access_key="local")
        with Stubber(client) as stub:
            stub.add_response("head_object", {"ContentLength": 7, "ETag": '"e"'})
            stub.add_client_error("get_object", "NoSuchKey", http_status_code=404)
            assert not S3Bucket(client, "here").get_file("a/b", tmp_path / "brought")


def test_a_file_is_read_in_other_processes_too(bucket: Bucket) -> None:
    bucket.write("a/b", "text")
    read = pickle.loads(pickle.dumps(bucket.reader()))
    assert (read("a/b"), read("none")) == (b"text", None)


def test_a_file_or_all_below_a_folder_is_deleted(bucket: Bucket) -> None:
    for name in ("a/1", "a/b/2", "ab"):
        bucket.write(name, "x")
    bucket.delete("a")
    bucket.delete("nothing")
    assert ([entry.name for entry in bucket.entries("a")], bucket.exists("ab")) == ([], True)
    bucket.delete("ab")
    assert not bucket.exists("ab")
