"""Every function does its work with its own role, and no role allows what the work does not need."""

from __future__ import annotations

from pathlib import Path

from infra import names
from tests.functional.day.conftest import Day, pushed
from tests.functional.delivery.receivers import Receiver
from tests.support.day import a_world
from tests.support.roles import BUCKET, PREFIX, Guard

FAILURES = names.failures(PREFIX)

TWIN = {names.API_URL: names.API, names.RECEIVE_URL: names.RECEIVE}
"""The day's calls come by the URLs; the REST API's functions do the same."""

SELDOM = {
    # Many writers on one shard: offsets are then counted.
    ("check", "dynamodb:UpdateItem", "log"),
    ("mover", "dynamodb:UpdateItem", "log"),
    # A reserved offset whose writer died is closed by the next reader.
    ("deliver", "dynamodb:PutItem", "log"),
    ("expire", "dynamodb:PutItem", "log"),
    ("sweep", "dynamodb:PutItem", "log"),
    # A lease in a retry lane that ran out held messages of several shards.
    ("expire", "dynamodb:BatchWriteItem", "traces"),
    # A dead letter whose message retention took while it was under way is only counted.
    ("deliver", "dynamodb:UpdateItem", "records"),
    # A job whose time ends before its work starts itself again.
    ("checkpoint", "lambda:InvokeFunction", "checkpoint"),
    ("expire", "lambda:InvokeFunction", "expire"),
    # Two runs do not agree on whether a subscriber's circuit is open: in a broadcast that skips it goes to the end.
    ("deliver", "dynamodb:GetItem", "log"),
    ("deliver", "dynamodb:UpdateItem", "log"),
    # The daily check meets a failed delivery, or a dead record without a dead letter.
    ("checkpoint", "dynamodb:GetItem", "records"),
    ("checkpoint", "dynamodb:GetItem", "timers"),
    ("checkpoint", "dynamodb:Query", "traces"),
    ("checkpoint", "dynamodb:GetItem", "control#topics"),
    # It looks at a shard a month.
    ("checkpoint", "dynamodb:GetItem", "cursors"),
    ("checkpoint", "dynamodb:Query", "records"),
    # Who goes to the end of a shard that was quiet for a day stores where that is.
    ("assign", "dynamodb:UpdateItem", "log"),
    # The tail of an empty shard is asked for, and a producer appends to it at that moment.
    ("sweep", "dynamodb:GetItem", "log"),
    # A lost wake-up was for a retry lane.
    ("sweep", "dynamodb:GetItem", "control#topic#*"),
    # The archive is proved again, after days in which it was not.
    ("expire", "dynamodb:DeleteItem", "rounds"),
    # Subscribers of this day are on loopback, where no handshake is needed.
    ("assign", "dynamodb:GetItem", "rates#handshakes#*"),
    ("assign", "dynamodb:UpdateItem", "rates#handshakes#*"),
    ("check", "dynamodb:GetItem", "rates#handshakes#*"),
    ("check", "dynamodb:UpdateItem", "rates#handshakes#*"),
    ("deliver", "dynamodb:GetItem", "rates#handshakes#*"),
    ("deliver", "dynamodb:UpdateItem", "rates#handshakes#*"),
    # A run that time ends keeps its place.
    ("assign", "dynamodb:PutItem", "rounds"),
    # Who appends to a shard that was quiet for a day asks the cursors where it ends.
    ("check", "dynamodb:GetItem", "cursors"),
    ("mover", "dynamodb:GetItem", "cursors"),
    # A commit behind the time for which a message's keys were noted when it was prepared notes them once more.
    ("check", "dynamodb:PutItem", "keys"),
    ("check", "dynamodb:BatchWriteItem", "keys"),
    # A destination has a rate limit; the schedule finds what is to be told; a state begins or ends that is told.
    ("mover", "dynamodb:GetItem", "rates"),
    ("mover", "dynamodb:UpdateItem", "rates"),
    ("expire", "dynamodb:PutItem", "timers"),
    # A schedule waits for a message that was claimed; a schedule that had stopped is stored anew.
    ("mover", "dynamodb:Query", "records"),
    (names.API, "dynamodb:DeleteItem", "rounds"),
    ("expire", "sqs:SendMessage", "wakes"),
    ("sweep", "dynamodb:GetItem", "control#events"),
    ("sweep", "dynamodb:PutItem", "timers"),
    # On this day nothing is archived yet, and no body is missing.
    (names.API, "s3:GetObject", "bucket/archive/manifests/*"),
    (names.API, "s3:GetObject", "bucket/archive/proved.json"),
    (names.API, "s3:GetObject", "bucket/reports/hours/*"),
    (names.API, "s3:ListBucket", "bucket"),
    ("deliver", "s3:ListBucket", "bucket"),
    # A receive settles and claims as a run of `deliver` does; see there.
    ("receive", "dynamodb:GetItem", "log"),
    ("receive", "dynamodb:PutItem", "log"),
    ("receive", "dynamodb:UpdateItem", "log"),
    ("receive", "dynamodb:UpdateItem", "records"),
    ("receive", "dynamodb:BatchWriteItem", "traces"),
    ("receive", "s3:ListBucket", "bucket"),
    # What it buries may be sent on, by a timer.
    ("receive", "dynamodb:PutItem", "timers"),
    ("receive", "sqs:SendMessage", "wakes"),
}


def told(function: str, action: str, resource: str) -> tuple[str, str, str]:
    """A table, a function or a folder of the bucket by its own name."""
    place = resource.rpartition(":")[2].removeprefix("table/").replace(BUCKET, "bucket")
    return function, action, place.removeprefix(f"{PREFIX}-")


def test_roles_allow_what_the_work_needs_and_nothing_else(day: Day) -> None:
    assert day.denied == ()
    assert day.callers == {"deliver", "check"}, "who may make tokens calls nobody"
    used_rights = {told(TWIN.get(function, function), *args) for function, args in day.used}
    used_rights |= {(n, a, place.partition("#")[0]) for n, a, place in used_rights if n == names.API}
    allowed_rights = {
        told(*each)
        for each in day.guard.grants()
        if each[1].startswith(("dynamodb:", "lambda:", "glue:", "kms:", "s3:", "sqs:Send"))
        and not each[2].endswith(FAILURES)
        and not any(
            part.endswith(names.SLOW) for part in each
        )  # it has the role of `deliver`, and is started by the same
    }
    of_rest = {each for each in allowed_rights if each[0] not in TWIN}
    assert of_rest - used_rights <= SELDOM <= of_rest
    of_urls = {(TWIN[each[0]], *each[1:]) for each in allowed_rights - of_rest}
    of_parts, of_whole = (
        {(name, action, place.partition("#")[0]) for name, action, place in rights}
        for rights in (of_urls, of_rest)
    )
    knows_tokens = {
        ("receive", "dynamodb:GetItem", "control#tokens"),
        ("receive", "dynamodb:PutItem", "control#used"),
    }
    assert {each for each in of_urls if each[0] == names.RECEIVE} <= of_rest | knows_tokens
    assert {each for each in of_parts if each[0] == names.API and "kms:" not in each[1]} <= of_whole


def test_the_sweep_may_wake_a_retry_lane_whose_wake_up_was_lost(
    engine: str, tmp_path: Path, receiver: Receiver
) -> None:
    guard = Guard()
    with a_world(guard, tmp_path) as world:
        topic = pushed(world, receiver.url, retry={"max_attempts": 3, "ladder": [5]})
        receiver.status = 500
        topic.produce("x")
        world.wake(topic)
        world.clock.advance(10)
        world.call("mover")
        world.inbox.asked.clear()
        world.clock.advance(60)
        assert world.call("sweep")["woken"] == 1
        assert guard.denied == []
