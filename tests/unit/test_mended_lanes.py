"""A retry lane whose cursor was damaged and made anew: what is owed comes once, as the attempt that it is."""

from __future__ import annotations

import pytest

from chalicelib.domain import cursor_size
from chalicelib.domain.cursor import Disposition
from chalicelib.domain.ladder import Retry
from chalicelib.domain.limits import FRAGMENTS
from chalicelib.domain.times import SECOND_MS
from chalicelib.domain.topic import Consumer, Group, cursor_key
from chalicelib.services.consume.claimant import Claimant, ClaimedMessage
from chalicelib.services.consume.decision import SettleDecision
from chalicelib.services.consume.settle import Nack
from chalicelib.services.core import positions
from chalicelib.store.dynamo import Dynamo
from chalicelib.store.layout import record_key
from tests.support import factories as make
from tests.support.damage import change_cursor, without
from tests.support.desk import GIVE_BACK, Desk
from tests.support.stages import embedded_stage

LATER = Nack(delay_ms=60 * SECOND_MS)
SOON = Nack(delay_ms=SECOND_MS)
COMES = {  # in so many seconds, as this attempt
    "is leased": (0, 2),
    "is given back": (0, 3),
    "is given back twice": (0, 4),
    "is put off": (60, 3),
    "is put off and comes back": (0, 3),
    "is put off twice": (60, 4),
    "is given back unsent": (0, 2),
    "is given back unsent by a timer": (60, 2),
    "succeeds": None,
    "dies": None,
    "is forgotten": None,
}


class Lane:
    """One message of each kind in a retry lane, each after one attempt."""

    def __init__(self, mode: str, order: int) -> None:
        self.desk = Desk.at(embedded_stage(), shards=3, mode=mode, retry=Retry(9, (1,), jitter=0.0))
        self.group: Group = self.desk.group()
        self.consumer: Consumer | None = (
            self.desk.consumer(self.group, "one") if mode == "broadcast" else None
        )
        self.uid = self.consumer.uid if self.consumer else ""
        self.key = cursor_key(self.desk.topic, self.group, None, self.uid)
        kinds = list(COMES)[::order]
        places = self.desk.produce(*(make.draft(n, shard=n % 3) for n in range(len(kinds))))
        self.kinds = {place.id: kind for place, kind in zip(places, kinds, strict=True)}
        for at, each in enumerate(self._received()[::order]):
            self.nack([each], Nack(delay_ms=SECOND_MS * (1 + at % 3)))
        for _ in range(3):  # three rows
            self.pass_time(1)
            self.desk.deps.mover.tick(range(FRAGMENTS))
        self.messages = {self.kinds[each.message.id]: each for each in self._leased()}
        assert self.messages.keys() == COMES.keys()

    def _received(self) -> list[ClaimedMessage]:
        return self.desk.receive(self.group, 100, self.consumer)

    def _leased(self) -> list[ClaimedMessage]:
        self.desk.deps.mover.tick(range(FRAGMENTS))
        claimant = Claimant(topic=self.desk.topic, group=self.group, lease_seconds=600, consumer_uid=self.uid)
        return self.desk.claim(claimant, None, 100)

    def nack(self, messages: list[ClaimedMessage], how: Nack) -> None:
        assert set(self.desk.nack(self.group, messages, how)) == {None}

    def release(self, kind: str, seconds: int = 0) -> None:
        due_ms = self.desk.stage.clock.now_ms() + seconds * SECOND_MS if seconds else 0
        released = SettleDecision(Disposition.RELEASED, due_ms)
        receipts = [self.messages[kind].receipt]
        assert self.desk.deps.settler.settle(self.desk.topic, self.group, receipts, lambda *_: released) == [
            None
        ]

    def pass_time(self, seconds: int) -> None:
        self.desk.stage.clock.advance(seconds * SECOND_MS)

    def play(self) -> None:
        """What the names say happens to each."""
        self.nack([self.messages["is put off and comes back"], self.messages["is put off twice"]], SOON)
        self.pass_time(1)
        again = {self.kinds[each.message.id]: each for each in self._leased()}
        self.nack([again["is put off twice"]], LATER)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cursor_size, "_BYTES_FOR_RETURNS", 0)
            self.release("is given back unsent by a timer", 60)
        self.nack([self.messages["is put off"]], LATER)
        given_back = [self.messages[kind] for kind in ("is given back", "is given back twice")]
        self.nack(given_back, GIVE_BACK)
        again = {self.kinds[each.message.id]: each for each in self._leased()}
        assert again.keys() == {"is given back", "is given back twice"}
        self.nack([again["is given back twice"]], GIVE_BACK)
        self.release("is given back unsent")
        assert self.desk.ack(self.group, [self.messages["succeeds"]]) == [None]
        self.nack([self.messages["dies"]], Nack(dead_letter=True))
        receipt = self.messages["is forgotten"].receipt
        delivery_key = cursor_key(self.desk.topic, self.group, receipt.shard, self.uid)
        dynamo: Dynamo = self.desk.stage.adapters.log._dynamo
        dynamo.delete(dynamo.tables.records, [record_key(delivery_key, receipt.offset)])

    def mended(self, room: int = 1 << 30) -> Desk:
        """A process that has read nothing, after another one has made the damaged cursor anew, which has so many
        bytes of room."""
        change_cursor(self.desk.stage, self.key, without("x"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(positions, "_ROWS", 1)
            patch.setattr(cursor_size, "_BYTES_FOR_RETURNS", room)
            self.desk.stage.process().positions.mend_lane(self.desk.topic, self.group, self.uid)
        return Desk(self.desk.stage, self.desk.stage.process(), self.desk.topic)


def deliveries(lane: Lane, reader: Desk) -> dict[str, list[tuple[int, int]]]:
    """Of each message when it came, within the first minute, and as which attempt."""
    deliveries_by_kind: dict[str, list[tuple[int, int]]] = {kind: [] for kind in COMES}
    for seconds in (0, 60):
        for each in reader.receive(lane.group, 100, lane.consumer):
            deliveries_by_kind[lane.kinds[each.message.id]].append((seconds, each.attempt))
            assert reader.ack(lane.group, [each]) == [None]
        lane.pass_time(60)
    assert reader.drain(lane.group, consumer=lane.consumer) == []
    return deliveries_by_kind


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("mode", ["queue", "broadcast"])
def test_each_message_of_a_lane_made_anew_that_is_owed_comes_once_when_it_is_due(
    mode: str, order: int
) -> None:
    lane = Lane(mode, order)
    lane.play()
    deliveries_by_kind = deliveries(lane, lane.mended())
    assert deliveries_by_kind == {kind: [comes] if comes else [] for kind, comes in COMES.items()}


@pytest.mark.parametrize("room", range(380, 480, 20))
@pytest.mark.parametrize("order", [1, -1])
def test_also_where_not_all_fit_into_the_new_cursor_each_that_is_owed_comes(room: int, order: int) -> None:
    lane = Lane("queue", order)
    lane.play()
    deliveries_by_kind = deliveries(lane, lane.mended(room))
    assert {kind for kind, times in deliveries_by_kind.items() if times} >= {
        kind for kind, comes in COMES.items() if comes
    }
