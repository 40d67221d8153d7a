"""What an application reads a view with, over a real file that a job writes meanwhile."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.base.ports import BatchReceipt, Positions
from millstream.queues.outbox import Receipt
from millstream.schemas.declaration import schema_of
from millstream.views.store import BadQuestion, NotInThisStore, Row, ViewReads
from millstream.views.stores.sqlite.file import SqliteStore
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from millstream.views.view import View
from millstream.views.waiting import NotFreshYet, NotReadByView
from tests.contracts.view_store_contract import COUNTS, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "counts.sqlite"


@pytest.fixture
def view(path: Path) -> Iterator[View]:
    reader = ViewReader(path, view="counts")
    with View("counts", reader, place=str(path), job=lambda: "Its job stands.") as view:
        yield view


class Job:
    """Writes a batch for each event of `clicks`: the count of / is where it has read to."""

    def __init__(self, path: Path, *, generation: int = 1) -> None:
        self.store = SqliteView(path, view="counts", key=["url"], generation=generation)
        self.epoch = self.store.claim("counts", schema_of(COUNTS))
        self.batch = 0

    def read_to(self, offset: int) -> None:
        receipt = BatchReceipt(
            job="counts",
            epoch=self.epoch,
            query="q",
            batch=self.batch,
            positions={"clicks": {0: offset}},
        )
        self.store.write(receipt, rows(COUNTS, ("/", offset), (f"/{offset}", 1)))
        self.batch += 1


@pytest.fixture
def job(path: Path) -> Iterator[Job]:
    job = Job(path)
    yield job
    job.store.close()


def clicked(offset: int) -> Receipt:
    return Receipt("clicks", 0, offset)


def test_every_question_can_wait_for_a_write(job: Job, view: View) -> None:
    job.read_to(5)
    after, home = [clicked(3), clicked(4)], {"url": "/", "count": 5}
    assert view.get("/", after=after, timeout=0) == home
    assert view.get_many(["/", "/x"], after=after, timeout=0) == [home, None]
    assert view.range("/", "/", after=after, timeout=0) == [home]
    assert view.scan(where={"count >": 1}, after=after, timeout=0) == [home]
    assert view.count(after=after, timeout=0) == 2
    assert view.sql("SELECT count FROM counts WHERE url = ?", ["/"], after=after, timeout=0) == [
        {"count": 5}
    ]
    assert view.arrow(after=after, timeout=0).num_rows == 2
    assert view.sql_arrow("SELECT 1 AS one FROM counts", after=after, timeout=0).num_rows == 2


def test_a_view_that_is_behind_is_not_read(job: Job, view: View) -> None:
    job.read_to(5)
    with pytest.raises(NotFreshYet, match=r"clicks\[0\] is read to 5, and asked to 6\. Its job"):
        view.get("/", after=clicked(5), timeout=0.01)
    with pytest.raises(NotReadByView, match="not made from topic orders"):
        view.count(after=Receipt("orders", 0, 0))


def test_who_writes_and_reads_at_once_always_sees_the_write(job: Job, view: View) -> None:
    """Several readers, each after its own event, while the job writes one after the other."""
    seen: dict[int, Row | None] = {}
    events = 30

    def read(offset: int) -> None:
        seen[offset] = view.get("/", after=clicked(offset), timeout=60)

    readers = [threading.Thread(target=read, args=(offset,)) for offset in range(events)]
    for reader in readers:
        reader.start()
    for offset in range(events):
        job.read_to(offset + 1)
    for reader in readers:
        reader.join(60)
    counts = [(seen[offset] or {})["count"] for offset in range(events)]
    assert all(count > offset for offset, count in enumerate(counts))


def test_a_view_can_be_waited_for_before_it_is_there(path: Path, view: View) -> None:
    found: list[Row | None] = []
    waiting = threading.Thread(
        target=lambda: found.append(view.get("/", after=clicked(0), timeout=60))
    )
    waiting.start()
    job = Job(path)
    job.read_to(1)
    waiting.join(60)
    job.store.close()
    assert found == [{"url": "/", "count": 1}]


def test_a_view_that_was_rolled_back_is_as_old_as_it_is(path: Path, job: Job, view: View) -> None:
    job.read_to(5)
    rebuilt = Job(path, generation=2)
    rebuilt.read_to(10)
    rebuilt.store.serve()
    assert view.get("/", after=clicked(9), timeout=0) == {"url": "/", "count": 10}
    SqliteStore(path, view="counts", key=["url"]).serve(1)
    with pytest.raises(NotFreshYet, match="is read to 5, and asked to 10"):
        view.get("/", after=clicked(9), timeout=0)
    rebuilt.store.close()


def test_a_view_says_what_it_is(job: Job, view: View, path: Path) -> None:
    job.read_to(1)
    assert repr(view) == f"<View counts in {path}>"
    assert view.key == ("url",)
    assert view.schema == schema_of(COUNTS)
    assert view.position() == {"clicks": {0: 1}}


class OnlyRows:
    """A store that has nothing but what every store must have."""

    schema = schema_of("id INT, facts MAP<STRING, INT>")
    key = ("id",)

    def __init__(self, *found: Row) -> None:
        self._rows = list(found)

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        return [None for _ in keys]

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        return self._rows

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        return self._rows

    def count(self) -> int:
        return len(self._rows)

    def position(self) -> Positions:
        return {"clicks": {0: 1}}

    def close(self) -> None:
        pass


class OwnSql(OnlyRows):
    def sql(self, text: str, params: Any) -> list[Row]:
        return [{"text": text, "params": params}]

    def as_of(self, *, version: int | None = None, time: datetime | None = None) -> ViewReads:
        return OnlyRows({"id": version if time is None else time.year, "facts": None})


def test_rows_of_any_store_can_be_asked_in_sql() -> None:
    view = View("facts", OnlyRows({"id": 1, "facts": {"a": 2}}))
    assert view.sql("SELECT id, facts['a'] AS a FROM facts", after=clicked(0)) == [
        {"id": 1, "a": 2}
    ]
    assert pa.types.is_map(view.arrow().schema.field("facts").type)


def test_a_store_with_sql_of_its_own_is_asked_itself() -> None:
    answer = [{"text": "SELECT 1", "params": [2]}]
    assert View("facts", OwnSql()).sql("SELECT 1", [2]) == answer
    assert View("facts", OwnSql()).sql("SELECT 1", [2], after=clicked(0)) == answer


def test_the_past_is_read_by_version_or_by_time() -> None:
    view = View("facts", OwnSql(), place="SQLite")
    assert view.as_of(7).scan() == [{"id": 7, "facts": None}]
    past = view.as_of(datetime(2026, 7, 1, tzinfo=UTC))
    assert past.scan() == [{"id": 2026, "facts": None}]
    assert repr(past) == "<View facts in SQLite, as of 2026-07-01 00:00:00+00:00>"
    with pytest.raises(BadQuestion, match="a version's number, or a datetime"):
        view.as_of("yesterday")  # type: ignore[arg-type]  # what a caller might try


def test_what_a_store_has_no_answer_to_is_told() -> None:
    view = View("facts", OnlyRows(), place="Redis at localhost")
    with pytest.raises(
        NotInThisStore, match="facts is kept in Redis at localhost, which has no past"
    ):
        view.as_of(1)
    with pytest.raises(NotInThisStore, match=r"has no full-text search: keep it in stores\.Search"):
        view.search("words")
    with pytest.raises(NotInThisStore, match="has no change feed"):
        view.subscribe()
