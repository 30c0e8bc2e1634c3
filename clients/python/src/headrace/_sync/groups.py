"""Groups and consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ..calls import given, path
from ..durations import rfc3339
from ..models import Assignment, Attempts, Consumer, Group, GroupRatesOverTime, GroupWaiting, Purged, Tested
from ..models.settings import GroupFields, Unpack
from .caller import Caller, group_path
from .pager import Pager


class Groups(Caller):
    """Groups and consumers."""

    def put_group(
        self, topic: str, group: str, *, begin: datetime | str | None = None, **settings: Unpack[GroupFields]
    ) -> Group:
        """Create a group, or change the settings that are given. `begin` is the interface's `from`: "earliest",
        "latest" (default) or a time."""
        body = {**given(**{"from": rfc3339(begin) if begin is not None else None}), **settings}
        return self._ask(Group, "PUT", group_path(topic, group), body)

    def get_group(self, topic: str, group: str) -> Group:
        """A group's settings, its counts, and its place in each shard."""
        return self._ask(Group, "GET", group_path(topic, group))

    def list_groups(self, topic: str, *, limit: int | None = None) -> Pager[Group]:
        """The topic's groups, by name."""
        return self._list(Group, path("topics", topic, "groups"), limit=limit)

    def get_group_rates(self, topic: str, group: str, window: str = "1h") -> GroupRatesOverTime:
        """How fast the group settled and retried, and how far it was behind, also by shard: 1h, 24h or 7d."""
        return self._ask(
            GroupRatesOverTime, "GET", path("topics", topic, "groups", group, "rates"), window=window
        )

    def get_group_waiting(self, topic: str, group: str) -> GroupWaiting:
        """Who waits for what: of the first 1,000 messages or so that no consumer has, by ordering key."""
        return self._ask(GroupWaiting, "GET", group_path(topic, group, "waiting"))

    def delete_group(self, topic: str, group: str) -> None:
        """Delete a group with its consumers and positions. Takes some three seconds."""
        self._delete(group_path(topic, group))

    def pause_group(self, topic: str, group: str, *, until: datetime | str | None = None) -> Group:
        """Hand out no more messages until resumed, or until a time."""
        body = given(until=rfc3339(until) if until is not None else None)
        return self._ask(Group, "POST", group_path(topic, group, "pause"), body)

    def resume_group(self, topic: str, group: str) -> Group:
        """Hand out messages again."""
        return self._ask(Group, "POST", group_path(topic, group, "resume"), {})

    def seek_group(
        self,
        topic: str,
        group: str,
        to: datetime | str | int,
        *,
        shard: int | None = None,
        consumer: str | None = None,
    ) -> Group:
        """Send the group, or one `consumer` of a broadcast, to "earliest", "latest", a time or an offset; its open
        leases are void."""
        target = rfc3339(to) if isinstance(to, datetime) else to
        body = given(to=target, shard=shard, consumer=consumer)
        return self._ask(Group, "POST", group_path(topic, group, "seek"), body)

    def purge_group(self, topic: str, group: str, *, confirm: str, consumer: str | None = None) -> Purged:
        """Drop what the group is owed at this moment (in a broadcast, what a `consumer` is, or all of them): backlog,
        retries, leases. `confirm` repeats the group's name. Dead letters stay."""
        body = given(confirm=confirm, consumer=consumer)
        return self._ask(Purged, "POST", group_path(topic, group, "purge"), body)

    def get_assignment(self, topic: str, group: str) -> Assignment:
        """Who owns which shard, and why."""
        return self._ask(Assignment, "GET", group_path(topic, group, "assignment"))

    def put_consumer(
        self,
        topic: str,
        group: str,
        consumer: str,
        *,
        url: str | None = None,
        secret: str | None = None,
        function: str | None = None,
        timeout_seconds: int | None = None,
        headers: Mapping[str, str] | None = None,
        reject_statuses: Sequence[int] | None = None,
        transform: str | None = None,
        batch_wait_seconds: int | None = None,
        expires_after_seconds: int | None = None,
        instance: str | None = None,
        begin: datetime | str | None = None,
    ) -> Consumer:
        """Register a consumer: with a `url` or a `function` it is called, with neither it pulls. Only the first answer
        shows the secret that the service made for a `url`: without a `secret` of your own it is not repeated after a
        lost answer; `rotate_secret` makes another.

        A call may take `timeout_seconds` (1 to 840; 30 for a `url`). A batch waits `batch_wait_seconds` to be filled. A
        `url` gets `headers` with each message (None: those that it has; {}: none), and what the JMESPath expression
        `transform` makes of it; an answer with a status of `reject_statuses` makes it a dead letter at once.

        A consumer that pulls is removed after `expires_after_seconds` of silence (None: never). An `instance` takes the
        name over from the one before. A new consumer of a broadcast begins at `begin`, the interface's `from`:
        "earliest", "latest" (default) or a time."""
        url_path = group_path(topic, group, "consumers", consumer)
        body = given(
            url=url,
            secret=secret,
            function=function,
            timeout_seconds=timeout_seconds,
            headers=headers,
            reject_statuses=reject_statuses,
            transform=transform,
            batch_wait_seconds=batch_wait_seconds,
            expires_after_seconds=expires_after_seconds,
            instance=instance,
            **{"from": rfc3339(begin) if begin is not None else None},
        )
        makes_secret = url is not None and secret is None
        return self._ask(Consumer, "PUT", url_path, body, repeatable=not makes_secret)

    def get_consumer(self, topic: str, group: str, consumer: str) -> Consumer:
        """A consumer, its rank among those online, and its shards."""
        return self._ask(Consumer, "GET", group_path(topic, group, "consumers", consumer))

    def list_consumers(self, topic: str, group: str, *, limit: int | None = None) -> Pager[Consumer]:
        """The group's consumers, by name."""
        return self._list(Consumer, group_path(topic, group, "consumers"), limit=limit)

    def heartbeat(self, topic: str, group: str, consumer: str, *, instance: str | None = None) -> Consumer:
        """Stay online; the answer has rank, total and shards. Raises ConsumerTakenOver if a later instance has the
        name."""
        url_path = group_path(topic, group, "consumers", consumer, "heartbeat")
        return self._ask(Consumer, "POST", url_path, given(instance=instance))

    def rotate_secret(
        self, topic: str, group: str, consumer: str, *, overlap_seconds: int | None = None
    ) -> str:
        """A new signing secret; the old one signs, too, for the overlap (a day). Not repeated after a lost answer."""
        url_path = group_path(topic, group, "consumers", consumer, "rotate-secret")
        body = given(overlap_seconds=overlap_seconds)
        return (self._ask(dict[str, str], "POST", url_path, body, repeatable=False))["secret"]

    def rotate_callback_secrets(self, topic: str, group: str, *, overlap_seconds: int | None = None) -> Group:
        """New `callback_secrets` of the group, by host; the old ones sign, too, for the overlap (a day). Not repeated
        after a lost answer."""
        body = given(overlap_seconds=overlap_seconds)
        return self._ask(Group, "POST", group_path(topic, group, "rotate-secret"), body, repeatable=False)

    def get_attempts(self, topic: str, group: str, consumer: str, *, limit: int | None = None) -> Attempts:
        """The latest attempts at a consumer that is called, and how long they took."""
        url_path = group_path(topic, group, "consumers", consumer, "attempts")
        return self._ask(Attempts, "GET", url_path, limit=limit)

    def test_consumer(
        self,
        topic: str,
        group: str,
        consumer: str,
        *,
        message: Mapping[str, Any] | None = None,
        dry_run: bool = False,
        transform: str | None = None,
    ) -> Tested:
        """Send a test event to a consumer that is called; what was sent, and what came back. It is no message.

        A `message` (`body`, `keys`, `tag`, `headers`) is sent to a URL as the consumer would get it. With `dry_run`
        nothing is sent: the answer shows what would be, perhaps by another `transform`."""
        url_path = group_path(topic, group, "consumers", consumer, "test")
        body = given(message=message, dry_run=dry_run or None, transform=transform)
        return self._ask(Tested, "POST", url_path, body, repeatable=False)

    def delete_consumer(self, topic: str, group: str, consumer: str) -> None:
        """Leave the group; its shards go to the others at once."""
        self._delete(group_path(topic, group, "consumers", consumer))
