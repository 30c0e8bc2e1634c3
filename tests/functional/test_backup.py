"""`headrace-local backup` and `restore`: one private file, from which the service goes on."""

from __future__ import annotations

import io
import itertools
import os
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from local import Unusable
from local.backup import backup_main, restore, save
from local.data_folder import open_engine
from local.engine.client import Client
from local.engine.core import Engine
from tests.support.local_service import ROOT, LocalService, serving
from tests.support.receiver import Receiver

_TOKEN = "hr_me_0123456789abcdef"
_LARGE = "x" * 200_000


def _table(engine: Engine) -> Client:
    client = Client(engine)
    client.create_table(
        TableName="pairs",
        KeySchema=[{"AttributeName": "p", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "p", "AttributeType": "S"}],
    )
    return client


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder that no service runs on."""
    folder = tmp_path / "data"
    folder.mkdir()
    engine = Engine(folder / "engine.db")
    _table(engine).put_item(TableName="pairs", Item={"p": {"S": "kept"}})
    engine.close()
    for name in ("key", "token", "clock"):
        (folder / name).write_text("0")
    return folder


def on(data: Path, *options: str) -> Any:
    """A service on a folder."""
    return serving("--token", _TOKEN, *options, HEADRACE_DATA=str(data), AWS_ENDPOINT_URL_DYNAMODB="")


def received(service: LocalService) -> list[Any]:
    """The bodies of all messages."""
    answer = service.ask("POST", "/topics/orders/groups/g/receive", {"max": 10, "wait_seconds": 1})
    return [message["body"] for message in answer["messages"]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Receiver]]:
    """A folder with two backups, with and without the key, that were made while the service ran; and its subscriber."""
    folder = tmp_path_factory.mktemp("saved")
    with Receiver() as receiver:
        with on(folder / "data") as service:
            service.ask("PUT", "/topics/orders", {"max_body_bytes": 262_144})
            service.ask("PUT", "/topics/orders/groups/g", {"from": "earliest"})
            service.ask("PUT", "/topics/orders/groups/push", {"from": "latest"})
            service.ask("PUT", "/topics/orders/groups/push/consumers/hook", {"url": receiver.url("/")})
            for body in (1, _LARGE):
                service.ask("POST", "/topics/orders/messages", {"body": body})
            save(folder / "data", folder / "without.tar")
            save(folder / "data", folder / "with.tar", with_key=True)
            service.ask("POST", "/topics/orders/messages", {"body": "after the backup"})
        yield folder, receiver


def test_a_service_goes_on_from_what_was_saved_while_it_ran(
    saved: tuple[Path, Receiver], tmp_path: Path
) -> None:
    folder, receiver = saved
    assert restore(folder / "with.tar", tmp_path / "new")
    with on(tmp_path / "new") as service:
        assert sorted(received(service), key=str) == [1, _LARGE]
        service.ask("POST", "/topics/orders/messages", {"body": "restored"})
        service.ask("POST", "/clock", {"advance_seconds": 0})
        assert b'"restored"' in [visit.body for visit in receiver.visits]


def test_without_the_key_new_secrets_make_it_whole(saved: tuple[Path, Receiver], tmp_path: Path) -> None:
    folder, receiver = saved
    assert not restore(folder / "without.tar", tmp_path / "new")
    with on(tmp_path / "new") as service:
        service.ask("POST", "/signing-key/rotate", {"overlap_seconds": 0})
        path = "/topics/orders/groups/push/consumers/hook/rotate-secret"
        secret = service.ask("POST", path, {"overlap_seconds": 0})["secret"]
        assert sorted(received(service), key=str) == [1, _LARGE]
        service.ask("POST", "/topics/orders/messages", {"body": "new key"})
        service.ask("POST", "/clock", {"advance_seconds": 0})
    (visit,) = [visit for visit in receiver.visits if visit.body == b'"new key"']
    assert Webhook(secret).verify(visit.body, dict(visit.headers)) == "new key"


def names(file: Path) -> list[str]:
    with tarfile.open(file) as tar:
        return tar.getnames()


@pytest.mark.parametrize(
    ("options", "saved", "told"),
    [
        ((), [], "without the key"),
        (("--with-key",), ["key", "token"], "with the key"),
    ],
)
def test_it_says_whether_the_key_is_in_it(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: Any, saved: list[str], told: str
) -> None:
    file = tmp_path / "b.tar"
    assert backup_main("backup", [str(file), "--data", str(data), *options]) == 0
    assert names(file) == ["engine.db", "clock", *saved, "backup.json"]
    assert f"in {file}, {told}" in capsys.readouterr().out


def test_only_its_owner_reads_it(data: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        save(data, tmp_path / "b.tar")
        restore(tmp_path / "b.tar", tmp_path / "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "b.tar").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "new").iterdir()} == {0o600}


@pytest.mark.parametrize("kind", ["file", "link", "dangling link"])
def test_what_is_there_is_never_written_over(data: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    if kind != "dangling link":
        target.write_text("precious")
    file = target if kind == "file" else tmp_path / "link"
    if kind != "file":
        file.symlink_to(target)
    with pytest.raises(Unusable, match="is there already"):
        save(data, file)
    assert target.exists() == (kind != "dangling link")
    assert kind == "dangling link" or target.read_text() == "precious"


def test_a_backup_that_fails_leaves_nothing(data: Path, tmp_path: Path) -> None:
    (data / "engine.db").write_bytes(b"no database" * 1000)
    with pytest.raises(Unusable, match=r"was not saved .*not a database"):
        save(data, tmp_path / "b.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_snapshot_has_all_of_a_transaction_or_nothing(tmp_path: Path) -> None:
    """Two rows are always written together; what is saved meanwhile has them equal."""
    (tmp_path / "data").mkdir()
    engine, is_done = Engine(tmp_path / "data" / "engine.db"), threading.Event()
    client = _table(engine)

    def write() -> None:
        for number in itertools.count():
            put = {"n": {"N": str(number)}, "x": {"S": "x" * 50_000}}
            items: Any = [{"Put": {"TableName": "pairs", "Item": {"p": {"S": p}, **put}}} for p in "ab"]
            client.transact_write_items(TransactItems=items)
            if is_done.is_set():
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            save(tmp_path / "data", tmp_path / f"{number}.tar")
            restore(tmp_path / f"{number}.tar", tmp_path / f"{number}")
            copy = Engine(tmp_path / f"{number}" / "engine.db")
            assert len({item["n"]["N"] for item in Client(copy).scan(TableName="pairs")["Items"]}) <= 1
            copy.close()
    finally:
        is_done.set()
        writer.join(60)
        engine.close()


def test_what_the_journal_got_after_the_snapshot_is_left_out(data: Path, tmp_path: Path) -> None:
    """Its messages are not in the restored log, which gives their offsets to others."""
    for folder in ("journal/messages", "bodies/orders"):
        (data / "bucket" / folder).mkdir(parents=True)
        for name, ahead in (("before", -60), ("after", 60)):
            file = data / "bucket" / folder / name
            file.touch()
            at = file.stat().st_mtime + ahead
            os.utime(file, (at, at))
    (data / "bucket" / "bodies" / "orders" / "tmpabcd1234").touch()
    (data / "bucket" / "link").symlink_to("/etc/passwd")
    save(data, tmp_path / "b.tar")
    assert [name for name in names(tmp_path / "b.tar") if name.startswith("bucket/")] == [
        "bucket/bodies/orders/after",
        "bucket/bodies/orders/before",
        "bucket/journal/messages/before",
    ]


def test_a_folder_with_anything_in_it_is_left_alone(data: Path, tmp_path: Path) -> None:
    save(data, tmp_path / "b.tar")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").touch()
    with pytest.raises(Unusable, match="is not empty"):
        restore(tmp_path / "b.tar", tmp_path / "new")
    (tmp_path / "new" / "file").unlink()
    restore(tmp_path / "b.tar", tmp_path / "new")


def _changed(saved: Path, tmp_path: Path, *added: tarfile.TarInfo, last: bool = True) -> Path:
    """A backup with more in it."""
    file = tmp_path / "changed.tar"
    with tarfile.open(saved) as old, tarfile.open(file, "w") as new:
        *members, end = old.getmembers()
        for member in (*members, *added, *([end] if last else [])):
            is_old = member not in added
            new.addfile(member, old.extractfile(member) if is_old else io.BytesIO(b"x" * member.size))
    return file


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    member.size = 1 if kind == tarfile.REGTYPE else 0
    return member


@pytest.mark.parametrize(
    "added",
    [
        _member("../x"),
        _member("/tmp/x"),
        _member("bucket/../../x"),
        _member("x"),
        _member("lock"),
        _member("bucket\\..\\x"),
        _member("clock"),
        _member("bucket/link", tarfile.SYMTYPE, "/etc"),
        _member("bucket/link", tarfile.LNKTYPE, "../../etc/passwd"),
        _member("bucket/pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name} {member.type.decode()}",
)
def test_what_no_backup_has_is_refused_and_nothing_stays(
    data: Path, tmp_path: Path, added: tarfile.TarInfo
) -> None:
    save(data, tmp_path / "b.tar")
    with pytest.raises(Unusable, match=r"is refused|not restored"):
        restore(_changed(tmp_path / "b.tar", tmp_path, added), tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"lock", "lock.db"}


def test_a_restore_that_fails_leaves_the_folder_empty(data: Path, tmp_path: Path) -> None:
    save(data, tmp_path / "b.tar")
    content = bytearray((tmp_path / "b.tar").read_bytes())
    content[512:1024] = b"x" * 512  # the engine's file, not the tar's header
    (tmp_path / "b.tar").write_bytes(content)
    with pytest.raises(Unusable, match="cannot be used"):
        restore(tmp_path / "b.tar", tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} <= {"lock", "lock.db"}


def test_no_service_starts_on_what_a_restore_has_left_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "engine.db.part").touch()
    with pytest.raises(Unusable, match="did not end"):
        open_engine(tmp_path, lambda: 0)


def repaired(data: Path, *options: str) -> str:
    """What `headrace-local repair` prints."""
    process = subprocess.run(
        [sys.executable, "-m", "headrace_local", "repair", "--data", str(data), *options],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "AWS_"))},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    return process.stdout


def test_a_log_that_is_older_than_the_rest_is_repaired_while_the_service_runs_or_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with on(data) as service:
        service.ask("PUT", "/topics/orders", {"shards": 1})
        service.ask("PUT", "/topics/orders/groups/g", {"from": "earliest"})
        for n in range(3):
            service.ask("POST", "/topics/orders/messages", {"body": n})
        answer = service.ask("POST", "/topics/orders/groups/g/receive", {"max": 10})
        receipts = [each["receipt"] for each in answer["messages"]]
        service.ask("POST", "/topics/orders/groups/g/ack", {"receipts": receipts})
        assert "1 topics: 0 findings." in repaired(data, "--dry-run")
        revoked = service.ask("POST", "/tokens", {"name": "leaked", "scopes": ["consume"]})
    engine = Engine(data / "engine.db")
    log = Client(engine)
    for row in log.scan(TableName="headrace-log")["Items"]:
        log.delete_item(TableName="headrace-log", Key={"s": row["s"], "o": row["o"]})
    engine.close()

    line = "orders/0 (g): the log ends below the cursor, offsets 0-2"
    looked = repaired(data, "--dry-run")
    assert line in looked
    assert "Would write 2 write units." in looked
    done = repaired(data, "--since", "2100-01-01T00:00:00Z", "--revoke-all-but", "me")
    assert line in done
    assert "Revoked 1 tokens." in done
    assert "The audit trail has no change since then." in done
    with on(data) as service:
        assert [each["id"] for each in service.ask("GET", "/tokens")["items"]] == ["me"] != [revoked["id"]]
        service.ask("POST", "/topics/orders/messages", {"body": "after the repair"})
        assert received(service) == ["after the repair"]
