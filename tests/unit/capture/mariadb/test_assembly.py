"""Events of the binlog to transactions, packet by packet."""

from collections.abc import Iterable
from typing import Any

import pytest

from millstream.capture.change import CapturedTable, Change, Transaction
from millstream.capture.mariadb import binlog_event as events
from millstream.capture.mariadb.assembly import Assembly, BinlogIncomplete, Shapes
from millstream.capture.mariadb.binlog_event import DamagedEvent
from millstream.capture.mariadb.groups import TableShape
from millstream.capture.mariadb.gtids import Position
from millstream.capture.mariadb.row_decoder import BadRow, row_reader
from millstream.capture.mariadb.statements import TableName
from millstream.capture.mariadb.table_map import MARIADB, Charset, MetadataMissing, read_table_map
from tests.unit.capture.mariadb.binlog_packets import (
    AT_S,
    gtid,
    inserted,
    packet,
    query,
    row,
    rows,
    table_map,
    xa_prepare,
    xid,
)

ORDERS = TableName("shop", "orders")


def shape(body: bytes) -> TableShape:
    mapped = read_table_map(body, MARIADB, lambda _: Charset("utf8mb4", 4, bytes.decode))
    columns = tuple(
        column.type.column(column.name, is_nullable=column.is_nullable) for column in mapped.columns
    )
    table = CapturedTable(
        name=f"{mapped.database}.{mapped.table}", topic="orders", columns=columns, key=mapped.key
    )
    return TableShape(table, row_reader(mapped.columns, mapped.key, lambda _: bytes.decode))


CURRENT = CapturedTable(name="shop.orders", topic="orders", columns=(), key=("id",))


def assembly(
    start: str = "0-1-10",
    *,
    must_reload: bool = False,
    is_there: bool = True,
    tables: Iterable[TableName] = (ORDERS,),
) -> Assembly:
    shapes = Shapes(shape, lambda _: CURRENT, lambda *_: must_reload, lambda _: is_there)
    return Assembly(Position.parse(start), set(tables), shapes, has_checksums=True)


def taken(reader: Assembly, *packets: bytes) -> list[Transaction]:
    found = [reader.take(one) for one in packets]
    return [transaction for transaction in found if transaction is not None]


def told(changes: Iterable[Any]) -> list[tuple[str, bytes | None, bytes | None]]:
    return [(one.op, one.key, one.after) for one in changes if isinstance(one, Change)]


def created(number: int) -> tuple[str, bytes, bytes]:
    key = f'{{"id":{number}}}'.encode()
    return "c", key, f'{{"id":{number},"item":"item {number}"}}'.encode()


def test_a_transaction_ends_with_its_xid() -> None:
    reader = assembly()
    (found,) = taken(reader, gtid(11), table_map(), inserted(1, 2), inserted(3), xid())
    assert told(found.changes) == [created(1), created(2), created(3)]
    assert (found.commit, found.resume, found.at_ms) == ("0-1-11", "0-1-11", AT_S * 1000)


def test_a_change_of_the_key_is_a_delete_and_a_create() -> None:
    update = rows(events.UPDATE_ROWS_V1, row(1, "a"), row(2, "a"), row(3, "b"), row(3, None))
    (found,) = taken(assembly(), gtid(11), table_map(), update, xid())
    changes = list(found.changes)
    assert told(changes) == [
        ("d", b'{"id":1}', None),
        ("c", b'{"id":2}', b'{"id":2,"item":"a"}'),
        ("u", b'{"id":3}', b'{"id":3,"item":null}'),
    ]
    assert [one.before for one in changes if isinstance(one, Change)] == [
        b'{"id":1,"item":"a"}',
        None,
        b'{"id":3,"item":"b"}',
    ]


def test_a_transaction_that_touched_nothing_captured_moves_the_position_on() -> None:
    reader = assembly()
    other = table_map(table="other")
    assert taken(reader, gtid(11), other, inserted(1), xid()) == []
    assert reader.resume == "0-1-11"


def test_what_ends_in_rollback_is_forgotten() -> None:
    reader = assembly()
    assert taken(reader, gtid(11), table_map(), inserted(1), query("ROLLBACK")) == []
    assert reader.resume == "0-1-11"


def test_what_is_rolled_back_to_a_savepoint_is_forgotten() -> None:
    (found,) = taken(
        assembly(),
        gtid(11),
        table_map(),
        inserted(1),
        query("SAVEPOINT `a`"),
        inserted(2),
        query("SAVEPOINT `b`"),
        inserted(3),
        query("ROLLBACK TO `a`"),
        inserted(4),
        query("COMMIT"),
    )
    assert told(found.changes) == [created(1), created(4)]


def test_the_position_stays_before_a_transaction_that_is_prepared() -> None:
    reader = assembly()
    taken(reader, gtid(11), table_map(), inserted(1), xa_prepare(b"x"))
    (other,) = taken(reader, gtid(12), table_map(), inserted(2), xid())
    assert other.resume == "0-1-12 from 0-1-10"
    (prepared,) = taken(reader, gtid(13), query("XA COMMIT X'78',X'',1"))
    assert told(prepared.changes) == [created(1)]
    assert (prepared.commit, prepared.resume) == ("0-1-13", "0-1-13")


def test_a_second_run_reads_what_was_prepared_and_hands_nothing_over_twice() -> None:
    reader = assembly("0-1-12 from 0-1-10")
    assert taken(reader, gtid(11), table_map(), inserted(1), xa_prepare(b"x")) == []
    assert taken(reader, gtid(12), table_map(), inserted(2), xid()) == []
    assert reader.resume == "0-1-12 from 0-1-10"
    (prepared,) = taken(reader, gtid(13), query("XA COMMIT X'78',X'',1"))
    assert told(prepared.changes) == [created(1)]
    assert reader.resume == "0-1-13"


def test_a_prepared_transaction_that_is_rolled_back_is_forgotten() -> None:
    reader = assembly()
    taken(reader, gtid(11), table_map(), inserted(1), xa_prepare(b"x"))
    assert taken(reader, gtid(12), query("XA ROLLBACK X'78',X'',1")) == []
    assert reader.resume == "0-1-12"


def test_a_truncate_stands_alone() -> None:
    reader = assembly()
    alone = gtid(11, flags=events.STANDALONE | events.DDL)
    (found,) = taken(reader, alone, query("TRUNCATE orders"))
    assert [change.op for change in found.changes if isinstance(change, Change)] == ["t"]
    assert reader.resume == "0-1-11"


@pytest.mark.parametrize("must_reload", [True, False])
def test_a_table_that_was_altered_is_loaded_anew_if_it_must_be(must_reload: bool) -> None:
    reader = assembly(must_reload=must_reload)
    alone = gtid(11, flags=events.STANDALONE | events.DDL)
    found = taken(reader, alone, query("ALTER TABLE orders ADD x INT DEFAULT 1"))
    assert [one.reloads for one in found] == ([("shop.orders",)] if must_reload else [])


def test_a_change_that_was_logged_as_a_statement_makes_its_table_load_anew() -> None:
    (found,) = taken(assembly(), gtid(11), query("UPDATE orders SET item = 'x'"), xid())
    assert found.reloads == ("shop.orders",)


def test_rows_without_some_of_their_columns_make_their_table_load_anew() -> None:
    part = rows(events.WRITE_ROWS_V1, row(1, "a"), present=0xFD)
    (found,) = taken(assembly(), gtid(11), table_map(), part, xid())
    assert (found.reloads, list(found.changes)) == (("shop.orders",), [])


def test_a_table_that_is_added_later_is_seen_from_then_on() -> None:
    reader = assembly(tables=())
    assert taken(reader, gtid(11), table_map(), inserted(1), xid()) == []
    reader.add_tables([ORDERS])
    (found,) = taken(reader, gtid(12), table_map(), inserted(2), xid())
    assert (told(found.changes), found.reloads) == ([created(2)], ())


def test_a_table_that_is_added_in_the_middle_of_a_transaction_is_loaded_anew() -> None:
    reader = assembly(tables=())
    taken(reader, gtid(11), table_map(), inserted(1))
    reader.add_tables([ORDERS])
    (found,) = taken(reader, inserted(2), xid())
    assert found.reloads == ("shop.orders",)


def test_a_gap_in_the_binlog_is_told() -> None:
    with pytest.raises(BinlogIncomplete, match="after 0-1-10 the binlog has a gap"):
        assembly().take(packet(events.INCIDENT, b"\x01\x00\x00"))


def test_an_event_that_changed_on_its_way_is_refused() -> None:
    damaged = bytearray(inserted(1))
    damaged[40] ^= 1
    with pytest.raises(DamagedEvent, match="checksum"):
        assembly().take(bytes(damaged))
    with pytest.raises(DamagedEvent, match="came as"):
        assembly().take(inserted(1)[:-1])


def test_rows_that_end_too_early_are_refused() -> None:
    short = rows(events.WRITE_ROWS_V1, row(1, "tea")[:4])
    (found,) = taken(assembly(), gtid(11), table_map(), short, xid())
    with pytest.raises(BadRow, match=r"shop\.orders"):
        list(found.changes)


def test_a_table_without_the_names_of_its_columns_is_told() -> None:
    nameless = table_map()[20:-4]
    cut = nameless[: nameless.index(b"\x04\x08\x02id")]
    with pytest.raises(MetadataMissing, match="binlog_row_metadata = FULL"):
        assembly().take(packet(events.TABLE_MAP, cut))


CREATED_WITH_ROWS = "CREATE OR REPLACE TABLE `orders` (`id` int NOT NULL)"


def ops_of(transactions: list[Transaction]) -> list[list[str]]:
    return [[one.op for one in found.changes if isinstance(one, Change)] for found in transactions]


def test_rows_that_come_with_the_definition_of_their_table_are_of_its_transaction() -> None:
    made = (gtid(11), query(CREATED_WITH_ROWS), table_map(), inserted(1, 2), xid())
    assert ops_of(taken(assembly(), *made)) == [["t", "c", "c"]]


def test_mysql_says_by_begin_that_more_follows_a_definition() -> None:
    source = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    start = packet(events.MYSQL_GTID, b"\x00" + bytes.fromhex(source.replace("-", "")) + bytes(25))
    rows_follow = (start, query("BEGIN"), query(CREATED_WITH_ROWS), table_map(), inserted(1), xid())
    alone = (start, query("TRUNCATE orders"))
    assert ops_of(taken(assembly(f"{source}:1"), *rows_follow, *alone)) == [["t", "c"], ["t"]]
