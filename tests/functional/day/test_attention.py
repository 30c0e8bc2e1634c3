"""Each state in which work waits for a person is found, shown and reported, and is gone when the person has acted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from chalicelib import settings
from chalicelib.adapters import dynamo_adapters
from chalicelib.delivery.addresses import Rules
from chalicelib.delivery.egress import Egress
from chalicelib.delivery.functions import LocalFunctions
from chalicelib.delivery.sender import Sender
from chalicelib.domain.attention import RULES, Kind
from chalicelib.domain.errors import Unavailable, unavailable
from tests.functional.day.conftest import STAGE, Told, log_to_stdout, pushed
from tests.functional.delivery.receivers import Receiver, http_receiver
from tests.support.aws_answers import bytes_answer
from tests.support.browser import Browser
from tests.support.day import World, a_world
from tests.support.http import Topic
from tests.support.roles import Guard, at_work

MINUTE = 60
NOWHERE = "https://subscriber.example/hook"


@dataclass
class Stage:
    """A stage whose functions are called as their schedules do, each with its role, and the mails that it sends."""

    world: World
    receiver: Receiver
    told: Told
    mails: list[tuple[str, str]] = field(default_factory=list)
    refuses: bool = False

    def mail(self, subject: str, text: str) -> None:
        if self.refuses:
            raise unavailable("SNS does not answer")
        self.mails.append((subject, text))

    def minutes(self, count: int) -> None:
        for _ in range(count):
            self.world.clock.advance(MINUTE)
            self.world.call("sweep")

    def attention(self, token: str | None = None) -> list[Any]:
        api = self.world.api.with_token(token) if token else self.world.api
        pages = api.pages("/v1/attention", 2)
        return [state for page in pages for state in page]


@pytest.fixture
def stage(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Stage]:
    log_to_stdout()
    with ExitStack() as stack:
        guard = Guard()
        world = stack.enter_context(a_world(guard, tmp_path))
        receiver = stack.enter_context(http_receiver())
        rules = Rules(allow_loopback=True)
        egress = Egress(rules=rules, monotonic=time.monotonic, resolve=lambda host: ("1.1.1.1",))
        stack.callback(egress.close)
        sender = Sender(
            egress=egress,
            functions=LocalFunctions(None),
            clock=world.clock,
            real_clock=world.clock,
            monotonic=time.monotonic,
            origin="headrace.local",
            may_ask=lambda host: False,  # no host is called that is not on this machine
        )
        stage = Stage(world, receiver, Told(lambda: capsys.readouterr().out))
        world.adapters = replace(world.adapters, stage=STAGE, mail=stage.mail, sender=lambda: sender)
        yield stage
        assert guard.denied == []


Fix = Callable[[], object]


def disabled(stage: Stage) -> tuple[str, Fix]:
    topic = pushed(stage.world, stage.receiver.url)
    stage.receiver.status = 410
    topic.produce("x")
    stage.world.wake(topic)
    stage.receiver.status = 200
    consumer = f"{topic.path}/groups/g/consumers/c"
    return f"{topic.name}/g/c", lambda: stage.world.api.put(consumer, {"url": stage.receiver.url}).expect(200)


def pending(stage: Stage) -> tuple[str, Fix]:
    topic = pushed(stage.world, NOWHERE)
    for _ in range(63):
        stage.world.clock.advance(MINUTE)
        stage.world.call("assign")
    return f"{topic.name}/g/c", lambda: stage.world.api.delete(f"{topic.path}/groups/g/consumers/c").expect(
        204
    )


def circuit_open(stage: Stage) -> tuple[str, Fix]:
    topic = stage.world.api.topic(shards=1, retry={"max_attempts": 100, "ladder": [5]})
    group = topic.group(batch_size=1)
    stage.world.api.put(f"{group.path}/consumers/c", {"url": stage.receiver.url}).expect(201)
    stage.receiver.status = 503
    for _ in range(12):
        topic.produce("x")
    stage.world.wake(topic)
    for _ in range(12):
        stage.world.later(topic, MINUTE)
    stage.receiver.status = 200
    return f"{topic.name}/g/c", lambda: stage.world.later(topic, 6 * MINUTE)


def no_consumers(stage: Stage) -> tuple[str, Fix]:
    topic = stage.world.api.topic(shards=1)
    group = topic.group()
    topic.produce("x")
    stage.world.wake(topic)
    stage.minutes(10)
    return f"{topic.name}/g", lambda: group.register("me")


def undecided(stage: Stage) -> tuple[str, Fix]:
    topic = stage.world.api.topic()
    body = {"message": {"body": 1}, "check_after_seconds": 60}
    prepared = stage.world.api.post(f"{topic.path}/transactions", body).expect(201)
    stage.world.later(topic, 20 * MINUTE)
    commit = f"/v1/transactions/{prepared['transaction_id']}/commit"
    return topic.name, lambda: stage.world.api.post(commit).expect(200)


def backlog(stage: Stage) -> tuple[str, Fix]:
    topic = stage.world.api.topic(shards=1, alarm_backlog=1)
    group = topic.group()
    group.register("me")
    topic.batch([{"body": n} for n in range(3)])
    return f"{topic.name}/g", lambda: group.ack(*group.receive())


def schedule_stopped(stage: Stage) -> tuple[str, Fix]:
    api = stage.world.api
    api.topic()
    topic = api.topic()
    times = {"topic": topic.name, "message": {"body": 1}, "cron": "@daily"}
    api.put("/v1/schedules/daily", times).expect(201)
    api.delete(f"{topic.path}?confirm={topic.name}").expect(204)
    stage.world.call("expire")
    return "daily", lambda: api.delete("/v1/schedules/daily").expect(204)


def _lost(stage: Stage, *, is_gone: bool) -> tuple[str, Fix]:
    """A dead letter is reported to a destination that does not take it."""
    alerts = stage.world.api.topic(max_body_bytes=1)
    group = stage.world.api.topic(shards=1).group()
    stage.world.api.put(group.path, {"on_dead": {"topic": alerts.name}}).expect(200)
    if is_gone:
        stage.world.api.delete(f"{alerts.path}?confirm={alerts.name}").expect(204)
    group.topic.produce("x")
    group.nack(*group.receive(), dead_letter=True)
    stage.world.call("mover")
    return f"{group.topic.name}/{group.name}", lambda: stage.world.clock.advance(24 * 60 * MINUTE)


def not_proved(stage: Stage) -> tuple[str, Fix]:
    now = datetime.fromtimestamp(stage.world.clock.now_ms() / 1_000, UTC)

    def archive(days_ago: int, until_hour: int) -> None:
        day = f"{now - timedelta(days=days_ago):%Y-%m-%d}"
        manifest = {
            "day": day,
            "until_hour": until_hour,
            "tables": {},
            "written_ms": 2 * stage.world.clock.now_ms(),
        }
        stage.world.objects[f"archive/manifests/{day}.json"] = json.dumps(manifest).encode()

    def prove() -> None:
        archive(1, 24)
        stage.world.call("expire")

    stage.world.api.topic()
    archive(1, 9)
    archive(5, 24)
    stage.world.call("expire")
    return "the stage", prove


def over_budget(stage: Stage) -> tuple[str, Fix]:
    topic = stage.world.api.topic(budget_usd=0.01)
    month = f"{datetime.fromtimestamp(stage.world.clock.now_ms() / 1_000, UTC):%Y-%m}"
    uid = stage.world.deps.catalog.topic(topic.name).uid
    stage.world.adapters.token_buckets.spend(f"spent#{uid}#{month}", 10**7, 2**31)
    topic.produce("x")
    stage.world.wake(topic)
    return topic.name, lambda: stage.world.api.put(topic.path, {"budget_usd": 5}).expect(200)


SCENES: dict[Kind, Callable[[Stage], tuple[str, Fix]]] = {
    Kind.DISABLED: disabled,
    Kind.PENDING: pending,
    Kind.CIRCUIT_OPEN: circuit_open,
    Kind.NO_CONSUMERS: no_consumers,
    Kind.UNDECIDED: undecided,
    Kind.BACKLOG: backlog,
    Kind.DESTINATION_GONE: partial(_lost, is_gone=True),
    Kind.REFUSED: partial(_lost, is_gone=False),
    Kind.NOT_PROVED: not_proved,
    Kind.BUDGET: over_budget,
    Kind.SCHEDULE_STOPPED: schedule_stopped,
}


SHOWN: dict[Kind, tuple[str, str]] = {
    Kind.DISABLED: ("c is disabled since", "Register it again"),
    Kind.PENDING: ("c has not agreed to be called since", "Register it again"),
    Kind.CIRCUIT_OPEN: ("c answers 503 since", "Test"),
    Kind.NO_CONSUMERS: (RULES[Kind.NO_CONSUMERS].what, "Register a consumer"),
    Kind.UNDECIDED: (RULES[Kind.UNDECIDED].what, "Decide"),
    Kind.BACKLOG: ("over the alarm", ""),
    Kind.DESTINATION_GONE: (RULES[Kind.DESTINATION_GONE].what, ""),
    Kind.REFUSED: (RULES[Kind.REFUSED].what, ""),
    Kind.NOT_PROVED: (RULES[Kind.NOT_PROVED].what, ""),
    Kind.BUDGET: (RULES[Kind.BUDGET].what, ""),
    Kind.SCHEDULE_STOPPED: (f"daily: {RULES[Kind.SCHEDULE_STOPPED].what}", ""),
}
"""What the overview says of each state, and the button that it offers."""


def stopped(stage: Stage, place: str) -> list[str]:
    """Why consumers of a group are stopped, as it shows them and the stats of its topic count them."""
    topic = Topic(stage.world.api, place.partition("/")[0])
    consumers = stage.world.api.get(f"{topic.path}/groups/g").expect(200)["stopped_consumers"]
    assert all(each["consumer"] == "c" and each["why"] for each in consumers)
    assert topic.counts()["stopped_consumers"] == len(consumers)
    return [each["state"] for each in consumers]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_state_is_found_shown_and_reported_until_a_person_has_acted(stage: Stage, kind: Kind) -> None:
    place, fix = SCENES[kind](stage)
    stage.minutes(2)
    is_consumer = place.endswith("/c")
    assert not is_consumer or stopped(stage, place) == [kind]
    (state,) = stage.attention()
    rule, names = RULES[kind], [state["topic"], state["group"], state["consumer"]]
    assert (state["kind"], state["what"], state["to_do"]) == (kind, rule.what, rule.to_do)
    assert ("/".join(name for name in names if name) or "the stage") == place
    stage.told.read()
    assert stage.told.stage("Attention")[-1] == 1
    assert stage.told.events("attention")[-1][kind] == 1
    assert [line["kind"] for line in stage.told.events("needs attention")] == [kind]
    ((subject, text),) = stage.mails
    assert subject == "1 state needs attention"
    assert f"{place}: {rule.what}" in text
    assert rule.to_do in text
    browser = Browser(stage.world.api.gateway)
    browser.enter(str(stage.world.api.token))
    english = browser.get("/console/").text
    sentence, button = SHOWN[kind]
    assert english.index("A person must act.") < english.index(sentence) < english.index("Backlog")
    assert button in english.partition(sentence)[2].partition("Backlog")[0]
    chinese = browser.get("/console/", accept_language="zh").text
    assert "需要人工处理" in chinese
    assert sentence not in chinese
    fix()
    assert not is_consumer or stopped(stage, place) == []
    stage.minutes(2)
    assert stage.attention() == []
    assert "A person must act." not in browser.get("/console/").text


def test_a_report_comes_when_a_state_begins_and_every_30_minutes_while_there_is_one(stage: Stage) -> None:
    first, _ = backlog(stage)
    stage.minutes(29)
    assert len(stage.mails) == 1
    stage.minutes(4)
    assert len(stage.mails) == 2
    second, _ = backlog(stage)
    stage.minutes(7)
    assert len(stage.mails) == 3
    subject, text = stage.mails[-1]
    assert subject == "2 states need attention"
    assert first in text
    assert f"{second}: {RULES[Kind.BACKLOG].what} (3 messages)" in text


def test_a_report_that_is_refused_is_sent_in_the_next_minute(stage: Stage) -> None:
    backlog(stage)
    stage.refuses = True
    stage.minutes(3)
    assert stage.told.read().events("attention not reported")
    stage.refuses = False
    stage.minutes(1)
    assert len(stage.mails) == 1


def test_a_token_sees_the_states_of_its_topics_and_groups(stage: Stage) -> None:
    place, _ = disabled(stage)
    not_proved(stage)
    undecided_topic, _ = undecided(stage)
    stage.minutes(2)
    topic = place.partition("/")[0]

    def seen(**fields: Any) -> list[str]:
        token = stage.world.api.new_token("consume", **fields)
        return [state["kind"] for state in stage.attention(token["token"])]

    assert sorted(seen()) == [Kind.DISABLED, Kind.NOT_PROVED, Kind.UNDECIDED]
    assert seen(topics=[topic]) == [Kind.DISABLED]
    assert seen(topics=[topic], groups=["other"]) == []
    assert seen(topics=[undecided_topic], groups=["other"]) == [Kind.UNDECIDED]


def test_a_stage_with_nothing_to_report_reads_and_writes_nothing_for_it(stage: Stage) -> None:
    guard_before = stage.world.adapters.rounds.bookmark("attention")
    stage.minutes(3)
    assert stage.world.adapters.rounds.bookmark("attention") == guard_before
    assert stage.mails == []
    assert stage.told.read().stage("Attention") == []


def test_a_report_goes_to_the_topic_of_the_stages_alarms() -> None:
    arn, requests = "arn:aws:sns:us-east-1:000000000000:s-alarms", list[dict[str, list[str]]]()

    def answer(request: Any, **_: Any) -> Any:
        requests.append(parse_qs(request.body if isinstance(request.body, str) else request.body.decode()))
        is_first = len(requests) == 1
        return bytes_answer(
            request,
            b"<PublishResponse><PublishResult/></PublishResponse>" if is_first else b"<Error/>",
            200 if is_first else 400,
        )

    def attach(client: Any) -> None:
        client.meta.events.register("before-send.sns", answer)

    environment = {"HEADRACE_PREFIX": "s", "HEADRACE_ALARM_TOPIC": arn}
    mail = dynamo_adapters(settings.read(environment), on_client=attach).mail
    with at_work("sweep"):
        mail("1 state needs attention", "orders/mailer")
        with pytest.raises(Unavailable):
            mail("1 state needs attention", "orders/mailer")
    assert (requests[0]["TopicArn"], requests[0]["Message"]) == ([arn], ["orders/mailer"])
    assert requests[0]["Subject"] == ["s: 1 state needs attention"]


def test_an_event_is_sent_once_when_a_state_begins(stage: Stage) -> None:
    alerts = stage.world.api.topic()
    stage.world.api.put("/v1/events", {"topic": alerts.name}).expect(200)
    place, _ = disabled(stage)
    (entry,) = stage.world.api.get("/v1/audit?token=service").expect(200)["items"]
    assert (entry["object"], entry["result"]) == (f"consumer {place}", "DISABLED")
    stage.minutes(3)
    stage.world.call("mover")
    [event] = stage.world.api.get(f"{alerts.path}/messages").expect(200)["items"]
    assert event["headers"]["ce-type"] == event["tag"] == "headrace.consumer.disabled"
    told = event["body"]
    assert f"{told['topic']}/{told['group']}/{told['consumer']}" == place
