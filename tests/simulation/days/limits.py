"""Values at their limits, which must come out as they went in."""

from __future__ import annotations

from chalicelib.domain.limits import (
    BLOB_THRESHOLD_BYTES,
    MAX_ATTEMPTS,
    MAX_CONTENT_TYPE_CHARS,
    MAX_DEDUP_ID_CHARS,
    MAX_HEADER_NAME_CHARS,
    MAX_HEADER_VALUE_CHARS,
    MAX_HEADERS_BYTES,
    MAX_KEY_CHARS,
    MAX_KEYS,
    MAX_LADDER_STEPS,
    MAX_RETRY_SECONDS,
    MAX_TAG_CHARS,
)
from chalicelib.domain.message import JSON, Draft
from chalicelib.domain.times import DAY_MS
from chalicelib.services.produce.appender import ProduceResult
from tests.simulation.days.ledger import Accepted
from tests.simulation.days.stage import Days

_WIDE = "\U0001f980"  # four bytes in UTF-8, two units in UTF-16
_LONG_HEADER = ("x" * MAX_HEADER_NAME_CHARS, "v" * MAX_HEADER_VALUE_CHARS)
_MANY_HEADERS = {f"h{n:02}": "v" * (MAX_HEADERS_BYTES // 32 - 3) for n in range(32)}


def sends_extremes(days: Days) -> None:
    """A message each of whose values stands at a limit, or just beside it."""
    rng, home = days.random, days.homes.get(days.random.choice(days.topics))
    if home is None:
        return
    label, now_ms = f"x{len(days.path)}", days.clock.at_ms
    size = rng.choice(
        (0, BLOB_THRESHOLD_BYTES - 1, BLOB_THRESHOLD_BYTES, BLOB_THRESHOLD_BYTES + 1, 256 * 1024)
    )
    body = f'"{label}|'.ljust(size - 1, "x") + '"'
    draft = Draft(
        body.encode(),
        content_type=rng.choice((JSON, "t/" + "y" * (MAX_CONTENT_TYPE_CHARS - 2))),
        keys=tuple(f"{n:02}".ljust(MAX_KEY_CHARS, _WIDE) for n in range(rng.choice((0, 1, MAX_KEYS)))),
        tag=rng.choice((None, "t", "t" * MAX_TAG_CHARS)),
        ordering_key=rng.choice((None, "a", _WIDE * MAX_KEY_CHARS)),
        headers=rng.choice(({}, {"empty": ""}, dict([_LONG_HEADER]), _MANY_HEADERS)),
        max_attempts=rng.choice((None, MAX_ATTEMPTS)),
        ladder=rng.choice((None, (1,) * MAX_LADDER_STEPS, (MAX_RETRY_SECONDS,))),
        jitter=rng.choice((None, 0.0, 1.0)),
        dedup_id=rng.choice((None, label.ljust(MAX_DEDUP_ID_CHARS, _WIDE))),
        due_ms=rng.choice((None, now_ms + 1, now_ms + 30 * DAY_MS)),
    )
    name = home.topic.name
    outcomes = days.ask(
        f"produce {name} {label} at limits, {len(body)} bytes",
        lambda deps: deps.producer.produce(deps.catalog.topic(name), [draft]),
    )
    for outcome in outcomes or ():
        if isinstance(outcome, ProduceResult):
            due_ms = draft.due_ms or now_ms
            home.accepted[label] = Accepted(
                len(days.path), now_ms, due_ms, waited=bool(draft.due_ms), id=outcome.id
            )
            home.drafts[label] = draft
        elif outcome.code == "BODY_TOO_LARGE" and size > home.topic.max_body_bytes:
            pass  # the topic was set to take less
        elif outcome.code == "RATE_LIMITED" and home.topic.rate_limit:
            pass
        elif outcome.code != "UNAVAILABLE":  # its partition is throttled: it may be stored, or not
            days.accuse(f"{label} of {name}, which stands at limits, was refused: {outcome}")
