"""Commands over a topic: decided in order by the host of their partition, and answered once."""

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from millstream.base.errors import MillstreamError, Rejected
from millstream.base.log_clients import LogNotReached, Topics
from millstream.eventsourcing import command_host, command_sender
from millstream.eventsourcing.aggregates import Aggregates
from millstream.eventsourcing.command_host import CommandHost, PartitionsDiffer
from millstream.eventsourcing.command_sender import CommandSender, NoAnswer, TooManyPending
from millstream.eventsourcing.command_topic import CommandRefused, Names
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.staging import WrongVersion
from tests.support.seats import Seat
from tests.support.waiting import eventually

PARTITIONS = 3
PATIENCE_SECONDS = 60.0


class Hall:
    """An application's topics, and what a process of it has open."""

    def __init__(self, bootstrap: str) -> None:
        self.client = {"bootstrap.servers": bootstrap}
        self.app = f"hall-{uuid.uuid4().hex}"
        self.names = Names.of_app(self.app)
        self._open: list[Any] = []

    def seats(self, *, sends_all: bool = True) -> Aggregates[Seat]:
        store = self.store()
        sender = CommandSender(self.client, self.names, store)
        self._open.append(sender.close)
        return Aggregates(Seat, store, sender=sender, sends_all=sends_all)

    def store(self) -> EventStore:
        store = EventStore(self.client, f"{self.app}.events", partitions=PARTITIONS)
        self._open.append(store.close)
        return store

    def host(self) -> CommandHost:
        store = self.store()
        host = CommandHost(self.client, self.names, store, {"Seat": Aggregates(Seat, store)})
        host.start()
        self._open.append(host.stop)
        return host

    def close(self) -> None:
        for close in reversed(self._open):
            close()

    def send_raw(self, key: bytes | None, value: bytes | None) -> None:
        producer = Producer(self.client | {"partitioner": "murmur2_random"})
        producer.produce(self.names.commands, value, key)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def read(self, topic: str, count: int) -> list[Any]:
        consumer = Consumer(
            self.client
            | {
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([topic])
        found: list[Any] = []

        def has_enough() -> bool:
            found.extend(one for one in consumer.consume(100, 0.2) if one.error() is None)
            return len(found) >= count

        eventually(has_enough, what=f"{count} records in {topic}", within_s=PATIENCE_SECONDS)
        consumer.close()
        return found


class Failing:
    """Raises `error` so many times before it does what it should."""

    def __init__(self, error: Exception, *, times: int) -> None:
        self.error, self.times, self.calls = error, times, 0

    def first(self, then: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if self.times:
                self.times -= 1
                raise self.error
            found = then(*given, **named)
            self.calls += 1
            return found

        return call


class FailingProducer:
    def __init__(self, producer: Any, failing: Failing) -> None:
        self.produce = failing.first(producer.produce)
        self.poll, self.flush = producer.poll, producer.flush


@pytest.fixture(params=["millstream", pytest.param("kafka", marks=pytest.mark.full)])
def hall(request: pytest.FixtureRequest) -> Iterator[Hall]:
    """On our broker, and on Apache Kafka."""
    if request.param == "kafka":
        bootstrap = request.getfixturevalue("apache_kafka")
    else:
        bootstrap = request.getfixturevalue("millstream_broker").bootstrap
    hall = Hall(bootstrap)
    yield hall
    hall.close()


def test_a_command_is_answered_with_where_its_events_are(hall: Hall) -> None:
    hall.host()
    seats = hall.seats()
    receipt = seats["7a"].take("ada", by="ada", why="a treat")
    (event,) = seats.store.read("Seat:7a")
    assert (receipt.version, receipt.events) == (1, (event.id,))
    assert event.meta == {"command": "take", "by": "ada", "why": "a treat"}
    (record,) = hall.read(f"{hall.app}.events", 1)
    assert (record.partition(), record.offset()) == (receipt.partition, receipt.offset)


def test_a_refusal_says_why(hall: Hall) -> None:
    hall.host()
    seats = hall.seats()
    seats["7a"].take("ada")
    with pytest.raises(CommandRefused, match="taken by ada") as caught:
        seats["7a"].take("bob")
    assert caught.value.type == "Rejected"
    with pytest.raises(WrongVersion) as wrong:
        seats["7b"].take("bob", expect=4)
    assert (wrong.value.expected, wrong.value.found) == (4, 0)


def test_nobody_need_wait(hall: Hall) -> None:
    seats = hall.seats(sends_all=False)
    pending = [seats[f"{row}"].take("ada", wait=False) for row in range(20)]
    hall.host()
    receipts = [one.result(PATIENCE_SECONDS) for one in pending]
    assert {one.stream for one in receipts} == {f"Seat:{row}" for row in range(20)}
    assert {one.partition for one in receipts} == set(range(PARTITIONS))


def test_asyncio_awaits_answers(hall: Hall) -> None:
    hall.host()
    seats = hall.seats()

    async def race() -> list[Any]:
        first = await seats.aio["1"].take("ada", wait=False)
        rest = [seats.aio["1"].take(f"{n}") for n in range(5)]
        return [await first, *await asyncio.gather(*rest, return_exceptions=True)]

    first, *rest = asyncio.run(race())
    assert first.version == 1
    assert all(isinstance(one, CommandRefused) for one in rest)


def test_a_command_that_is_sent_again_has_the_same_receipt(hall: Hall) -> None:
    hall.host()
    seats = hall.seats()
    first = seats["7a"].take("ada", id="req-1")
    again = seats["7a"].take("ada", id="req-1")
    assert again.is_repeat
    assert (again.offset, again.events) == (first.offset, first.events)
    both = [seats["8a"].take("eve", id="req-2", wait=False) for _ in range(2)]
    receipts = [one.result(PATIENCE_SECONDS) for one in both]
    assert receipts[0].events == receipts[1].events
    with pytest.raises(Rejected, match="another command"):
        seats["7a"].take("bob", id="req-1")


def test_without_a_host_the_id_to_ask_again_with_is_told(hall: Hall) -> None:
    seats = hall.seats()
    pending = seats["7a"].take("ada", wait=False)
    with pytest.raises(NoAnswer, match=pending.id):
        pending.result(0.1)
    hall.host()
    assert seats["7a"].take("ada", id=pending.id).version == 1
    assert pending.result(PATIENCE_SECONDS).version == 1


def test_arguments_are_what_the_command_says_they_are(hall: Hall) -> None:
    hall.host()
    seats = hall.seats()
    seats["7a"].price_at(Decimal("10.50"), Decimal("0.25"), Decimal("0.25"))
    (event,) = seats.store.read("Seat:7a")
    assert json.loads(bytes(event.data)) == {"price": "11.00"}


def test_a_bug_in_a_command_is_answered_and_changes_nothing(hall: Hall) -> None:
    hall.host()
    seats = hall.seats()
    with pytest.raises(CommandRefused, match="a bug") as caught:
        seats["7a"].break_down()
    assert caught.value.type == "ZeroDivisionError"
    assert seats["7a"].take("ada").version == 1


def test_a_command_that_says_try_again_is_answered_so_and_holds_nobody_up(hall: Hall) -> None:
    hall.host()
    seats = hall.seats()
    with pytest.raises(CommandRefused, match="card service is away") as caught:
        seats["7a"].pay()
    assert caught.value.type == "Retryable"
    assert seats["7a"].take("ada").version == 1


def test_a_fault_that_passes_puts_commands_off_and_ends_nothing(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(LogNotReached(brokers="b", doing="read keys", reason="it restarts"), times=3)
    monkeypatch.setattr(Aggregates, "submit_sent", failing.first(Aggregates.submit_sent))
    seats = hall.seats()
    asked = [seats["1"].take(who, wait=False) for who in ("ada", "bob")]
    hall.host()
    assert asked[0].result(PATIENCE_SECONDS).version == 1
    with pytest.raises(CommandRefused, match="taken by ada"):
        asked[1].result(PATIENCE_SECONDS)
    assert not failing.times


def test_a_command_that_the_host_fails_at_is_a_dead_letter(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(ZeroDivisionError("a bug of ours"), times=1)
    monkeypatch.setattr(Aggregates, "submit_sent", failing.first(Aggregates.submit_sent))
    hall.host()
    seats = hall.seats()
    with pytest.raises(CommandRefused, match="a bug of ours"):
        seats["1"].take("ada")
    assert seats["1"].take("bob").version == 1
    assert len(hall.read(hall.names.dead, 1)) == 1


def test_a_partition_that_comes_while_the_host_takes_nothing_loses_no_command(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    seats = hall.seats()
    asked = [seats["1"].take(who, wait=False) for who in ("ada", "bob")]
    monkeypatch.setattr(command_host, "IN_FLIGHT_MAX", 0)
    monkeypatch.setattr(command_host, "POLL_SECONDS", 3.0)
    held = Failing(ZeroDivisionError("never"), times=0)
    monkeypatch.setattr(CommandHost, "_hold", held.first(CommandHost._hold))
    host = hall.host()

    def has_held() -> bool:
        if len(host.partitions) < PARTITIONS:
            held.calls = 0
        return held.calls > 1

    eventually(has_held, what="partitions, and a turn after", within_s=PATIENCE_SECONDS)
    monkeypatch.setattr(command_host, "IN_FLIGHT_MAX", 4_000)
    assert asked[0].result(PATIENCE_SECONDS).version == 1
    with pytest.raises(CommandRefused, match="taken by ada"):
        asked[1].result(PATIENCE_SECONDS)


def test_who_gave_up_waiting_takes_no_room(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_sender, "PENDING_MAX", 2)
    seats = hall.seats()
    waited = [seats["1"].take(who, wait=False) for who in ("ada", "bob")]
    with pytest.raises(TooManyPending):
        seats["1"].take("eve")
    with pytest.raises(NoAnswer):
        waited[0].result(0.01)
    more = seats["2"].take("eve", wait=False)
    hall.host()
    assert more.result(PATIENCE_SECONDS).version == 1


def test_what_could_not_be_sent_takes_no_room(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_sender, "PENDING_MAX", 1)
    failing = Failing(KafkaException(KafkaError(KafkaError._FATAL)), times=2)
    seats = hall.seats()
    sender: Any = seats._sender
    sender._open()
    monkeypatch.setattr(sender, "_producer", FailingProducer(sender._producer, failing))
    for _ in range(2):
        with pytest.raises(MillstreamError):
            seats["1"].take("ada")
    hall.host()
    assert seats["1"].take("ada").version == 1


def test_when_answers_cannot_be_read_all_are_told_and_the_next_are_read(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    hall.host()
    seats = hall.seats()
    failing = Failing(ZeroDivisionError("a bug of ours"), times=1)
    monkeypatch.setattr(CommandSender, "_take", failing.first(CommandSender._take))
    with pytest.raises(ZeroDivisionError):
        seats["1"].take("ada")
    assert seats["2"].take("ada").version == 1


BAD = {
    "nothing": (b"Seat:1", None, "no value"),
    "no JSON": (b"Seat:1", b"\xff\x00", "no command"),
    "what is nested too deep": (
        b"Seat:1",
        b'{"id":"x","aggregate":"Seat","stream":"Seat:1","command":"take","arguments":{"who":'
        + b"[" * 5_000
        + b"]" * 5_000
        + b"}}",
        "no command",
    ),
    "a list": (b"Seat:1", b"[1]", "no command"),
    "no stream": (b"Seat:1", b'{"id":"x","aggregate":"Seat","command":"take"}', "stream"),
    "an unknown aggregate": (
        b"Seta:1",
        b'{"id":"x","aggregate":"Seta","stream":"Seta:1","command":"take"}',
        "no aggregate 'Seta'",
    ),
    "an unknown command": (
        b"Seat:1",
        b'{"id":"x","aggregate":"Seat","stream":"Seat:1","command":"tkae"}',
        "no command 'tkae'",
    ),
    "a missing argument": (
        b"Seat:1",
        b'{"id":"x","aggregate":"Seat","stream":"Seat:1","command":"take"}',
        "missing",
    ),
    "another argument": (
        b"Seat:1",
        b'{"id":"x","aggregate":"Seat","stream":"Seat:1","command":"take","arguments":{"x":1}}',
        "'x'",
    ),
    "an argument of another type": (
        b"Seat:1",
        b'{"id":"x","aggregate":"Seat","stream":"Seat:1","command":"take","arguments":{"who":1}}',
        "who",
    ),
    "an empty id": (
        b"Seat:1",
        b'{"id":"","aggregate":"Seat","stream":"Seat:1","command":"take"}',
        "id",
    ),
    "a stream of another aggregate": (
        b"Cart:1",
        b'{"id":"x","aggregate":"Seat","stream":"Cart:1","command":"take","arguments":{"who":"a"}}',
        "Cart:1",
    ),
    "an odd stream": (
        b"Seat:1",
        b'{"id":"x","aggregate":"Seat","stream":"","command":"take"}',
        "stream",
    ),
}


def test_what_is_no_command_is_a_dead_letter_and_the_host_goes_on(hall: Hall) -> None:
    seats = hall.seats()
    first = seats["1"].take("ada", wait=False)
    for key, value, _ in BAD.values():
        hall.send_raw(key, value)
    after = seats["1"].take("bob", wait=False)
    hall.host()
    assert first.result(PATIENCE_SECONDS).version == 1
    with pytest.raises(CommandRefused):
        after.result(PATIENCE_SECONDS)
    letters = hall.read(hall.names.dead, len(BAD))
    reasons = {one.value(): dict(one.headers())["__dlq.errors.message"] for one in letters}
    for kind, (_, value, told) in BAD.items():
        assert told in reasons[value].decode(), kind
    assert b"'Seta' is hosted here (there are: Seat" in reasons[BAD["an unknown aggregate"][1]]


def test_who_sent_what_is_no_command_is_told_if_it_gave_an_id(hall: Hall) -> None:
    hall.host()
    hall.seats()["1"].take("ada")
    key, value, told = BAD["an unknown command"]
    hall.send_raw(key, value)
    answers = [json.loads(one.value()) for one in hall.read(hall.names.replies, 2)]
    (answer,) = [one for one in answers if one["command"] == "x"]
    assert told in answer["error"]["reason"]
    assert answer["error"]["is_malformed"]


def test_a_command_in_another_partition_than_its_events_is_refused(hall: Hall) -> None:
    hall.host()
    hall.seats()["1"].take("ada")
    sent = (
        b'{"id":"x","aggregate":"Seat","stream":"Seat:1","command":"take","arguments":{"who":"b"}}'
    )
    hall.send_raw(b"Seat:2", sent)
    (letter,) = hall.read(hall.names.dead, 1)
    assert "partition" in dict(letter.headers())["__dlq.errors.message"].decode()


def test_a_refusal_that_nobody_waits_for_is_a_dead_letter(hall: Hall) -> None:
    hall.host()
    hall.seats()["1"].take("ada")
    sent = (
        b'{"id":"x","aggregate":"Seat","stream":"Seat:1","command":"take","arguments":{"who":"b"}}'
    )
    hall.send_raw(b"Seat:1", sent)
    (letter,) = hall.read(hall.names.dead, 1)
    assert "taken by ada" in dict(letter.headers())["__dlq.errors.message"].decode()


def test_hosts_share_the_partitions_and_hand_them_over(hall: Hall) -> None:
    first, seats = hall.host(), hall.seats()
    eventually(
        lambda: len(first.partitions) == PARTITIONS,
        what="all partitions",
        within_s=PATIENCE_SECONDS,
    )
    second = hall.host()
    eventually(
        lambda: (
            bool(first.partitions and second.partitions)
            and len(first.partitions) + len(second.partitions) == PARTITIONS
        ),
        what="each has some",
        within_s=PATIENCE_SECONDS,
    )
    for row in range(10):
        assert seats[f"{row}"].take("ada").version == 1
    first.stop()
    for row in range(10, 20):
        assert seats[f"{row}"].take("ada").version == 1
    assert second.partitions == list(range(PARTITIONS))


def test_direct_commands_beside_a_host_change_nothing_but_the_pace(hall: Hall) -> None:
    hall.host()
    over_topic, direct = hall.seats(), hall.seats(sends_all=False)
    for row in range(5):
        assert over_topic[f"{row}"].take("ada").version == 1
        with pytest.raises(Rejected, match="taken by ada"):
            direct[f"{row}"].take("bob")
        assert direct[f"{row}x"].take("bob").version == 1
        with pytest.raises(CommandRefused, match="taken by bob"):
            over_topic[f"{row}x"].take("ada")


def test_what_the_broker_never_takes_is_refused_and_the_host_goes_on(hall: Hall) -> None:
    small = {"max.message.bytes": "3000", "retention.ms": "-1"}
    Topics(hall.client).make(f"{hall.app}.events", partitions=PARTITIONS, config=small)
    seats = hall.seats()
    asked = [seats["1"].take(who, wait=False) for who in ("x" * 9_000, "ada", "y" * 9_000, "bob")]
    hall.host()
    assert asked[1].result(PATIENCE_SECONDS).version == 1
    for one, told in ((asked[0], "too large"), (asked[2], "taken by ada"), (asked[3], "by ada")):
        with pytest.raises(CommandRefused, match=told):
            one.result(PATIENCE_SECONDS)


def test_a_command_topic_with_other_partitions_is_refused(hall: Hall) -> None:
    Topics(hall.client).make(hall.names.commands, partitions=2, config={})
    with pytest.raises(PartitionsDiffer, match="2 partitions"):
        hall.seats()["1"].take("ada")
