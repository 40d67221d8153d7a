"""Random batches into Parquet files come to what a dictionary would hold, whatever the files."""

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.schemas.declaration import schema_of
from millstream.views.stores.parquet import merge as parquet_merge
from millstream.views.stores.parquet.store import ParquetStore
from tests.contracts.view_store_contract import receipt, rows
from tests.support.memory_directory import memory_directory

DDL = "a INT, b STRING, n INT, _change STRING"

a_key = st.tuples(st.one_of(st.none(), st.integers(-3, 12)), st.sampled_from(["x", "y", "", "Ä"]))
a_batch = st.dictionaries(a_key, st.one_of(st.none(), st.integers(0, 9)), max_size=12)


@settings(deadline=None, max_examples=25)
@given(st.lists(a_batch, max_size=8), st.integers(1, 6))
def test_files_hold_what_a_dictionary_would(batches: list[Any], file_rows: int) -> None:
    with (
        memory_directory() as path,
        patch.object(parquet_merge, "FILE_ROWS_MAX", file_rows),
        patch.object(parquet_merge, "SMALL_ROWS", 2),
        patch.object(parquet_merge, "SMALL_FILES_MAX", 3),
    ):
        write_and_compare(ParquetStore(path, view="v", key=("a", "b")), batches)


def write_and_compare(store: ParquetStore, batches: list[Any]) -> None:
    writer, reader = store.writer(1), store.reader()
    writer.claim("counts", schema_of(DDL))
    model: dict[Any, int] = {}
    for number, batch in enumerate(batches):
        found = [(*key, n, "delete" if n is None else "upsert") for key, n in batch.items()]
        writer.write(receipt(epoch=1, batch=number), rows(DDL, *found))
        model = {key: n for key, n in (model | batch).items() if n is not None}
        assert {(row["a"], row["b"]): row["n"] for row in reader.scan()} == model
        assert reader.count() == len(model)
