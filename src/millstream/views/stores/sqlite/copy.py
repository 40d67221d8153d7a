"""A view's file, copied and put back whole, by SQLite's own means."""

import contextlib
import sqlite3
from contextlib import closing
from pathlib import Path

from millstream.views.stores.sqlite.history import renew_timelines
from millstream.views.stores.sqlite.store import require_view, translated


def copy_view(path: Path, target: Path) -> None:
    """A copy as of one moment, in one file without a journal beside it."""
    with translated(path), closing(sqlite3.connect(path)) as source:
        require_view(source, path)
        with closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")


def restore_view(source: Path, path: Path) -> None:
    """Put a copy in the place of the view; readers that have it open see the copy next.

    The epoch does not go back: a run of the job that was fenced stays so.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with translated(path), closing(sqlite3.connect(source)) as copy:
        require_view(copy, source)
        with closing(sqlite3.connect(path)) as target:
            epoch = _epoch_of(target)
            copy.backup(target)
            with target:
                target.execute("UPDATE _claim SET epoch = max(epoch, ?)", (epoch,))
                renew_timelines(target)


def _epoch_of(view: sqlite3.Connection) -> int:
    """0 if there is no view, or none that can be read."""
    with contextlib.suppress(sqlite3.DatabaseError):
        for (epoch,) in view.execute("SELECT epoch FROM _claim"):
            return int(epoch)
    return 0
