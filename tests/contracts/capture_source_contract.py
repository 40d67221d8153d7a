"""What every change source promises. Subclasses only say how to get a database.

A subclass has a fixture `database` (a `CapturedDatabase`, empty for each test), the column types of
its database in `TYPES`, and nothing else. What one database cannot do is a strict, reasoned xfail.

The statements are such as PostgreSQL, MariaDB and SQLite all read.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any, ClassVar, NamedTuple, Protocol

import pyarrow as pa
import pytest

from millstream.base.schema import DataType, Field, Struct
from millstream.capture.change import CapturedTable, Change, Message, Quiet, Transaction
from millstream.capture.source import Chunk, Loader, Source
from millstream.capture.table_names import split_name
from millstream.values.json_decoder import JsonDecoder
from tests.support.odd_names import ODD_NAMES, ODD_TABLES

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, item VARCHAR(100), amount INTEGER)"
MARKS = "CREATE TABLE marks (id INTEGER PRIMARY KEY)"
WAIT_S = 60.0
BIG_ROWS = 20_000
MARK_IDS = count(1)


class CapturedDatabase(Protocol):
    """One empty database, and how it is captured. The test ends it."""

    def execute(self, *statements: str, session: str = "main") -> None:
        """Each statement is a transaction of its own, but between BEGIN and COMMIT or ROLLBACK."""
        ...

    def source(self, *tables: str, known: Iterable[CapturedTable] = ()) -> Source:
        """A capture of these tables, not yet prepared; always the same capture's name.

        `known` are the versions of tables that an earlier run has seen.
        """
        ...

    def close(self) -> None: ...


class TypeCase(NamedTuple):
    """A column's type, a value as SQL writes it, its JSON form, and our type for it."""

    declared: str
    literal: str
    json: Any
    type: DataType


class Seen(NamedTuple):
    """A change, as tests compare it."""

    table: str
    op: str
    key: Any
    after: Any


@dataclass
class Followed:
    """A stream that is read step by step. `marks` is a captured table that shows how far it is."""

    database: CapturedDatabase
    source: Source
    position: str
    transactions: list[tuple[Transaction, list[Change]]] = field(default_factory=list)
    items: list[list[Change | Message]] = field(default_factory=list)  # of each transaction
    quiets: list[Quiet] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start_again()

    def start_again(self) -> None:
        """A new stream, from where the last one came to."""
        self._stream = self.source.stream(self.position)

    def close(self) -> None:
        close = getattr(self._stream, "close", None)
        if close is not None:
            close()
        self.source.close()

    def read_until(self, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_reached():
            assert time.monotonic() < deadline, f"not within {WAIT_S} s: {self.seen()}"
            self.step()

    def step(self) -> Transaction | Quiet:
        item = next(self._stream)
        if isinstance(item, Quiet):
            self.quiets.append(item)
        else:
            self.items.append(list(item.changes))
            changes = [change for change in self.items[-1] if isinstance(change, Change)]
            self.transactions.append((item, changes))
        self.position = item.resume
        return item

    def catch_up(self) -> list[Seen]:
        """All changes so far, without the marks."""
        mark = next(MARK_IDS)
        self.database.execute(f"INSERT INTO marks VALUES ({mark})")
        self.read_until(lambda: ("marks", {"id": mark}) in self._last_keys())
        return self.seen()

    def _last_keys(self) -> list[tuple[str, Any]]:
        if not self.transactions:
            return []
        return [(short(one.table), of_json(one.key)) for one in self.transactions[-1][1]]

    def changes(self) -> list[Change]:
        """But not those of marks."""
        found = [change for _, changes in self.transactions for change in changes]
        return [change for change in found if short(change.table) != "marks"]

    def seen(self) -> list[Seen]:
        return [seen(change) for change in self.changes()]

    def whole_transactions(self) -> list[list[Seen]]:
        """But not those of marks alone."""
        found = [
            [seen(change) for change in changes if short(change.table) != "marks"]
            for _, changes in self.transactions
        ]
        return [changes for changes in found if changes]


def short(table: CapturedTable) -> str:
    return split_name(table.name)[1]


def of_json(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)


def seen(change: Change) -> Seen:
    return Seen(short(change.table), change.op, of_json(change.key), of_json(change.after))


def order(op: str, number: int, item: str | None = None, amount: int | None = None) -> Seen:
    """A change of `orders`. A deleted one has no row."""
    after = None if op == "d" else {"id": number, "item": item, "amount": amount}
    return Seen("orders", op, {"id": number}, after)


def decoded(table: CapturedTable, after: bytes) -> dict[str, Any]:
    """A row, as our JSON decoder reads it by the types that the table declares."""
    schema = Struct(tuple(Field(column.name, column.type) for column in table.columns))
    found = JsonDecoder(schema).decode(pa.array([after], pa.binary()))
    assert not found.bad, found.bad
    row: dict[str, Any] = found.batch.to_pylist()[0]
    return row


def rows_of(loader: Loader, table: CapturedTable, *, rows_max: int = 1000) -> list[Any]:
    """The whole table, chunk by chunk; the rows as JSON reads them."""
    return [of_json(row) for chunk in chunks_of(loader, table, rows_max) for _, row in chunk.rows]


def chunks_of(
    loader: Loader, table: CapturedTable, rows_max: int, *, ranges: int = 1
) -> Iterator[Chunk]:
    for after, until in loader.ranges(table, ranges):
        key = after
        while True:
            chunk = loader.read(table, key, until, rows_max)
            yield chunk
            if chunk.last_key is None:
                break
            key = chunk.last_key


def table_named(source: Source, name: str) -> CapturedTable:
    return next(table for table in source.tables() if short(table) == name)


class CaptureSourceContract:
    TYPES: ClassVar[Sequence[TypeCase]] = ()
    BACKSLASH: ClassVar[str] = "\\"  # as it is written inside of a literal
    QUOTE: ClassVar[str] = '"'  # around a name
    NOT_NAMES: ClassVar[frozenset[str]] = frozenset()  # that this database cannot have
    WITHOUT_KEY: ClassVar[Sequence[str]] = ()  # what `notes`, a table without a key, needs besides

    @pytest.fixture
    def shop(self, database: CapturedDatabase) -> CapturedDatabase:
        """A database with a table of orders, and one of marks."""
        database.execute(ORDERS, MARKS)
        return database

    @pytest.fixture
    def followed(self, shop: CapturedDatabase) -> Iterator[Followed]:
        source = shop.source("orders", "marks")
        with closing(Followed(shop, source, source.prepare())) as followed:
            yield followed

    # --- changes ------------------------------------------------------------------------------

    def test_rows_that_come_change_and_go_are_handed_over_in_order(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute(
            "INSERT INTO orders VALUES (1, 'tea', 3)",
            "UPDATE orders SET amount = 4 WHERE id = 1",
            "INSERT INTO orders VALUES (2, NULL, NULL)",
            "DELETE FROM orders WHERE id = 1",
        )
        assert followed.catch_up() == [
            order("c", 1, "tea", 3),
            order("u", 1, "tea", 4),
            order("c", 2),
            order("d", 1),
        ]

    def test_a_row_that_gets_another_key_is_deleted_and_created(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute(
            "INSERT INTO orders VALUES (1, 'tea', 3)", "UPDATE orders SET id = 7 WHERE id = 1"
        )
        assert followed.catch_up()[1:] == [order("d", 1), order("c", 7, "tea", 3)]

    def test_a_key_of_two_columns_is_in_the_order_of_the_key(self, shop: CapturedDatabase) -> None:
        shop.execute("CREATE TABLE pairs (x INTEGER, y INTEGER, note INTEGER, PRIMARY KEY (y, x))")
        source = shop.source("pairs", "marks")
        with closing(Followed(shop, source, source.prepare())) as followed:
            shop.execute("INSERT INTO pairs VALUES (1, 2, 3)")
            followed.catch_up()
            (change,) = followed.changes()
        assert change.key == b'{"y":2,"x":1}'
        assert change.table.key == ("y", "x")
        assert change.after == b'{"x":1,"y":2,"note":3}'

    def test_a_table_without_a_key_has_changes_without_one(self, shop: CapturedDatabase) -> None:
        shop.execute("CREATE TABLE notes (note VARCHAR(100))", *self.WITHOUT_KEY)
        source = shop.source("notes", "marks")
        with closing(Followed(shop, source, source.prepare())) as followed:
            shop.execute("INSERT INTO notes VALUES ('x')")
            assert followed.catch_up() == [Seen("notes", "c", None, {"note": "x"})]

    def test_tables_that_nobody_asked_for_are_not_handed_over(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)", "INSERT INTO other VALUES (1)")
        assert followed.catch_up() == []

    def test_any_character_of_a_text_arrives(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        text = 'a"b/c\td\ne\rf\x01g\x7fh\u00e9\u4e2d\U0001f600 {"x":1}'
        shop.execute(f"INSERT INTO orders VALUES (1, '{text}', 0)")
        assert followed.catch_up() == [order("c", 1, text, 0)]

    def quoted(self, name: str) -> str:
        return self.QUOTE + name.replace(self.QUOTE, self.QUOTE * 2) + self.QUOTE

    def test_columns_of_any_name_are_captured_and_loaded(self, shop: CapturedDatabase) -> None:
        """Whatever their values: `(9,9)` is how PostgreSQL writes a row."""
        names = [name for name in ODD_NAMES if name not in self.NOT_NAMES]
        declared = ", ".join(f"{self.quoted(name)} VARCHAR(9)" for name in names[2:])
        key = f"{self.quoted(names[0])}, {self.quoted(names[1])}"
        shop.execute(
            f"CREATE TABLE odd ({self.quoted(names[0])} VARCHAR(9), {self.quoted(names[1])} "
            f"VARCHAR(9), {declared}, PRIMARY KEY ({key}))"
        )
        source = shop.source("odd", "marks")
        row = dict.fromkeys(names, "(9,9)")
        others = ", ".join(f"{self.quoted(name)} = '7'" for name in names[2:])
        with closing(Followed(shop, source, source.prepare())) as followed:
            values = ", ".join(["'(9,9)'"] * len(names))
            shop.execute(f"INSERT INTO odd VALUES ({values})", f"UPDATE odd SET {others}")
            created, updated = followed.catch_up()
            with closing(source.loader()) as loader:
                assert rows_of(loader, table_named(source, "odd"), rows_max=1) == [updated.after]
        assert created == Seen("odd", "c", dict.fromkeys(names[:2], "(9,9)"), row)
        assert updated.after == row | dict.fromkeys(names[2:], "7")

    def test_tables_of_any_name_are_captured_and_loaded(self, shop: CapturedDatabase) -> None:
        """One with a dot in its name is given with quotes, or with its schema."""
        names = [name for name in ODD_TABLES if name not in self.NOT_NAMES]
        for name in names:
            shop.execute(f"CREATE TABLE {self.quoted(name)} (o0 INTEGER PRIMARY KEY, v INTEGER)")
        given = ['"' + name.replace('"', '""') + '"' for name in names]
        source = shop.source(*given, "marks")
        with closing(Followed(shop, source, source.prepare())) as followed:
            for number, name in enumerate(names):
                table = self.quoted(name)
                shop.execute(f"INSERT INTO {table} VALUES ({number}, 1)")
            shop.execute(*(f"UPDATE {self.quoted(name)} SET v = 2" for name in names))
            found = followed.catch_up()
            loaded = {}
            with closing(source.loader()) as loader:
                for captured in source.tables():
                    loaded[short(captured)] = rows_of(loader, captured, rows_max=1)
        rows = {name: [{"o0": number, "v": 2}] for number, name in enumerate(names)}
        assert {one.table: [one.after] for one in found if one.op == "u"} == rows
        assert {name: found for name, found in loaded.items() if name != "marks"} == rows

    # --- transactions -------------------------------------------------------------------------

    def test_a_transaction_is_handed_over_whole(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute(
            "BEGIN",
            "INSERT INTO orders VALUES (1, 'tea', 3)",
            "INSERT INTO orders VALUES (2, 'rye', 1), (3, 'oat', 1)",
            "UPDATE orders SET amount = 4 WHERE id = 1",
            "COMMIT",
        )
        followed.catch_up()
        (whole,) = followed.whole_transactions()
        assert whole == [
            order("c", 1, "tea", 3),
            order("c", 2, "rye", 1),
            order("c", 3, "oat", 1),
            order("u", 1, "tea", 4),
        ]

    def test_what_was_rolled_back_is_not_handed_over(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute("BEGIN", "INSERT INTO orders VALUES (1, 'tea', 3)", "ROLLBACK")
        shop.execute("INSERT INTO orders VALUES (2, 'rye', 1)")
        assert followed.catch_up() == [order("c", 2, "rye", 1)]

    def test_what_was_rolled_back_to_a_savepoint_is_not_handed_over(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute(
            "BEGIN",
            "INSERT INTO orders VALUES (1, 'tea', 3)",
            "SAVEPOINT one",
            "INSERT INTO orders VALUES (2, 'rye', 1)",
            "ROLLBACK TO SAVEPOINT one",
            "SAVEPOINT two",
            "INSERT INTO orders VALUES (3, 'oat', 1)",
            "RELEASE SAVEPOINT two",
            "COMMIT",
        )
        assert followed.catch_up() == [order("c", 1, "tea", 3), order("c", 3, "oat", 1)]

    def test_transactions_side_by_side_are_not_mixed(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        _write_side_by_side(shop)
        followed.catch_up()
        assert sorted(followed.whole_transactions(), key=str) == [
            [order("c", 1, "a", 1), order("c", 3, "a", 3)],
            [order("c", 2, "b", 2), order("c", 4, "b", 4)],
        ]

    def test_transactions_come_in_the_order_of_their_commits(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        _write_side_by_side(shop)
        assert [one.key["id"] for one in followed.catch_up()] == [2, 4, 1, 3]

    def test_a_big_transaction_is_handed_over_whole(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        rows = _write_big_transaction(shop)
        followed.catch_up()
        (whole,) = followed.whole_transactions()
        assert [one.key["id"] for one in whole] == list(range(rows))
        assert whole[-1] == order("c", rows - 1, "tea", 3)

    def test_a_big_transaction_that_was_rolled_back_is_not_handed_over(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        _write_big_transaction(shop, end="ROLLBACK")
        assert followed.catch_up() == []

    def test_transactions_have_positions_that_go_up(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        for number in range(5):
            shop.execute(f"INSERT INTO orders VALUES ({number}, 'tea', 1)")
            followed.catch_up()
        found = [transaction for transaction, _ in followed.transactions]
        is_past = followed.source.is_past
        for former, later in pairwise(found):
            assert is_past(later.commit, former.commit)
            assert not is_past(former.commit, later.commit)
            assert is_past(later.resume, former.resume)
        assert is_past(found[0].commit, found[0].commit)
        assert len({transaction.commit for transaction in found}) == len(found)

    def test_a_transaction_tells_when_it_was_committed(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        before_ms = time.time() * 1000
        followed.catch_up()
        transaction, _ = followed.transactions[-1]
        assert before_ms - 1000 <= transaction.at_ms <= time.time() * 1000 + 1000

    # --- going on -----------------------------------------------------------------------------

    def test_a_new_stream_goes_on_after_the_position_that_it_is_given(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        followed.catch_up()
        followed.source.confirm(followed.position)
        followed.close()
        shop.execute("INSERT INTO orders VALUES (2, 'rye', 1)")
        again = shop.source("orders", "marks")
        with closing(Followed(shop, again, followed.position)) as second:
            assert second.catch_up() == [order("c", 2, "rye", 1)]

    def test_what_was_not_confirmed_is_handed_over_again_as_the_same(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        start = followed.position
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1), (2, 'tea', 1)", "DELETE FROM orders")
        followed.catch_up()
        first = _identities(followed)
        followed.close()
        with closing(Followed(shop, shop.source("orders", "marks"), start)) as second:
            second.catch_up()
            assert _identities(second)[: len(first)] == first

    def test_preparing_again_goes_on_with_what_is_there(self, shop: CapturedDatabase) -> None:
        first = shop.source("orders", "marks")
        first.prepare()
        first.close()
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        second = shop.source("orders", "marks")
        with closing(Followed(shop, second, second.prepare())) as followed:
            found = followed.catch_up()
        assert found in ([], [order("c", 1, "tea", 1)])  # a load would bring it

    def test_a_capture_that_was_dropped_can_be_made_again(self, shop: CapturedDatabase) -> None:
        first = shop.source("orders", "marks")
        first.prepare()
        first.drop()
        first.close()
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        second = shop.source("orders", "marks")
        with closing(Followed(shop, second, second.prepare())) as followed:
            shop.execute("INSERT INTO orders VALUES (2, 'rye', 1)")
            assert followed.catch_up() == [order("c", 2, "rye", 1)]

    def test_an_idle_stream_says_so_and_its_position_never_goes_back(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        followed.catch_up()
        followed.read_until(lambda: len(followed.quiets) >= 2)
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        followed.catch_up()
        followed.read_until(lambda: len(followed.quiets) >= 4)
        positions = [quiet.resume for quiet in followed.quiets]
        for former, later in pairwise(positions):
            assert followed.source.is_past(later, former)

    def test_a_table_that_is_added_is_handed_over_from_then_on(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)", "INSERT INTO items VALUES (1)")
        followed.catch_up()
        followed.source.add_tables(["items"])
        shop.execute("INSERT INTO items VALUES (2)")
        assert followed.catch_up() == [Seen("items", "c", {"id": 2}, {"id": 2})]
        assert {short(table) for table in followed.source.tables()} == {"orders", "marks", "items"}

    # --- tables that change -------------------------------------------------------------------

    def test_a_column_more_or_less_is_a_new_version(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute(
            "INSERT INTO orders VALUES (1, 'tea', 1)",
            "ALTER TABLE orders ADD COLUMN note VARCHAR(100)",
            "INSERT INTO orders VALUES (2, 'rye', 1, 'new')",
            "ALTER TABLE orders RENAME COLUMN item TO article",
            "INSERT INTO orders VALUES (3, 'oat', 1, 'newer')",
            "ALTER TABLE orders DROP COLUMN amount",
            "INSERT INTO orders VALUES (4, 'fig', 'newest')",
        )
        assert [one.after for one in followed.catch_up()] == [
            {"id": 1, "item": "tea", "amount": 1},
            {"id": 2, "item": "rye", "amount": 1, "note": "new"},
            {"id": 3, "article": "oat", "amount": 1, "note": "newer"},
            {"id": 4, "article": "fig", "note": "newest"},
        ]
        assert _columns_by_version(followed) == [
            (1, ["id", "item", "amount"]),
            (2, ["id", "item", "amount", "note"]),
            (3, ["id", "article", "amount", "note"]),
            (4, ["id", "article", "note"]),
        ]

    def test_versions_go_on_where_an_earlier_run_ended(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        start = followed.position
        shop.execute(
            "INSERT INTO orders VALUES (1, 'tea', 1)",
            "ALTER TABLE orders ADD COLUMN note VARCHAR(100)",
            "INSERT INTO orders VALUES (2, 'rye', 1, 'new')",
        )
        followed.catch_up()
        known = {change.table for change in followed.changes()}
        versions = _columns_by_version(followed)
        followed.close()
        again = shop.source("orders", "marks", known=known)
        with closing(Followed(shop, again, start)) as second:
            second.catch_up()
            assert _columns_by_version(second) == versions
            shop.execute("ALTER TABLE orders DROP COLUMN item")
            shop.execute("INSERT INTO orders VALUES (3, 1, 'newer')")
            second.catch_up()
            assert _columns_by_version(second)[-1] == (3, ["id", "amount", "note"])

    # --- values -------------------------------------------------------------------------------

    def test_every_type_arrives_without_loss(self, shop: CapturedDatabase) -> None:
        _create_typed(shop, self.TYPES)
        source = shop.source("typed", "marks")
        with closing(Followed(shop, source, source.prepare())) as followed:
            _fill_typed(shop, self.TYPES)
            found = followed.catch_up()
            (change,) = followed.changes()
        types = {column.name: column.type for column in change.table.columns}
        arrived = [
            case._replace(json=found[0].after[f"c{number}"], type=types[f"c{number}"])
            for number, case in enumerate(self.TYPES)
        ]
        changed = [pair for pair in zip(arrived, self.TYPES, strict=True) if pair[0] != pair[1]]
        assert changed == [], f"(found, expected): {changed}"

    def test_every_type_is_what_our_decoder_reads(self, shop: CapturedDatabase) -> None:
        finite = [case for case in self.TYPES if not _is_beyond_json(case)]
        _create_typed(shop, finite)
        source = shop.source("typed", "marks")
        with closing(Followed(shop, source, source.prepare())) as followed:
            _fill_typed(shop, finite)
            followed.catch_up()
            (change,) = followed.changes()
        assert change.after is not None
        row = decoded(change.table, change.after)
        empty = [case for number, case in enumerate(finite) if row[f"c{number}"] is None]
        assert empty == [case for case in finite if case.json is None]

    def test_a_loaded_row_has_the_bytes_of_a_streamed_one(self, shop: CapturedDatabase) -> None:
        _create_typed(shop, self.TYPES)
        source = shop.source("typed", "marks")
        with closing(Followed(shop, source, source.prepare())) as followed:
            _fill_typed(shop, self.TYPES)
            followed.catch_up()
            (change,) = followed.changes()
            with closing(source.loader()) as loader:
                (chunk,) = chunks_of(loader, change.table, 1000)
        assert list(chunk.rows) == [(change.key, change.after)]

    # --- loading ------------------------------------------------------------------------------

    @pytest.mark.parametrize("rows_max", [1, 7, 1000])
    def test_chunks_bring_every_row_once(self, shop: CapturedDatabase, rows_max: int) -> None:
        _fill_orders(shop, 20)
        source = shop.source("orders", "marks")
        source.prepare()
        with closing(source), closing(source.loader()) as loader:
            found = rows_of(loader, table_named(source, "orders"), rows_max=rows_max)
        assert found == [{"id": number, "item": "tea", "amount": number} for number in range(20)]

    @pytest.mark.parametrize("count", [1, 2, 5])
    def test_ranges_side_by_side_bring_every_row_once(
        self, shop: CapturedDatabase, count: int
    ) -> None:
        _fill_orders(shop, 500)
        source = shop.source("orders", "marks")
        source.prepare()
        with closing(source), closing(source.loader()) as loader:
            table = table_named(source, "orders")
            assert 1 <= len(loader.ranges(table, count)) <= count
            chunks = list(chunks_of(loader, table, 100, ranges=count))
        keys = [of_json(key)["id"] for chunk in chunks for key, _ in chunk.rows]
        assert sorted(keys) == list(range(500))

    def test_an_empty_table_is_one_empty_chunk(self, shop: CapturedDatabase) -> None:
        source = shop.source("orders", "marks")
        source.prepare()
        with closing(source), closing(source.loader()) as loader:
            (chunk,) = chunks_of(loader, table_named(source, "orders"), 10, ranges=3)
        assert (list(chunk.rows), chunk.last_key) == ([], None)

    def test_chunks_of_a_text_key_go_in_an_order_that_ends(self, shop: CapturedDatabase) -> None:
        shop.execute("CREATE TABLE names (name VARCHAR(50) PRIMARY KEY, size INTEGER)")
        names = ["a", "B", "\u00e9", "z'", 'q"', "\u4e2d", "x y", "", "\\", "{1,2}"]
        for number, name in enumerate(names):
            quoted = name.replace("'", "''").replace("\\", self.BACKSLASH)
            shop.execute(f"INSERT INTO names VALUES ('{quoted}', {number})")
        source = shop.source("names", "marks")
        source.prepare()
        with closing(source), closing(source.loader()) as loader:
            found = rows_of(loader, table_named(source, "names"), rows_max=3)
        assert {row["name"]: row["size"] for row in found} == {
            name: number for number, name in enumerate(names)
        }
        assert len(found) == len(names)

    def test_chunks_go_on_in_a_key_of_two_columns(self, shop: CapturedDatabase) -> None:
        shop.execute("CREATE TABLE pairs (x INTEGER, y INTEGER, PRIMARY KEY (y, x))")
        for number in range(12):
            shop.execute(f"INSERT INTO pairs VALUES ({number}, {number % 2})")
        source = shop.source("pairs", "marks")
        source.prepare()
        with closing(source), closing(source.loader()) as loader:
            found = rows_of(loader, table_named(source, "pairs"), rows_max=5)
        assert sorted(row["x"] for row in found) == list(range(12))

    def test_a_table_without_a_key_is_loaded_whole(self, shop: CapturedDatabase) -> None:
        shop.execute("CREATE TABLE notes (note VARCHAR(100))", *self.WITHOUT_KEY)
        for note in ("x", "x", "y"):
            shop.execute(f"INSERT INTO notes VALUES ('{note}')")
        source = shop.source("notes", "marks")
        source.prepare()
        with closing(source), closing(source.loader()) as loader:
            found = rows_of(loader, table_named(source, "notes"), rows_max=2)
        assert sorted(row["note"] for row in found) == ["x", "x", "y"]

    def test_a_chunk_knows_which_transactions_it_saw(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        shop.execute("INSERT INTO orders VALUES (1, 'before', 1)")
        shop.execute("BEGIN", "INSERT INTO orders VALUES (2, 'open', 1)", session="open")
        with closing(followed.source.loader()) as loader:
            chunk = loader.read(table_named(followed.source, "orders"), None, None, 100)
        shop.execute("COMMIT", session="open")
        shop.execute("INSERT INTO orders VALUES (3, 'after', 1)")
        followed.catch_up()
        saw = {
            seen(change).key["id"]: chunk.sees(transaction)
            for transaction, changes in followed.transactions
            for change in changes
            if short(change.table) == "orders"
        }
        assert saw == {1: True, 2: False, 3: False}
        assert [of_json(key)["id"] for key, _ in chunk.rows] == [1]
        assert followed.source.is_past(followed.position, chunk.closes_at)

    def test_a_chunk_closes_after_every_transaction_that_it_saw(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        for number in range(5):
            shop.execute(f"INSERT INTO orders VALUES ({number}, 'tea', 1)")
        with closing(followed.source.loader()) as loader:
            chunk = loader.read(table_named(followed.source, "orders"), None, None, 100)
        followed.read_until(lambda: followed.source.is_past(followed.position, chunk.closes_at))
        assert len(followed.seen()) == 5

    # --- what is missing ----------------------------------------------------------------------

    def test_a_database_that_has_all_it_needs_has_no_fatal_finding(
        self, shop: CapturedDatabase
    ) -> None:
        with closing(shop.source("orders", "marks")) as source:
            assert [found for found in source.check() if found.is_fatal] == []

    def test_a_table_that_is_not_there_is_named(self, shop: CapturedDatabase) -> None:
        with closing(shop.source("orders", "nowhere")) as source:
            found = [one for one in source.check() if one.is_fatal]
        assert any("nowhere" in one.what for one in found)


def _write_side_by_side(shop: CapturedDatabase) -> None:
    """Transaction `b` begins last and is committed first."""
    shop.execute("BEGIN", "INSERT INTO orders VALUES (1, 'a', 1)", session="a")
    shop.execute("BEGIN", "INSERT INTO orders VALUES (2, 'b', 2)", session="b")
    shop.execute("INSERT INTO orders VALUES (3, 'a', 3)", session="a")
    shop.execute("INSERT INTO orders VALUES (4, 'b', 4)", "COMMIT", session="b")
    shop.execute("COMMIT", session="a")


def _write_big_transaction(shop: CapturedDatabase, *, end: str = "COMMIT") -> int:
    """One transaction of rows 0, 1, 2, ... in this order; how many."""
    rows = 1
    statements = ["BEGIN", "INSERT INTO orders VALUES (0, 'tea', 3)"]
    while rows < BIG_ROWS:
        statements.append(
            f"INSERT INTO orders SELECT id + {rows}, item, amount FROM orders ORDER BY id"
        )
        rows *= 2
    shop.execute(*statements, end)
    return rows


def _fill_orders(shop: CapturedDatabase, count: int) -> None:
    values = ", ".join(f"({number}, 'tea', {number})" for number in range(count))
    shop.execute(f"INSERT INTO orders VALUES {values}")


def _identities(followed: Followed) -> list[tuple[str, int, Seen]]:
    """Of every change: its commit, its place in it, and what it says; but not of marks."""
    return [
        (transaction.commit, place, seen(change))
        for transaction, changes in followed.transactions
        for place, change in enumerate(changes)
        if short(change.table) != "marks"
    ]


def _columns_by_version(followed: Followed) -> list[tuple[int, list[str]]]:
    found = {
        change.table.version: [column.name for column in change.table.columns]
        for change in followed.changes()
    }
    return sorted(found.items())


def _create_typed(shop: CapturedDatabase, cases: Sequence[TypeCase]) -> None:
    columns = ", ".join(f"c{number} {case.declared}" for number, case in enumerate(cases))
    shop.execute(f"CREATE TABLE typed (id INTEGER PRIMARY KEY, {columns})")


def _fill_typed(shop: CapturedDatabase, cases: Sequence[TypeCase]) -> None:
    values = ", ".join(case.literal for case in cases)
    shop.execute(f"INSERT INTO typed VALUES (1, {values})")


def _is_beyond_json(case: TypeCase) -> bool:
    """A value that its type cannot hold: it is handed over as a text, and refused by a decoder."""
    return isinstance(case.json, str) and case.json.lower().lstrip("-") in ("infinity", "nan")
