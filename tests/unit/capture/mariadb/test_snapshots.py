"""What is in the binlog, and seen by no snapshot yet, is waited for."""

from collections.abc import Sequence
from typing import Any

import pytest

from millstream.capture.mariadb import snapshots
from millstream.capture.mariadb.connection import Address, Session
from millstream.capture.mariadb.snapshots import await_commits

ADDRESS = Address.of_url("mariadb://mill@nowhere/shop", "shop")


class Answering(Session):
    """A server with commits under way: each answer is the next of its question, the last stays."""

    def __init__(self, **answers: Sequence[str]) -> None:
        super().__init__(ADDRESS)
        self._answers = {question: list(given) for question, given in answers.items()}
        self.asked: list[str] = []

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        self.asked.append(statement)
        if "binlog_snapshot" in statement:
            return [("Binlog_snapshot_file", "binlog.1"), ("Binlog_snapshot_position", "4")]
        for question, left in self._answers.items():
            if question in statement:
                return [(left.pop(0) if len(left) > 1 else left[0],)]
        return []

    def times(self, statement: str) -> int:
        return self.asked.count(statement)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "AWAIT_SECONDS", 0)


def never() -> bool:
    return False


def test_snapshots_are_taken_until_one_sees_all_that_was_written() -> None:
    seen = ["0-1-7,2-1-4", "0-1-9,2-1-4", "0-1-9,2-1-5"]
    session = Answering(gtid_binlog_pos=["0-1-9,2-1-5", "0-1-50,2-1-50"], BINLOG_GTID_POS=seen)
    await_commits(session, never, of_mariadb=True)
    assert session.times(snapshots.SNAPSHOT) == session.times("ROLLBACK") == 3


def test_a_server_that_wrote_nothing_is_not_waited_for() -> None:
    session = Answering(gtid_binlog_pos=[""], BINLOG_GTID_POS=[""])
    await_commits(session, never, of_mariadb=True)
    assert session.times(snapshots.SNAPSHOT) == 1


def test_nobody_waits_for_a_commit_that_is_not_wanted_any_more() -> None:
    looks = iter([False, False, True])
    session = Answering(gtid_binlog_pos=["0-1-9"], BINLOG_GTID_POS=["0-1-8"])
    await_commits(session, lambda: next(looks), of_mariadb=True)
    assert session.times("ROLLBACK") == 3


def test_mysql_is_waited_for_until_those_that_committed_at_first_are_done() -> None:
    """Each GTID is owned until its commit is over; those that come later do not matter."""
    owned = ["a:7#12,\na:8#13", "a:8#13,\na:9#12", "a:9#12"]
    session = Answering(gtid_owned=owned)
    await_commits(session, never, of_mariadb=False)
    assert len(session.asked) == 3


def test_a_mysql_where_nobody_commits_is_not_waited_for() -> None:
    session = Answering(gtid_owned=[""])
    await_commits(session, never, of_mariadb=False)
    assert len(session.asked) == 2
