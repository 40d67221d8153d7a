"""What a caller gets of a replication connection, and when."""

from collections.abc import Iterator
from itertools import islice

from millstream.capture.change import Quiet, Transaction
from millstream.capture.postgres.following import follow
from millstream.capture.postgres.transactions import Transactions
from tests.unit.capture.postgres.known_tables import ITEMS, ITEMS_RELATION, KnownTables
from tests.unit.capture.postgres.messages import (
    STREAM_STOP,
    begin,
    commit,
    insert,
    stream_start,
    streamed,
)

Script = list[bytes | int | None]


class ScriptedConnection:
    """Messages, None where there is none now, and numbers: how far a keepalive says all is."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.received = 0
        self.message_lsn = bytes(8)

    def receive(self) -> bytes | None:
        while self._script:
            step = self._script.pop(0)
            if not isinstance(step, int):
                return step
            self.received = step
        return None

    def wait(self, seconds: float) -> None:
        pass

    def tell_if_due(self) -> None:
        pass


def followed(script: Script, *, after: int = 0) -> Iterator[Transaction | Quiet]:
    transactions = Transactions(KnownTables(), pulse=lambda: None)
    return follow(ScriptedConnection(script), transactions, after, wait_seconds=lambda: 0.5)


def resumes(script: Script, count: int, *, after: int = 0) -> list[tuple[type, str]]:
    return [(type(item), item.resume) for item in islice(followed(script, after=after), count)]


INSERT = insert(ITEMS, "1", "tea")


def test_a_commit_moves_the_position() -> None:
    assert resumes([begin(1), ITEMS_RELATION, INSERT, commit(0x10)], 2) == [
        (Transaction, "0/18"),
        (Quiet, "0/18"),
    ]


def test_a_keepalive_moves_the_position_of_an_idle_capture() -> None:
    assert resumes([0x50, None, 0x90, None], 2, after=0x20) == [(Quiet, "0/50"), (Quiet, "0/90")]


def test_a_keepalive_inside_of_a_transaction_does_not_move_the_position() -> None:
    script: Script = [begin(1), ITEMS_RELATION, 0x90, None, INSERT, None, commit(0x70)]
    assert resumes(script, 4, after=0x20) == [
        (Quiet, "0/20"),
        (Quiet, "0/20"),
        (Transaction, "0/78"),
        (Quiet, "0/90"),
    ]


def test_a_transaction_in_progress_does_not_hold_the_position() -> None:
    """Its commit is still to come, and all of it is sent again to whoever goes on before that."""
    block: Script = [stream_start(1), streamed(1, ITEMS_RELATION), streamed(1, INSERT), STREAM_STOP]
    assert resumes([*block, 0x90, None], 1) == [(Quiet, "0/90")]


def test_quiet_never_goes_back() -> None:
    script: Script = [None, 0x50, None, 0x40, None]
    assert [at for _, at in resumes(script, 3, after=0x20)] == ["0/20", "0/50", "0/50"]


def test_tables_of_a_transaction_that_was_not_read_count_for_the_next() -> None:
    script: Script = [begin(1), ITEMS_RELATION, INSERT, commit(8), begin(2), INSERT, commit(24)]
    items = followed(script)
    next(items)
    second = next(items)
    assert isinstance(second, Transaction)
    assert len(list(second.changes)) == 1
