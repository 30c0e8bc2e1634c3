"""The one error tree. Each error has a stable code, a sentence, and says whether to try again.

    HeadraceError
    ├── Malformed             the request cannot be read (400)
    ├── Unauthorized          no valid token (401)
    ├── Forbidden             the token lacks a scope or a topic (403)
    ├── NotFound              the named thing does not exist (404)
    ├── MethodNotAllowed      the path has other methods (405)
    ├── Conflict              the state of things does not allow it (409)
    │   └── ChangedMeanwhile  another change of the same thing was faster (409)
    ├── TooLarge              over a size limit (413)
    ├── UnsupportedMedia      not a media type this call takes (415)
    ├── Refused               well-formed, but not allowed (422)
    ├── TooMany               slow down (429)
    └── Unavailable           unknown outcome, safe to repeat (503)
        └── Unreadable        a stored row cannot be read: an operator has to repair it (503)

Expected outcomes (a lost race, a duplicate, a stale receipt among good ones) are values, not exceptions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing wrong with a request: the JSON path of the field and what is wrong with it."""

    path: str
    issue: str


class HeadraceError(Exception):
    """Base of all errors Headrace answers with. `code` is stable and documented in docs/errors.md."""

    retryable = False

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        issues: tuple[Issue, ...] = (),
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.issues = issues
        self.retry_after_seconds = retry_after_seconds


class Malformed(HeadraceError):
    """The request cannot be read."""


class Unauthorized(HeadraceError):
    """No valid token."""


class Forbidden(HeadraceError):
    """The token lacks the scope or the topic."""


class NotFound(HeadraceError):
    """The named thing does not exist."""


class MethodNotAllowed(HeadraceError):
    """The path has other methods."""


class Conflict(HeadraceError):
    """The state of things does not allow it."""


class ChangedMeanwhile(Conflict):
    """Another change of the same thing was faster, again and again: nothing happened, and the next try may win."""

    retryable = True


class TooLarge(HeadraceError):
    """Over a size limit."""


class UnsupportedMedia(HeadraceError):
    """Not a media type this call takes."""


class Refused(HeadraceError):
    """Well-formed, but not allowed."""


class TooMany(HeadraceError):
    """Too many requests: slow down."""

    retryable = True


class Unavailable(HeadraceError):
    """The outcome is unknown; repeating is safe."""

    retryable = True


class Unreadable(Unavailable):
    """A stored row cannot be read: it is damaged, or a later release wrote it. Repeating helps after an operator has
    repaired the row. `table` is the table's name without the stage, `key` the row's key attributes."""

    def __init__(self, table: str, key: str) -> None:
        super().__init__("UNREADABLE", f"The row {key!r} of the table {table!r} cannot be read: repair it.")
        self.table = table
        self.key = key


def changed_meanwhile(thing: str) -> ChangedMeanwhile:
    """The error for a change that lost against other changes at every try."""
    words = f"Others keep changing this {thing}; nothing was done, try again."
    return ChangedMeanwhile("CHANGED_MEANWHILE", words)


def unavailable(detail: str = "The store did not answer in time; try again.") -> Unavailable:
    """The error for an unknown outcome: a time-out, or a fault of a service below."""
    return Unavailable("UNAVAILABLE", detail, retry_after_seconds=1)


def ours(error: Exception) -> HeadraceError:
    """What a caller is answered to an error; a bug of ours is unavailability, too."""
    if isinstance(error, HeadraceError):
        return error
    return unavailable("Something went wrong on our side; try again.")
