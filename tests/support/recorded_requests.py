"""What the brokers of this process are asked, by API and version; some answers can be lost.

For tests that prove which way a client took, or that a request may come twice. It stands in
`Connection`, so that a real client and a real socket are on the other side. Only for brokers in a
thread of the test (`broker_thread.py`).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from millstream.broker.connection import Connection
from millstream.broker.wire import ApiKey, read_request_header


@dataclass(slots=True)
class Requests:
    """`counts` has every request that arrived; of the APIs `to_lose` the next answer is lost."""

    counts: Counter[tuple[ApiKey, int]] = field(default_factory=Counter)
    to_lose: set[ApiKey] = field(default_factory=set)

    def versions(self, key: ApiKey) -> set[int]:
        return {version for one, version in self.counts if one == key}

    def lose_next(self, *keys: ApiKey) -> None:
        """Do what is asked, and close the connection instead of saying so."""
        self.to_lose.update(keys)

    def note(self, frame: bytearray) -> bool:
        """Whether the answer to this one is to be lost."""
        header = read_request_header(frame)
        key = ApiKey(header.api_key)
        self.counts[key, header.api_version] += 1
        if key not in self.to_lose:
            return False
        self.to_lose.remove(key)
        return True


@contextmanager
def recorded_requests() -> Iterator[Requests]:
    requests = Requests()
    handle = Connection._handle

    def note_and_handle(connection: Connection, frame: bytearray) -> None:
        if requests.note(frame):
            patch.object(connection, "_write", lambda chunks: connection.close()).start()
        handle(connection, frame)

    with patch.object(Connection, "_handle", note_and_handle):
        yield requests
