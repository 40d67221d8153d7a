"""Writers of events that race, are killed, stopped and cut off: one truth comes of it.

Short runs are in every run of the tests; the long ones, and Apache Kafka, in the full one.
"""

import random
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from millstream.embedded import Broker
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.staging import Decision
from millstream.eventsourcing.stored_event import Command, NewEvent, Receipt
from tests.support.breaking_proxy import BreakingProxy
from tests.support.broker_process import BrokerProcess
from tests.support.event_clients import EventClients, Midway
from tests.support.stream_history import Operation, violations
from tests.support.waiting import eventually

WITHIN_S = 120.0
PROCESSES = 5  # of ten clients each


@pytest.fixture
def topic() -> str:
    return f"faults-{uuid.uuid4().hex[:8]}.events"


@pytest.fixture(params=["millstream", pytest.param("kafka", marks=pytest.mark.full)])
def brokers(request: pytest.FixtureRequest) -> str:
    if request.param == "kafka":
        return str(request.getfixturevalue("apache_kafka"))
    return str(request.getfixturevalue("millstream_broker").bootstrap)


def opened(brokers: str, topic: str, partitions: int = 1) -> EventStore:
    return EventStore({"bootstrap.servers": brokers}, topic, partitions=partitions)


def said(events: list[NewEvent]) -> Decision:
    return lambda _head: events


def fact(id: str | None = None) -> NewEvent:
    return NewEvent(type="Said", data=b"{}", id=id)


# --- fifty clients race for a seat ------------------------------------------------------------


def race(brokers: str, topic: str, *, processes: int, seats: int, kills: int) -> None:
    """One of them wins, and it is the one that was told so, if it lived to hear it."""
    chance = random.Random(seats * 100 + kills)
    said: list[dict[str, Any]] = []
    with opened(brokers, topic) as store, ExitStack() as stack:
        clients = [
            stack.enter_context(EventClients(brokers, topic, "seats", f"p{n}", str(seats)))
            for n in range(processes)
        ]
        for number in range(kills):
            victim = chance.choice(clients)
            victim.await_lines(1 + chance.randrange(seats * 4))
            victim.kill()
            said += victim.said
            clients.remove(victim)
            again = EventClients(brokers, topic, "seats", f"again{number}", str(seats))
            clients.append(stack.enter_context(again))
        for one in clients:
            said += one.await_end()
        outcomes = [line for line in said if "seat" in line]
        for number in range(seats):
            check_seat(store, f"Seat:{number}", outcomes, is_winner_heard=not kills)
        assert list(store.verify()) == []


def check_seat(
    store: EventStore, seat: str, outcomes: list[dict[str, Any]], *, is_winner_heard: bool
) -> None:
    (event,) = store.read(seat)
    holder = msgspec.json.decode(event.data)["by"]
    told = {line["client"]: line["outcome"] for line in outcomes if line["seat"] == seat}
    winners = [client for client, outcome in told.items() if outcome == "won"]
    allowed = [[holder]] if is_winner_heard else [[holder], []]
    assert winners in allowed, f"{seat} is {holder}'s, and {winners} were told so"
    assert told.get(holder, "won") == "won", f"{holder} has {seat}, and was refused"


def test_of_fifty_clients_one_gets_the_seat_though_a_writer_is_killed(
    millstream_broker: Broker, topic: str
) -> None:
    race(millstream_broker.bootstrap, topic, processes=PROCESSES, seats=2, kills=1)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [0, 3, 6])
def test_of_fifty_clients_one_gets_the_seat_in_every_run(
    brokers: str, topic: str, kills: int
) -> None:
    race(brokers, topic, processes=PROCESSES, seats=10, kills=kills)


# --- zombies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["decided", "sent"])
def test_no_event_of_a_zombie_becomes_visible(brokers: str, topic: str, when: str) -> None:
    with opened(brokers, topic) as store:
        store.version("Seat:1")
        with EventClients(brokers, topic, "zombie", "zombie", when) as zombie:
            zombie.await_stopped()
            store.append("Seat:1", [fact("ours")], expect=0)
            zombie.go_on()
            (line,) = [line for line in zombie.await_end() if "outcome" in line]
        assert line["outcome"] == "refused"
        assert line["tries"] == [0, 1]  # it decided again, by what it then saw
        assert [event.id for event in store.read("Seat:1")] == ["ours"]
        assert list(store.verify()) == []


# --- answers that are lost --------------------------------------------------------------------


@pytest.fixture
def cut_off(tmp_path: Path) -> Iterator[BreakingProxy]:
    """A broker behind a proxy that breaks when it is told to; `bootstrap` is the broker's own."""
    proxy = BreakingProxy(("127.0.0.1", 0))
    with BrokerProcess(tmp_path / "data", "--advertise", f"127.0.0.1:{proxy.port}") as broker:
        host, _, port = broker.bootstrap.partition(":")
        proxy.target = (host, int(port))
        yield proxy
        proxy.close()


Broken = tuple[int, Literal["before", "after"]]
SOME: list[Broken] = [(0, "before"), (1, "after"), (2, "after"), (3, "before"), (3, "after")]


@pytest.mark.parametrize("is_taken_over", [False, True], ids=["alone", "taken over"])
def test_an_answer_that_is_lost_is_found_out_without_a_repeat(
    cut_off: BreakingProxy, topic: str, is_taken_over: bool
) -> None:
    cut_everywhere(cut_off, topic, SOME, is_taken_over=is_taken_over)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_taken_over", [False, True], ids=["alone", "taken over"])
def test_answers_lost_at_any_request_are_found_out_without_a_repeat(
    cut_off: BreakingProxy, topic: str, is_taken_over: bool
) -> None:
    every: list[Broken] = [(number, when) for number in range(12) for when in ("before", "after")]
    cut_everywhere(cut_off, topic, every, is_taken_over=is_taken_over)


def cut_everywhere(
    proxy: BreakingProxy, topic: str, breaks: list[Broken], *, is_taken_over: bool
) -> None:
    """The connection breaks at one request of a transaction after another."""
    brokers = f"127.0.0.1:{proxy.port}"
    known: list[str] = []
    with opened(brokers, topic) as store, opened(brokers, topic) as other:
        store.append("Stream", [fact("first")])
        known.append("first")
        for number, (requests, when) in enumerate(breaks):
            cut = Midway(partial(proxy.arm, requests=requests, when=when))
            ours = [fact(f"ours-{number}-{n}") for n in range(3)]
            asked = store.submit("Stream", said(ours), command=Command(id=str(number)), along=cut)
            if is_taken_over:
                other.append("Stream", [fact(f"others-{number}")])
            receipt = asked.result(WITHIN_S)
            proxy.disarm()
            ids = [event.id for event in other.read("Stream")]
            assert Counter(ids).most_common(1)[0][1] == 1, "an event is there twice"
            assert ids[receipt.version - 3 : receipt.version] == [event.id for event in ours]
            assert ids[: len(known)] == known
            again = other.append("Stream", [fact()], command=Command(id=str(number)))
            assert again.is_repeat
            assert again.events == receipt.events
            known = ids
        assert list(store.verify()) == []


def test_a_broker_that_is_killed_while_decisions_wait_loses_and_repeats_nothing(
    tmp_path: Path, topic: str
) -> None:
    killed_brokers(tmp_path, topic, kills=1)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_broker_that_is_killed_again_and_again_loses_and_repeats_nothing(
    tmp_path: Path, topic: str
) -> None:
    killed_brokers(tmp_path, topic, kills=10)


def killed_brokers(tmp_path: Path, topic: str, *, kills: int) -> None:
    broker = BrokerProcess(tmp_path / "data")
    with broker, opened(broker.bootstrap, topic) as store:
        answered: list[Receipt] = []
        is_over = threading.Event()

        def write() -> None:
            while not is_over.is_set():
                asked = [store.submit("Stream", lambda _head: [fact()]) for _ in range(20)]
                answered.extend(one.result(WITHIN_S) for one in asked)

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            for _ in range(kills):
                goal = len(answered) + 100
                eventually(
                    lambda: len(answered) > goal,  # noqa: B023 - it is asked at once
                    what="it goes on",
                    within_s=WITHIN_S,
                )
                broker.end()
                again = BrokerProcess(tmp_path / "data", listen=broker.bootstrap)
                again.start()
                assert again.bootstrap, again.diagnostics
                broker.process = again.process
            is_over.set()
            writing.result(WITHIN_S)
        ids = [event.id for event in store.read("Stream")]
        assert ids == [id for receipt in answered for id in receipt.events]
        assert [receipt.version for receipt in answered] == list(range(1, len(ids) + 1))


# --- histories --------------------------------------------------------------------------------


def recorded(said: list[dict[str, Any]]) -> list[Operation]:
    """Appends that were not answered may have happened."""
    answered = {line["event"] for line in said if line.get("kind") in ("appended", "refused")}
    found = []
    for line in said:
        match line.get("kind"):
            case "append" if line["event"] not in answered:
                found.append(Operation(**line, ended=None))
            case "appended":
                found.append(Operation(**(line | {"kind": "append"})))
            case "refused":
                found.append(Operation(**line))
            case "read":
                found.append(Operation(**(line | {"events": tuple(line["events"])})))
    return found


def check_histories(brokers: str, topic: str, *, processes: int, kills: int, seconds: int) -> None:
    said: list[dict[str, Any]] = []
    with opened(brokers, topic) as store, ExitStack() as stack:
        clients = [
            stack.enter_context(EventClients(brokers, topic, "history", f"p{n}", str(seconds)))
            for n in range(processes)
        ]
        for number in range(kills):
            clients[0].await_lines(30 * (number + 1))
            victim = clients.pop(0)
            victim.kill()
            said += victim.said
            again = EventClients(brokers, topic, "history", f"again{number}", str(seconds))
            clients.append(stack.enter_context(again))
        for one in clients:
            said += one.await_end()
        stream = [event.id for event in store.read("Stream")]
    assert len(stream) > 10
    assert violations(recorded(said), stream) == []


def test_a_stream_is_linearizable(millstream_broker: Broker, topic: str) -> None:
    check_histories(millstream_broker.bootstrap, topic, processes=2, kills=1, seconds=2)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [0, 2, 4])
def test_a_stream_is_linearizable_in_every_run(brokers: str, topic: str, kills: int) -> None:
    check_histories(brokers, topic, processes=3, kills=kills, seconds=15)


# --- subscribers ------------------------------------------------------------------------------


def check_subscribers(brokers: str, topic: str, *, kills: int, seconds: int) -> None:
    """While processes take partitions from each other and are killed, two subscribers see every
    number once; one of them starts again from its token all the time."""
    said: list[dict[str, Any]] = []
    seen: list[list[tuple[int, int]]] = [[], []]
    is_over = threading.Event()

    def follow(number: int) -> None:
        token = None
        while not is_over.is_set():
            with store.subscribe(after=token, timeout=0.3 if number else 1.0) as events:
                for event in events:
                    partition = store.partition_of(event.stream)
                    seen[number].append((partition, event.seq))
                    if number and event.seq % 50 == 0:
                        break
                token = events.token

    with opened(brokers, topic, partitions=2) as store, ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        following = [pool.submit(follow, number) for number in range(2)]
        stack.callback(is_over.set)
        clients = [
            stack.enter_context(EventClients(brokers, topic, "writes", f"p{n}", str(seconds)))
            for n in range(2)
        ]
        for number in range(kills):
            clients[0].await_lines(5)
            victim = clients.pop(0)
            victim.kill()
            said += victim.said
            again = EventClients(brokers, topic, "writes", f"again{number}", str(seconds))
            clients.append(stack.enter_context(again))
        for one in clients:
            said += one.await_end()
        written = {tuple(one) for line in said for one in line.get("seqs", ())}
        all_of = {(p, seq) for p in range(2) for seq in range(1, store.position(partition=p) + 1)}
        eventually(
            lambda: (
                all(len(one) >= len(all_of) for one in seen) or any(f.done() for f in following)
            ),
            what="they have seen all",
            within_s=WITHIN_S,
        )
        is_over.set()
        for one_following in following:
            one_following.result(WITHIN_S)
    assert written <= all_of
    for found in seen:
        assert len(found) == len(set(found))
        assert set(found) == all_of


def test_subscribers_see_every_number_once(millstream_broker: Broker, topic: str) -> None:
    check_subscribers(millstream_broker.bootstrap, topic, kills=1, seconds=2)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_subscribers_see_every_number_once_in_long_runs(brokers: str, topic: str) -> None:
    check_subscribers(brokers, topic, kills=5, seconds=10)
