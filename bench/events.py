"""Question: how many events a second does the event store take, replay and index?

    python -m bench.events [--rounds 5] [--seconds 4] [--events 1000000] [--quick] [--only SIDE ...]

Sides, each with a sync to disk before it answers:

    ours      EventStore over our broker, which is a process of its own; one partition
    sqlite    the SQLiteApplicationRecorder of the `eventsourcing` library, in this process
    umadb     UmaDB's own server (it is in the package), a client for each thread

One client appends one event after the other; 64 clients do so in threads, each to a stream of its
own, with the version that it expects (UmaDB: an append condition over the stream's tag). Pipelined:
one thread submits and does not wait for each; ours alone can do so. Replay reads one long stream,
whose index is known and of which nothing is in memory. A rebuild reads the whole log into a new
index. The sides take turns in each round; a figure is the median of the rounds.
"""

import argparse
import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from millstream.embedded import Broker
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.stored_event import NewEvent

CLIENTS = 64
DATA = b'{"amount":5,"currency":"EUR","note":"for the week"}'
TYPE = "Deposited"
READY_SECONDS = 30.0
FILL_AT_ONCE = 1_000


class Side(Protocol):
    name: str

    def client(self, number: int) -> Callable[[], None]:
        """Appends one event, durably, to a stream of its own."""

    def fill(self, events: int) -> None:
        """One long stream."""

    def replay(self) -> int:
        """Reads it; how many events it has."""


class Ours:
    name = "ours"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap, self._topic = bootstrap, f"bench-{uuid.uuid4().hex[:8]}"
        self._store = self.opened()
        self._versions: dict[str, int] = {}

    def opened(self) -> EventStore:
        """Reads nothing from memory."""
        client = {"bootstrap.servers": self._bootstrap}
        return EventStore(client, self._topic, partitions=1, recent_bytes_max=1)

    def client(self, number: int) -> Callable[[], None]:
        stream = f"Account:{uuid.uuid4().hex}"
        version = 0

        def append() -> None:
            nonlocal version
            version = self._store.append(stream, [event()], expect=version).version

        return append

    def pipelined(self, events: int) -> float:
        """Events a second."""
        one = [event()]
        began = time.perf_counter()
        asked = [
            self._store.submit(f"Account:{number % 1_000}", lambda _head: one)
            for number in range(events)
        ]
        for future in asked:
            future.result()
        return events / (time.perf_counter() - began)

    def fill(self, events: int) -> None:
        many = [event() for _ in range(FILL_AT_ONCE)]
        asked = [
            self._store.submit("Account:long", lambda _head: many)
            for _ in range(events // FILL_AT_ONCE)
        ]
        for future in asked:
            future.result()

    def replay(self) -> int:
        return sum(1 for _ in self._store.read("Account:long"))

    def rebuild(self) -> float:
        """Events a second into a new index."""
        with self.opened() as store:
            began = time.perf_counter()
            events = store.position()
            return events / (time.perf_counter() - began)

    def close(self) -> None:
        self._store.close()


class Sqlite:
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

        self._datastore = SQLiteDatastore(str(folder / "events.sqlite"))
        self._recorder = SQLiteApplicationRecorder(self._datastore)
        self._recorder.create_table()
        with self._datastore.transaction(commit=False) as cursor:
            cursor.execute("PRAGMA synchronous")
            (found,) = cursor.fetchone()
            assert found == 2, f"synchronous is {found}: it must be FULL (2)"

    def client(self, number: int) -> Callable[[], None]:
        id, version = uuid.uuid4(), 0

        def append() -> None:
            nonlocal version
            version += 1
            self._recorder.insert_events([self._event(id, version)])

        return append

    def fill(self, events: int) -> None:
        self._long = uuid.uuid4()
        for start in range(0, events, FILL_AT_ONCE):
            versions = range(start + 1, start + FILL_AT_ONCE + 1)
            self._recorder.insert_events([self._event(self._long, one) for one in versions])

    def replay(self) -> int:
        return sum(1 for _ in self._recorder.select_events(self._long))

    def _event(self, id: uuid.UUID, version: int) -> Any:
        from eventsourcing.persistence import StoredEvent

        return StoredEvent(originator_id=id, originator_version=version, topic=TYPE, state=DATA)

    def close(self) -> None:
        self._datastore.close()


class Umadb:
    name = "umadb"

    def __init__(self, url: str) -> None:
        import umadb

        self._uma, self._url = umadb, url
        self._client = umadb.Client(url)

    def client(self, number: int) -> Callable[[], None]:
        uma, client, tag = self._uma, self._uma.Client(self._url), uuid.uuid4().hex
        query = uma.Query(items=[uma.QueryItem(tags=[tag])])
        head: int | None = None

        def append() -> None:
            nonlocal head
            condition = uma.AppendCondition(query, after=head)
            head = client.append([self._event(tag)], condition=condition)

        return append

    def fill(self, events: int) -> None:
        self._long = uuid.uuid4().hex
        for _ in range(events // FILL_AT_ONCE):
            self._client.append([self._event(self._long) for _ in range(FILL_AT_ONCE)])

    def replay(self) -> int:
        query = self._uma.Query(items=[self._uma.QueryItem(tags=[self._long])])
        return sum(1 for _ in self._client.read(query=query))

    def _event(self, tag: str) -> Any:
        return self._uma.Event(event_type=TYPE, data=DATA, tags=[tag])

    def close(self) -> None:
        self._client.close()


def event() -> NewEvent:
    return NewEvent(type=TYPE, data=DATA)


@contextlib.contextmanager
def umadb_server(folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    start = "from umadb.umadb_server_cli import main; main()"
    command = [sys.executable, "-c", start, "--listen", address, "--db-path", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_listening(address)
        yield f"http://{address}"
    finally:
        server.kill()
        server.wait()


def await_listening(address: str) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), 1.0).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def rate_of(appends: list[Callable[[], None]], seconds: float) -> float:
    """Events a second of clients in threads, for so long."""
    for append in appends:
        append()  # its stream, and its connection
    counts, end = [0] * len(appends), time.perf_counter() + seconds

    def run(number: int) -> None:
        while time.perf_counter() < end:
            appends[number]()
            counts[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(appends))]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def replay_rate(side: Any) -> float:
    began = time.perf_counter()
    count = side.replay()
    return float(count / (time.perf_counter() - began))


Figures = dict[str, dict[str, list[float]]]


def measure(sides: list[Any], options: argparse.Namespace) -> Figures:
    found: Figures = {}

    def note(what: str, side: Any, figure: float) -> None:
        found.setdefault(what, {}).setdefault(side.name, []).append(figure)
        print(f"  {what}, {side.name}: {figure:,.0f}/s", flush=True)

    for turn in range(options.rounds):
        print(f"round {turn + 1} of {options.rounds}", flush=True)
        for side in sides:
            note("1 client", side, rate_of([side.client(0)], options.seconds))
        for side in sides:
            appends = [side.client(number) for number in range(CLIENTS)]
            note(f"{CLIENTS} clients", side, rate_of(appends, options.seconds))
        for side in sides:
            if isinstance(side, Ours):
                note("pipelined", side, side.pipelined(options.events // 10))
    for side in sides:
        side.fill(options.events)
    for _ in range(options.rounds):
        for side in sides:
            note("replay", side, replay_rate(side))
            if isinstance(side, Ours):
                note("rebuild", side, side.rebuild())
    return found


def print_table(found: Figures) -> None:
    names = list(dict.fromkeys(name for by_side in found.values() for name in by_side))
    ratios = [f"ours / {name}" for name in names if name != "ours"]
    print("\n| events/s | " + " | ".join([*names, *ratios]) + " |")
    print("|---" * (1 + len(names) + len(ratios)) + "|")
    for what, by_side in found.items():
        middle = {name: median(figures) for name, figures in by_side.items()}
        cells = [f"{middle[name]:,.0f}" if name in middle else "" for name in names]
        for name in names:
            if name != "ours":
                has_both = name in middle and "ours" in middle
                cells.append(f"{middle['ours'] / middle[name]:.1f}" if has_both else "")
        print(f"| {what} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="small counts, to see that it works")
    parser.add_argument("--only", nargs="*", choices=["ours", "sqlite", "umadb"])
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.events = 1, 1.0, 100_000
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=".")))
        makers: dict[str, Callable[[], Any]] = {
            "ours": lambda: Ours(stack.enter_context(Broker(folder / "log")).bootstrap),
            "sqlite": lambda: Sqlite(folder),
            "umadb": lambda: Umadb(stack.enter_context(umadb_server(folder / "uma"))),
        }
        sides = [makers[name]() for name in options.only or makers]
        for side in sides:
            stack.callback(side.close)
        print_table(measure(sides, options))


if __name__ == "__main__":
    main()
