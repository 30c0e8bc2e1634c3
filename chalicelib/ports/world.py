"""Interfaces outside the tables: clock, random numbers, blob store, outgoing calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..domain.call_result import CallResult, Exchange, PushBatch
from ..domain.topic import Consumer
from ..domain.transaction import CheckAnswer, Transaction


@dataclass(slots=True)
class Units:
    """What requests have cost so far, in DynamoDB's units."""

    reads: float = 0.0
    writes: float = 0.0


class Clock(Protocol):
    """Time, injected."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC. It may be set, also back."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since any moment: never set back, but it may stand still while the process is frozen."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class Random(Protocol):
    """Randomness and ids, injected."""

    def below(self, n: int) -> int:
        """A number from 0 to n - 1."""
        ...

    def id(self, chars: int) -> str:
        """A random Crockford base-32 text."""
        ...

    def secret(self) -> bytes:
        """32 random bytes for a secret."""
        ...


class Sender(Protocol):
    """Out to subscribers. Nothing a subscriber does makes it raise."""

    def send(self, consumer: Consumer, push_batch: PushBatch, seconds: float) -> tuple[CallResult, ...]:
        """Call a consumer once, within `seconds`; one outcome for each message of the batch."""
        ...

    def refusal(self, kind: str, target: str) -> str | None:
        """Why a "url" or "function" may not be called, for its registration; None: it may."""
        ...

    def greet(self, url: str) -> CallResult:
        """Ask a URL's owner for consent (the CloudEvents handshake): DONE, or FAILED and why."""
        ...

    def ping(self, consumer: Consumer, id: str, seconds: float, push_batch: PushBatch | None) -> Exchange:
        """Send a test event to a push consumer, within `seconds`: signed to a URL (its own, or this one message), or as
        a batch without messages to a function. It counts as no attempt."""
        ...

    def ask(self, transaction: Transaction, secrets: Sequence[bytes], seconds: float) -> CheckAnswer:
        """Ask a producer, within `seconds` and signed with each of the secrets, what became of its transaction."""
        ...


class Cipher(Protocol):
    """Encrypts small secrets (up to 4 KB) with a key that never leaves its service. A ciphertext can be decrypted
    only under the same context, which names its purpose and its row."""

    def encrypt(self, plain: bytes, context: Mapping[str, str]) -> bytes:
        """The ciphertext, another one each time. Raises Unavailable."""
        ...

    def decrypt(self, ciphertext: bytes, context: Mapping[str, str]) -> bytes:
        """The plain text. Raises Unavailable, also for a damaged ciphertext and for another context or key."""
        ...


class Invoker(Protocol):
    """Calls our own functions. `function` is its name in app.py; `event` is JSON."""

    def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        """Start it, asynchronously and at least once."""
        ...

    def wake_mover(self, hint: Mapping[str, Any], delay_seconds: int) -> None:
        """Start the function `mover` after so many seconds, 900 at most, at least once. Raises Unavailable."""
        ...

    def ask(self, function: str, event: Mapping[str, Any], seconds: int) -> Mapping[str, Any]:
        """Call it once and wait up to `seconds` for its answer. Raises Unavailable, also if the function fails."""
        ...


class Jobs(Protocol):
    """Starts the archive's jobs."""

    def start(self, job: str, arguments: Mapping[str, str]) -> bool:
        """Start a job, by its file's name in `glue_jobs`. False: this stage has nothing that runs jobs."""
        ...


class Blobs(Protocol):
    """Bodies too large for the log."""

    def put(self, name: str, body: bytes) -> None:
        """Store a body under a name; a body of that name is replaced."""
        ...

    def get(self, name: str) -> bytes | None:
        """The body; None if there is none. Raises Unavailable."""
        ...

    def delete(self, name: str) -> None:
        """Remove one. Harmless where there is none."""
        ...

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        """Up to `limit` names that begin with `prefix` (which ends in a slash) and sort after `after`, in order."""
        ...
