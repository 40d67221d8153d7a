"""Clients who race for seats over the command topic, many threads to a process.

python -m tests.faults.racing_clients BOOTSTRAP APP PARTITIONS NAME THREADS SEATS

Each thread wants each seat. Who is not answered asks again with the same id. Tells one line of
JSON for each answer: who asked for which seat, and who has it according to the answer.
"""

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from millstream.base.errors import Rejected, Retryable
from millstream.eventsourcing.aggregates import Aggregates
from millstream.eventsourcing.command_sender import CommandSender
from millstream.eventsourcing.command_topic import Names
from millstream.eventsourcing.event_store import EventStore
from tests.support.seats import Seat
from tests.support.thread_dumps import dump_on_signal

TRIES_MAX = 20
PATIENCE_SECONDS = 10.0
TELLING = threading.Lock()


def ask(seats: Aggregates[Seat], seat: str, who: str) -> dict[str, object]:
    for tried in range(TRIES_MAX):
        try:
            pending = seats[seat].take(who, id=f"{who}-{seat}", wait=False)
            receipt = pending.result(PATIENCE_SECONDS)
            return {"seat": seat, "who": who, "wins": True, "tries": tried + 1, "at": receipt.seq}
        except Rejected as error:
            return {"seat": seat, "who": who, "wins": False, "tries": tried + 1, "why": str(error)}
        except Retryable:
            continue
    return {"seat": seat, "who": who, "tries": TRIES_MAX}


def race(seats: Aggregates[Seat], who: str, count: int, start: threading.Barrier) -> None:
    for number in range(count):
        start.wait()
        line = json.dumps(ask(seats, f"{number}", who)) + "\n"
        with TELLING:
            sys.stdout.write(line)


if __name__ == "__main__":
    dump_on_signal()
    bootstrap, app, partitions, name, threads, wanted = sys.argv[1:]
    client = {"bootstrap.servers": bootstrap}
    store = EventStore(client, f"{app}.events", partitions=int(partitions))
    sender = CommandSender(client, Names.of_app(app), store)
    seats = Aggregates(Seat, store, sender=sender, sends_all=True)
    start = threading.Barrier(int(threads))
    with ThreadPoolExecutor(int(threads)) as pool:
        runs = [
            pool.submit(race, seats, f"{name}-{n}", int(wanted), start) for n in range(int(threads))
        ]
        for run in runs:
            run.result()
    sender.close()
    store.close()
