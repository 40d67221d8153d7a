"""Clients of an event store in a process of their own, that can be killed, stopped or outrun.

    python -m tests.faults.event_client BOOTSTRAP TOPIC WHAT NAME [ARGUMENT]

Each line that it prints is JSON, and what it says has happened. WHAT is one of the functions below.
"""

import contextlib
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from millstream.base.errors import Rejected
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.partition_writer import PartitionContended
from millstream.eventsourcing.staging import StreamHead, WrongVersion
from millstream.eventsourcing.stored_event import Command, NewEvent
from tests.support.event_clients import Midway

THREADS = 10
_printing = threading.Lock()


def say(**facts: Any) -> None:
    with _printing:
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


def reserved(by: str) -> NewEvent:
    return NewEvent(type="Reserved", data=json.dumps({"by": by}).encode())


def seats(store: EventStore, name: str, argument: str) -> None:
    """Ten clients try to get each of so many seats; a try that is contended is made again."""

    def reserve(client: str, seat: str) -> str:
        def decision(head: StreamHead) -> Iterator[NewEvent]:
            if head.version:
                raise Rejected("it is taken")
            yield reserved(client)

        while True:
            try:
                store.decide(seat, decision, command=Command(id=f"{client}/{seat}"))
            except PartitionContended:
                continue
            except Rejected:
                return "refused"
            return "won"

    def race(client: str) -> None:
        for number in range(int(argument)):
            say(client=client, seat=f"Seat:{number}", outcome=reserve(client, f"Seat:{number}"))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(race, [f"{name}-{number}" for number in range(THREADS)]))


def history(store: EventStore, name: str, argument: str) -> None:
    """Appends to a stream and reads it, from some threads, for so many seconds."""
    until = time.monotonic() + float(argument)

    def run(client: str) -> None:
        chance, known, number = random.Random(client), 0, 0
        while time.monotonic() < until:
            number, began = number + 1, time.monotonic_ns()
            event = f"{client}-{number}"
            with contextlib.suppress(PartitionContended):
                known = step(chance, event, began, known)

    def step(chance: random.Random, event: str, began: int, known: int) -> int:
        if chance.random() < 0.4:
            found = [one.id for one in store.read("Stream")]
            say(kind="read", began=began, ended=time.monotonic_ns(), events=found)
            return len(found)
        expect = known if chance.random() < 0.5 else None
        say(kind="append", began=began, event=event)
        new = [NewEvent(type="Said", data=b"{}", id=event)]
        try:
            receipt = store.append("Stream", new, expect=expect)
        except WrongVersion as error:
            length = error.found
            say(kind="refused", began=began, ended=time.monotonic_ns(), event=event, length=length)
            return length
        length = receipt.version
        say(kind="appended", began=began, ended=time.monotonic_ns(), event=event, length=length)
        return length

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, [f"{name}-{number}" for number in range(3)]))


def zombie(store: EventStore, name: str, argument: str) -> None:
    """Stops itself (SIGSTOP) once: in its decision, or when its event is sent and not committed."""
    stops = [argument]

    def stop(when: str) -> None:
        if when in stops:
            stops.remove(when)
            time.sleep(0.5)  # what was sent arrives
            # To this thread: a signal to the process may let it run on until another thread stops.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def decision(head: StreamHead) -> Iterator[NewEvent]:
        tries.append(head.version)
        stop("decided")
        if head.version:
            raise Rejected("it is taken")
        yield reserved(f"{name}, try {len(tries)}")

    tries: list[int] = []
    store.append("Other", [reserved(name)])
    asked = store.submit("Seat:1", decision, along=Midway(lambda: stop("sent")))
    try:
        say(outcome="won", version=asked.result().version, tries=tries)
    except Rejected as error:
        say(outcome="refused", reason=str(error), tries=tries)


def writes(store: EventStore, name: str, argument: str) -> None:
    """Appends to streams of its own, and says so."""
    until, number = time.monotonic() + float(argument), 0
    while time.monotonic() < until:
        number += 1
        with contextlib.suppress(PartitionContended):
            asked = [store.submit(f"{name}:{n}", lambda _head: [reserved(name)]) for n in range(20)]
            say(seqs=[(one.result().partition, one.result().seq) for one in asked])


WHATS = {"seats": seats, "history": history, "zombie": zombie, "writes": writes}


def main() -> None:
    bootstrap, topic, what, name, *rest = sys.argv[1:]
    with EventStore({"bootstrap.servers": bootstrap}, topic) as store:
        say(ready=name)
        WHATS[what](store, name, rest[0] if rest else "")


if __name__ == "__main__":
    main()
