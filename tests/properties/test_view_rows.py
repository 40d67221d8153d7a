"""A view keeps any row of any schema, and finds it by its key: against a dict of Python's."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.ports import BatchReceipt
from millstream.base.schema import Field, Scalar, Schema, Struct
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from tests.support.schema_strategies import rows, schemas

KEY = "_id"  # few values, so that rows meet


def keyed(schema: Schema) -> Schema:
    own = tuple(field for field in schema if field.name.lower() != KEY)
    return Struct((*own, Field(KEY, Scalar.INT)))


def batches_of(schema: Schema) -> st.SearchStrategy[list[list[dict[str, Any]]]]:
    row = st.tuples(rows(schema), st.integers(0, 3)).map(lambda pair: pair[0] | {KEY: pair[1]})
    return st.lists(st.lists(row, max_size=4), min_size=1, max_size=3)


SCHEMAS_WITH_BATCHES = (
    schemas(elements_nullable=True)
    .map(keyed)
    .flatmap(lambda schema: st.tuples(st.just(schema), batches_of(schema)))
)


def write_all(path: Path, schema: Schema, batches: list[list[dict[str, Any]]]) -> None:
    store = SqliteView(path, view="rows", key=[KEY])
    epoch = store.claim("rows", schema)
    for number, batch in enumerate(batches):
        receipt = BatchReceipt(job="rows", epoch=epoch, query="a", batch=number)
        table = pa.Table.from_pylist(batch, nullable_arrow_schema(schema))
        assert store.write(receipt, table)
        assert not store.write(receipt, table)
    store.close()


@settings(max_examples=30, deadline=None)
@given(SCHEMAS_WITH_BATCHES)
def test_a_view_is_the_last_row_of_each_key(
    case: tuple[Schema, list[list[dict[str, Any]]]],
) -> None:
    schema, batches = case
    last = {row[KEY]: row for batch in batches for row in batch}
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.sqlite"
        write_all(path, schema, batches)
        with ViewReader(path, view="rows") as reader:
            assert {row[KEY]: row for row in reader.scan()} == last
            assert reader.get_many(list(range(4))) == [last.get(key) for key in range(4)]


@settings(max_examples=30, deadline=None)
@given(SCHEMAS_WITH_BATCHES.filter(lambda case: any(case[1])))
def test_any_columns_without_maps_can_be_the_key(
    case: tuple[Schema, list[list[dict[str, Any]]]],
) -> None:
    schema, batches = case
    written = [row for batch in batches for row in batch]
    key = [field.name for field in schema if "MAP<" not in str(field.type)]
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteView(Path(directory) / "rows.sqlite", view="rows", key=key)
        epoch = store.claim("rows", schema)
        receipt = BatchReceipt(job="rows", epoch=epoch, query="a", batch=0)
        store.write(receipt, pa.Table.from_pylist(written, nullable_arrow_schema(schema)))
        store.close()
        with ViewReader(store.path, view="rows") as reader:
            for row in written:
                found = reader.get({name: row[name] for name in key})
                assert found is not None
                assert all(same(found[name], row[name]) for name in key)


def same(found: Any, written: Any) -> bool:
    """A struct in a key that is null is one of nulls."""
    if written is None and isinstance(found, dict):
        return all(same(part, None) for part in found.values())
    if isinstance(written, dict) and isinstance(found, dict):
        return all(same(found[name], written[name]) for name in written)
    return bool(found == written)
