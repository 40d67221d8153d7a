"""Envelopes are JSON that says what changed, where, and in which transaction."""

import json
from typing import Any

import pytest

from millstream._version import __version__
from millstream.capture.change import Change, Message, Transaction
from millstream.capture.envelope import (
    TRUNCATED_KEY,
    Envelope,
    Place,
    begin_of,
    end_of,
    facts_at,
    has_tombstone,
    key_of,
    place_of,
    value_of,
)
from tests.support.scripted_source import created, deleted, table_of, truncated, updated

ORDERS = table_of("orders")
WITHOUT_KEY = table_of("visits", key=())
TRANSACTION = Transaction(
    commit="1/2A",
    resume="1/2B",
    id="731",
    at_ms=1_760_000_000_000,
    changes=(),
    facts=b',"lsn":4294967338',
)
ENVELOPE = Envelope(capture="shop", kind="postgresql", database="shopdb")


def decoded(change: Change, *, seq: int = 0, transaction: Transaction = TRANSACTION) -> Any:
    place = place_of(transaction, read_ms=1_760_000_000_123)
    return json.loads(value_of(change, ENVELOPE.source_of(change.table), place, seq))


def test_a_created_row_is_told_with_its_place_in_the_log() -> None:
    assert decoded(created(ORDERS, {"id": 1, "item": "Käse"}), seq=3) == {
        "before": None,
        "after": {"id": 1, "item": "Käse"},
        "source": {
            "version": __version__,
            "connector": "postgresql",
            "name": "shop",
            "db": "shopdb",
            "schema": "public",
            "table": "orders",
            "schema_version": 1,
            "ts_ms": 1_760_000_000_000,
            "txId": "731",
            "commit": "1/2A",
            "lsn": (1 << 32) + 0x2A,
            "seq": 3,
        },
        "op": "c",
        "ts_ms": 1_760_000_000_123,
    }


def test_a_row_is_passed_on_byte_by_byte() -> None:
    odd = b'{"id": 1, "amount":"1e400","text":"\\u0000"}'
    change = Change(ORDERS, "u", b'{"id":1}', odd, odd)
    place = place_of(TRANSACTION, read_ms=1)
    value = value_of(change, ENVELOPE.source_of(ORDERS), place, 0)
    assert value.count(odd) == 2


def test_columns_that_the_database_did_not_send_are_named() -> None:
    change = updated(ORDERS, {"id": 1}, unavailable=("item", 'a "quoted" one'))
    assert decoded(change)["unavailable"] == ["item", 'a "quoted" one']
    assert "unavailable" not in decoded(updated(ORDERS, {"id": 1}))


def test_a_delete_has_a_tombstone_behind_it() -> None:
    change = deleted(ORDERS, {"id": 2})
    assert decoded(change)["after"] is None
    assert decoded(change)["before"] == {"id": 2}
    assert has_tombstone(change)
    assert not has_tombstone(created(ORDERS, {"id": 2}))


def test_without_a_key_there_is_nothing_to_forget() -> None:
    assert not has_tombstone(Change(WITHOUT_KEY, "d", None, b"{}", None))


def test_a_truncate_has_a_key_where_a_topic_must_have_keys() -> None:
    assert key_of(truncated(ORDERS)) == TRUNCATED_KEY
    assert key_of(truncated(WITHOUT_KEY)) is None
    assert decoded(truncated(ORDERS))["op"] == "t"


@pytest.mark.parametrize("commit", ["0-1-77", "mysql-bin.000001:4", "100 %d of it", "x/y"])
def test_a_position_of_another_database_is_text_and_no_lsn(commit: str) -> None:
    transaction = Transaction(commit=commit, resume=commit, id='x"y', at_ms=5, changes=())
    source = decoded(created(ORDERS, {"id": 1}), transaction=transaction)["source"]
    assert source["commit"] == commit
    assert source["txId"] == 'x"y'
    assert facts_at(commit) == b""


def test_a_position_of_postgresql_has_its_number() -> None:
    assert facts_at("1/2A") == b',"lsn":%d' % ((1 << 32) + 0x2A)


def test_a_loaded_row_belongs_to_no_transaction() -> None:
    place = Place("0/10", at_ms=7, read_ms=8)
    change = Change(ORDERS, "r", b'{"id":1}', None, b'{"id":1}')
    found = json.loads(value_of(change, ENVELOPE.source_of(ORDERS), place, 4))
    assert (found["op"], found["source"]["txId"], found["source"]["seq"]) == ("r", None, 4)


def test_a_message_is_kept_byte_by_byte() -> None:
    key, value = ENVELOPE.message(
        Message("audit", b"\x00\xff"), place_of(TRANSACTION, read_ms=1), 9
    )
    found = json.loads(value or b"")
    assert json.loads(key or b"") == {"prefix": "audit"}
    assert found["message"] == {"prefix": "audit", "content": "AP8="}
    assert (found["op"], found["source"]["seq"], found["source"]["commit"]) == ("m", 9, "1/2A")


def test_boundaries_name_the_transaction_and_count_its_changes() -> None:
    key, begin = begin_of(TRANSACTION)
    end_key, end = end_of(TRANSACTION, {"public.orders": 2, "public.customers": 1})
    assert json.loads(key or b"") == json.loads(end_key or b"") == {"id": "731:1/2A"}
    assert json.loads(begin or b"")["status"] == "BEGIN"
    assert json.loads(end or b"") == {
        "status": "END",
        "id": "731:1/2A",
        "event_count": 3,
        "data_collections": [
            {"data_collection": "public.orders", "event_count": 2},
            {"data_collection": "public.customers", "event_count": 1},
        ],
        "ts_ms": 1_760_000_000_000,
        "commit": "1/2A",
    }
