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
    """`counts` has every request that arrived; `lost` is the API whose next answers are lost."""

    counts: Counter[tuple[ApiKey, int]] = field(default_factory=Counter)
    lost: ApiKey | None = None
    losses_left: int = 0

    def versions(self, key: ApiKey) -> set[int]:
        return {version for one, version in self.counts if one == key}

    def lose_next(self, key: ApiKey, *, count: int) -> None:
        """Do what is asked, and close the connection instead of saying so."""
        self.lost, self.losses_left = key, count

    def note(self, frame: bytearray) -> bool:
        """Whether the answer to this one is to be lost."""
        header = read_request_header(frame)
        key = ApiKey(header.api_key)
        self.counts[key, header.api_version] += 1
        if key != self.lost or self.losses_left == 0:
            return False
        self.losses_left -= 1
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
