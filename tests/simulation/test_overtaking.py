"""No change is hidden by what another thread of the process read before it."""

from __future__ import annotations

import pytest

from chalicelib.services.consume.receive import Receiver
from chalicelib.services.core.catalog import Catalog
from chalicelib.services.core.cursor_store import CursorStore
from chalicelib.services.core.expiring_cache import TtlCache
from chalicelib.services.core.secrets import SigningKeys
from chalicelib.services.core.wake import Waker
from chalicelib.services.manage.tokens import Tokens
from tests.simulation.overtaking import SCENES, wrong
from tests.support.planting import Bug

BUGS: dict[str, tuple[str, tuple[Bug, ...]]] = {
    "a list of consumers that a slow router brings back": (
        "the first subscriber comes beside a router",
        (
            Bug(
                Catalog,
                "consumers",
                "call.keep([row for row in rows if not row.is_expired(now_ms)])",
                "rows; self._consumers.put(group.uid, rows)",
            ),
            Bug(  # otherwise a second wake-up makes up for it after seconds
                Waker,
                "wake_for",
                "if tasks or consumer.is_called:",
                "if tasks:",
            ),
        ),
    ),
    "a pause that a slow run brings back": (
        "a group is resumed beside a run",
        (
            Bug(Catalog, "group", "call.keep(group)", "self._groups.put(key, group)"),
            Bug(Waker, "wake_after_resumption", "self._wake_again(", "list("),  # likewise
        ),
    ),
    "a cursor of before a seek, kept after it": (
        "a group is sought beside a run",
        (
            Bug(
                CursorStore,
                "last",
                "call.keep(_snapshot(self.cursors.get(key)))",
                "self._seen.put(key, _snapshot(self.cursors.get(key)))",
            ),
            Bug(
                CursorStore,
                "preload",
                "call.keep(_snapshot(cursors.get(str(call.key.shard))))",
                "self._seen.put(call.key, _snapshot(cursors.get(str(call.key.shard))))",
            ),
        ),
    ),
    "two settlements at once, of which the earlier is believed": (
        "a message is given back beside an ack",
        (Bug(TtlCache, "replace", "if call.is_overtaken:", "if False:"),),
    ),
    "a lane that was empty before something was put there": (
        "a message is given back beside a receive",
        (
            Bug(
                Receiver,
                "_claim",
                "call.keep(claim.because)",
                "self.empty_lanes.put(claimant.key(None), claim.because)",
            ),
        ),
    ),
    "a revoked token that its use brings back": (
        "a token is revoked beside its use",
        (Bug(Tokens, "_find", "call.keep(token)", "self._known.put(token_id, token)"),),
    ),
    "a signing key that was rotated out, and signs on": (
        "a signing key is rotated beside its use",
        (
            Bug(
                SigningKeys,
                "_load_keys",
                "call.keep(_Ring(read_ms, plain))",
                'self._ring.put("", _Ring(read_ms, plain))',
            ),
        ),
    ),
}
"""With a scene that sees it."""


@pytest.mark.parametrize("name", SCENES)
def test_a_change_has_its_effect_whatever_another_thread_reads_beside_it(name: str) -> None:
    assert not list(wrong(SCENES[name])), "(reader stops after call, change stops after call)"


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    scene, bugs = BUGS[name]
    for bug in bugs:
        bug.plant(monkeypatch)
    assert any(wrong(SCENES[scene]))
