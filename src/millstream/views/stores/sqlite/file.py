"""`stores.Sqlite()`: a view in a file of its own under the app's data, and that file as a whole.

Which generations it holds, which of them is served, what is dropped. What is in them is written by
`store.py` and read by `reader.py`; docs/formats/view_store.md has the layout.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from millstream.base.positions import positions_from
from millstream.views.history import Keeping
from millstream.views.store import (
    Generation,
    Home,
    ViewNotFound,
    require_droppable,
    require_generation,
)
from millstream.views.stores.sqlite.reader import ViewReader, opened_file
from millstream.views.stores.sqlite.store import (
    SqliteView,
    drop_generation,
    has_tables,
    open_for_writing,
    serve_generation,
    served_generation,
    transaction,
    translated,
)
from millstream.views.table_layout import quoted

VIEWS_DIRECTORY = "views"
GENERATIONS = "SELECT generation, served, batch, positions FROM _generations ORDER BY generation"
BESIDE = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Sqlite:
    """The store that a view has if no other is named."""

    keeps_history: ClassVar[bool] = True

    def open(self, view: str, key: tuple[str, ...], home: Home) -> "SqliteStore":
        keeping = Keeping(history_ms=home.history_ms)
        return SqliteStore(view_file(home.data, view), view=view, key=key, keeping=keeping)


def view_file(data: Path, view: str) -> Path:
    return data / VIEWS_DIRECTORY / f"{view}.sqlite"


class SqliteStore:
    """One view's file. Holds nothing open itself."""

    def __init__(
        self, path: Path, *, view: str, key: Sequence[str], keeping: Keeping | None = None
    ) -> None:
        self.path, self.view, self.place = path, view, str(path)
        self._key, self._keeping = tuple(key), keeping

    def writer(self, generation: int) -> SqliteView:
        return SqliteView(
            self.path,
            view=self.view,
            key=self._key,
            generation=generation,
            keeping=self._keeping,
        )

    def reader(self, generation: int | None = None) -> ViewReader:
        return ViewReader(self.path, view=self.view, generation=generation)

    def generations(self) -> list[Generation]:
        with translated(self.path):
            one = opened_file(self.path)
            if one is None:
                return []
            with closing(one.db) as db:
                db.execute("BEGIN")  # of one moment, also if it is being dropped
                return generations_in(db)

    def serve(self, generation: int) -> None:
        with self._changing() as db:
            require_generation(self.view, generation, numbers_in(db))
            serve_generation(db, generation)

    def drop(self, generation: int | None = None) -> None:
        if generation is None:
            self._drop_all()
            return
        with self._changing() as db:
            served = served_generation(db)
            require_droppable(self.view, generation, numbers_in(db), served=served)
            drop_generation(db, generation)

    def _drop_all(self) -> None:
        """Empty the file first: who has it open finds no view in it, and a kill leaves none."""
        if not self.path.exists():
            return
        with self._changing() as db:
            for kind, name in db.execute("SELECT type, name FROM sqlite_schema").fetchall():
                if kind in ("table", "view") and not name.startswith("sqlite_"):
                    db.execute(f"DROP {kind} {quoted(name)}")
            db.execute("PRAGMA application_id = 0")
            db.execute("PRAGMA user_version = 0")
        for name in (self.path, *(Path(f"{self.path}{end}") for end in BESIDE)):
            name.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        if not self.path.exists():
            raise ViewNotFound(view=self.view, place=self.place)
        with (
            translated(self.path),
            closing(open_for_writing(self.path)) as db,
            transaction(db),
        ):
            yield db


def generations_in(db: sqlite3.Connection) -> list[Generation]:
    if not has_tables(db):
        return []
    return [
        Generation(
            number=number,
            is_served=bool(served),
            batch=batch,
            positions=positions_from(json.loads(positions)),
        )
        for number, served, batch, positions in db.execute(GENERATIONS)
    ]


def numbers_in(db: sqlite3.Connection) -> list[int]:
    return [one.number for one in generations_in(db)]
