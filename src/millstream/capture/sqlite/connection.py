"""Connections to a captured SQLite file, and SQLite's errors in the words of a source."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from millstream.capture.source import SourceInterrupted, SourceLost
from millstream.capture.sqlite.stored_values import text_from

# Another process may be in the midst of a large transaction.
BUSY_SECONDS_MAX = 30.0


class FileAway(SourceInterrupted):
    def __init__(self, *, path: Path, problem: str) -> None:
        super().__init__(f"{path.absolute()}: SQLite cannot use it now ({problem})")
        self.path, self.problem = path, problem


class FileDamaged(SourceLost):
    def __init__(self, *, path: Path, capture: str, problem: str) -> None:
        super().__init__(
            f"{path}: SQLite says: {problem}. Mend the file, then load its tables anew: "
            f"`millstream capture reload {capture}`"
        )
        self.path, self.capture, self.problem = path, capture, problem


def connect(path: Path) -> sqlite3.Connection:
    """Never creates the file. Each statement is a transaction of its own, unless BEGIN is said."""
    address = f"file:{quote(str(path.absolute()))}?mode=rw"
    db = sqlite3.connect(
        address,
        uri=True,
        timeout=BUSY_SECONDS_MAX,
        isolation_level=None,
        check_same_thread=False,
    )
    db.text_factory = text_from
    return db


@contextmanager
def transaction(db: sqlite3.Connection, *, writing: bool = False) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def patience(db: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """How long to wait here for others, in place of the usual time."""
    db.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")
    try:
        yield
    finally:
        db.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS_MAX * 1000:.0f}")


@contextmanager
def suppressed_if_busy() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if not error.sqlite_errorname.startswith("SQLITE_BUSY"):
            raise


@contextmanager
def translated(path: Path, capture: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:  # locked, a full disk, a file that is not there
        raise FileAway(path=path, problem=str(error)) from error
    except sqlite3.DatabaseError as error:
        raise FileDamaged(path=path, capture=capture, problem=str(error)) from error
