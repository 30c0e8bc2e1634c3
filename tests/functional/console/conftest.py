"""The console on the same service as the API's tests: a browser that is signed in as admin."""

from __future__ import annotations

import pytest

from tests.support.browser import Browser
from tests.support.http import Client


@pytest.fixture
def browser(api: Client) -> Browser:
    """A browser that is signed in with the admin token."""
    browser = Browser(api.gateway)
    assert browser.sign_in(str(api.token)).status == 200
    return browser


@pytest.fixture
def stranger(api: Client) -> Browser:
    """A browser that is not signed in."""
    return Browser(api.gateway)
