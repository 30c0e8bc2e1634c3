"""The archive is complete, exact, and the same however often, and over whatever accidents, it is made."""

from __future__ import annotations

from tests.glue.journals import DAY, delivery, message
from tests.glue.journals import Place


def test_journal_becomes_tables(place: Place) -> None:
    place.journal("a", [message(n) for n in range(5)] + [message(n, "invoices") for n in range(3)])
    place.journal("b", [delivery(n) for n in range(5)])
    assert place.archive() == 0
    assert place.places() == [("invoices", 0, n) for n in range(3)] + [("orders", 0, n) for n in range(5)]
    print(place.query("* replace (epoch_ms(accepted_at) as accepted_at) from %"), place.query("* replace (epoch_ms(started_at) as started_at) from %", "deliveries"), place.files())
