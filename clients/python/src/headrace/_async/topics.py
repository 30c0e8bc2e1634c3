"""Topics, the service itself, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..calls import DOCS, Call, given, path
from ..durations import rfc3339
from ..models import (
    Archive,
    AsOf,
    Attention,
    AuditEntry,
    Due,
    Events,
    Health,
    Ladder,
    Made,
    Purged,
    Rates,
    SigningKey,
    SignInLink,
    Token,
    Topic,
    TopicStats,
)
from ..models.settings import TopicFields, Unpack
from .caller import AsyncCaller
from .pager import AsyncPager


class AsyncTopics(AsyncCaller):
    """Topics, the service itself, tokens."""

    async def put_topic(self, topic: str, **settings: Unpack[TopicFields]) -> Topic:
        """Create a topic, or change the settings that are given (docs/settings.md)."""
        return await self._ask(Topic, "PUT", path("topics", topic), settings)

    async def get_topic(self, topic: str) -> Topic:
        """A topic's settings, and what is in it."""
        return await self._ask(Topic, "GET", path("topics", topic))

    def list_topics(self, *, limit: int | None = None) -> AsyncPager[Topic]:
        """Topics by name, those the token may use."""
        return self._list(Topic, path("topics"), limit=limit)

    async def get_rates(self, topic: str, window: str = "1h") -> Rates:
        """How fast messages came in and were settled, and how far groups were behind: 1h, 24h or 7d."""
        return await self._ask(Rates, "GET", path("topics", topic, "rates"), window=window)

    async def get_due(self, topic: str, *, begin: datetime | str | None = None) -> Due:
        """How much is due when, by the hour, from `begin` on (without: all that waits)."""
        query: dict[str, Any] = {"from": rfc3339(begin) if begin is not None else None}
        return await self._ask(Due, "GET", path("topics", topic, "due"), **query)

    async def get_as_of(self, topic: str, at: datetime | str) -> AsOf:
        """The topic as it was at the last full hour up to `at`, from the archive. Raises NotFound where that was not
        counted."""
        return await self._ask(AsOf, "GET", path("topics", topic, "as-of"), at=rfc3339(at))

    async def delete_topic(self, topic: str, *, confirm: str) -> None:
        """Delete a topic with its groups and messages; `confirm` repeats its name. Takes some three seconds."""
        await self._delete(path("topics", topic), confirm=confirm)

    async def purge_topic(self, topic: str, *, confirm: str) -> Purged:
        """Drop what all groups are owed at this moment, and cancel what is delayed; `confirm` repeats the topic's name.
        Prepared messages and dead letters stay."""
        return await self._ask(Purged, "POST", path("topics", topic, "purge"), {"confirm": confirm})

    def stats(self, *, limit: int | None = None) -> AsyncPager[TopicStats]:
        """Counts per topic and group."""
        return self._list(TopicStats, path("stats"), limit=limit)

    def list_attention(self, *, limit: int | None = None) -> AsyncPager[Attention]:
        """The states in which work waits for a person, by topic."""
        return self._list(Attention, path("attention"), limit=limit)

    async def health(self) -> Health:
        """Can every table be read? Unavailable where one cannot."""
        return await self._ask(Health, "GET", path("health"))

    async def preview_ladder(
        self,
        name: str,
        *,
        max_attempts: int | None = None,
        base_seconds: int | None = None,
        factor: float | None = None,
        cap_seconds: int | None = None,
    ) -> Ladder:
        """The steps of a ladder, and the waits that so many attempts make of them."""
        query = given(
            max_attempts=max_attempts, base_seconds=base_seconds, factor=factor, cap_seconds=cap_seconds
        )
        return await self._ask(Ladder, "GET", path("ladders", name), **query)

    async def openapi_document(self) -> dict[str, Any]:
        """The interface as OpenAPI 3.1."""
        return await self._ask(dict[str, Any], "GET", path("openapi.json"))

    async def docs(self) -> str:
        """The interface as an HTML page."""
        return (await self._transport.send(Call("GET", DOCS))).decode()

    async def create_token(
        self,
        name: str,
        scopes: list[str],
        *,
        topics: list[str] | None = None,
        groups: list[str] | None = None,
        jobs: list[str] | None = None,
        expires_in_days: int | None = None,
        rate_limit: int | None = None,
        most_urgent: int | None = None,
        tenant: str | None = None,
    ) -> Token:
        """Make a token; its text is shown this once. `rate_limit`: calls a second; `most_urgent`: the lowest
        priority that it may give. Not repeated after a lost answer: look into the list."""
        body = given(name=name, scopes=scopes, topics=topics, groups=groups, jobs=jobs)
        body |= given(
            expires_in_days=expires_in_days, rate_limit=rate_limit, most_urgent=most_urgent, tenant=tenant
        )
        return await self._ask(Token, "POST", path("tokens"), body, repeatable=False)

    def list_tokens(self, *, limit: int | None = None) -> AsyncPager[Token]:
        """Tokens, without their texts."""
        return self._list(Token, path("tokens"), limit=limit)

    def list_audit(
        self,
        *,
        topic: str | None = None,
        token: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncPager[AuditEntry]:
        """Who changed what, the newest first, of the last 90 days; `token` is a token's id."""
        bounds = {"from": since and rfc3339(since), "to": until and rfc3339(until)}
        return self._list(AuditEntry, path("audit"), limit=limit, topic=topic, token=token, **bounds)

    async def get_archive(
        self,
        *,
        to: str | None = None,
        topic: str | None = None,
        limit: int | None = None,
        page_token: str | None = None,
    ) -> Archive:
        """What is archived of each day: `limit` days back from the day `to` ("2030-01-01"; today), UTC."""
        place = path("archive")
        return await self._ask(Archive, "GET", place, to=to, topic=topic, limit=limit, page_token=page_token)

    async def create_sign_in_link(self) -> SignInLink:
        """A link that signs a browser in to the console with this token: once, within a minute."""
        return await self._ask(SignInLink, "POST", path("sign-in-links"), {}, repeatable=False)

    async def rotate_token(self, id: str, *, overlap_seconds: int | None = None) -> Token:
        """Give a token a new text, shown this once; the old one stays good for the overlap (default: a day)."""
        body = given(overlap_seconds=overlap_seconds)
        return await self._ask(Token, "POST", path("tokens", id, "rotate"), body, repeatable=False)

    async def rotate_signing_key(self, *, overlap_seconds: int | None = None) -> SigningKey:
        """Sign receipts and page tokens with a new key; those of the one before stay good for the overlap (default: a
        day)."""
        body = given(overlap_seconds=overlap_seconds)
        return await self._ask(SigningKey, "POST", path("signing-key", "rotate"), body, repeatable=False)

    async def delete_token(self, id: str, *, stop: bool = False) -> None:
        """Revoke a token; felt everywhere within 30 seconds. `stop`: also pause the schedules, and remove the push
        consumers, that were made with it, even if it was revoked before."""
        await self._delete(path("tokens", id), stop="true" if stop else None)

    async def get_made(self, id: str) -> Made:
        """What a token has made that goes on without it, also after it was revoked."""
        return await self._ask(Made, "GET", path("tokens", id, "made"))

    async def put_events(self, topic: str, *, types: Sequence[str] | None = None) -> Events:
        """Send operational events to a topic: those of these types, or of all."""
        return await self._ask(Events, "PUT", path("events"), given(topic=topic, types=types))

    async def get_events(self) -> Events:
        """The topic that gets operational events, and their types."""
        return await self._ask(Events, "GET", path("events"))

    async def delete_events(self) -> None:
        """Send no operational events any more."""
        await self._delete(path("events"))
