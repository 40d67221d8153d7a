"""A host of seats that is killed again and again.

python -m tests.faults.killed_host BOOTSTRAP APP PARTITIONS SESSION_MS
"""

import logging
import sys

from millstream.eventsourcing.aggregates import Aggregates
from millstream.eventsourcing.command_host import CommandHost
from millstream.eventsourcing.command_topic import Names
from millstream.eventsourcing.event_store import EventStore
from tests.support.seats import Seat
from tests.support.thread_dumps import dump_on_signal

if __name__ == "__main__":
    dump_on_signal()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    bootstrap, app, partitions, session_ms = sys.argv[1:]
    client = {"bootstrap.servers": bootstrap}
    store = EventStore(client, f"{app}.events", partitions=int(partitions))
    seats = {"Seat": Aggregates(Seat, store)}
    host = CommandHost(client, Names.of_app(app), store, seats, session_ms=int(session_ms))
    host.start()
    host.wait()
