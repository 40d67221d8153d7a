from dataclasses import dataclass

import pytest

from millstream.capture.change import CapturedTable, Transaction
from millstream.capture.load.plan import (
    CHUNK_BYTES,
    FIRST_CHUNK_ROWS_MAX,
    KeyRange,
    LoadStateUnreadable,
    Phase,
    TableLoad,
    chunk_rows,
    load_from_json,
    load_to_json,
)

ORDERS = CapturedTable(name="orders", topic="shop.orders", columns=(), key=("id",))
HALVES = [(None, '["m"]'), ('["m"]', None)]


@dataclass(frozen=True)
class ChunkUpTo:
    last_key: str | None
    rows: tuple[tuple[bytes, bytes], ...] = ((b"k", b"v"),)
    closes_at: str = "0/2A"
    table: CapturedTable = ORDERS

    def sees(self, transaction: Transaction) -> bool:
        return True


def test_a_load_goes_on_after_the_last_key_that_went_out() -> None:
    load = TableLoad.begun([0]).split(HALVES, 10).after_chunk(0, ChunkUpTo('["c"]'))
    assert load.ranges == (
        KeyRange(after='["c"]', until='["m"]'),
        KeyRange(after='["m"]', until=None),
    )
    assert (load.rows, load.position, load.phase) == (1, "0/2A", Phase.READING)


@pytest.mark.parametrize(("ends", "phase"), [([0, 0], Phase.DONE), ([0, 7], Phase.SWEEPING)])
def test_a_topic_that_was_not_empty_is_swept_when_all_ranges_are_read(
    ends: list[int], phase: Phase
) -> None:
    load = TableLoad.begun(ends).split(HALVES, 10).after_chunk(1, ChunkUpTo(None))
    assert load.phase is Phase.READING
    assert load.after_chunk(0, ChunkUpTo(None)).phase is phase


def test_a_truncate_has_all_that_was_written_before_it_swept() -> None:
    loading = TableLoad.begun([3]).split(HALVES, 10)
    assert loading.truncated([8]).phase is Phase.READING
    assert loading.truncated([8]).ends == (8,)
    swept = loading.done().truncated([9])
    assert (swept.phase, swept.ends) == (Phase.SWEEPING, (9,))


def test_a_state_survives_its_json() -> None:
    load = TableLoad.begun([3, 0]).split(HALVES, 10).after_chunk(0, ChunkUpTo('["ü\\n\\"c"]'))
    assert load_from_json("orders", load_to_json(load)) == load
    assert load_from_json("orders", load_to_json(TableLoad())) == TableLoad()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"phase":"flying"}', "null"])
def test_a_state_that_is_none_names_the_table_and_the_way_out(text: str) -> None:
    with pytest.raises(LoadStateUnreadable, match=r"load of orders .* capture reload"):
        load_from_json("orders", text)


def test_chunks_have_as_many_rows_as_fit() -> None:
    assert chunk_rows(10_000, rows_read=0, bytes_read=0) == FIRST_CHUNK_ROWS_MAX
    assert chunk_rows(10_000, rows_read=1_000, bytes_read=50_000) == 10_000
    assert chunk_rows(10_000, rows_read=10, bytes_read=10 * (CHUNK_BYTES // 4)) == 4
    assert chunk_rows(10_000, rows_read=1, bytes_read=100 * CHUNK_BYTES) == 1
    assert chunk_rows(10_000, rows_read=5, bytes_read=0) == 10_000
