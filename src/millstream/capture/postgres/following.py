"""A replication connection to transactions, and to the place up to which all was handed over.

That place moves with commits, and with the server's keepalives: they tell that the log up to there
has nothing more for us. But not while a transaction is coming in that is committed already: its
commit may be before that place, and whoever went on from there would never see it.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from millstream.capture.change import Quiet, Transaction
from millstream.capture.postgres.lsn import lsn_to_text
from millstream.capture.postgres.transactions import Transactions

# The caller wants to do other things this often, also while messages come without a pause.
QUIET_SECONDS: Final = 1.0
MESSAGES_BETWEEN_LOOKS: Final = 1024


class LogConnection(Protocol):
    """connection.py has it."""

    @property
    def received(self) -> int: ...

    @property
    def message_lsn(self) -> bytes:
        """Where in the log the last message is, in eight bytes."""
        ...

    def receive(self) -> bytes | None: ...

    def wait(self, seconds: float) -> None: ...

    def tell_if_due(self) -> None: ...


def follow(
    connection: LogConnection,
    transactions: Transactions,
    position: int,
    *,
    wait_seconds: Callable[[], float],
) -> Iterator[Transaction | Quiet]:
    quiet_at = time.monotonic()
    while True:
        message = None
        for _ in range(MESSAGES_BETWEEN_LOOKS):
            message = connection.receive()
            if message is None:
                break
            if transactions.keeps_lsn:
                transactions.message_lsn = connection.message_lsn
            transaction = transactions.put(message)
            if transaction is not None:
                position = max(position, transactions.end_lsn)
                yield transaction
                for _ in transaction.changes:  # what nobody read says of tables what counts later
                    pass
        connection.tell_if_due()
        if message is not None and time.monotonic() - quiet_at < QUIET_SECONDS:
            continue
        if not transactions.is_inside:
            position = max(position, connection.received)
        yield Quiet(resume=lsn_to_text(position))
        if message is None:
            connection.wait(wait_seconds())
        quiet_at = time.monotonic()
