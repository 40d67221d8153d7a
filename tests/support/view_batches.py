"""A process that writes batch after batch into a view, to be killed at any moment.

    python -m tests.support.view_batches delta /tmp/lake

Prints each batch's number once it is written. A new one goes on where the last one ended.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa

from millstream.base.ports import BatchReceipt
from millstream.schemas.arrow_types import schema_to_arrow
from millstream.schemas.declaration import schema_of
from millstream.views.store import Home, StoreChoice, ViewStore
from millstream.views.stores.delta.store import Delta
from millstream.views.stores.parquet.store import Parquet
from millstream.views.stores.search.store import SearchIndex

COLUMNS = "id INT, n BIGINT, name STRING, _change STRING"
KEYS = 200
BATCHES_MAX = 100_000

Change = tuple[int, int | None, str | None, str]


def open_view(kind: str, path: Path) -> ViewStore:
    choices: dict[str, StoreChoice] = {
        "delta": Delta(path / "lake"),
        "parquet": Parquet(path / "lake"),
        "search": SearchIndex(text=["name"]),
    }
    return choices[kind].open("numbers", ("id",), Home(app="shop", data=path))


def changes_of(batch: int) -> list[Change]:
    """The same each time; some rows come, some go."""
    random = Random(batch)
    found: list[Change] = []
    for key in random.sample(range(KEYS), 20):
        if random.random() < 0.3:
            found.append((key, None, None, "delete"))
        else:
            found.append((key, batch, f"name {batch}", "upsert"))
    return found


def rows_after(batches: int) -> dict[int, tuple[int | None, str | None]]:
    rows: dict[int, tuple[int | None, str | None]] = {}
    for batch in range(batches):
        for key, n, name, change in changes_of(batch):
            rows.pop(key, None)
            if change == "upsert":
                rows[key] = (n, name)
    return rows


def batches_in(store: ViewStore) -> int:
    (one,) = store.generations()
    return 0 if one.batch is None else one.batch + 1


def write_batches(store: ViewStore) -> Iterator[int]:
    writer = store.writer(1)
    epoch = writer.claim("numbers", schema_of(COLUMNS))
    schema = schema_to_arrow(schema_of(COLUMNS))
    for batch in range(batches_in(store), BATCHES_MAX):
        receipt = BatchReceipt(
            job="numbers", epoch=epoch, query="a", batch=batch, positions={"t": {0: batch}}
        )
        found = [dict(zip(schema.names, row, strict=True)) for row in changes_of(batch)]
        writer.write(receipt, pa.Table.from_pylist(found, schema))
        yield batch


if __name__ == "__main__":
    for written in write_batches(open_view(sys.argv[1], Path(sys.argv[2]))):
        print(written, flush=True)
