"""The console's pages: which function of which module here answers at a path. A module has one page, or a few that
belong together: their handlers, and what their templates show.

A module is imported with the first visit of its page: a function that starts imports this list alone.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..visit import Shown, Visit

_TOPIC = "/console/topics/{topic}"
_MESSAGE = f"{_TOPIC}/messages/{{id}}"
_GROUP = f"{_TOPIC}/groups/{{group}}"
_LETTERS = f"{_GROUP}/dead-letters"
_CONSUMER = f"{_GROUP}/consumers/{{consumer}}"


class Entry(NamedTuple):
    """A path of the console, and its handler as `module.function`. `open`: without a session. `bodies`: it shows them,
    which is for those who may consume."""

    method: str
    path: str
    name: str
    open: bool = False
    bodies: bool = False

    @property
    def handler(self) -> Callable[[Visit], Shown]:
        module, _, function = self.name.partition(".")
        handler: Callable[[Visit], Shown] = getattr(import_module(f"{__name__}.{module}"), function)
        return handler


PAGES = (
    Entry("GET", "/console", "overview.overview"),
    Entry("GET", "/console/find", "find.find", bodies=True),
    Entry("GET", _TOPIC, "topics.topic_page"),
    Entry("GET", f"{_TOPIC}/settings", "topics.topic_settings"),
    Entry("GET", f"{_TOPIC}/rates", "rates.rates"),
    Entry("GET", f"{_TOPIC}/send", "send.send"),
    Entry("POST", f"{_TOPIC}/send", "send.send"),
    Entry("GET", f"{_TOPIC}/messages", "messages.messages", bodies=True),
    Entry("GET", f"{_TOPIC}/messages.jsonl", "messages.message_lines", bodies=True),
    Entry("GET", f"{_TOPIC}/tail", "messages.tail", bodies=True),
    Entry("GET", _MESSAGE, "message.message", bodies=True),
    Entry("GET", f"{_MESSAGE}/fate", "message.message_fate", bodies=True),
    Entry("GET", f"{_TOPIC}/places/{{shard}}/{{offset}}", "message.place", bodies=True),
    Entry("GET", f"{_TOPIC}/later", "later.later", bodies=True),
    Entry("GET", f"{_TOPIC}/later/many", "later.many_later", bodies=True),
    Entry("GET", f"{_TOPIC}/transactions", "later.transactions"),
    Entry("GET", f"{_TOPIC}/many", "many.many", bodies=True),
    Entry("GET", f"{_TOPIC}/replays", "archive.replays"),
    Entry("GET", _GROUP, "groups.group_page"),
    Entry("GET", f"{_GROUP}/many", "many.many", bodies=True),
    Entry("GET", f"{_GROUP}/settings", "groups.group_settings"),
    Entry("GET", _LETTERS, "dead_letters.dead_letters", bodies=True),
    Entry("GET", f"{_LETTERS}.jsonl", "dead_letters.letter_lines", bodies=True),
    Entry("GET", f"{_LETTERS}/many", "dead_letters.many_letters", bodies=True),
    Entry("POST", f"{_LETTERS}/many", "dead_letters.many_letters", bodies=True),
    Entry("GET", f"{_LETTERS}/{{id}}", "dead_letters.dead_letter", bodies=True),
    Entry("POST", f"{_LETTERS}/{{id}}", "dead_letters.dead_letter", bodies=True),
    Entry("GET", _CONSUMER, "subscribers.subscriber"),
    Entry("POST", f"{_CONSUMER}/test", "subscribers.subscriber_test"),
    Entry("GET", "/console/try", "try_it.try_it"),
    Entry("POST", "/console/try", "try_it.begin_trying"),
    Entry("POST", "/console/try/take", "try_it.take"),
    Entry("GET", "/console/schedules", "schedules.schedules"),
    Entry("GET", "/console/schedules/{schedule}", "schedules.schedule"),
    Entry("GET", "/console/archive", "archive.archive"),
    Entry("GET", "/console/audit", "audit.audit"),
    Entry("GET", "/console/tokens", "audit.tokens"),
    Entry("GET", "/console/system", "system.system"),
    Entry("POST", "/console/do", "do.do_action"),
    Entry("GET", "/console/sign-in", "sign_in.sign_in_by_link", open=True),
    Entry("POST", "/console/sign-in", "sign_in.sign_in", open=True),
    Entry("POST", "/console/sign-out", "sign_in.sign_out"),
    Entry("POST", "/console/language", "sign_in.language", open=True),
    Entry("GET", "/console/static/{file}", "sign_in.static", open=True),
)
