"""After the table `control` was restored: what was revoked since the backup is revoked again, by the audit trail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...domain.audit import AuditEntry
from ...domain.errors import HeadraceError, NotFound
from ...ports.world import Clock, Random
from ...store import Audit, Control
from ..core.catalog import Catalog
from ..core.secrets import SigningKeys
from .registry import Registry
from .tokens import Tokens

# The token's id in the entries of rotations that were made again; their source is the version of the row then.
BY = "repair"
_PAGE = 100
_ID_CHARS = 16


# From an entry, the names in its object, the version of the row after the last time (0: there was none) and whether
# only to look: what is left to do; None if there was nothing to do again.
Act = Callable[[AuditEntry, Sequence[str], int, bool], str | None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """An entry of the audit trail, and what becomes of it. `advice` is what is left to do; empty: nothing."""

    entry: AuditEntry
    done: bool
    advice: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReplay:
    """Revokes and rotates again. What was made again since, or is in order already, is left alone."""

    audit: Audit
    control: Control
    catalog: Catalog
    tokens: Tokens
    registry: Registry
    signing_keys: SigningKeys
    clock: Clock
    random: Random

    def since(self, at_ms: int, *, dry: bool) -> Iterator[Replayed]:
        """Each entry from a time on whose effect the restored table may lack, the oldest first."""
        until_ms = self.clock.now_ms() + 1
        entries = [each for each in self.audit.entries(at_ms, until_ms, None) if each.result == "OK"]
        versions: dict[tuple[str, str], int] = {}
        wanted: dict[tuple[str, str], AuditEntry] = {}
        for entry in entries:  # the newest first: the last rotation of a token is enough
            what = (f"{entry.method} {entry.path}", entry.object)
            if entry.token_id == BY:
                versions.setdefault(what, int(entry.source or 0))
            else:
                wanted.setdefault(what, entry)
        for what, entry in reversed(wanted.items()):
            yield self._replay(entry, versions.get(what, 0), dry)

    def revoke_all_but(self, token_id: str) -> int:
        """Revoke every token but one; how many. Raises NotFound if there is no such token."""
        if self.control.token(token_id) is None:
            raise NotFound("TOKEN_NOT_FOUND", f"There is no token {token_id}: no token was revoked.")
        count, after = 0, None
        while page := self.control.tokens(after, _PAGE):
            for token in page:
                if token.id != token_id:
                    self.tokens.revoke(token.id)
                    count += 1
            after = page[-1].id
        return count

    def _replay(self, entry: AuditEntry, version: int, dry: bool) -> Replayed:
        acts: dict[tuple[str, str], Act] = {
            ("DELETE", "/v1/tokens/{id}"): self._revoke,
            ("POST", "/v1/tokens/{id}/rotate"): self._rotate,
            ("DELETE", "/v1/topics/{topic}/groups/{group}/consumers/{consumer}"): self._remove,
            ("POST", "/v1/signing-key/rotate"): self._rotate_key,
        }
        act = acts.get((entry.method, entry.path))
        if act is None:
            return Replayed(entry, done=False, advice="look whether it is to be done again")
        names = entry.object.partition(" ")[2].split("/")
        try:
            advice = act(entry, names, version, dry)
        except HeadraceError as error:
            return Replayed(entry, done=False, advice=f"do it again ({error.detail})")
        return Replayed(entry, done=advice is not None, advice=advice or "")

    def _revoke(self, entry: AuditEntry, names: Sequence[str], version: int, dry: bool) -> str | None:
        token = self.control.token(names[0])
        if token is None or token.created_ms > entry.at_ms:
            return None
        if not dry:
            self.tokens.revoke(token.id)
        return ""

    def _rotate(self, entry: AuditEntry, names: Sequence[str], version: int, dry: bool) -> str | None:
        """The new text is shown to nobody: who rotates the token once more gets one."""
        token = self.control.token(names[0])
        if token is None or 0 < version <= token.version:
            return None
        if not dry:
            self.tokens.rotate(token.id, 0, None)
            row = self.control.token(token.id)
            self._note(entry, row.version if row else 0)
        return "rotate it once more, for a text that its holder can use"

    def _remove(self, entry: AuditEntry, names: Sequence[str], version: int, dry: bool) -> str | None:
        try:
            topic = self.catalog.topic(names[0], consistent=True)
            group = self.catalog.group(topic, names[1], consistent=True)
            consumer = self.registry.consumer_to_remove(topic, group, names[2])
        except NotFound:
            return None
        if consumer.created_ms > entry.at_ms:
            return None
        if not dry:
            self.registry.unregister(topic, group, consumer)
        return ""

    def _rotate_key(self, entry: AuditEntry, names: Sequence[str], version: int, dry: bool) -> str | None:
        ring = self.control.key_ring()
        if ring is None or 0 < version <= ring.version:
            return None
        self.signing_keys.present()  # without the cipher, a new key would be stored in clear
        if not dry:
            self.signing_keys.rotate(0)
            ring = self.control.key_ring()
            self._note(entry, ring.version if ring else 0)
        return ""

    def _note(self, entry: AuditEntry, version: int) -> None:
        """The entry by which the next run knows that it was done again."""
        who = {"token_id": BY, "token_name": BY, "source": str(version)}
        id = self.random.id(_ID_CHARS)
        self.audit.add(replace(entry, at_ms=self.clock.now_ms(), request_id=id, **who))
