"""The console on the same service as the API's tests: a browser that is signed in as admin.

And a scene in memory, for what holds on every page: it costs milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

import app
from chalicelib import wiring
from chalicelib.console import actions
from chalicelib.domain.transaction import TransactionState
from local.clock import ClockController, HandClock
from local.functions import Invocations
from local.gateway import Gateway
from tests.browser import pages
from tests.browser.scene import ORDERS, play
from tests.functional.conftest import FUNCTIONS, ORIGIN
from tests.support.browser import Browser, Screen
from tests.support.clock import SeededRandom
from tests.support.embedded import embedded_adapters
from tests.support.http import Client, ShiftingClock
from tests.support.push import Inbox
from tests.support.senders import sending


@pytest.fixture
def browser(api: Client) -> Browser:
    """A browser that is signed in with the admin token."""
    browser = Browser(api.gateway)
    browser.enter(str(api.token))
    return browser


@pytest.fixture
def stranger(api: Client) -> Browser:
    """A browser that is not signed in."""
    return Browser(api.gateway)


@dataclass(frozen=True)
class _Service:
    """Calls of a client that must succeed."""

    client: Client

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        reply = self.client.call(method, f"/v1{path}", {} if body is None else body)
        assert reply.status < 300, reply.raw
        return reply.json if reply.raw else None


@dataclass(frozen=True)
class Scene:
    """Something on every page, and a browser that is signed in."""

    client: Client
    browser: Browser
    paths: dict[str, str]

    def screens(self) -> Iterator[tuple[str, Screen]]:
        """Every page by its name, and what a preview shows."""
        for name, path in self.paths.items():
            screen = self.browser.get(f"/{path}")
            assert screen.status == 200, (name, screen.text)
            yield name, screen
        for name, path, fields in (
            ("patch", self.paths["many-letters"], {"patch": '{"customer": null}'}),
            ("edit", self.paths["dead-letter"], {"body": '{"order": 1}'}),
        ):
            form = next(
                form for form in self.browser.get(f"/{path}").forms if form.fields.keys() >= fields.keys()
            )
            screen = self.browser.submit(form, **fields)
            assert screen.status == 200, (name, screen.text)
            yield name, screen


@pytest.fixture
def local_clock() -> Iterator[HandClock]:
    """The console has the local service's clock at hand."""
    with clock_at_hand() as clock:
        yield clock


@contextmanager
def clock_at_hand() -> Iterator[HandClock]:
    """The console's page of what comes later moves this clock, as on a local service."""
    clock = HandClock()
    controller = ClockController(
        clock=clock, deps=lambda: (_ for _ in ()).throw(AssertionError), invocations=Invocations({})
    )
    before = dict(actions._BY_NAME)
    actions.add_call(controller.call)
    yield clock
    actions._BY_NAME.clear()
    actions._BY_NAME.update(before)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """The scene of the pictures, and what it lacks: a paused group, a transaction."""
    clock = ShiftingClock()
    with sending(clock, ORIGIN, FUNCTIONS) as sender:
        deps = wiring.Deps(embedded_adapters(clock, SeededRandom(3), lambda: sender, Inbox()))
        deps.setup()
        with clock_at_hand(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(wiring, "deps", lambda: deps)
            client = Client(Gateway(app.app), deps.tokens.ensure_admin(None))
            service = _Service(client)
            paths = pages.paths(play(service))
            service.ask("POST", "/topics/clicks/groups/stats/pause")
            service.ask("POST", f"{ORDERS}/transactions", {"message": {"body": {"order": 1}}})
            service.ask("PUT", "/events", {"topic": "clicks"})
            service.ask("PUT", "/topics/payments/groups/ledger", {"callbacks": {"hosts": ["a.example.com"]}})
            for name in ("report", "paused"):
                timing = {"topic": "orders", "cron": "0 9 * * *", "message": {"body": 1}}
                service.ask("PUT", f"/schedules/{name}", timing)
            service.ask("POST", "/schedules/paused/pause")
            letters = service.ask("GET", f"{ORDERS}/groups/mailer/dead-letters")["items"]
            delayed_messages = service.ask("GET", "/topics/invoices/messages?status=DELAYED")["items"]
            [half] = deps.adapters.transactions.scan(deps.catalog.topic("orders"), TransactionState.PREPARED)
            undecided = replace(
                half, state=TransactionState.UNDECIDED, check_url="https://shop.example/checks"
            )
            deps.adapters.transactions.change(half, undecided)
            paths |= {
                "clicks": "console/topics/clicks",
                "dead-letter": f"{paths['dead-letters']}/{letters[0]['id']}",
                "since-mailer": f"{paths['group']}/consumers/worker-1",
                "waiting": f"console/topics/invoices/messages/{delayed_messages[0]['id']}",
                "schedules": "console/schedules",
                "schedule": "console/schedules/report",
                "paused": "console/schedules/paused",
                "ledger": "console/topics/payments/groups/ledger",
            }
            browser = Browser(client.gateway)
            assert browser.sign_in(str(client.token)).status == 200
            yield Scene(client, browser, paths)
